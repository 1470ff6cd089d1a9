"""Lines that ftfy may change, found by ftfy's own pattern of mojibake on UTF-8 bytes.

`ftfy.fix_encoding` returns a segment as it is where `ftfy.badness.BADNESS_RE` matches nothing
(ftfy 6.3, `_fix_encoding_one_step_and_explain`), and a C1 control is a match. The pattern is a list
of short sequences of sets of characters. All of them are followed at once, with one bit an item
(Shift-And: Baeza-Yates and Gonnet 1992), so what is found is what ftfy finds, but for two things: a
sequence that begins a segment is looked for anywhere, and a character beyond U+FFFF counts as a
letter. No match is of ASCII alone, so runs of ASCII are passed over eight bytes at a time.
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
# A comment or a blank of the verbose pattern, else an item of it.
_PART = re.compile(r"#[^\n]*|\s+|(?P<item>\[[^\]]+\]|\\.|[^\\])")


class Mojibake(NamedTuple):
    """The pattern as tables. kinds: uint8[0x10000], the class of a character; masks:
    uint64[classes, 2], the items that take it; first, last: uint64[2], the items that begin and
    that end a sequence; reach: the most items in a row that take an ASCII character."""

    kinds: np.ndarray
    masks: np.ndarray
    first: np.ndarray
    last: np.ndarray
    reach: int


def sequences(pattern: str) -> list[list[str]]:
    """The alternatives of a verbose pattern as lists of sets of characters; one with an optional
    set is two, and anchors are left out. ValueError where the pattern has anything else."""
    found: list[list[str]] = []
    items = [m["item"] for m in _PART.finditer(pattern) if m["item"]]
    for bar, alternative in groupby(items, lambda item: item == "|"):
        if bar:
            continue
        spelled: list[list[str]] = [[]]
        for item in alternative:
            if item in "()*+{}$":
                raise ValueError(f"{item} in ftfy's pattern of mojibake, which is of another form")
            if item == "?":
                spelled += [one[:-1] for one in spelled]
            elif item != "^":
                spelled = [[*one, item] for one in spelled]
        found += spelled
    return found


@lru_cache(maxsize=1)
def mojibake() -> Mojibake:
    """The pattern of the installed ftfy."""
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
    """int64[found, 3]: row, start and end of the lines, newline included, in which the pattern
    matches; positions absolute."""
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
            quiet = 0  # ASCII characters in a row
            match = False
            while k < stop and quiet <= reach:
                b = np.int64(data[k])
                code, size = b, char_bytes(data[k])
                if size == 3 and k + 2 < stop:
                    code = (b & 15) << 12 | (data[k + 1] & 63) << 6 | (data[k + 2] & 63)
                elif size == 2 and k + 1 < stop:
                    code = (b & 31) << 6 | (data[k + 1] & 63)
                elif b >= 0x80:  # beyond U+FFFF, or the rest of a character before the reach
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
