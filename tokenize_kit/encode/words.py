"""Words of a text: their ends, a cache of their ids, and the fallback of unknown characters.

The cache is emptied when it is full, so memory is bounded; ids never depend on the cache. A word of
more than 15 bytes is cached only when it occurs again: in a script without spaces few such words
occur twice, and caching a word costs as much as encoding it.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import hash_bytes, load8, load_few, mix_bits, prefetch
from tokenize_kit.formats.forms import BYTE_PIECES
from tokenize_kit.formats.tokenizer_json import Unsupported

SLOTS = 1 << 18  # of the cache, at most half of them used
ARENA = 1 << 22  # bytes of long words; a quarter as many ids
LONGEST = 64  # bytes of a cached word: longer words rarely occur again
SEEN = 1 << 17
INLINE = 15  # bytes of a word stored in its entry
_LONG = np.uint64(0x80)
_1, _8, _32, _56 = np.uint64(1), np.uint64(8), np.uint64(32), np.uint64(56)
_LOW, _MIX = np.uint64(0xFFFFFFFF), np.uint64(0x9E3779B97F4A7C15)
_MASK = np.uint64(SLOTS - 1)

# entries: uint64[SLOTS, 4]: the word, or its hash and position in `letters`; its ids, or their
# position in `ids`; their number. used: int64[3]: entries, bytes of letters, ids. seen:
# uint16[SEEN]: part of the hash of longer words that occurred once.
Cache = namedtuple("Cache", "entries letters ids used seen")


def new_cache() -> Cache:
    """Return an empty cache of 16 MiB."""
    buffer = np.zeros(4 * SLOTS + 4, np.uint64)
    first = -(buffer.ctypes.data // 8) % 4  # no entry lies in two cache lines
    return Cache(
        buffer[first : first + 4 * SLOTS].reshape(SLOTS, 4),
        np.empty(ARENA, np.uint8),
        np.empty(ARENA // 4, np.uint32),
        np.zeros(3, np.int64),
        np.zeros(SEEN, np.uint16),
    )


@njit(nogil=True)
def same_bytes(letters, at, data, a, n):
    """Return True if n bytes of `letters` at `at` equal those of `data` at `a`; n is at least 8."""
    i, j, remaining = np.uint64(at), np.uint64(a), np.uint64(n)
    while remaining > _8:
        if load8(letters, i) != load8(data, j):
            return False
        i, j, remaining = i + _8, j + _8, remaining - _8
    return load8(letters, i + remaining - _8) == load8(data, j + remaining - _8)


@njit(nogil=True, forceinline=True)
def word_key(data, a, z):
    """Return the two numbers by which the word data[a:z] is looked up; the second is never 0."""
    n = z - a
    i = np.uint64(a)
    if n <= 7:
        if i + np.uint64(8) <= np.uint64(len(data)):
            low = load8(data, i) & ((np.uint64(1) << np.uint64(8 * n)) - np.uint64(1))
        else:
            low = load_few(data, i, n)
        return low, np.uint64(n) << _56
    low = load8(data, i)
    if n == 8:
        return low, np.uint64(n) << _56
    if n <= INLINE:
        # The last eight bytes, without those that `low` has.
        high = load8(data, np.uint64(z - 8)) >> np.uint64(8 * (16 - n))
        return low, high | np.uint64(n) << _56
    return hash_bytes(data, a, z), _LONG << _56 | np.uint64(n)


@njit(nogil=True, forceinline=True)
def seen_before(seen, low):
    """Return True if a word with this key was seen before, and remember the word. low: the first of
    the two numbers of the word's key; seen: uint16[SEEN], the memory (hashes)."""
    mixed = mix_bits(low)
    slot, mark = mixed & np.uint64(SEEN - 1), np.uint16(mixed >> np.uint64(48))
    repeated = seen[slot] == mark
    seen[slot] = mark
    return repeated


@njit(nogil=True)
def add_word(cache, slot, low, high, data, a, z, symbols, n, safe):
    """Store a word and its ids in a free entry of the cache; empty the cache first if the word
    might not fit. low, high: the word's key; symbols: its n ids; safe: a limit below 2**32 for the
    sum of scores before the word. If the sum reaches this limit, rounding to float32 might change
    the ids, and `recall_words` does not use the entry."""
    entries, letters, ids, used = cache.entries, cache.letters, cache.ids, cache.used
    if used[0] > SLOTS // 2 or used[1] + LONGEST > ARENA or used[2] + LONGEST > ARENA // 4:
        for k in range(SLOTS):  # numba takes seconds to compile slices
            entries[k, 1] = np.uint64(0)
        for k in range(3):
            used[k] = 0
        slot = first_slot(low, high)
    size = z - a
    position = np.uint64(0)
    if size > INLINE:
        position = np.uint64(used[1])
        for k in range(size):
            letters[used[1] + k] = data[a + k]
        used[1] += size
    if n > 2 or size > INLINE:
        entries[slot, 2] = np.uint64(used[2]) | position << _32
        for k in range(n):
            ids[used[2] + k] = symbols[k]
        used[2] += n
    else:
        entries[slot, 2] = np.uint64(symbols[0])
        if n == 2:
            entries[slot, 2] |= np.uint64(symbols[1]) << _32
    entries[slot, 0] = low
    entries[slot, 1] = high
    entries[slot, 3] = np.uint64(n) | np.uint64(safe) << _32
    used[0] += 1


