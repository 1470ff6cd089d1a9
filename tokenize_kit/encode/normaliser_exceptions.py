"""Rows that a normaliser may change in ways that we leave to the library.

Python and the library know different versions of Unicode. What both know is stable; a character
that Python does not know makes its row odd, so the answer is the library's on any version.
"""

from __future__ import annotations

import sys
import unicodedata
from functools import cache
from typing import Literal

import numpy as np

from llmcurate.base.kernels import njit

ODD = 255  # in a table: a row with this character is odd
_WHITE = "\t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
NormalForm = Literal["NFC", "NFD", "NFKC", "NFKD"]
SMALL = 6  # bytes: `tokenizers` asks its normaliser for a whole cluster of fewer (precompiled.rs)
# Letters that extend a cluster (UAX 29), beside marks, formats and emoji modifiers.
_EXTENDING = [0x0E33, 0x0EB3, 0xFF9E, 0xFF9F, *range(0x1F3FB, 0x1F400)]
_PREPENDED = [0x0D4E, 0x111C2, 0x111C3, 0x113D1, 0x1193F, 0x11941, 0x11A3A, 0x11D46, 0x11F02]
_PREPENDED += range(0x11A84, 0x11A8A)


@cache
def form_table(form: NormalForm) -> np.ndarray:
    """uint8[0x110000]: for NFC, NFD, NFKC or NFKD, the combining class of a character, ODD for one
    that the form changes, may change behind another, or that is unknown.

    A text without ODD whose classes never fall but to 0 is in that form (UAX 15, quick check).
    """
    table = np.zeros(sys.maxunicode + 1, np.uint8)
    for point in range(sys.maxunicode + 1):
        if 0xD800 <= point < 0xE000 or 0xAC00 <= point < 0xD7A4 or point >= 0xF0000:
            continue
        character = chr(point)
        parts = unicodedata.decomposition(character)
        if parts:
            if unicodedata.normalize(form, character) != character:
                table[point] = ODD
            if not parts.startswith("<") and form.endswith("C"):
                table[[int(part, 16) for part in parts.split()[1:]]] = ODD
        if table[point] != ODD:
            unknown = unicodedata.category(character) == "Cn"
            table[point] = ODD if unknown else unicodedata.combining(character)
    if form.endswith("C"):
        table[0x1161:0x1176] = table[0x11A8:0x11C3] = ODD  # vowels and finals of Hangul
    else:
        table[0xAC00:0xD7A4] = ODD
    return table


@cache
def _clusters() -> np.ndarray:
    """uint8[0x110000]: 1 for what may belong to the character before it, ODD for what takes the
    one behind it."""
    table = np.zeros(sys.maxunicode + 1, np.uint8)
    for point in range(0x80, sys.maxunicode + 1):
        table[point] = unicodedata.category(chr(point)) in ("Mn", "Mc", "Me", "Cf", "Cn")
    table[_EXTENDING] = 1
    table[[0, 0x0D, *_PREPENDED]] = ODD
    formats = [*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD]
    table[formats] = ODD
    return table


def cluster_table(single: dict[int, bytes], *, white: bool) -> np.ndarray:
    """uint8[0x110000] for a precompiled normaliser that replaces characters so, as `find_odd` takes
    it; white: whether white space other than spaces matters behind it."""
    table = _clusters().copy()
    bad = "\u2581" + (_WHITE if white else "")
    table[[ord(character) for character in bad if ord(character) not in single]] = ODD
    for point, text in single.items():
        if any(character in bad for character in text.decode()):
            table[point] = ODD
    return table


@njit(cache=True, nogil=True)
def find_odd(data, offsets, table, clusters):
    """bool[rows]: whether a row is odd, by form_table or, for clusters, by cluster_table."""
    odd = np.zeros(len(offsets) - 1, np.bool_)
    for row in range(len(odd)):
        at, z = np.int64(offsets[row]), np.int64(offsets[row + 1])
        before = np.int64(0)  # a combining class, or bytes of a character
        while at < z:
            byte = np.int64(data[at])
            if byte < 0x80:
                point, size = byte, 1
            elif byte < 0xE0:
                point, size = (byte & 0x1F) << 6 | np.int64(data[at + 1] & 0x3F), 2
            else:
                point = np.int64(data[at + 1] & 0x3F) << 6 | np.int64(data[at + 2] & 0x3F)
                size = 3
                if byte < 0xF0:
                    point |= (byte & 0x0F) << 12
                else:
                    point = point << 6 | np.int64(data[at + 3] & 0x3F) | (byte & 0x07) << 18
                    size = 4
            kind = np.int64(table[point])
            if kind == ODD:
                odd[row] = True
                break
            if clusters:
                if kind and before and before + size < SMALL:
                    odd[row] = True
                    break
                before = np.int64(size)
            else:
                if kind and kind < before:
                    odd[row] = True
                    break
                before = kind
            at += size
    return odd
