"""Add tokens to a tokenizer after its own tokens: write the new file, embeddings and card."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from llmcurate.base.disk.units import counted, either
from llmcurate.base.errors import UsageError
from tokenize_kit.card import Card
from tokenize_kit.change.original import (
    Key,
    Original,
    algorithm_name,
    describe_file,
    file_with_added,
    ids_of,
    keys_of,
    open_tokenizer,
    write_changed,
)
from tokenize_kit.change.verify import Texts, pack_texts
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.formats.forms import NORMAL, SPACE, ByteBpe, CannotHold, Pieces
from tokenize_kit.formats.json_forms import NEVER, escapes_spaces, renew_runs
from tokenize_kit.formats.sentencepiece_model import add_pieces, read_form
from tokenize_kit.formats.tokenizer_json import to_letters
from tokenize_kit.lab.embeddings import (
    Blend,
    ExtendedEmbeddings,
    focus,
    new_rows,
    read_tables,
    write_extended,
)

INITS = ("mean", "focus")


def check_init(init: str, texts: Texts | None) -> None:
    """Raise LlmcurateError for an unknown name of `init`, and for `focus` if there are no texts."""
    if init not in INITS:
        raise UsageError(f"init {init!r}: choose {either(INITS)}")
    if init == "focus" and texts is None:
        raise UsageError("init focus: it learns from texts, so give a corpus")


@dataclass(frozen=True)
class Addition:
    """New tokens in order of their ids, spelled as in the tokenizer's file. parts: for each token,
    the old ids that spelled its text; merges: the new merges of a BPE, which come after the old
    ones; scores: the scores of a Unigram's new pieces."""

    tokens: list[Any]  # bytes of a byte-level BPE, else str
    parts: list[list[int]]
    merges: list[tuple[Any, Any]] | None = None
    scores: list[float] | None = None

    def shown(self) -> list[str]:
        return [
            token.decode("utf-8", "backslashreplace") if isinstance(token, bytes) else token
            for token in self.tokens
        ]


@dataclass(frozen=True)
class Rows:
    """Embeddings to extend along with a tokenizer, in a safetensors file or a folder of such files.
    tensors: the names of the tensors, if not the usual ones; init: how a new token's row is made:
    `mean` (the average of the rows of the old ids that spelled the token) or `focus`
    (embeddings.focus, learned from `texts`)."""

    path: Path
    tensors: tuple[str, ...] = ()
    init: str = "mean"
    texts: Texts | None = None

    def __post_init__(self) -> None:
        check_init(self.init, self.texts)


@dataclass(frozen=True, kw_only=True)
class GrownCard(Card):
    """The card of a tokenizer with new tokens."""

    extended_from: str
    source_sha256: str
    algorithm: str
    file: str
    vocab: int
    special_tokens: dict[str, int]
    end_of_text: str | None
    tokenizer_sha256: str
    old_tokens: int
    new_tokens: int
    first_new_id: int
    new_merges: int | None
    examples: list[str]
    embeddings: ExtendedEmbeddings | None = None

    def origin(self) -> str:
        return (
            f"A tokenizer of {counted(self.old_tokens, 'token')} with {self.new_tokens:,} new"
            " tokens; all old ids are unchanged."
        )


class Growth:
    """A tokenizer to extend, and its embeddings if they are to be extended too."""

    def __init__(self, original: Original, rows: Rows | None = None) -> None:
        self.original, self.rows = original, rows
        self.tables = read_tables(rows.path, rows.tensors, original.size) if rows else []

    def write(self, addition: Addition, out: Path) -> tuple[Path, GrownCard]:
        """Write all files except the card to `out`. Return the path of the tokenizer's file and the
        card, which the caller completes."""
        original, size = self.original, self.original.size
        data = file_with_tokens(original, addition)
        file = write_changed(original, out, data)
        embeddings = None
        if self.rows:
            blends = self._blends(addition, file)
            embeddings = write_extended(self.tables, out, size, blends, self.rows.init)
        facts = describe_file(original.form, file, data)
        return file, GrownCard(
            extended_from=original.path.name,
            source_sha256=original.sha256,
            algorithm=algorithm_name(original.form),
            **facts._replace(vocab=size + len(addition.tokens))._asdict(),
            old_tokens=size,
            new_tokens=len(addition.tokens),
            first_new_id=size,
            new_merges=None if addition.merges is None else len(addition.merges),
            examples=addition.shown()[:20],
            embeddings=embeddings,
        )

    def _blends(self, addition: Addition, file: Path) -> list[Blend]:
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
    """Return the bytes of the tokenizer's file with the new tokens after the old tokens."""
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
    # An id is an index in the vocabulary: move added tokens that come after it into it.
    vocab += [[text, NEVER] for text, _, _ in form.pieces[len(vocab) :]]
    if len(vocab) != len(form.pieces):
        raise CannotHold(f"{original.path}: cannot be extended: its ids have gaps")
    escaped = escapes_spaces(parts)
    vocab += [[t if escaped else t.replace(SPACE, " "), s] for t, s in new]
    text = json.dumps(renew_runs(parts))
    return Tokenizer.from_str(text).to_str(pretty=True).encode()


