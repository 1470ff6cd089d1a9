"""Candidates: tokenizers of several kinds behind one interface.

A tokenizer.json is run by our encoder or by `tokenizers`, a .model by our encoder or by
`sentencepiece`, and a file of tiktoken's ranks by our encoder.
"""

from __future__ import annotations

import re
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from llmcurate.base.errors import RunFailed
from llmcurate.base.kernels import njit
from llmcurate.base.tokenizer_file import panicked, special_ids
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.parts import Encode, pack
from tokenize_kit.encode.spm import SpmEncoder
from tokenize_kit.encode.vocabulary import open_vocabulary
from tokenize_kit.formats.forms import file_of
from tokenize_kit.formats.tiktoken import is_ranks
from tokenize_kit.formats.tokenizer_json import (
    from_letters,
    parts_of,
    to_letters,
)
from tokenize_kit.pattern.categories import SCRIPTS, scripts

# SentencePiece's serialized SentencePieceText has the spans of tokens, in bytes of the text
# (sentencepiece.proto, fields `pieces`, `begin`, `end`). All versions write this message; the
# wrappers that read it differ between versions or need protobuf.

_PIECES, _BEGIN, _END = 2, 4, 5
_NUMBER, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # wire types


@njit(nogil=True)
def _varint(data, at):
    value, shift = np.int64(0), np.int64(0)
    while at < len(data) and shift < 63:
        byte = np.int64(data[at])
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at
    return np.int64(0), -1


@njit(nogil=True)
def _skip(data, at, wire):
    if wire == _NUMBER:
        return _varint(data, at)[1]
    if wire == _EIGHT:
        return at + 8
    if wire == _FOUR:
        return at + 4
    if wire == _BYTES:
        size, at = _varint(data, at)
        return at + size if at >= 0 else -1
    return -1


