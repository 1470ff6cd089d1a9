"""Read, edit and write SentencePiece's model files without the protobuf library.

sentencepiece_model.proto: ModelProto has `pieces` (field 1: piece, score, type), `trainer_spec` (2)
and `normalizer_spec` (3). When pieces are replaced, all other fields are kept byte for byte. The
wire format is described in protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from tokenize_kit.formats.forms import MOST_TOKENS, NORMAL, SPACE, UNKNOWN, CannotHold, Pieces

NUMBER, EIGHT, BYTES, FOUR = 0, 1, 2, 5  # wire types


class NotAModel(ValueError):
    """Raised if the bytes are not a valid message; the text of the error names the position."""


def fields(raw: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield (field number, wire type, value) for each field of a message. The value is an int,
    bytes or a float; values of eight bytes are given as bytes."""
    position = 0
    while position < len(raw):
        tag, position = _read_varint(raw, position)
        wire = tag & 7
        value: Any
        if wire == NUMBER:
            value, position = _read_varint(raw, position)
        elif wire == BYTES:
            size, position = _read_varint(raw, position)
            value, position = raw[position : position + size], position + size
        elif wire == FOUR:
            value, position = raw[position : position + 4], position + 4
        elif wire == EIGHT:
            value, position = raw[position : position + 8], position + 8
        else:
            raise NotAModel(f"a field of an unknown type at byte {position}")
        if position > len(raw):
            raise NotAModel("it ends within a field")
        if wire == FOUR:
            value = struct.unpack("<f", value)[0]
        yield tag >> 3, wire, value