@njit(nogil=True, forceinline=True)
def first_slot(low, high):
    """Return the slot of the cache where the search for a word with the key (low, high) begins."""
    return mix_bits(low ^ (high * _MIX)) & _MASK


@njit(nogil=True, forceinline=True)
def look_up(cache, slot, low, high, data, a, n):
    """Return the cache's slot of the word data[a : a + n], searching from `slot`. If the word is
    not cached, return a free slot, one with entries[slot, 1] == 0. low, high: from `word_key`."""
    entries = cache.entries
    if n <= INLINE:
        while entries[slot, 1] != 0 and (entries[slot, 0] != low or entries[slot, 1] != high):
            slot = (slot + _1) & _MASK
    else:
        while entries[slot, 1] != 0 and (
            entries[slot, 0] != low
            or entries[slot, 1] != high
            or not same_bytes(cache.letters, np.int64(entries[slot, 2] >> _32), data, a, n)
        ):
            slot = (slot + _1) & _MASK
    return slot


@njit(nogil=True, forceinline=True)
def recall(cache, slot, n, out, w):
    """Write the ids of a cached word of n bytes to out[w:]; return the position after the last id.
    The element at that position may be overwritten too."""
    entries, ids = cache.entries, cache.ids
    count = np.int64(entries[slot, 3] & _LOW)
    if count <= 2 and n <= INLINE:
        out[w] = np.uint32(entries[slot, 2] & _LOW)
        out[w + 1] = np.uint32(entries[slot, 2] >> _32)
    else:
        first = np.int64(entries[slot, 2] & _LOW)
        for k in range(count):
            out[w + k] = ids[first + k]
    return w + count


# The split of the Unigram trained here: single line ends, and spaces with the text after them.
WORDS = r"\n| +[^ \n]*|[^ \n]+"
_SPACE = np.uint8(0x20)
_SPACES, _LOWEST, _HIGHEST = (np.uint64(0x0101010101010101 * k) for k in (0x20, 0x01, 0x80))

# True if some token contains: a space after another character; another character after a space; two
# spaces in a row.
Crossings = namedtuple("Crossings", "before behind between")


def crossings(tokens: Iterable[str]) -> Crossings:
    """Return the ways in which tokens contain spaces (see `Crossings`). tokens: the tokens that
    encoding may output, with spaces instead of U+2581."""
    before = behind = between = False
    for token in tokens:
        if " " in token[1:]:
            between = between or "  " in token
            before = before or any(a != " " and b == " " for a, b in pairwise(token))
        if " " in token[:-1]:
            behind = behind or any(a == " " and b != " " for a, b in pairwise(token))
    return Crossings(before, behind, between)


@njit(nogil=True, forceinline=True)
def word_end(data, a, z, crossed):
    """Return the first position after `a` at which data[a:z] may be cut: no token crosses it."""
    at = a
    while True:
        space = data[at] == _SPACE
        at += 1
        if not space:
            while at + 8 <= z:  # eight bytes at once; spaces become 0
                bytes8 = load8(data, np.uint64(at)) ^ _SPACES
                spaces = (bytes8 - _LOWEST) & ~bytes8 & _HIGHEST
                if spaces != 0:  # its lowest bit is the first space; count the bytes below
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


@njit(nogil=True)
def longest_piece(offsets, ends, counts):
    """Return the length in bytes of the longest piece, at least 1. offsets: the bounds of the rows;
    ends, counts: the result of scan.cut_rows for these rows."""
    longest, piece = np.int64(1), 0
    for row in range(len(counts)):
        at = np.int64(offsets[row])
        for _ in range(counts[row]):
            longest = max(longest, np.int64(ends[piece]) - at)
            at = np.int64(ends[piece])
            piece += 1
    return longest


@njit(nogil=True)
def longest_row(offsets, least):
    """Return the length in bytes of the longest row, or `least` if that is greater."""
    most = np.int64(least)
    for row in range(len(offsets) - 1):
        most = max(most, np.int64(offsets[row + 1] - offsets[row]))
    return most


BATCH = 64  # words looked up at once
END, LOW, HIGH, SLOT = range(4)
_SAFE_BITS = np.uint64(32)


