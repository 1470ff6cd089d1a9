"""SentencePiece's BPE as merges over characters.

Two neighbours merge where they spell a piece, the highest score first, the leftmost of equals.
User-defined symbols are taken out before; an unused piece is merged, and comes out as the two that
it was merged from (src/bpe_model.cc, 0.2.3).
"""

from __future__ import annotations

import numpy as np

from tokenize_kit.encode.char_bpe import Merges
from tokenize_kit.encode.reading import NotOurs
from tokenize_kit.spm_file import NORMAL, UNUSED, USER_DEFINED, Model, usable

_DEEPEST = 100  # kMaxBpeResegmentDepth, beyond which an unused piece comes out whole


def merges_of(model: Model) -> Merges:
    """The merges of a BPE model; raises NotOurs."""
    mergeable = usable(model, (NORMAL, UNUSED))
    scores = np.array([piece.score for piece in model.pieces], np.float32)
    if np.any(np.isnan(scores)):
        raise NotOurs("a score that is no number")
    scores += np.float32(0)  # no zero below another
    tokens = sorted((t for t in mergeable if len(t) > 1), key=lambda t: -scores[mergeable[t]])
    letters = set("".join(mergeable))
    known = letters | mergeable.keys()
    ranks = np.unique(-scores, return_inverse=True)[1].tolist()
    rows = [
        (left, right, token, ranks[mergeable[token]])
        for token in tokens
        for cut in range(1, len(token))
        if (left := token[:cut]) in known and (right := token[cut:]) in known
    ]
    unused = usable(model, (UNUSED,))
    parted: dict[str, tuple[str, str]] = {}
    for left, right, token, _ in rows:
        if token in unused:
            if token in parted or len(token) > _DEEPEST:
                raise NotOurs("an unused piece that is merged in several ways")
            parted[token] = left, right
    ids = {text: k for text, k in mergeable.items() if text not in unused}
    return Merges(tokens, rows, ids, parted)


def symbols_of(model: Model) -> dict[bytes, int]:
    """User-defined symbols, as normalised text has them, and their ids."""
    return {text.encode(): k for text, k in usable(model, (USER_DEFINED,)).items()}