@njit(cache=True, nogil=True)
def piece_spans(message):
    """Find the pieces in SentencePiece's output. Return int64[pieces, 2]: the positions of each
    piece's first byte and of the byte after its last. In an invalid message the last row is -1."""
    positions = np.empty((len(message) // 2 + 1, 2), np.int64)
    count = 0
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        if at >= 0 and tag == (_PIECES << 3 | _BYTES):
            size, at = _varint(message, at)
            end = at + size
            begin, stop = np.int64(0), np.int64(0)
            while 0 <= at < end:
                tag, at = _varint(message, at)
                if at < 0:
                    break
                if tag == (_BEGIN << 3 | _NUMBER):
                    begin, at = _varint(message, at)
                elif tag == (_END << 3 | _NUMBER):
                    stop, at = _varint(message, at)
                else:
                    at = _skip(message, at, tag & 7)
            positions[count] = begin, stop
            count += 1
        elif at >= 0:
            at = _skip(message, at, tag & 7)
        if at < 0 or at > len(message):
            positions[count - 1 if count else 0] = -1, -1
            return positions[: max(count, 1)]
    return positions[:count]


Buffers = tuple[np.ndarray, np.ndarray]
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_ROWS = 256  # texts per call of a library


class Candidate(Protocol):
    """A tokenizer to compare. Special tokens are never encoded from text."""

    path: str
    engine: str  # the encoder: llmcurate, tokenizers or sentencepiece
    tokens: dict[int, str]  # id to the vocabulary's spelling
    special: frozenset[int]
    unknown: int | None
    byte_ids: frozenset[int]  # ids of byte fallback, one byte each

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (ids: uint32[], number of ids per row: int64[rows]) of valid UTF-8."""
        ...

    def spans(
        self, data: np.ndarray, offsets: np.ndarray, ids: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (starts, ends): int64[tokens], the span in `data` of each token from `encode`."""
        ...

    def decode(self, ids: list[int]) -> str: ...

    def count_unknown(self, data: np.ndarray, ids: np.ndarray) -> int:
        """See Encoder.count_unknown."""
        ...


def open_candidate(path: Path, pattern: str | None = None) -> Candidate:
    """Open a tokenizer.json or tekken.json, a SentencePiece .model, a .tiktoken file, or a folder
    with one of these. pattern: the name of the pattern for .tiktoken. Raises LlmcurateError."""
    file = file_of(path)
    encoder = open_vocabulary(file, pattern if is_ranks(file) else None).encoder
    return Json(encoder, path) if isinstance(encoder, Encoder) else SentencePiece(encoder, path)


def texts_of(data: np.ndarray, offsets: np.ndarray) -> list[str]:
    return [data[a:z].tobytes().decode("utf-8") for a, z in pairwise(offsets.tolist())]


def _in_bytes(
    data: np.ndarray, offsets: np.ndarray, spans: list[list[tuple[int, int]]]
) -> tuple[np.ndarray, np.ndarray]:
    starts, ends = [], []
    for (a, z), row in zip(pairwise(offsets.tolist()), spans, strict=True):
        heads = np.flatnonzero((data[a:z] & 0xC0) != 0x80)
        positions = np.append(heads, z - a) + a
        characters = np.array(row, np.int64).reshape(-1, 2).clip(0, len(heads))
        starts.append(positions[characters[:, 0]])
        ends.append(positions[characters[:, 1]])
    none = np.empty(0, np.int64)
    return np.concatenate([none, *starts]), np.concatenate([none, *ends])


class Json:
    """A candidate with a tokenizer.json."""

    def __init__(self, encoder: Encoder, path: Path) -> None:
        self.path, self._tokenizer = str(path), encoder.tokenizer
        self.encode: Encode = encoder.encode
        self.count_unknown = encoder.count_unknown
        self.engine = "tokenizers" if encoder.reason else "llmcurate"
        vocab = self._tokenizer.get_vocab(with_added_tokens=True)
        self.tokens = {number: token for token, number in vocab.items()}
        self.special = frozenset(special_ids(self._tokenizer).values())
        parts = parts_of(self._tokenizer)
        model = parts["model"]
        self.unknown = encoder.unknown
        falls_back = model.get("byte_fallback")
        self.byte_ids = frozenset(n for t, n in vocab.items() if falls_back and _BYTE.fullmatch(t))
        plan = encoder.plan
        self._lengths = self._byte_lengths() if plan and not plan.form else None

    def _byte_lengths(self) -> np.ndarray:
        added = {n: t.content for n, t in self._tokenizer.get_added_tokens_decoder().items()}
        lengths = np.zeros(max(self.tokens, default=0) + 1, np.int64)
        for number, token in self.tokens.items():
            try:
                size = len(token.encode() if number in added else from_letters(token))
            except KeyError:
                size = 0  # not spelled in bytes, so no text gives it
            lengths[number] = size
        return lengths

    def spans(
        self, data: np.ndarray, offsets: np.ndarray, ids: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        if self._lengths is not None:  # byte-level tokens lie one after another
            ends = np.cumsum(self._lengths[ids]) + offsets[0]
            return ends - self._lengths[ids], ends
        spans = []
        for first in range(0, len(offsets) - 1, _ROWS):
            texts = texts_of(data, offsets[first : first + _ROWS + 1])
            encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
            spans += [encoding.offsets for encoding in encodings]
        return _in_bytes(data, offsets, spans)

    def decode(self, ids: list[int]) -> str:
        if not ids:
            return ""  # some decoders of the library panic
        try:
            return self._tokenizer.decode(ids, skip_special_tokens=False)
        except BaseException as error:  # the library raises bare Exception, and panics
            if not (isinstance(error, Exception) or panicked(error)):
                raise
            reason = " ".join(str(error).split())[:200]
            raise RunFailed(f"{self.path}: cannot decode its ids: {reason}") from None


class SentencePiece:
    """A candidate with a SentencePiece model file of any kind."""

    unknown: int | None

    def __init__(self, encoder: SpmEncoder, path: Path) -> None:
        self.path, self._model = str(path), encoder.library
        self.encode: Encode = encoder.encode
        self.count_unknown = encoder.count_unknown
        self.engine = "sentencepiece" if encoder.reason else "llmcurate"
        self.tokens = {n: self._model.id_to_piece(n) for n in range(self._model.get_piece_size())}
        self.special = frozenset(filter(self._model.is_control, self.tokens))
        self.byte_ids = frozenset(filter(self._model.is_byte, self.tokens))
        self.unknown = self._model.unk_id()

    def spans(
        self, data: np.ndarray, offsets: np.ndarray, ids: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        parts = [np.empty((0, 2), np.int64)]
        for text, start in zip(texts_of(data, offsets), offsets.tolist(), strict=False):
            message = self._model.encode(text, out_type="serialized_proto")
            of_text = piece_spans(np.frombuffer(message, np.uint8))
            parts.append(np.where(of_text < 0, of_text, of_text + start))
        positions = np.concatenate(parts)
        if len(positions) != len(ids) or (len(positions) and positions.min() < 0):
            raise RunFailed(
                f"{self.path}: SentencePiece gives no spans for its tokens; please report this"
            )
        return positions[:, 0], positions[:, 1]

    def decode(self, ids: list[int]) -> str:
        return self._model.decode(ids)


# A token is unreachable if encoding its text does not give the token (Land and Bartolo 2024,
# "Fishing for Magikarp", section 3.1). Neighbours may matter, so its text is tried alone, after
# short texts and before a rare character; a token found in any of these contexts is reachable.

LONGEST = 10  # tokens listed
SAMPLES = 20  # unreachable tokens listed
# The texts before and after a token that is tried.
_AROUND = (("«", ""), ("", ""), ("\n", ""), ("x", ""), ("q", ""), ("1", ""), ("«", "\U0001f0a1"))
_BAD = "\ufffd"
_BADS = (_BAD, to_letters(_BAD.encode()))


@dataclass
class Vocabulary:
    """The tokens of a candidate, without special ones. texts: {id: the token's text in the middle
    of a longer text}; parts: ids of tokens that spell incomplete characters; unreachable: tokens
    that do not occur when their own text is encoded: {id: the ids of the encoded text}."""

    texts: dict[int, str] = field(default_factory=dict)
    parts: frozenset[int] = frozenset()
    unreachable: dict[int, list[int]] = field(default_factory=dict)

    def dump(self, seen: Container[int] = ()) -> dict[str, Any]:
        """Return counts and examples as JSON values. seen: the ids that occurred in encoded texts;
        these tokens do not count as unreachable."""
        unreachable = [n for n in sorted(self.unreachable) if n not in seen]
        whole = {n: text for n, text in self.texts.items() if n not in self.parts}
        longest = sorted(whole, key=lambda n: (-len(whole[n].encode("utf-8", "replace")), n))
        return {
            "parts_of_characters": len(self.parts),
            "white_space": sum(text.isspace() for text in whole.values()),
            "digits": sum(text.strip().isdecimal() for text in whole.values()),
            "longest": [
                {
                    "id": n,
                    "text": whole[n],
                    "bytes": len(whole[n].encode("utf-8", "replace")),
                    "characters": len(whole[n]),
                }
                for n in longest[:LONGEST]
            ],
            "unreachable": len(unreachable),
            "unreachable_examples": [
                {"id": n, "text": self.texts[n], "gives": self.unreachable[n]}
                for n in unreachable[:SAMPLES]
            ],
        }


def examine_vocabulary(candidate: Candidate) -> Vocabulary:
    """Decode and encode every token. Without our own kernels, 100,000 tokens take some seconds."""
    unknown = {candidate.unknown} - {None}
    ordinary = [n for n in sorted(candidate.tokens) if n not in candidate.special | unknown]
    lead = _ids(candidate, [_AROUND[0][0]])[0]
    start = candidate.decode(lead)
    texts: dict[int, str] = {}
    for number in ordinary:
        whole = candidate.decode([*lead, number])
        inside = whole[len(start) :] if whole.startswith(start) else ""
        texts[number] = inside or candidate.decode([number])
    parts = {n for n in ordinary if n in candidate.byte_ids or _is_part(candidate, n, texts[n])}
    return Vocabulary(
        texts, frozenset(parts), _unreachable(candidate, [n for n in ordinary if n not in parts])
    )


def token_bytes(candidate: Candidate, vocabulary: Vocabulary) -> dict[int, bytes]:
    """Return the bytes that each token stands for within a text, by id, without special tokens.
    These bytes do not depend on a vocabulary's spelling, so two vocabularies can be compared."""
    names: dict[int, bytes] = {}
    for number, text in vocabulary.texts.items():
        spelled = candidate.tokens[number]
        if number in candidate.byte_ids:
            names[number] = bytes([int(spelled[1:-1], 16)])
        else:
            names[number] = text.encode("utf-8", "replace")
            if number in vocabulary.parts:
                with suppress(KeyError):  # not spelled in bytes
                    names[number] = from_letters(spelled)
    return names


def _is_part(candidate: Candidate, number: int, text: str) -> bool:
    """Return True if a token has an incomplete character: its decoded `text` has U+FFFD, and its
    spelling in the vocabulary has no real U+FFFD (EF BF BD)."""
    return _BAD in text and not any(spelling in candidate.tokens[number] for spelling in _BADS)


def _unreachable(candidate: Candidate, numbers: list[int]) -> dict[int, list[int]]:
    candidates = numbers
    results: dict[int, list[int]] = {}
    for before, behind in _AROUND:
        lead = _ids(candidate, [before])[0] if before else []
        encoded = _ids(candidate, [candidate.decode([*lead, n]) + behind for n in candidates])
        for number, ids in zip(candidates, encoded, strict=True):
            if not before and not behind:
                results[number] = ids
        candidates = [n for n, ids in zip(candidates, encoded, strict=True) if n not in ids]
    return {n: results[n] for n in candidates}


def _ids(candidate: Candidate, texts: list[str]) -> list[list[int]]:
    raw = [text.encode("utf-8", "replace") for text in texts]
    ids, sizes = candidate.encode(*pack(raw))
    return [part.tolist() for part in np.split(ids, np.cumsum(sizes)[:-1])] if len(texts) else []


# Labels that are not scripts, for tokens without letters, with letters of several scripts, with
# bytes of incomplete characters, and for special and unknown tokens.
COMMON, SEVERAL, PARTS, SPECIAL = "Common", "several scripts", "parts of characters", "special"
LABELS = (*SCRIPTS, SEVERAL, PARTS, SPECIAL)
# Characters of no script: digits, signs and spaces; marks for any letter; unassigned.
_NONE = [SCRIPTS.index(name) for name in ("Common", "Inherited", "Unknown")]


def token_scripts(candidate: Candidate, vocabulary: Vocabulary) -> np.ndarray:
    """Return uint8[ids]: the script of each token, as an index in LABELS; SPECIAL for special
    tokens, the unknown token and unused ids."""
    labels = np.full(max(candidate.tokens) + 1, LABELS.index(SPECIAL), np.uint8)
    numbers = list(vocabulary.texts)
    labels[numbers] = text_scripts(list(vocabulary.texts.values()))
    labels[list(vocabulary.parts)] = LABELS.index(PARTS)
    return labels


def text_scripts(texts: list[str]) -> np.ndarray:
    """Return uint8[texts]: the script of each text's letters, as an index in LABELS."""
    packed = "".join(texts).encode("utf-32-le", "surrogatepass")
    of_character = scripts()[np.frombuffer(packed, np.uint32)]
    of_text = np.repeat(np.arange(len(texts)), list(map(len, texts)))
    is_letter = ~np.isin(of_character, _NONE)
    lowest, highest = np.full(len(texts), len(SCRIPTS)), np.full(len(texts), -1)
    np.minimum.at(lowest, of_text[is_letter], of_character[is_letter])
    np.maximum.at(highest, of_text[is_letter], of_character[is_letter])
    several = np.where(lowest < highest, LABELS.index(SEVERAL), highest)
    return np.where(highest < 0, LABELS.index(COMMON), several).astype(np.uint8)


def by_script(
    candidate: Candidate, labels: np.ndarray, counts: np.ndarray, sizes: np.ndarray
) -> list[dict[str, int | str]]:
    """Return a dict of counts for each script, the script with the most tokens first. Keys: label,
    the script; vocab, the number of its tokens in the vocabulary; used, how many of these occur in
    the texts; tokens, how often they occur; bytes, the bytes of text that they stand for.

    Parameters: labels, the result of token_scripts; counts, sizes: int64[ids], each token's
    occurrences and their bytes."""
    in_vocabulary = np.zeros(len(labels), np.bool_)
    in_vocabulary[list(candidate.tokens)] = True
    columns = {
        "vocab": in_vocabulary,
        "used": in_vocabulary & (counts > 0),
        "tokens": counts,
        "bytes": sizes,
    }
    sums = {
        name: np.bincount(labels, values, len(LABELS)).astype(np.int64)
        for name, values in columns.items()
    }
    present = sorted(np.flatnonzero(sums["vocab"]), key=lambda k: (-sums["vocab"][k], LABELS[k]))
    return [
        {"label": LABELS[k], **{name: int(values[k]) for name, values in sums.items()}}
        for k in present
    ]
