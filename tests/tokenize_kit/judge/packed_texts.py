"""Texts packed as the judge reads them."""

from __future__ import annotations

import numpy as np

from tokenize_kit.judge.tally import Texts

TEXTS = ["the cat sat on the mat, then that 12 cats", "กินข้าวที่บ้าน กินที่บ้าน", "né, a1b2\n\tx"] * 9


def packed(texts):
    raw = [text.encode() for text in texts]
    return np.frombuffer(bytearray().join(raw), np.uint8), np.cumsum(
        [0, *map(len, raw)], dtype=np.int64
    )


def packed_texts(texts):
    return Texts.of(*packed(texts))
