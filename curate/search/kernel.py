"""The longest substring that a text shares with a chunk of a search index."""

from __future__ import annotations

import numpy as np

from curate.dedup.suffix_array.windows import continues
from curate.text.hashing import load8
from kernel_cache import njit


@njit(nogil=True)
def _shared(text, place, wanted, i, known):
    """How many bytes text[place:] and wanted[i:] share; the first `known` of them do."""
    k = known
    while i + k + 8 <= len(wanted) and place + k + 8 <= len(text):
        if load8(wanted, np.uint64(i + k)) != load8(text, np.uint64(place + k)):
            break
        k += 8
    while i + k < len(wanted) and place + k < len(text) and wanted[i + k] == text[place + k]:
        k += 1
    return k


@njit(nogil=True)
def _whole(wanted, i, size):
    """The size without the beginning of a character at its end."""
    while size > 0 and i + size < len(wanted) and continues(wanted[i + size]):
        size -= 1
    return size


@njit(nogil=True)
def _longest_from(text, order, wanted, i):
    """The longest beginning of wanted[i:] that stands in the text, by binary search for it: it is
    shared with one of the two suffixes between which wanted[i:] would stand."""
    low, high = np.int64(0), np.int64(len(order))
    left = right = np.int64(0)  # bytes shared with the suffixes at both ends of the search
    while low < high:
        middle = (low + high) >> 1
        place = np.int64(order[middle])
        k = _shared(text, place, wanted, i, min(left, right))
        if i + k == len(wanted):
            return k
        if place + k == len(text) or text[place + k] < wanted[i + k]:
            low, left = middle + 1, k
        else:
            high, right = middle, k
    return max(left, right)


@njit(cache=True, nogil=True)
def longest_match(text, order, wanted, least):
    """(place, length) of the longest run of whole characters of `wanted` in the text, the first one
    where several are as long; (0, 0) where it is shorter than `least`.

    text, wanted: uint8[]; order: int32[len(text)], its suffixes.
    """
    best = max(least - 1, 0)
    at, found = np.int64(0), np.int64(0)
    for i in range(len(wanted)):
        if i + best >= len(wanted):
            break
        if continues(wanted[i]):
            continue
        size = _whole(wanted, i, _longest_from(text, order, wanted, i))
        if size > best:
            best = size
            at, found = np.int64(i), size
    return at, found