class Transplant:
    """Builds tables of embeddings for the tokens of another tokenizer. A token that both tokenizers
    have keeps its row. Ordinary tokens are matched by their text (byte fallback tokens match the
    bytes of a byte-level BPE), special tokens by their spelling, the token that ends a text by its
    role. `init` says how the rows of all other tokens are made: `mean` takes the mean of the rows
    of the old tokens that spell the text; `focus` takes weighted means of the kept rows, with
    weights learned from `texts` (for tokens that do not occur in `texts`, the same as `mean`)."""

    def __init__(
        self, old: Path, new: Path, init: str = "mean", texts: Texts | None = None
    ) -> None:
        check_init(init, texts)
        self.init = init
        before, after = open_tokenizer(old), open_tokenizer(new)
        self.old_size, self.size = before.size, after.size
        old_ids = ids_of(before)
        shared: list[tuple[int, int]] = []
        unmatched: dict[int, Key] = {}
        for number, keys in sorted(keys_of(after).items()):
            same_key = next((key for key in keys if key in old_ids), None)
            if same_key is None:
                unmatched[number] = keys[-1]
            else:
                shared.append((number, old_ids[same_key]))
        self.known, self.kept = np.array(shared, np.int64).reshape(-1, 2).T
        self.new = np.array(list(unmatched), np.int64)
        parts = _parts(before, old_ids, list(unmatched.values()))
        self.blends: list[Blend] = [(ids, None) for ids in parts]
        if init == "focus" and texts is not None:
            blends = focus(after.encode, self.size, texts, self.new, self.known)
            place = {n: k for k, n in enumerate(self.new.tolist())}
            for number, (positions, weights) in blends.items():
                self.blends[place[number]] = self.kept[positions], weights

    def rows(self, table: np.ndarray) -> np.ndarray:
        """Return float32[size, width], a table for the new tokenizer. `table` is float32[rows,
        width], the table of the old tokens. An id without a token gets the mean of the old rows."""
        stored = table[: self.old_size]
        out = np.tile(stored.mean(0, dtype=np.float64).astype(np.float32), (self.size, 1))
        out[self.known] = stored[self.kept]
        if len(self.new):
            out[self.new] = new_rows(stored, self.blends)
        return out

    def describe(self) -> dict[str, int | str]:
        return {
            "old_tokens": self.old_size,
            "new_tokens": self.size,
            "common_tokens": len(self.known),
            "init": self.init,
            "focused": sum(weights is not None for _, weights in self.blends),
        }


def _parts(before: Original, ids: dict[Key, int], keys: list[Key]) -> list[np.ndarray]:
    """Return, for each new token, the old ids that spell the token: int64[]. keys: the new tokens'
    texts. The old ids are those that the old tokenizer encodes the text to or, if the text is an
    incomplete character, those of the text's bytes. If a text has no such ids, all ordinary ids of
    the old tokenizer are returned for it."""
    ordinary = np.array([n for key, n in ids.items() if isinstance(key, bytes)], np.int64)
    decoded = [key.decode("utf-8", "replace") if isinstance(key, bytes) else "" for key in keys]
    texts = ["" if "\ufffd" in text else text for text in decoded]
    numbers, sizes = before.encode(*pack_texts(texts))
    encoded = np.split(numbers.astype(np.int64), np.cumsum(sizes))[:-1]
    parts = []
    for key, part in zip(keys, encoded, strict=True):
        if not len(part) and isinstance(key, bytes):
            part = np.array([ids[bytes([b])] for b in key if bytes([b]) in ids], np.int64)
        parts.append(part if len(part) else ordinary)
    return parts
