"""SentencePiece's model files, read and edited without protobuf.

sentencepiece_model.proto: ModelProto has `pieces` (field 1: piece, score, type), `trainer_spec` (2)
and `normalizer_spec` (3). What is not read is kept, byte for byte, when pieces are replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenize_kit.encode.protobuf import BYTES, NUMBER, fields, places, put, signed
from tokenize_kit.encode.protobuf import Malformed as NotAModel

# SentencePiece.Type; llama.cpp's token types are the same numbers.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
# TrainerSpec.ModelType
UNIGRAM, BPE, WORD, CHAR = 1, 2, 3, 4

SPACE = "\u2581"  # how pieces have a space

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3


@dataclass(frozen=True)
class Piece:
    """A row of the vocabulary; its place in the file is its id. score: as float32 has it."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class Model:
    """What a model file says of encoding. charsmap: the precompiled normaliser, or empty;
    begin, end, pad: ids, -1 for none."""

    pieces: tuple[Piece, ...]
    kind: int
    byte_fallback: bool
    treat_whitespace_as_suffix: bool
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool
    begin: int
    end: int
    pad: int


def read_model(raw: bytes) -> Model:
    """The model of a file's bytes; raises NotAModel."""
    pieces = []
    trainer: dict[int, int] = {}
    normalizer: dict[int, Any] = {}
    for field, wire, value in fields(raw):
        if field == _PIECES and wire == BYTES:
            pieces.append(_piece(value))
        elif field == _TRAINER and wire == BYTES:  # a message that stands twice is merged
            trainer |= {n: found for n, kind, found in fields(value) if kind == NUMBER}
        elif field == _NORMALIZER and wire == BYTES:
            wires = {2: BYTES, 3: NUMBER, 4: NUMBER, 5: NUMBER}
            normalizer |= {n: found for n, kind, found in fields(value) if wires.get(n) == kind}
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
        begin=signed(trainer.get(41, 1)),
        end=signed(trainer.get(42, 2)),
        pad=signed(trainer.get(43, -1)),
    )


def usable(model: Model, kinds: tuple[int, ...]) -> dict[str, int]:
    """Pieces of these kinds, with spaces for U+2581, and their ids; those with a space of their own
    no normalised text holds."""
    return {
        piece.text.replace(SPACE, " "): k
        for k, piece in enumerate(model.pieces)
        if piece.kind in kinds and " " not in piece.text
    }


def spelled(piece: Piece) -> bytes:
    """A piece as a message."""
    body = put(1, piece.text.encode()) + put(2, float(piece.score))
    return body if piece.kind == NORMAL else body + put(3, piece.kind)


def with_pieces(raw: bytes, pieces: Sequence[Piece]) -> bytes:
    """The file with these pieces for its own; all else stays as it is."""
    parts = [put(_PIECES, spelled(piece)) for piece in pieces]
    place = 0
    for field, wire, _, end in places(raw):
        if field != _PIECES or wire != BYTES:
            parts.append(raw[place:end])
        place = end
    return b"".join(parts)


def _piece(raw: bytes) -> Piece:
    found = {number: value for number, _, value in fields(raw)}
    text, score, kind = found.get(1, b""), found.get(2, 0.0), found.get(3, NORMAL)
    if not isinstance(text, bytes) or not isinstance(score, float) or not isinstance(kind, int):
        raise NotAModel("a piece of another form")
    try:
        return Piece(text.decode("utf-8"), score, kind)
    except UnicodeDecodeError:
        raise NotAModel("a piece that is not UTF-8") from None
