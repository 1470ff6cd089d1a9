"""Candidates: tokenizers of several kinds that answer the same questions.

A tokenizer.json is run by our encoder or by `tokenizers`, a .model by ours or by `sentencepiece`,
tiktoken's ranks by ours.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tokenizers import Tokenizer

from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.kernels import njit
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.parts import Settle, whole_alone
from tokenize_kit.encode.spm import SpmEncoder
from tokenize_kit.encode.vocabulary import open_ranks
from tokenize_kit.files import read_file
from tokenize_kit.formats.forms import NORMAL
from tokenize_kit.formats.sentencepiece_model import read_model
from tokenize_kit.formats.tokenizer_json import (
    from_letters,
    load_tokenizer,
    panicked,
    special_ids,
    to_letters,
)

# SentencePiece's serialized SentencePieceText has the spans of tokens, in bytes of the text
# (sentencepiece.proto, fields `pieces`, `begin`, `end`). All versions write that message; the
# wrappers that read it differ between versions, or need protobuf.

_PIECES, _BEGIN, _END = 2, 4, 5
_NUMBER, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # wire types


@njit(nogil=True)
def _varint(data, at):
    """(value, position behind it); the position is -1 where the message ends within it."""
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
    """The position behind a field's value; -1 for a value that is none."""
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
    """int64[pieces, 2]: first byte and the one behind the last; message: uint8[].

    A row of -1 ends what a message of another form gives.
    """
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


class Ranks:
    """A file of tiktoken's ranks, encoded by our kernels.

    tokens: as byte-level vocabularies spell them. pattern: the name of a published one."""

    engine: str = "llmcurate"
    unknown: int | None = None

    def __init__(self, file: Path, path: Path, pattern: str | None) -> None:
        self.path, self._pattern = str(path), str(pattern)
        vocabulary, ranks = open_ranks(file, pattern)
        self._encode, self.settle = vocabulary.encode, vocabulary.settle
        self._bytes = {rank: token for token, rank in ranks.items()}
        self._bytes |= {index: name.encode() for name, index in vocabulary.special.items()}
        self.special = frozenset(vocabulary.special.values())
        self.tokens = {rank: to_letters(token) for token, rank in ranks.items()}
        self.tokens |= {index: name for name, index in vocabulary.special.items()}
        self.byte_ids: frozenset[int] = frozenset()
        self._lengths = np.zeros(vocabulary.size, np.int64)
        for rank, token in self._bytes.items():
            self._lengths[rank] = len(token)

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._encode(data, offsets)

    def spans(
        self, data: np.ndarray, offsets: np.ndarray, ids: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        ends = np.cumsum(self._lengths[ids]) + offsets[0]
        return ends - self._lengths[ids], ends

    def settings(self) -> dict[str, str]:
        return {"model.type": "ranks", "pattern": self._pattern}

    def order(self) -> tuple[str, dict[int, float]]:
        ranks = enumerate(sorted(self._bytes.keys() - self.special))
        return "merges", {n: rank for rank, n in ranks if self._lengths[n] > 1}

    def decode(self, ids: list[int]) -> str:
        return b"".join(self._bytes.get(number, b"") for number in ids).decode("utf-8", "replace")


Buffers = tuple[np.ndarray, np.ndarray]
_KINDS = {1: "Unigram", 2: "BPE", 3: "word", 4: "char"}  # of SentencePiece's models
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_ROWS = 256  # texts given to a library at once


class Candidate(Protocol):
    """A tokenizer to compare. Special tokens never come out of text."""

    path: str
    engine: str  # what encodes: llmcurate, tokenizers, sentencepiece
    tokens: dict[int, str]  # every id, and how the vocabulary spells it
    special: frozenset[int]
    unknown: int | None
    byte_ids: frozenset[int]  # those of a single byte that a missing character is spelled in
    settle: Settle

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ids: uint32[], how many of each row: int64[rows]) of valid UTF-8."""
        ...

    def spans(
        self, data: np.ndarray, offsets: np.ndarray, ids: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(starts, ends): int64[tokens] in `data`, where each token of `encode` comes from."""
        ...

    def decode(self, ids: list[int]) -> str:
        """The text of ids."""
        ...

    def settings(self) -> dict[str, str]:
        """How text is prepared and cut, and what kind of model it is: settings by name."""
        ...

    def order(self) -> tuple[str, dict[int, float]]:
        """(`merges`, the rank of the merge that makes a token, by id), or (`scores`, a token's
        score), or (`none`, nothing)."""
        ...


def open_candidate(path: Path, pattern: str | None = None) -> Candidate:
    """A tokenizer.json or its folder (one with a tokenizer.model alone will do), a SentencePiece
    .model, or tiktoken's ranks, which are cut by the pattern of that name; raises LlmcurateError
    naming the file."""
    file = path
    if path.is_dir():
        both = [path / "tokenizer.json", path / "tokenizer.model"]
        file = next((f for f in both if f.is_file()), both[0])
    candidate: Candidate
    if file.suffix == ".tiktoken":
        return Ranks(file, path, pattern)
    if file.suffix == ".model":
        candidate = SentencePiece(file, path)
    else:
        candidate = Json(load_tokenizer(file), path)
    if not candidate.tokens:
        raise UsageError(f"{file}: a tokenizer without tokens")
    return candidate


def texts_of(data: np.ndarray, offsets: np.ndarray) -> list[str]:
    """The rows as strings."""
    return [data[a:z].tobytes().decode("utf-8") for a, z in pairwise(offsets.tolist())]


