"""Extending a tokenizer with tokens of a corpus; old ids stay as they are."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from tokenize_kit.card.figures import Sample, measure
from tokenize_kit.card.page import write_card
from tokenize_kit.change.bpe import CharBpe, learn_byte_tokens, learn_character_tokens, pieces_of
from tokenize_kit.change.embeddings import read_tables, write_extended
from tokenize_kit.change.original import (
    Original,
    algorithm_name,
    describe_file,
    end_token,
    file_with_added,
    open_tokenizer,
    write_beside,
)
from tokenize_kit.change.verify import Buffers, Encode, pack_texts
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.errors import TokenizerError, counted
from tokenize_kit.files import write_atomic
from tokenize_kit.formats.forms import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE,
    USER_DEFINED,
    ByteBpe,
    CannotHold,
    Pieces,
)
from tokenize_kit.formats.json_forms import NEVER, escapes_spaces, renew_runs
from tokenize_kit.formats.sentencepiece_model import add_pieces, read_form
from tokenize_kit.formats.tokenizer_json import to_letters
from tokenize_kit.learn.study import MOST_HELD, HeldOut

_UNKNOWN = 10.0  # unigram_model.cc: an unknown character costs so much more than the rarest piece
_ABOVE = 1 / 64  # a new piece is better than its old parts by so much
_LEAST = 2_000  # pieces that are trained at least: the fewer, the worse the choice


class Segments:
    """The best way through a text by the pieces of a Unigram model."""

    def __init__(self, form: Pieces) -> None:
        self.form = form
        self.scores = {
            text: (score, number)
            for number, (text, score, kind) in enumerate(form.pieces)
            if kind in (NORMAL, USER_DEFINED)
        }
        self.longest = max(map(len, self.scores), default=1)
        least = min((score for score, _ in self.scores.values()), default=0.0)
        self.unknown = least - _UNKNOWN
        self.bytes = {
            int(text[3:5], 16): number
            for number, (text, _, kind) in enumerate(form.pieces)
            if kind == BYTE
        }

    def best(self, text: str) -> tuple[float, list[int]]:
        """(sum of scores, ids) of a text as the model sees it, a space as U+2581."""
        scores = [0.0] + [float("-inf")] * len(text)
        back: list[tuple[int, list[int]]] = [(0, [])] * (len(text) + 1)
        for a in range(len(text)):
            for z in range(a + 1, min(a + self.longest, len(text)) + 1):
                if (piece := self.scores.get(text[a:z])) and scores[a] + piece[0] > scores[z]:
                    scores[z] = scores[a] + piece[0]
                    back[z] = (a, [piece[1]])
            if text[a] not in self.scores and scores[a] + self.unknown > scores[a + 1]:
                scores[a + 1] = scores[a] + self.unknown
                back[a + 1] = (a, self._missing(text[a]))
        ids: list[int] = []
        at = len(text)
        while at:
            at, piece_ids = back[at]
            ids = piece_ids + ids
        return scores[-1], ids

    def _missing(self, character: str) -> list[int]:
        if len(self.bytes) < 256:
            return [self.form.unknown]
        return [self.bytes[byte] for byte in character.encode()]


def learn_pieces(
    form: Pieces, texts: Iterable[str], tokens: int
) -> list[tuple[str, float, list[int]]]:
    """New pieces, likeliest first: (text, score, the old ids of its parts).

    texts: normalised as the model does. A Unigram is trained on them; of its pieces those that the
    old one lacks are taken, with their score there, or a little more than that of their old parts
    together, whichever is more: so each is used where it stands alone. Where there are no bytes to
    fall back to, a piece's characters come before it.
    """
    from tokenize_kit.learn.char_bpe import choose_characters
    from tokenize_kit.learn.unigram_pieces import OwnLearner

    learner = OwnLearner((text, 1) for text in texts)
    if not learner.characters:
        raise TokenizerError("the corpus holds no text to learn from: give documents with text")
    room = max(_LEAST, 2 * tokens + len(learner.characters) // 2)
    kept, _ = choose_characters(learner.characters, room)
    learned = learner.learn(sorted(kept), "", [], room)
    segments = Segments(form)
    special = {text for text, _, kind in form.pieces if kind == CONTROL}
    new = []
    for spelled, score in learned:
        text = spelled.replace(" ", SPACE)
        usable = text not in special
        if form.squeeze and SPACE in text.lstrip(SPACE):
            usable = False
        if form.squeeze and text.startswith(SPACE * 2):
            usable = False  # such runs do not come up
        if usable and text not in form.numbers:
            old, ids = segments.best(text)
            # Whole 1/64, as in training: their sums are exact in float32.
            new.append((text, round(max(score, old + _ABOVE) * 64) / 64, ids))
    return new[:tokens] if form.byte_fallback else _with_characters(form, new, tokens)


def _with_characters(
    form: Pieces, new: list[tuple[str, float, list[int]]], tokens: int
) -> list[tuple[str, float, list[int]]]:
    """So many new pieces, each behind the characters that it has and the model had not: without
    bytes to fall back to, these would be unknown where they stand alone."""
    by_text = {piece[0]: piece for piece in new}
    chosen: dict[str, tuple[str, float, list[int]]] = {}
    for piece in new:
        characters = [c for c in dict.fromkeys(piece[0]) if c in by_text and c not in chosen]
        group = dict.fromkeys([*characters, piece[0]])
        if len(chosen) + len(group) <= tokens:
            chosen |= {text: by_text[text] for text in group}
    return list(chosen.values())


INITS = ("mean", "random")


@dataclass(frozen=True)
class _Extension:
    """data: the new file; parts: the old ids of every new token; shown: the new tokens."""

    data: bytes
    parts: list[list[int]]
    shown: list[str]
    merges: int | None = None


def extend(
    path: Path,
    batches: Iterable[Buffers],
    out: Path,
    tokens: int,
    *,
    least: int = 2,
    embeddings: Path | None = None,
    tensors: tuple[str, ...] = (),
    init: str = "mean",
    seed: int = 0,
) -> dict[str, Any]:
    """Adds up to `tokens` tokens that are learned from texts; writes a folder, returns its card.

    BPE: merges behind the old ones (bpe.py). Unigram: pieces that it lacks (`learn_pieces`). New
    ids begin behind the highest old one, special tokens included; no special token is added. A
    tenth of the texts, by hash, is not learned from but measured. least: occurrences of a pair that
    is merged; embeddings: a safetensors file or folder whose tables get rows (embeddings.extended),
    tensors: their names where they are not the usual ones.
    """
    if tokens < 1:
        raise TokenizerError(f"add {tokens}: give a number from 1", exit_code=2)
    if init not in INITS:
        raise TokenizerError(f"init {init!r}: choose {' or '.join(INITS)}", exit_code=2)
    original = open_tokenizer(path)
    size = _size(original)
    tables = read_tables(embeddings, tensors, size) if embeddings else []
    held = _Division(original)
    if isinstance(original.form, ByteBpe):
        extension = _extend_bpe(original, original.form, held.split(batches), tokens, least)
    elif isinstance(original.form, CharBpe):
        extension = _extend_char_bpe(original, original.form, held.split(batches), tokens, least)
    else:
        extension = _extend_unigram(original, original.form, held.split(batches), tokens)
    if not extension.parts:
        raise TokenizerError("the corpus gives no new token: give more text, or another corpus")
    out.mkdir(parents=True, exist_ok=True)
    about: dict[str, Any] = {}
    if tables:
        about["embeddings"] = write_extended(tables, out, size, extension.parts, init, seed)
    file = out / ("tokenizer.model" if original.parts is None else "tokenizer.json")
    write_atomic(file, extension.data)
    if original.parts is not None:
        write_beside(original, out, Tokenizer.from_file(str(file)), end_token(original.form))
    notes = list(held.notes)
    if len(extension.parts) < tokens:
        notes.append(
            f"{counted(len(extension.parts), 'token')} instead of {tokens}: the corpus has no more"
        )
    card = {
        "extended_from": original.path.name,
        "source_sha256": original.sha256,
        "algorithm": algorithm_name(original.form),
        **describe_file(original.form, file, extension.data),
        "vocab": size + len(extension.parts),
        "old_tokens": size,
        "new_tokens": len(extension.parts),
        "first_new_id": size,
        "new_merges": extension.merges,
        "least": least if extension.merges is not None else None,
        "documents": held.learned,
        "examples": extension.shown[:20],
        **held.measured(original.encode, open_vocabulary(file).encode),
        "measured": measure(file, *held.sample()),
        **about,
        "notes": notes,
    }
    write_card(out / "tokenizer_card.json", card)
    return card


def _size(original: Original) -> int:
    """The highest id and one, added tokens included."""
    if isinstance(original.form, ByteBpe | CharBpe):
        return original.form.size
    return len(original.form.pieces)


class _Division:
    """The texts that are learned from and those that are measured; where none are held out, those
    that were learned from are measured."""

    def __init__(self, original: Original) -> None:
        self._held = HeldOut()
        self._learned: list[bytes] = []
        self._learned_bytes = 0
        self._prepared = original.prepared
        form = original.form
        self._unknown = form.unknown if isinstance(form, Pieces | CharBpe) else None

    @property
    def learned(self) -> int:
        """The number of texts that were learned from."""
        return self._held.learned or len(self._learned)

    def split(self, batches: Iterable[Buffers]) -> Iterator[str]:
        """The texts to learn from, prepared as the tokenizer does."""
        for data, offsets in batches:
            for a, z in pairwise(offsets.tolist()):
                raw = data[a:z].tobytes()
                if raw and not self._held.keep(raw):
                    if self._learned_bytes + len(raw) <= MOST_HELD:
                        self._learned_bytes += len(raw)
                        self._learned.append(raw)
                    yield self._text(raw)
        if not self._held.learned:  # few texts, or the same one again and again
            self._learned, self._held.texts = self._held.texts, []
            yield from map(self._text, self._learned)

    def _text(self, raw: bytes) -> str:
        text = raw.decode("utf-8")
        return self._prepared(text) if self._prepared else text

    @property
    def notes(self) -> list[str]:
        """Notes of the card on the measured texts."""
        note = "measured on the texts that were learned from: too few to hold some out"
        return [] if self._held.texts else [note]

    def sample(self) -> tuple[Sample, str]:
        """Some of the measured texts, and what they are."""
        sample = Sample()
        for raw in self._held.texts or self._learned:
            sample.add(raw)
        return sample, "held-out texts" if self._held.texts else "the texts that were learned from"

    def measured(self, before: Encode, after: Encode) -> dict[str, Any]:
        """Bytes a token with the old and the new tokenizer."""
        raw = self._held.texts or self._learned
        data = np.frombuffer(bytearray().join(raw), np.uint8)
        offsets = np.cumsum([0, *map(len, raw)])
        ids_of_both = [encode(data, offsets)[0] for encode in (before, after)]
        tokens = [len(ids) for ids in ids_of_both]
        # One unknown token may swallow a word: bytes a token look better than they are.
        unknown = (
            [int((ids == self._unknown).sum()) for ids in ids_of_both]
            if self._unknown is not None
            else None
        )
        return {
            "measured_texts": len(raw),
            "measured_bytes": len(data),
            "bytes_a_token_before": len(data) / max(tokens[0], 1),
            "bytes_a_token_after": len(data) / max(tokens[1], 1),
            "unknown_before_and_after": unknown,
        }


def _batches(texts: Iterable[str], size: int = 4 << 20) -> Iterator[Buffers]:
    """Texts as buffers of some megabytes."""
    waiting: list[str] = []
    room = size
    for text in texts:
        waiting.append(text)
        room -= len(text)
        if room <= 0:
            yield pack_texts(waiting)
            waiting, room = [], size
    if waiting:
        yield pack_texts(waiting)


def _extend_bpe(
    original: Original, form: ByteBpe, texts: Iterable[str], tokens: int, least: int
) -> _Extension:
    assert original.parts is not None
    plan = original.plan()
    new, merges = learn_byte_tokens(form, plan, _batches(texts), tokens, least)
    parts = copy.deepcopy(original.parts)
    for number, token in enumerate(new, form.size):
        parts["model"]["vocab"][to_letters(token)] = number
    parts["model"]["merges"] += [[to_letters(left), to_letters(right)] for left, right in merges]
    ends = np.cumsum([0, *map(len, new)])
    ids, sizes = pieces_of(plan, np.frombuffer(bytearray().join(new), np.uint8), ends)
    old = [part.tolist() for part in np.split(ids, np.cumsum(sizes)[:-1])] if new else []
    shown = [token.decode("utf-8", "backslashreplace") for token in new]
    return _Extension(file_with_added(parts, form.added), old, shown, len(merges))


def _extend_char_bpe(
    original: Original, form: CharBpe, texts: Iterable[str], tokens: int, least: int
) -> _Extension:
    new, merges, old = learn_character_tokens(form, original.words(), texts, tokens, least)
    if original.parts is None:
        pieces = read_form(original.raw).pieces
        last = min((score for _, score, kind in pieces if kind == NORMAL), default=0.0)
        data = add_pieces(original.raw, [(text, last - 1 - k) for k, text in enumerate(new)])
        return _Extension(data, old, new, len(merges))
    parts = copy.deepcopy(original.parts)
    parts["model"]["vocab"] |= {text: form.size + k for k, text in enumerate(new)}
    parts["model"]["merges"] += [list(pair) for pair in merges]
    return _Extension(file_with_added(parts, form.added), old, new, len(merges))


def _extend_unigram(
    original: Original, form: Pieces, texts: Iterable[str], tokens: int
) -> _Extension:
    pieces = learn_pieces(form, texts, tokens)
    new = [(text, score) for text, score, _ in pieces]
    if original.parts is None:
        data = add_pieces(original.raw, new)
    else:
        parts = copy.deepcopy(original.parts)
        vocab = parts["model"]["vocab"]
        # Ids are positions: added tokens that stand behind the vocabulary take theirs in it.
        vocab += [[text, NEVER] for text, _, _ in form.pieces[len(vocab) :]]
        if len(vocab) != len(form.pieces):
            raise CannotHold(f"{original.path}: cannot be extended: its ids have gaps")
        escaped = escapes_spaces(parts)
        vocab += [[t if escaped else t.replace(SPACE, " "), s] for t, s in new]
        text = json.dumps(renew_runs(parts))
        data = Tokenizer.from_str(text).to_str(pretty=True).encode()
    return _Extension(data, [ids for _, _, ids in pieces], [text for text, _ in new])
