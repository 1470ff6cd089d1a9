"""Tokens put behind those of a tokenizer: its file, its embeddings, its card."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from llmcurate.base.disk.atomic import write_atomic
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import either
from tokenize_kit.change.embeddings import Blend, read_tables, write_extended
from tokenize_kit.change.focus import focus
from tokenize_kit.change.original import (
    Original,
    algorithm_name,
    describe_file,
    end_token,
    file_with_added,
    write_beside,
)
from tokenize_kit.change.verify import Texts
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.formats.forms import NORMAL, SPACE, ByteBpe, CannotHold, Pieces
from tokenize_kit.formats.json_forms import NEVER, escapes_spaces, renew_runs
from tokenize_kit.formats.sentencepiece_model import add_pieces, read_form
from tokenize_kit.formats.tokenizer_json import to_letters

INITS = ("mean", "focus", "random")


def check_init(init: str, texts: Texts | None) -> None:
    """Raises LlmcurateError for the name of none, and for focus without texts."""
    if init not in INITS:
        raise UsageError(f"init {init!r}: choose {either(INITS)}")
    if init == "focus" and texts is None:
        raise UsageError("init focus: learns from texts: give some")


@dataclass(frozen=True)
class Addition:
    """New tokens in order of their ids, as the tokenizer's form spells them; parts: the old ids
    that each was.

    merges: of BPE, behind the old ones; scores: of Unigram, one for each token.
    """

    tokens: list[Any]  # bytes of a byte-level BPE, else str
    parts: list[list[int]]
    merges: list[tuple[Any, Any]] | None = None
    scores: list[float] | None = None

    def shown(self) -> list[str]:
        """The tokens as texts."""
        return [
            token.decode("utf-8", "backslashreplace") if isinstance(token, bytes) else token
            for token in self.tokens
        ]


@dataclass(frozen=True)
class Rows:
    """The embeddings that grow with a tokenizer.

    path: a safetensors file or a folder of them; tensors: their names where they are not the usual
    ones; init, seed: how a new row begins, as the mean of a token's old parts, as focus.py has it,
    or as embeddings.new_rows draws it; texts: what focus learns from.
    """

    path: Path
    tensors: tuple[str, ...] = ()
    init: str = "mean"
    seed: int = 0
    texts: Texts | None = None

    def __post_init__(self) -> None:
        check_init(self.init, self.texts)


class Growth:
    """A tokenizer that is to have more tokens, and the embeddings that grow with it."""

    def __init__(self, original: Original, rows: Rows | None = None) -> None:
        self.original, self.rows = original, rows
        self.tables = read_tables(rows.path, rows.tensors, original.size) if rows else []

    def write(self, addition: Addition, out: Path) -> tuple[Path, dict[str, Any]]:
        """Writes all files but the card into a folder; (the tokenizer's file, the beginning of its
        card)."""
        original, size = self.original, self.original.size
        data = file_with_tokens(original, addition)
        out.mkdir(parents=True, exist_ok=True)
        file = out / original.file_name
        write_atomic(file, data)
        about: dict[str, Any] = {}
        if self.rows:
            about["embeddings"] = write_extended(
                self.tables, out, size, self._blends(addition, file), self.rows.init, self.rows.seed
            )
        if original.parts is not None:
            write_beside(original, out, Tokenizer.from_file(str(file)), end_token(original.form))
        return file, {
            "extended_from": original.path.name,
            "source_sha256": original.sha256,
            "algorithm": algorithm_name(original.form),
            **describe_file(original.form, file, data),
            "vocab": size + len(addition.tokens),
            "old_tokens": size,
            "new_tokens": len(addition.tokens),
            "first_new_id": size,
            "new_merges": None if addition.merges is None else len(addition.merges),
            "examples": addition.shown()[:20],
            **about,
        }

    def _blends(self, addition: Addition, file: Path) -> list[Blend]:
        """Of each new token what its row is made of."""
        blends: list[Blend] = [(ids, None) for ids in addition.parts]
        if self.rows and self.rows.init == "focus" and self.rows.texts:
            size = self.original.size
            new, known = np.arange(size, size + len(blends)), np.arange(size)
            encode = open_vocabulary(file).encode
            for number, blend in focus(
                encode, size + len(blends), self.rows.texts, new, known
            ).items():
                blends[number - size] = blend
        return blends


def file_with_tokens(original: Original, addition: Addition) -> bytes:
    """The tokenizer's file with new tokens behind the old ones."""
    form, new = original.form, addition.tokens
    if isinstance(form, Pieces):
        return _with_pieces(original, form, list(zip(new, addition.scores or (), strict=True)))
    merges = addition.merges or []
    if original.parts is None:
        pieces = read_form(original.raw).pieces
        last = min((score for _, score, kind in pieces if kind == NORMAL), default=0.0)
        return add_pieces(original.raw, [(text, last - 1 - k) for k, text in enumerate(new)])
    spell = to_letters if isinstance(form, ByteBpe) else str
    parts = copy.deepcopy(original.parts)
    parts["model"]["vocab"] |= {spell(token): form.size + k for k, token in enumerate(new)}
    parts["model"]["merges"] += [[spell(left), spell(right)] for left, right in merges]
    return file_with_added(parts, form.added)


def _with_pieces(original: Original, form: Pieces, new: list[tuple[str, float]]) -> bytes:
    if original.parts is None:
        return add_pieces(original.raw, new)
    parts = copy.deepcopy(original.parts)
    vocab = parts["model"]["vocab"]
    # Ids are positions: added tokens that stand behind the vocabulary take theirs in it.
    vocab += [[text, NEVER] for text, _, _ in form.pieces[len(vocab) :]]
    if len(vocab) != len(form.pieces):
        raise CannotHold(f"{original.path}: cannot be extended: its ids have gaps")
    escaped = escapes_spaces(parts)
    vocab += [[t if escaped else t.replace(SPACE, " "), s] for t, s in new]
    text = json.dumps(renew_runs(parts))
    return Tokenizer.from_str(text).to_str(pretty=True).encode()
