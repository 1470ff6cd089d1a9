"""SentencePiece's model files, read and written without its library.

The fields are those of sentencepiece_model.proto (google/sentencepiece): ModelProto has pieces (1),
trainer_spec (2) and normalizer_spec (3).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Literal

from tokenize_kit.change.forms import (
    BYTE,
    MOST_TOKENS,
    NORMAL,
    UNKNOWN,
    CannotHold,
    Pieces,
)

_UNIGRAM, _BPE = 1, 2  # TrainerSpec.ModelType; 3 word, 4 char
_NUMBER, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # wire types
Value = int | bytes | float


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("it ends within a number")
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """(field, value) of a message; ValueError for what is none."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        value: Value
        if wire == _NUMBER:
            value, at = _varint(data, at)
        elif wire in (_BYTES, _FOUR, _EIGHT):
            size = 4 if wire == _FOUR else 8
            if wire == _BYTES:
                size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("it is cut short")
            raw = data[at : at + size]
            value = struct.unpack("<f", raw)[0] if wire == _FOUR else raw
            at += size
        else:
            raise ValueError(f"a field of wire type {wire}")
        yield tag >> 3, value


def _message(raw: Value) -> dict[int, Any]:
    if not isinstance(raw, bytes):
        raise ValueError("a number where a message belongs")
    return dict(_fields(raw))


def _signed(value: int) -> int:
    """An int32 of proto2, which is written as 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def read_model(raw: bytes) -> Pieces:
    """The model of a file's bytes.

    Raises ValueError for what is no model file, CannotHold for kinds and settings that no other
    format has (word and char models, spaces at the ends of words).
    """
    pieces: list[tuple[str, float, int]] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    for number, value in _fields(raw):
        if number == 1:
            piece = _message(value)
            if not isinstance(piece.get(1), bytes):
                raise ValueError(f"piece {len(pieces)} has no text")
            pieces.append((piece[1].decode("utf-8"), piece.get(2, 0.0), piece.get(3, NORMAL)))
            if len(pieces) > MOST_TOKENS:
                raise ValueError(f"more than {MOST_TOKENS:,} pieces")
        elif number == 2:
            trainer = _message(value)
        elif number == 3:
            normalizer = _message(value)
    if not any(kind == UNKNOWN for _, _, kind in pieces):
        raise ValueError("it has no unknown piece")
    kind = trainer.get(3, _UNIGRAM)
    if kind not in (_UNIGRAM, _BPE):
        raise CannotHold("it is a SentencePiece model of whole words or characters")
    if trainer.get(24):
        raise CannotHold("it puts spaces at the ends of words (treat_whitespace_as_suffix)")
    if not normalizer.get(5, 1):
        raise CannotHold("it does not escape spaces (escape_whitespaces)")
    name: Literal["unigram", "bpe"] = "unigram" if kind == _UNIGRAM else "bpe"
    return Pieces(
        name,
        tuple(pieces),
        normalizer.get(2, b""),
        bool(normalizer.get(3, 1)),
        bool(normalizer.get(4, 1)),
        bool(trainer.get(35, any(kind == BYTE for _, _, kind in pieces))),
        _signed(trainer.get(41, 1)),
        _signed(trainer.get(42, 2)),
        _signed(trainer.get(43, -1 & (1 << 64) - 1)),
    )


def _number(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _put(number: int, value: Value) -> bytes:
    if isinstance(value, bytes):
        return _number(number << 3 | _BYTES) + _number(len(value)) + value
    if isinstance(value, float):
        return _number(number << 3 | _FOUR) + struct.pack("<f", value)
    return _number(number << 3 | _NUMBER) + _number(value)


def write_model(model: Pieces) -> bytes:
    """A model file's bytes."""
    out = []
    for text, score, kind in model.pieces:
        piece = _put(1, text.encode()) + _put(2, float(score))
        out.append(_put(1, piece if kind == NORMAL else piece + _put(3, kind)))
    kind = _UNIGRAM if model.kind == "unigram" else _BPE
    names = {40: model.unknown, 41: model.begin, 42: model.end, 43: model.pad}
    trainer = {3: kind, 4: len(model.pieces), 35: int(model.byte_fallback), **names}
    texts = {40: 45, 41: 46, 42: 47, 43: 48}  # field of the id to that of its spelling
    spec = b"".join(_put(number, value) for number, value in sorted(trainer.items()))
    for number, value in names.items():
        if 0 <= value < len(model.pieces):
            spec += _put(texts[number], model.pieces[value][0].encode())
    out.append(_put(2, spec))
    rules = _put(1, b"user_defined" if model.charsmap else b"identity")
    rules += _put(2, model.charsmap) if model.charsmap else b""
    rules += _put(3, int(model.prefix)) + _put(4, int(model.squeeze)) + _put(5, 1)
    out.append(_put(3, rules))
    return b"".join(out)


def add_pieces(raw: bytes, more: list[tuple[str, float]]) -> bytes:
    """A model file's bytes with normal pieces behind its own; all else as it was."""
    pieces: list[bytes] = []
    others: list[bytes] = []
    for number, value in _fields(raw):
        if number == 2 and isinstance(value, bytes):
            size = _message(value).get(4, 0) + len(more)
            value += _put(4, size)  # the last of equal fields counts
        (pieces if number == 1 else others).append(_put(number, value))
    pieces += [_put(1, _put(1, text.encode()) + _put(2, float(score))) for text, score in more]
    return b"".join([*pieces, *others])


def keep_pieces(raw: bytes, kept: list[int]) -> bytes:
    """A model file's bytes with some of its pieces alone, in their order; all else as it was."""
    new = {old: number for number, old in enumerate(kept)}
    pieces: list[bytes] = []
    others: list[bytes] = []
    for number, value in _fields(raw):
        if number == 1:
            pieces.append(_put(1, value))
            continue
        if number == 2 and isinstance(value, bytes):
            spec = _message(value)
            value += _put(4, len(kept))  # the last of equal fields counts
            for field in (40, 41, 42, 43):
                if (old := _signed(spec.get(field, -1))) in new:
                    value += _put(field, new[old])
        others.append(_put(number, value))
    return b"".join([*(pieces[old] for old in kept), *others])
