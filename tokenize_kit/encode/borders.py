"""Where a row may be cut at spaces without changing a token: no token reaches over such a place."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from tokenize_kit.encode.bytes8 import load8, njit_within

# How our own Unigram's tokenizer.json is cut: a line end alone, spaces with what follows them.
WORDS = r"\n| +[^ \n]*|[^ \n]+"
_SPACE = np.uint8(0x20)
_SPACES, _LOWEST, _HIGHEST = (np.uint64(0x0101010101010101 * k) for k in (0x20, 0x01, 0x80))

# Whether a token has, inside, a space behind something else, something else behind a space, and a
# space behind a space.
Crossed = namedtuple("Crossed", "before behind between")


def crossed(tokens: Iterable[str]) -> Crossed:
    """Of all tokens that a text may give; a space is a space."""
    before = behind = between = False
    for token in tokens:
        if " " in token[1:]:
            between = between or "  " in token
            before = before or any(a != " " and b == " " for a, b in pairwise(token))
        if " " in token[:-1]:
            behind = behind or any(a == " " and b != " " for a, b in pairwise(token))
    return Crossed(before, behind, between)


@njit_within
def word_end(data, a, z, crossed):
    """The first place behind a at which data[a:z] may be cut."""
    at = a
    while True:
        space = data[at] == _SPACE
        at += 1
        if not space:
            while at + 8 <= z:  # eight bytes at once: a byte that is a space becomes 0
                bytes8 = load8(data, np.uint64(at)) ^ _SPACES
                spaces = (bytes8 - _LOWEST) & ~bytes8 & _HIGHEST
                if spaces != 0:  # its lowest bit is the first one's; those below are counted
                    below = (spaces - np.uint64(1)) & ~spaces & _LOWEST
                    at += np.int64((below * _LOWEST) >> np.uint64(56)) - 1
                    break
                at += 8
            while at < z and data[at] != _SPACE:
                at += 1
            if at == z or not crossed.before:
                return at
        elif at == z:
            return at
        elif data[at] == _SPACE:
            if not crossed.between:
                return at
        elif not crossed.behind:
            return at