class CachePool:
    """Caches for threads that share an encoder. No two calls use a cache at the same time."""

    def __init__(self) -> None:
        self._idle = [new_cache()]

    def run(self, kernel: Callable[..., Any], *given: Any) -> tuple[np.ndarray, np.ndarray]:
        """Call a kernel with the given arguments and a free cache; return the kernel's (ids:
        uint32[], number of ids per row: int64[rows])."""
        try:
            cache = self._idle.pop()
        except IndexError:
            cache = new_cache()
        ids, sizes = kernel(*given, cache)
        self._idle.append(cache)
        return ids, sizes


@njit(nogil=True)
def cut_words(data, a, z, crossed, cache, words):
    """Cut data[a:z] into at most BATCH words; return their number. words: uint64[BATCH, 4], filled
    with each word's end, the two numbers of `word_key`, and its slot in the cache. If the second
    number is 0, the word is neither looked up nor cached. The memory of the slots is prefetched,
    because most words are rare and the table is larger than the processor's caches."""
    count = 0
    while a < z and count < BATCH:
        end = word_end(data, a, z, crossed)
        words[count, END] = end
        words[count, HIGH] = 0
        if end - a <= LONGEST:
            low, high = word_key(data, a, end)
            if end - a <= INLINE or seen_before(cache.seen, low):
                slot = first_slot(low, high)
                prefetch(cache.entries, np.int64(slot) * 4)
                words[count, LOW], words[count, HIGH], words[count, SLOT] = low, high, slot
        a = end
        count += 1
    return count


@njit(nogil=True)
def recall_words(data, a, words, k, count, cache, sums, rounds, total, calm, out, w):
    """Write the cached ids of words[k:count] to out[w:]. Stop before the first word that is not in
    the cache, or whose ids might change by rounding. Return (this word's index, or `count`; its
    start; its slot in the cache, or a free slot; the position after the last id; the new `total`).
    a: the start of words[k]; out: has room for two extra ids; rounds: True for a Unigram that sums
    scores as float32; total: if `rounds`, the sum of scores before `a`. Rounding might change
    a word's ids if total's absolute value reaches `calm` or the word's `safe` (see `add_word`)."""
    slot = np.uint64(0)
    while k < count:
        if words[k, HIGH] == 0:
            break
        end = np.int64(words[k, END])
        n = end - a
        slot = look_up(cache, words[k, SLOT], words[k, LOW], words[k, HIGH], data, a, n)
        if cache.entries[slot, 1] == 0:
            break
        if rounds:
            size = abs(np.float64(total))
            if size >= calm or size >= np.float64(cache.entries[slot, 3] >> _SAFE_BITS):
                break
        before = w
        w = recall(cache, slot, n, out, w)
        if rounds:
            for at in range(before, w):
                total += sums[out[at]]
        a = end
        k += 1
    return k, a, slot, w, total


# unknown: the id of characters without a token; bytes: int64[256]: ids of bytes, empty without byte
# fallback; joined: a run of unknown characters is one id.
Fallback = namedtuple("Fallback", "unknown bytes joined")


def byte_fallback(ids: Mapping[str, int]) -> np.ndarray:
    """Return the ids of the pieces `<0x00>` to `<0xFF>`. Raises Unsupported if one is missing."""
    if any(name not in ids for name in BYTE_PIECES):
        raise Unsupported("byte fallback without all 256 bytes")
    return np.array([ids[name] for name in BYTE_PIECES], np.int64)


_BLANK = 0x20


@njit(nogil=True)
def width_of(byte):
    """Return the length in bytes of the character that begins with this byte."""
    return 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4


@njit(cache=True, nogil=True)
def count_marked(data, at, marks):
    """Return how many characters from `at` on have 1 in marks (by code point), and the position of
    the first that has -1, or else the end."""
    count = 0
    while at < len(data):
        size = width_of(data[at])
        point = np.int64(data[at]) & (0x7F if size == 1 else 0x7F >> size)
        for k in range(at + 1, at + size):
            point = point << 6 | np.int64(data[k] & 0x3F)
        if marks[point] < 0:
            break
        count += marks[point]
        at += size
    return count, at


@njit(nogil=True)
def write_fallback(fallback, data, position, ids, w):
    """Write the fallback ids of the character at data[position:] to ids[w:]; return the position
    after the last id. A space is written as the bytes of U+2581."""
    byte_ids = fallback.bytes
    if len(byte_ids) == 0:
        ids[w] = fallback.unknown
        return w + 1
    if data[position] == _BLANK:
        ids[w] = byte_ids[0xE2]
        ids[w + 1] = byte_ids[0x96]
        ids[w + 2] = byte_ids[0x81]
        return w + 3
    width = width_of(data[position])
    for i in range(width):
        ids[w + i] = byte_ids[data[position + i]]
    return w + width


@njit(nogil=True)
def join_unknown(unknown, ids, first, w):
    """Reduce each run of unknown ids in ids[first:w] to one; return the new end of the ids."""
    end = first
    for k in range(first, w):
        if ids[k] != unknown or end == first or ids[end - 1] != unknown:
            ids[end] = ids[k]
            end += 1
    return end
