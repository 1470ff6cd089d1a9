"""SentencePiece's model files as forms, and with more pieces or fewer.

The fields are those of sentencepiece_model.proto (google/sentencepiece): ModelProto has pieces (1),
trainer_spec (2) and normalizer_spec (3).
"""

from __future__ import annotations

from typing import Any, Literal

from tokenize_kit.change.forms import MOST_TOKENS, CannotHold, Pieces
from tokenize_kit.encode import spm_model as spm_file
from tokenize_kit.encode.protobuf import fields, put, signed
from tokenize_kit.encode.spm_model import NORMAL, UNKNOWN, Piece, spelled

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3


def _message(raw: Any) -> dict[int, Any]:
    if not isinstance(raw, bytes):
        raise ValueError("a number where a message belongs")
    return {field: value for field, _, value in fields(raw)}


def read_model(raw: bytes) -> Pieces:
    """The model of a file's bytes.

    Raises ValueError for what is no model file, CannotHold for kinds and settings that no other
    format has (word and char models, spaces at the ends of words).
    """
    model = spm_file.read_model(raw)
    if len(model.pieces) > MOST_TOKENS:
        raise ValueError(f"more than {MOST_TOKENS:,} pieces")
    if not any(piece.kind == UNKNOWN for piece in model.pieces):
        raise ValueError("it has no unknown piece")
    if model.kind not in (spm_file.UNIGRAM, spm_file.BPE):
        raise CannotHold("it is a SentencePiece model of whole words or characters")
    if model.treat_whitespace_as_suffix:
        raise CannotHold("it puts spaces at the ends of words (treat_whitespace_as_suffix)")
    if not model.escape_whitespaces:
        raise CannotHold("it does not escape spaces (escape_whitespaces)")
    name: Literal["unigram", "bpe"] = "unigram" if model.kind == spm_file.UNIGRAM else "bpe"
    return Pieces(
        name,
        tuple((piece.text, piece.score, piece.kind) for piece in model.pieces),
        model.charsmap,
        model.add_dummy_prefix,
        model.remove_extra_whitespaces,
        model.byte_fallback,
        model.begin,
        model.end,
        model.pad,
    )


def write_model(model: Pieces) -> bytes:
    """A model file's bytes."""
    out = [put(_PIECES, spelled(Piece(*piece))) for piece in model.pieces]
    kind = spm_file.UNIGRAM if model.kind == "unigram" else spm_file.BPE
    names = {40: model.unknown, 41: model.begin, 42: model.end, 43: model.pad}
    trainer = {3: kind, 4: len(model.pieces), 35: int(model.byte_fallback), **names}
    texts = {40: 45, 41: 46, 42: 47, 43: 48}  # field of the id to that of its spelling
    spec = b"".join(put(number, value) for number, value in sorted(trainer.items()))
    for number, value in names.items():
        if 0 <= value < len(model.pieces):
            spec += put(texts[number], model.pieces[value][0].encode())
    out.append(put(_TRAINER, spec))
    rules = put(1, b"user_defined" if model.charsmap else b"identity")
    rules += put(2, model.charsmap) if model.charsmap else b""
    rules += put(3, int(model.prefix)) + put(4, int(model.squeeze)) + put(5, 1)
    out.append(put(_NORMALIZER, rules))
    return b"".join(out)


def add_pieces(raw: bytes, more: list[tuple[str, float]]) -> bytes:
    """A model file's bytes with normal pieces behind its own; all else as it was."""
    pieces: list[bytes] = []
    others: list[bytes] = []
    for number, _, value in fields(raw):
        if number == _TRAINER and isinstance(value, bytes):
            size = _message(value).get(4, 0) + len(more)
            value += put(4, size)  # the last of equal fields counts
        (pieces if number == _PIECES else others).append(put(number, value))
    pieces += [put(_PIECES, spelled(Piece(text, score, NORMAL))) for text, score in more]
    return b"".join([*pieces, *others])


def keep_pieces(raw: bytes, kept: list[int]) -> bytes:
    """A model file's bytes with some of its pieces alone, in their order; all else as it was."""
    new = {old: number for number, old in enumerate(kept)}
    pieces: list[bytes] = []
    others: list[bytes] = []
    for number, _, value in fields(raw):
        if number == _PIECES:
            pieces.append(put(_PIECES, value))
            continue
        if number == _TRAINER and isinstance(value, bytes):
            spec = _message(value)
            value += put(4, len(kept))  # the last of equal fields counts
            for field in (40, 41, 42, 43):
                if (old := signed(spec.get(field, -1))) in new:
                    value += put(field, new[old])
        others.append(put(number, value))
    return b"".join([*(pieces[old] for old in kept), *others])