def _in_bytes(
    data: np.ndarray, offsets: np.ndarray, spans: list[list[tuple[int, int]]]
) -> tuple[np.ndarray, np.ndarray]:
    """Spans in characters of each row as (starts, ends) in bytes of `data`."""
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
    """A tokenizer.json."""

    def __init__(self, tokenizer: Tokenizer, path: Path) -> None:
        self.path = str(path)
        self._tokenizer = tokenizer
        vocab = self._tokenizer.get_vocab(with_added_tokens=True)
        self._encoder = Encoder(self._tokenizer)
        self.settle: Settle = self._encoder.settle
        self.engine = "tokenizers" if self._encoder.reason else "llmcurate"
        self.tokens = {number: token for token, number in vocab.items()}
        self.special = frozenset(special_ids(self._tokenizer).values())
        model = json.loads(self._tokenizer.to_str())["model"]
        self.unknown = _unknown(model, vocab)
        falls_back = model.get("byte_fallback")
        self.byte_ids = frozenset(n for t, n in vocab.items() if falls_back and _BYTE.fullmatch(t))
        plan = self._encoder.plan
        self._lengths = self._byte_lengths() if plan and not plan.form else None

    def _byte_lengths(self) -> np.ndarray:
        """int64[ids]: bytes of each token of a byte-level vocabulary."""
        added = {n: t.content for n, t in self._tokenizer.get_added_tokens_decoder().items()}
        lengths = np.zeros(max(self.tokens, default=0) + 1, np.int64)
        for number, token in self.tokens.items():
            try:
                size = len(token.encode() if number in added else from_letters(token))
            except KeyError:
                size = 0  # not of bytes: no text gives it
            lengths[number] = size
        return lengths

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._encoder.encode(data, offsets)

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

    def settings(self) -> dict[str, str]:
        parts = json.loads(self._tokenizer.to_str())
        parts["model"] = {k: v for k, v in parts["model"].items() if k not in ("vocab", "merges")}
        for name in ("version", "added_tokens"):
            del parts[name]
        return dict(_flat("", parts))

    def order(self) -> tuple[str, dict[int, float]]:
        model = json.loads(self._tokenizer.to_str())["model"]
        if model["type"] == "Unigram":
            return "scores", {n: score for n, (_, score) in enumerate(model["vocab"])}
        ranks: dict[int, float] = {}
        for rank, pair in enumerate(model.get("merges") or ()):
            parts = pair.split(" ") if isinstance(pair, str) else pair
            ranks.setdefault(model["vocab"]["".join(parts)], rank)
        return ("merges", ranks) if ranks else ("none", {})

    def decode(self, ids: list[int]) -> str:
        try:
            return self._tokenizer.decode(ids, skip_special_tokens=False)
        except BaseException as error:  # the library raises bare Exception, and panics
            if not (isinstance(error, Exception) or panicked(error)):
                raise
            reason = " ".join(str(error).split())[:200]
            raise RunFailed(f"{self.path}: cannot decode its ids: {reason}") from None


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """(name, value) of all that a JSON value holds, names with dots between; null is left out."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}" if name else key, inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _flat(f"{name}.{number}", inner)
    elif value is not None:
        yield name, value if isinstance(value, str) else json.dumps(value)


def _unknown(model: dict[str, Any], vocab: dict[str, int]) -> int | None:
    if model.get("type") == "Unigram":
        return model.get("unk_id")
    return vocab.get(model.get("unk_token") or "")


class SentencePiece:
    """A SentencePiece model file, of any of its kinds."""

    unknown: int | None

    def __init__(self, file: Path, path: Path) -> None:
        import sentencepiece

        self.path = str(path)
        if not file.is_file():
            raise UsageError(f"{file}: no such SentencePiece model")
        self._model = sentencepiece.SentencePieceProcessor()
        try:
            raw = read_file(file)
            self._model.LoadFromSerializedProto(raw)
            size = self._model.get_piece_size()
            self.tokens = {n: self._model.id_to_piece(n) for n in range(size)}
        except Exception as error:  # the library raises RuntimeError and its own
            why = str(error).splitlines()[-1] if str(error) else type(error).__name__
            raise UsageError(f"{file}: not a SentencePiece model ({why})") from None
        self.special = frozenset(n for n in range(size) if self._model.is_control(n))
        self.byte_ids = frozenset(n for n in range(size) if self._model.is_byte(n))
        self.unknown = self._model.unk_id()
        self._encoder = SpmEncoder(raw, self._model)
        self.settle: Settle = whole_alone
        self.engine = "sentencepiece" if self._encoder.reason else "llmcurate"

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._encoder.encode(data, offsets)

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
            raise RunFailed(f"{self.path}: SentencePiece gives no spans of its tokens; report this")
        return positions[:, 0], positions[:, 1]

    def settings(self) -> dict[str, str]:
        model = read_model(self._model.serialized_model_proto())
        charsmap = hashlib.sha256(model.charsmap).hexdigest()[:8] if model.charsmap else "none"
        return {
            "model.type": _KINDS[model.kind],
            "model.byte_fallback": json.dumps(model.byte_fallback),
            "normalizer.precompiled_charsmap": charsmap,
            "normalizer.add_dummy_prefix": json.dumps(model.add_dummy_prefix),
            "normalizer.remove_extra_whitespaces": json.dumps(model.remove_extra_whitespaces),
        }

    def order(self) -> tuple[str, dict[int, float]]:
        pieces = read_model(self._model.serialized_model_proto()).pieces
        scores = {n: piece.score for n, piece in enumerate(pieces) if piece.kind == NORMAL}
        if self.settings()["model.type"] != "BPE":
            return "scores", scores
        learned = sorted((n for n in scores if len(self.tokens[n]) > 1), key=lambda n: -scores[n])
        return "merges", {n: rank for rank, n in enumerate(learned)}

    def decode(self, ids: list[int]) -> str:
        return self._model.decode(ids)
