"""Words of a text: where they end, a cache of their ids, and the fallback of unknown characters.

The cache is emptied when it is full, so memory is bounded and ids never depend on it. A longer
word is kept when it comes again: in a script without spaces few do, and keeping one costs as much
as encoding it.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import hash_bytes, load8, load_few, prefetch, stir
from tokenize_kit.formats.forms import BYTE_PIECES
from tokenize_kit.formats.tokenizer_json import Unsupported

SLOTS = 1 << 18  # words of the cache, half of them in use at most
ARENA = 1 << 22  # bytes of long words, and ids of words of many
LONGEST = 64  # bytes of a word that is kept: longer ones hardly come again
SEEN = 1 << 17
INLINE = 15  # bytes of a word that stands in its entry
_LONG = np.uint64(0x80)
_1, _8, _32, _56 = np.uint64(1), np.uint64(8), np.uint64(32), np.uint64(56)
_LOW, _MIX = np.uint64(0xFFFFFFFF), np.uint64(0x9E3779B97F4A7C15)
_MASK = np.uint64(SLOTS - 1)

# entries: uint64[SLOTS, 4]: the word, or its hash and position in `letters`; its ids, or their
# position in `ids`, and how many. used: int64[3]: entries, bytes of letters, ids. seen:
# uint16[SEEN], of words that do not stand in their entry and came once: a part of the hash.
Cache = namedtuple("Cache", "entries letters ids used seen")


def new_cache() -> Cache:
    """An empty one, 16 MiB."""
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
    """Whether these n bytes are the same, eight of them or more."""
    i, j, remaining = np.uint64(at), np.uint64(a), np.uint64(n)
    while remaining > _8:
        if load8(letters, i) != load8(data, j):
            return False
        i, j, remaining = i + _8, j + _8, remaining - _8
    return load8(letters, i + remaining - _8) == load8(data, j + remaining - _8)


@njit(nogil=True, forceinline=True)
def word_key(data, a, z):
    """The two numbers that a word of data[a:z] is looked up by; the second is never 0."""
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
    """Whether a word of that first number was asked for before, as far as is remembered."""
    mixed = stir(low)
    slot, mark = mixed & np.uint64(SEEN - 1), np.uint16(mixed >> np.uint64(48))
    repeated = seen[slot] == mark
    seen[slot] = mark
    return repeated


@njit(nogil=True)
def add_word(cache, slot, low, high, data, a, z, symbols, n, safe):
    """Fills an entry; empties the memory first where this word might not fit.

    safe: below 2**32, kept beside the number of ids.
    """
    entries, letters, ids, used = cache.entries, cache.letters, cache.ids, cache.used
    if used[0] > SLOTS // 2 or used[1] + LONGEST > ARENA or used[2] + LONGEST > ARENA // 4:
        for k in range(SLOTS):  # numba takes seconds to compile what slices do
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
    """The slot in which a word is looked up first."""
    return stir(low ^ (high * _MIX)) & _MASK


@njit(nogil=True, forceinline=True)
def look_up(cache, slot, low, high, data, a, n):
    """The slot, from first_slot's on, of the word of n bytes from a, looked up by `low` and `high`,
    or the one that it would take: free, where its second number is 0."""
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
    """Writes to out[w:] the ids of a known word of n bytes, and may write one more; returns the new
    length."""
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


# How our own Unigram's tokenizer.json is cut: a line end alone, spaces with what follows them.
WORDS = r"\n| +[^ \n]*|[^ \n]+"
_SPACE = np.uint8(0x20)
_SPACES, _LOWEST, _HIGHEST = (np.uint64(0x0101010101010101 * k) for k in (0x20, 0x01, 0x80))

# Whether a token has, inside, a space behind something else, something else behind a space, and a
# space behind a space.
Crossings = namedtuple("Crossings", "before behind between")


def crossings(tokens: Iterable[str]) -> Crossings:
    """The crossings of all tokens that a text may give; a space is a space."""
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
    """The first position behind a at which data[a:z] may be cut."""
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


@njit(nogil=True)
def longest_piece(offsets, ends, counts):
    """Bytes of the longest piece of rows that are cut (scan.cut_rows), 1 at least."""
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
    """Bytes of the longest row, or `least`, where that is more."""
    most = np.int64(least)
    for row in range(len(offsets) - 1):
        most = max(most, np.int64(offsets[row + 1] - offsets[row]))
    return most


BATCH = 64  # words that are looked for at once
END, LOW, HIGH, SLOT = range(4)
_SAFE_BITS = np.uint64(32)


class CachePool:
    """Memories of words for threads that share an encoder: each takes one while it encodes."""

    def __init__(self) -> None:
        self._idle = [new_cache()]

    def run(self, kernel: Callable[..., Any], *given: Any) -> tuple[np.ndarray, np.ndarray]:
        """What a kernel makes of what it is given, and behind that of a cache that no other thread
        has: (ids: uint32[], how many of each row: int64[rows])."""
        try:
            cache = self._idle.pop()
        except IndexError:
            cache = new_cache()
        ids, sizes = kernel(*given, cache)
        self._idle.append(cache)
        return ids, sizes


@njit(nogil=True)
def cut_words(data, a, z, crossed, cache, words):
    """Cuts data[a:z] into words, BATCH of them at most; returns how many.

    words: uint64[BATCH, 4]: where each ends, its key (second number 0: not to be looked for, nor
    kept) and the slot it would take, which is on its way into the processor's caches: most words
    are rare, and the table is large.
    """
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
    """Writes to out[w:] the ids of words[k:count] up to the first one that is not known.

    a: where the first of them begins; sums, rounds: of a Unigram, where words have sums (then
    float32 total is that of the text before a, and beyond calm no path is safe); out: with room for
    two ids more than there may be. Returns (that word, `count` for none; where it begins; its slot,
    free where it is new; the new length; the new sum).
    """
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


# unknown: the id of what has no token; bytes: int64[256]: ids of bytes, empty where characters do
# not fall back to them; joined: whether a run of unknown characters in a row is one id.
Fallback = namedtuple("Fallback", "unknown bytes joined")


def byte_fallback(ids: Mapping[str, int]) -> np.ndarray:
    """The bytes of a Fallback, from the ids of the pieces `<0x00>` to `<0xFF>`; raises
    Unsupported."""
    if any(name not in ids for name in BYTE_PIECES):
        raise Unsupported("bytes that are not all there")
    return np.array([ids[name] for name in BYTE_PIECES], np.int64)


_BLANK = 0x20


@njit(nogil=True)
def width_of(byte):
    """Bytes of the character that begins with this one."""
    return 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4


@njit(nogil=True)
def write_fallback(fallback, data, position, ids, w):
    """Writes to ids[w:] what the character at data[position:] falls back to; returns the new
    length.

    A space stands for U+2581.
    """
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
    """Makes every run of unknown ids in ids[first:w] one; returns the new length."""
    end = first
    for k in range(first, w):
        if ids[k] != unknown or end == first or ids[end - 1] != unknown:
            ids[end] = ids[k]
            end += 1
    return end
