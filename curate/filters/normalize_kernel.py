"""Find the lines that ftfy may change, with ftfy's own pattern of mojibake on UTF-8 bytes.

`ftfy.fix_encoding` does not change a segment in which `ftfy.badness.BADNESS_RE` matches nothing
(ftfy 6.3, `_fix_encoding_one_step_and_explain`). The pattern is a list of short sequences of
character sets. One bit per set matches all sequences at once (Shift-And: Baeza-Yates and Gonnet
1992). Two differences from ftfy: anchors are ignored, and a character beyond U+FFFF counts as a
letter. Pure ASCII never matches, so runs of ASCII are skipped eight bytes at a time.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np

from curate.text.unicode import char_bytes
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8

_TOPS = np.uint64(0x8080808080808080)
_ONE = np.uint64(1)
_TOP_BIT = np.uint64(63)
_BMP = 0x10000
_LETTER = 0x4E00  # stands for all characters beyond U+FFFF
# Either a comment or white space of the verbose pattern, or an item.
_PART = re.compile(r"#[^\n]*|\s+|(?P<item>\[[^\]]+\]|\\.|[^\\])")


class Mojibake(NamedTuple):
    """ftfy's pattern of mojibake as tables. The pattern is a list of sequences of character sets.
    Characters that are in the same sets form a class. `kinds` (uint8[0x10000]) is each character's
    class. `masks` (uint64[classes, 2]) has a bit per set, 1 if the set contains the class. `first`
    and `last` (uint64[2]) have the bits of the sets that begin and end a sequence. `reach` is the
    largest number of ASCII characters in a row that a sequence can match."""

    kinds: np.ndarray
    masks: np.ndarray
    first: np.ndarray
    last: np.ndarray
    reach: int


def sequences(pattern: str) -> list[list[str]]:
    """Return the alternatives of a verbose pattern as lists of character sets. An alternative with
    an optional set becomes two. Anchors are left out. Raises ValueError for any other syntax."""
    found: list[list[str]] = []
    items = [m["item"] for m in _PART.finditer(pattern) if m["item"]]
    for bar, alternative in groupby(items, lambda item: item == "|"):
        if bar:
            continue
        spelled: list[list[str]] = [[]]
        for item in alternative:
            if item in "()*+{}$":
                raise ValueError(f"{item} in ftfy's mojibake pattern is not supported")
            if item == "?":
                spelled += [one[:-1] for one in spelled]
            elif item != "^":
                spelled = [[*one, item] for one in spelled]
        found += spelled
    return found


@lru_cache(maxsize=1)
def mojibake() -> Mojibake:
    """Return ftfy's pattern as tables, made from the installed version."""
    from ftfy.badness import BADNESS_RE

    alternatives = sequences(BADNESS_RE.pattern)
    characters = "".join(map(chr, (*range(0xD800), *range(0xE000, _BMP))))
    taken = np.zeros((_BMP, 2), np.uint64)
    edges = np.zeros((2, 2), np.uint64)
    at = reach = 0
    for items in alternatives:
        in_a_row = 0
        for k, item in enumerate(items):
            codes = [ord(c) for c in re.findall(item, characters)]
            in_a_row = in_a_row + 1 if codes[0] < 128 else 0
            reach = max(reach, in_a_row)
            word, bit = at // 64, _ONE << np.uint64(at % 64)
            taken[codes, word] |= bit
            edges[0, word] |= bit * np.uint64(k == 0)
            edges[1, word] |= bit * np.uint64(k == len(items) - 1)
            at += 1
    masks, kinds = np.unique(taken, axis=0, return_inverse=True)
    return Mojibake(kinds.reshape(-1).astype(np.uint8), masks, edges[0], edges[1], reach)


@njit(cache=True, nogil=True)
def suspicious_lines(data, offsets, pattern):
    """Return int64[found, 3]: the row, start and end of each line in which the `Mojibake` pattern
    matches. Start and end are byte positions in `data`. The end lies after the newline."""
    kinds, masks, first, last, reach = pattern
    out = np.empty((64, 3), np.int64)
    found = 0
    for r in range(len(offsets) - 1):
        i, stop = offsets[r], offsets[r + 1]
        while True:
            while i + 8 <= stop and load8(data, np.uint64(i)) & _TOPS == 0:
                i += 8
            while i < stop and data[i] < 0x80:
                i += 1
            if i >= stop:
                break
            low = high = np.uint64(0)
            k = max(offsets[r], i - reach)
            quiet = 0  # consecutive ASCII characters
            match = False
            while k < stop and quiet <= reach:
                b = np.int64(data[k])
                code, size = b, char_bytes(data[k])
                if size == 3 and k + 2 < stop:
                    code = (b & 15) << 12 | (data[k + 1] & 63) << 6 | (data[k + 2] & 63)
                elif size == 2 and k + 1 < stop:
                    code = (b & 31) << 6 | (data[k + 1] & 63)
                elif b >= 0x80:  # beyond U+FFFF, or cut by the reach
                    code = np.int64(_LETTER)
                kind = kinds[code]
                high = (((high << _ONE) | (low >> _TOP_BIT)) | first[1]) & masks[kind, 1]
                low = ((low << _ONE) | first[0]) & masks[kind, 0]
                if (low & last[0]) | (high & last[1]):
                    match = True
                    break
                if b == 10:
                    low = high = np.uint64(0)
                quiet = quiet + 1 if k >= i and b < 0x80 else 0
                k += size
            i = max(i, k)
            if match:
                a = k
                while a > offsets[r] and data[a - 1] != 10:
                    a -= 1
                while i < stop and data[i] != 10:
                    i += 1
                i += i < stop
                if found == len(out):
                    out = np.concatenate((out, np.empty_like(out)))
                out[found, 0], out[found, 1], out[found, 2] = r, a, i
                found += 1
    return out[:found]
