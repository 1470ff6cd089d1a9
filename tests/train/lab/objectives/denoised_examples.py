"""Examples of span denoising."""

from __future__ import annotations

import numpy as np

from train.data.rows import Piece
from train.data.vocabulary import Vocabulary
from train.lab.objectives.denoise import (
    Denoising,
)

END = 1000


def vocabulary(settings, context: int = 200) -> Vocabulary:
    roles = dict.fromkeys((*Denoising.needs(settings, context), "end"))
    special = {role: 1001 + number for number, role in enumerate(roles)} | {"end": END}
    return Vocabulary(
        size=1001 + len(special), special=special, reserved=frozenset(special.values())
    )


def denoising(settings, context: int = 200) -> Denoising:
    return Denoising(settings, vocabulary(settings, context))


def piece(length: int, *, document: int = 0, first: int = 0, ended: bool = True) -> Piece:
    """Tokens all different, and an end of text."""
    tokens = (np.arange(length, dtype=np.int64) + 100 * document) % 1000
    if ended:
        tokens = np.append(tokens, END)
    return Piece(document=document, first=first, before=END, tokens=tokens)


def spans_of(target: list[int]) -> dict[int, list[int]]:
    """The tokens behind each sentinel."""
    spans: dict[int, list[int]] = {}
    for token in target:
        if token > END:
            spans[token] = []
        else:
            spans[list(spans)[-1]].append(token)
    return spans
