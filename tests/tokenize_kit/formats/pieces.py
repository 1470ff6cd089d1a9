"""SentencePiece models with pieces of one's choice."""

from __future__ import annotations

from collections.abc import Sequence

from tokenize_kit.formats.sentencepiece_model import (
    _PIECES,
    BYTES,
    Piece,
    field_bytes,
    fields_with_ends,
    piece_message,
)


def with_pieces(raw: bytes, pieces: Sequence[Piece]) -> bytes:
    """The file with these pieces for its own; all else stays as it is."""
    parts = [field_bytes(_PIECES, piece_message(piece)) for piece in pieces]
    position = 0
    for field, wire, _, end in fields_with_ends(raw):
        if field != _PIECES or wire != BYTES:
            parts.append(raw[position:end])
        position = end
    return b"".join(parts)
