"""Search a corpus for phrases and longest common passages in mapped suffix arrays.

Matches compare UTF-8 bytes: `Straße` and `STRASSE` differ. They never span two documents."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from curate.dedup.suffix_array.search_index import Chunk, SearchIndex
from curate.dedup.suffix_array.windows import continues
from llmcurate.base.errors import UsageError
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8


@njit(nogil=True)
def _shared(text, position, pattern, i, shared):
    k = shared
    while i + k + 8 <= len(pattern) and position + k + 8 <= len(text):
        if load8(pattern, np.uint64(i + k)) != load8(text, np.uint64(position + k)):
            break
        k += 8
    while (
        i + k < len(pattern) and position + k < len(text) and pattern[i + k] == text[position + k]
    ):
        k += 1
    return k


@njit(nogil=True)
def _without_partial_character(pattern, i, size):
    while size > 0 and i + size < len(pattern) and continues(pattern[i + size]):
        size -= 1
    return size


@njit(nogil=True)
def _longest_from(text, order, pattern, i):
    """Return the length of the longest prefix of pattern[i:] that occurs in the text, or -1 if
    `order` has an invalid position. A binary search finds the place of pattern[i:] among the sorted
    suffixes. A suffix next to this place has the longest common prefix."""
    low, high = np.int64(0), np.int64(len(order))
    shared_low = shared_high = np.int64(
        0
    )  # bytes shared with the suffixes at both ends of the search
    while low < high:
        middle = (low + high) >> 1
        position = np.int64(order[middle])
        if position < 0 or position >= len(text):
            return np.int64(-1)
        k = _shared(text, position, pattern, i, min(shared_low, shared_high))
        if i + k == len(pattern):
            return k
        if position + k >= len(text) or text[position + k] < pattern[i + k]:
            low, shared_low = middle + 1, k
        else:
            high, shared_high = middle, k
    return max(shared_low, shared_high)


@njit(cache=True, nogil=True)
def longest_match(text, order, pattern, least):
    """Find the longest run of whole characters of `pattern` that occurs in the text. Return
    (position, length) of the first such run in `pattern`. The result is (0, 0) if the run is
    shorter than `least`, or (0, -1) if `order` has an invalid position. `text` and `pattern` are
    uint8. `order` (int32) is the suffix array of the text."""
    best = max(least - 1, 0)
    at, length = np.int64(0), np.int64(0)
    for i in range(len(pattern)):
        if i + best >= len(pattern):
            break
        if continues(pattern[i]):
            continue
        size = _longest_from(text, order, pattern, i)
        if size < 0:
            return np.int64(0), size
        size = _without_partial_character(pattern, i, size)
        if size > best:
            best = size
            at, length = np.int64(i), size
    return at, length


_BLOCK = 1 << 20


@dataclass(frozen=True)
class Hit:
    """One occurrence of a phrase in the corpus."""

    document: str  # its id
    byte: int  # position in the document's text
    before: str  # the text before the phrase
    match: str  # the phrase
    after: str  # the text after the phrase


@dataclass(frozen=True)
class Matches:
    """The number of all occurrences of a phrase, and the first ones in order of the corpus."""

    count: int
    hits: list[Hit]


@dataclass(frozen=True)
class Longest:
    """The longest passage that a text shares with the corpus. `byte` is its start in the text.
    `bytes` is its length, 0 if nothing is shared. `count` and `hits` are as in `Matches`."""

    byte: int
    bytes: int
    text: str
    count: int
    hits: list[Hit]


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError("the text to search for is not valid UTF-8") from None


def _bound(index: SearchIndex, chunk: Chunk, pattern: bytes, after: bool) -> int:
    text, order, size = chunk.text, chunk.order, len(pattern)
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) >> 1
        position = int(order[middle])
        if not 0 <= position < len(text):
            raise index.damaged("an order")
        have = text[position : position + size].tobytes()
        if have < pattern or (after and have == pattern):
            low = middle + 1
        else:
            high = middle
    return low


def _first_positions(order: np.ndarray, limit: int) -> list[int]:
    least: list[int] = []
    for a in range(0, len(order), _BLOCK):
        block = np.asarray(order[a : a + _BLOCK])
        if len(block) > limit:
            block = np.partition(block, limit)[:limit]
        least = heapq.nsmallest(limit, [*least, *block.tolist()])
    return least


def find(index: SearchIndex, phrase: str, limit: int = 10, context: int = 60) -> Matches:
    """Count the occurrences of a phrase in the corpus. Return their number, and the first `limit`
    of them with `context` bytes of text on each side. Raises UsageError if the phrase is empty."""
    pattern = _encoded(phrase)
    if not pattern:
        raise UsageError("the phrase to search for is empty; give one")
    return _find(index, pattern, limit, context)


def _find(index: SearchIndex, pattern: bytes, limit: int, context: int) -> Matches:
    count = 0
    hits: list[Hit] = []
    for chunk in index.chunks:
        low, high = (_bound(index, chunk, pattern, after) for after in (False, True))
        count += high - low
        if high > low and len(hits) < limit:
            for position in _first_positions(chunk.order[low:high], limit - len(hits)):
                if chunk.text[position : position + len(pattern)].tobytes() != pattern:
                    raise index.damaged("an order")
                number, byte = index.document_of(chunk.base + position)
                parts = index.around(chunk, position, len(pattern), context)
                hits.append(Hit(index.id_of(number), byte, *parts))
    return Matches(count, hits)


def longest(index: SearchIndex, text: str, limit: int = 10, context: int = 60) -> Longest:
    """Return the longest run of whole characters of `text` that occurs in the corpus. If several
    are equally long, return the first in `text`. Raises UsageError if the text is empty."""
    pattern = np.frombuffer(bytearray(_encoded(text)), np.uint8)
    if len(pattern) == 0:
        raise UsageError("the text to compare is empty; give a text or a file")
    byte = size = 0
    for chunk in index.chunks:
        at, length = longest_match(chunk.text, chunk.order, pattern, size)
        if length < 0:
            raise index.damaged("an order")
        if length > size or (length == size and length and at < byte):
            byte, size = int(at), int(length)
    if size == 0:
        return Longest(0, 0, "", 0, [])
    match = pattern[byte : byte + size].tobytes()
    matches = _find(index, match, limit, context)
    return Longest(byte, size, match.decode("utf-8"), matches.count, matches.hits)
