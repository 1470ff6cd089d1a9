"""SentencePiece's model files, read and edited without protobuf.

sentencepiece_model.proto: ModelProto has `pieces` (field 1: piece, score, type), `trainer_spec` (2)
and `normalizer_spec` (3). What is not read is kept, byte for byte, when pieces are replaced.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

# SentencePiece.Type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
# TrainerSpec.ModelType
UNIGRAM, BPE, WORD, CHAR = 1, 2, 3, 4

SPACE = "\u2581"  # how pieces have a space

_NUMBER, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # wire types
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3


class NotAModel(ValueError):
    """The bytes are no model file; says where they stop making sense."""


@dataclass(frozen=True)
class Piece:
    """A row of the vocabulary; its place in the file is its id. score: as float32 has it."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class Model:
    """What a model file says of encoding. charsmap: the precompiled normaliser, or empty."""

    pieces: tuple[Piece, ...]
    kind: int
    byte_fallback: bool
    treat_whitespace_as_suffix: bool
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool


def read_model(raw: bytes) -> Model:
    """The model of a file's bytes; raises NotAModel."""
    pieces = []
    trainer: dict[int, int] = {}
    normalizer: dict[int, Any] = {}
    for field, wire, value in _fields(raw):
        if field == _PIECES and wire == _BYTES:
            pieces.append(_piece(value))
        elif field == _TRAINER and wire == _BYTES:  # a message that stands twice is merged
            trainer |= {n: found for n, kind, found in _fields(value) if kind == _NUMBER}
        elif field == _NORMALIZER and wire == _BYTES:
            wires = {2: _BYTES, 3: _NUMBER, 4: _NUMBER, 5: _NUMBER}
            normalizer |= {n: found for n, kind, found in _fields(value) if wires.get(n) == kind}
    if not pieces:
        raise NotAModel("it has no pieces")
    return Model(
        pieces=tuple(pieces),
        kind=trainer.get(3, UNIGRAM),
        byte_fallback=bool(trainer.get(35, 0)),
        treat_whitespace_as_suffix=bool(trainer.get(24, 0)),
        charsmap=normalizer.get(2, b""),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
        escape_whitespaces=bool(normalizer.get(5, 1)),
    )


def usable(model: Model, kinds: tuple[int, ...]) -> dict[str, int]:
    """Pieces of these kinds, with spaces for U+2581, and their ids; those with a space of their own
    no normalised text holds."""
    return {
        piece.text.replace(SPACE, " "): k
        for k, piece in enumerate(model.pieces)
        if piece.kind in kinds and " " not in piece.text
    }


def with_pieces(raw: bytes, pieces: Sequence[Piece]) -> bytes:
    """The file with these pieces for its own; all else stays as it is."""
    parts = []
    for piece in pieces:
        text = piece.text.encode()
        body = b"\x0a" + _varint(len(text)) + text + b"\x15" + struct.pack("<f", piece.score)
        if piece.kind != NORMAL:
            body += b"\x18" + _varint(piece.kind)
        parts.append(b"\x0a" + _varint(len(body)) + body)
    place = 0
    for field, wire, _, end in _places(raw):
        if field != _PIECES or wire != _BYTES:
            parts.append(raw[place:end])
        place = end
    return b"".join(parts)


def _piece(raw: bytes) -> Piece:
    found = {number: value for number, _, value in _fields(raw)}
    text, score, kind = found.get(1, b""), found.get(2, 0.0), found.get(3, NORMAL)
    if not isinstance(text, bytes) or not isinstance(score, float) or not isinstance(kind, int):
        raise NotAModel("a piece of another form")
    try:
        return Piece(text.decode("utf-8"), score, kind)
    except UnicodeDecodeError:
        raise NotAModel("a piece that is not UTF-8") from None


def _fields(raw: bytes) -> Iterator[tuple[int, int, Any]]:
    """(field, wire type, value): an int, bytes, a float, or bytes for eight-byte values."""
    for field, wire, value, _ in _places(raw):
        yield field, wire, value


def _places(raw: bytes) -> Iterator[tuple[int, int, Any, int]]:
    """Fields as `_fields` gives them, and where each of them ends."""
    place = 0
    while place < len(raw):
        tag, place = _read_varint(raw, place)
        wire = tag & 7
        value: Any
        if wire == _NUMBER:
            value, place = _read_varint(raw, place)
        elif wire == _BYTES:
            size, place = _read_varint(raw, place)
            value, place = raw[place : place + size], place + size
        elif wire == _FOUR:
            value, place = raw[place : place + 4], place + 4
        elif wire == _EIGHT:
            value, place = raw[place : place + 8], place + 8
        else:
            raise NotAModel(f"a field of an unknown kind at byte {place}")
        if place > len(raw):
            raise NotAModel("it ends within a field")
        if wire == _FOUR:
            value = struct.unpack("<f", value)[0]
        yield tag >> 3, wire, value, place


def _read_varint(raw: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(raw) and shift < 70:
        byte = raw[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
    raise NotAModel(f"a number without an end at byte {place}")


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
