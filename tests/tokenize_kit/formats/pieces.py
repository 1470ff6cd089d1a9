"""SentencePiece models with pieces of one's choice."""

from __future__ import annotations

from collections.abc import Sequence

from tokenize_kit.formats.sentencepiece_model import _PIECES, field_bytes, fields, piece_message


def with_pieces(raw: bytes, pieces: Sequence[tuple[str, float, int]]) -> bytes:
    """The file with these pieces for its own; all else stays as it is."""
    parts = [field_bytes(_PIECES, piece_message(*piece)) for piece in pieces]
    others = [(field, value) for field, _, value in fields(raw) if field != _PIECES]
    return b"".join([*parts, *(field_bytes(*other) for other in others)])
