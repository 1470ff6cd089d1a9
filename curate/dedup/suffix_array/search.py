"""Phrases and longest common passages in a search index, by binary search over mapped suffixes.

Matches are of UTF-8 bytes: `Straße` and `STRASSE` differ. They never reach across documents.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curate.dedup.suffix_array.search_index import Chunk, SearchIndex
from curate.dedup.suffix_array.windows import continues
from llmcurate.base.errors import UsageError
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8


@njit(nogil=True)
def _shared(text, position, pattern, i, shared):
    """The number of bytes that text[position:] and pattern[i:] share; the first `shared` are known
    to."""
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
def _whole(pattern, i, size):
    """The size without the beginning of a character at its end."""
    while size > 0 and i + size < len(pattern) and continues(pattern[i + size]):
        size -= 1
    return size


@njit(nogil=True)
def _longest_from(text, order, pattern, i):
    """The longest beginning of pattern[i:] that stands in the text, by binary search for it: it is
    shared with one of the two suffixes between which pattern[i:] would stand. -1 where the order
    has what is no position."""
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
    """(position, length) of the longest run of whole characters of `pattern` in the text, the first
    one where several are as long; (0, 0) where it is shorter than `least`, (0, -1) where `order` is
    none of this text.

    text, pattern: uint8[]; order: int32[len(text)], its suffixes.
    """
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
        size = _whole(pattern, i, size)
        if size > best:
            best = size
            at, length = np.int64(i), size
    return at, length


_BLOCK = 1 << 20


@dataclass(frozen=True)
class Hit:
    """An occurrence. document: its id; byte: where it starts in the document's text; before, match,
    after: the text there."""

    document: str
    byte: int
    before: str
    match: str
    after: str


@dataclass(frozen=True)
class Matches:
    """count: all occurrences; hits: the first ones, in order of the corpus."""

    count: int
    hits: list[Hit]


@dataclass(frozen=True)
class Longest:
    """The longest passage that a text shares with the corpus. byte: where it starts in the given
    text; bytes: its length, 0 where nothing is shared; count, hits: its occurrences."""

    byte: int
    bytes: int
    text: str
    count: int
    hits: list[Hit]


def _encoded(text: str) -> bytes:
    """UsageError where the text is no Unicode (bytes of a terminal that are no UTF-8)."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError("the text to search for is not valid UTF-8") from None


def _bound(index: SearchIndex, chunk: Chunk, pattern: bytes, after: bool) -> int:
    """The number of suffixes that stand before all that begin with `pattern`, or, `after`, behind
    those."""
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
    """The `limit` least positions of a part of an order, which may be larger than memory."""
    least: list[int] = []
    for a in range(0, len(order), _BLOCK):
        block = np.asarray(order[a : a + _BLOCK])
        if len(block) > limit:
            block = np.partition(block, limit)[:limit]
        least = heapq.nsmallest(limit, [*least, *block.tolist()])
    return least


def find(index: SearchIndex, phrase: str, limit: int = 10, context: int = 60) -> Matches:
    """Counts the phrase, and shows the first `limit` occurrences with `context` bytes around them.

    UsageError for an empty phrase.
    """
    pattern = _encoded(phrase)
    if not pattern:
        raise UsageError("give a phrase to search for")
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
    """The longest run of whole characters of `text` that stands in the corpus, the first one where
    several are as long.

    UsageError for an empty text.
    """
    pattern = np.frombuffer(bytearray(_encoded(text)), np.uint8)
    if len(pattern) == 0:
        raise UsageError("give a text, or a file, to compare with the corpus")
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


def read_text(path: Path) -> str:
    """The text of a file; UsageError where it cannot be read as UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 (byte {error.start})") from None