def _read_varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(raw) and shift < 70:
        byte = raw[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    raise NotAModel(f"a number without an end at byte {position}")


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def signed(value: int) -> int:
    """Return the int32 that was read as an unsigned integer of 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def field_bytes(field: int, value: int | float | bytes) -> bytes:
    """Return the bytes of a field: an integer, a four-byte float, a string or a message."""
    if isinstance(value, bytes):
        return _varint(field << 3 | BYTES) + _varint(len(value)) + value
    if isinstance(value, float):
        return _varint(field << 3 | FOUR) + struct.pack("<f", value)
    return _varint(field << 3 | NUMBER) + _varint(value)


UNIGRAM, BPE = 1, 2  # TrainerSpec.ModelType
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3


def read_model(raw: bytes) -> Pieces:
    """Return the model in a file's bytes, without roles. Raises NotAModel."""
    pieces = []
    trainer: dict[int, int] = {}
    normalizer: dict[int, Any] = {}
    for field, wire, value in fields(raw):
        if field == _PIECES and wire == BYTES:
            pieces.append(_piece(value))
        elif field == _TRAINER and wire == BYTES:  # repeated messages are merged
            trainer |= {n: setting for n, kind, setting in fields(value) if kind == NUMBER}
        elif field == _NORMALIZER and wire == BYTES:
            wires = {2: BYTES, 3: NUMBER, 4: NUMBER, 5: NUMBER}
            normalizer |= {n: setting for n, kind, setting in fields(value) if wires.get(n) == kind}
    if not pieces:
        raise NotAModel("it has no pieces")
    kind = trainer.get(3, UNIGRAM)
    return Pieces(
        "unigram" if kind == UNIGRAM else "bpe" if kind == BPE else "other",
        tuple(pieces),
        charsmap=normalizer.get(2, b""),
        prefix=bool(normalizer.get(3, 1)),
        squeeze=bool(normalizer.get(4, 1)),
        byte_fallback=bool(trainer.get(35, 0)),
        suffix=bool(trainer.get(24, 0)),
        escaped=bool(normalizer.get(5, 1)),
    )


def pieces_of(model: Pieces, kinds: tuple[int, ...]) -> dict[str, int]:
    """Return {text: id} of the pieces of the given kinds, with U+2581 replaced by a space. Pieces
    that contain a space are left out, since normalized text never has one."""
    return {
        text.replace(SPACE, " "): k
        for k, (text, _, kind) in enumerate(model.pieces)
        if kind in kinds and " " not in text
    }


def piece_message(text: str, score: float, kind: int) -> bytes:
    """Return a piece as the bytes of a protobuf message."""
    body = field_bytes(1, text.encode()) + field_bytes(2, float(score))
    return body if kind == NORMAL else body + field_bytes(3, kind)


def _piece(raw: bytes) -> tuple[str, float, int]:
    values = {number: value for number, _, value in fields(raw)}
    text, score, kind = values.get(1, b""), values.get(2, 0.0), values.get(3, NORMAL)
    if not isinstance(text, bytes) or not isinstance(score, float) or kind not in range(1, 7):
        raise NotAModel("a piece of another form")
    try:
        return text.decode("utf-8"), score, kind
    except UnicodeDecodeError:
        raise NotAModel("a piece that is not UTF-8") from None


def read_form(raw: bytes) -> Pieces:
    """Return a model file's bytes as Pieces, without roles. Raises ValueError for invalid files and
    CannotHold for features that no other format has: word models, character models, and spaces at
    the ends of words."""
    model = read_model(raw)
    if len(model.pieces) > MOST_TOKENS:
        raise ValueError(f"more than {MOST_TOKENS:,} pieces")
    if not any(kind == UNKNOWN for _, _, kind in model.pieces):
        raise ValueError("it has no unknown piece")
    if model.kind == "other":
        raise CannotHold("it is a SentencePiece model of whole words or characters")
    if model.suffix:
        raise CannotHold("it puts spaces at the ends of words (treat_whitespace_as_suffix)")
    if not model.escaped:
        raise CannotHold("it does not escape spaces (escape_whitespaces)")
    return model


def write_form(model: Pieces) -> bytes:
    """Return the bytes of a model file."""
    out = [field_bytes(_PIECES, piece_message(*piece)) for piece in model.pieces]
    kind = UNIGRAM if model.kind == "unigram" else BPE
    named = {41: model.roles.begin, 42: model.roles.end, 43: model.roles.pad}
    names = {40: model.unknown} | {n: -1 if k is None else k for n, k in named.items()}
    trainer = {3: kind, 4: len(model.pieces), 35: int(model.byte_fallback), **names}
    texts = {40: 45, 41: 46, 42: 47, 43: 48}  # field of an id: field of its token's spelling
    spec = b"".join(field_bytes(number, value) for number, value in sorted(trainer.items()))
    for number, value in names.items():
        if 0 <= value < len(model.pieces):
            spec += field_bytes(texts[number], model.pieces[value][0].encode())
    out.append(field_bytes(_TRAINER, spec))
    rules = field_bytes(1, b"user_defined" if model.charsmap else b"identity")
    rules += field_bytes(2, model.charsmap) if model.charsmap else b""
    rules += (
        field_bytes(3, int(model.prefix)) + field_bytes(4, int(model.squeeze)) + field_bytes(5, 1)
    )
    out.append(field_bytes(_NORMALIZER, rules))
    return b"".join(out)


def add_pieces(raw: bytes, more: list[tuple[str, float]]) -> bytes:
    """Return a model file's bytes with normal pieces added at the end. The vocabulary size is
    updated; all other fields are kept."""
    new = [piece_message(text, score, NORMAL) for text, score in more]
    return _edited(raw, lambda pieces: [*pieces, *new], {})


def keep_pieces(raw: bytes, kept: list[int]) -> bytes:
    """Return a model file's bytes with the given pieces only, in this order. The vocabulary size
    and special ids are updated; all other fields are kept."""
    new = {old: number for number, old in enumerate(kept)}
    return _edited(raw, lambda pieces: [pieces[old] for old in kept], new)


def _edited(raw: bytes, edit: Callable[[list[Any]], list[Any]], new: dict[int, int]) -> bytes:
    pieces = edit([value for number, _, value in fields(raw) if number == _PIECES])
    out = [field_bytes(_PIECES, piece) for piece in pieces]
    for number, _, value in fields(raw):
        if number == _TRAINER and isinstance(value, bytes):
            spec = {field: setting for field, _, setting in fields(value)}
            value += field_bytes(4, len(pieces))  # the last of equal fields counts
            for field in (40, 41, 42, 43):
                if (old := signed(spec.get(field, -1))) in new:
                    value += field_bytes(field, new[old])
        if number != _PIECES:
            out.append(field_bytes(number, value))
    return b"".join(out)
