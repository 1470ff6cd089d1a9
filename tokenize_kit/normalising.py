"""Unicode normal forms before the text is cut, in training as in the tokenizer.

NFC and NFKC are those of `tokenizers`; `nmt_nfkc`, and NFKC for Unigram, are tables of
SentencePiece, so that tokenizer.model and tokenizer.json have the same.
"""

from __future__ import annotations

from typing import Literal, get_args

from tokenizers import normalizers

Normal = Literal["none", "nfc", "nfkc", "nmt_nfkc"]
NORMAL: tuple[Normal, ...] = get_args(Normal)


def normaliser(name: Normal, unigram: bool) -> normalizers.Normalizer | None:
    """What a tokenizer.json has as its normaliser; None for `none`."""
    if name == "none":
        return None
    if name == "nfc":
        return normalizers.NFC()
    if name == "nfkc" and not unigram:
        return normalizers.NFKC()
    return normalizers.Precompiled(_table(name))


def _table(rule: str) -> bytes:
    """SentencePiece's compiled rules: field 2 of field 3 of the model that holds them."""
    import sentencepiece

    made = sentencepiece.SentencePieceNormalizer(rule_name=rule).serialized_model_proto()
    return _field(_field(made, 3), 2)


def _field(message: bytes, wanted: int) -> bytes:
    """A field of bytes in a protobuf message."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        if tag & 7 == 2:
            size, place = _varint(message, place)
            if tag >> 3 == wanted:
                return message[place : place + size]
            place += size
        elif tag & 7 == 0:
            _, place = _varint(message, place)
        else:
            place += 8 if tag & 7 == 1 else 4
    raise ValueError(f"no field {wanted}")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
