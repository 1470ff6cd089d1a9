"""Pieces to ids: a cache of words that were met, and merging for those that were not.

The cache is emptied when it is full, so memory is bounded and ids never depend on it. A longer
piece is kept when it comes again: in a script without spaces few do, and keeping costs as much as
encoding.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kernel_cache import njit
from tokenize_kit.encode.bytes8 import hash_bytes, load8, load_few, njit_bare, njit_within, stir
from tokenize_kit.encode.greedy import encode_greedy
from tokenize_kit.encode.merges import SHORT, merge_long, merge_short
from tokenize_kit.encode.trie import token_of

SLOTS = 1 << 18  # words of the cache, half of them in use at most
ARENA = 1 << 22  # bytes of long words, and ids of words of many
LONGEST = 64  # bytes of a word that is kept: longer ones hardly come again
SEEN = 1 << 17
INLINE = 15  # bytes of a word that stands in its entry
_LONG = np.uint64(0x80)
_1, _8, _32, _56 = np.uint64(1), np.uint64(8), np.uint64(32), np.uint64(56)
_LOW, _MIX = np.uint64(0xFFFFFFFF), np.uint64(0x9E3779B97F4A7C15)
_MASK = np.uint64(SLOTS - 1)

# entries: uint64[SLOTS, 4]: the word, or its hash and place in `letters`; its ids, or their place
# in `ids`, and how many. used: int64[3]: entries, bytes of letters, ids.
# seen: uint16[SEEN], of words that do not stand in their entry and came once: a part of the hash.
Cache = namedtuple("Cache", "entries letters ids used seen")
# Of a byte-level BPE. bytes: int64[256]: the id of each byte; pairs: merges.pair_table;
# greedy: greedy.Greedy, which is used where `orderly`; slots, found: trie.build_trie of all tokens:
# where `whole`, a piece that is a token is that token, whatever merging gives.
Bpe = namedtuple("Bpe", "bytes pairs greedy orderly slots found whole")
# Room for a piece. symbols, ranks: int64[n]; dead: bool[n + 1], all False.
Room = namedtuple("Room", "symbols ranks dead")


def new_cache() -> Cache:
    """An empty one, 16 MiB."""
    room = np.zeros(4 * SLOTS + 4, np.uint64)
    first = -(room.ctypes.data // 8) % 4  # no entry lies in two cache lines
    return Cache(
        room[first : first + 4 * SLOTS].reshape(SLOTS, 4),
        np.empty(ARENA, np.uint8),
        np.empty(ARENA // 4, np.uint32),
        np.zeros(3, np.int64),
        np.zeros(SEEN, np.uint16),
    )


@njit_bare
def _by_rank(byte_ids, pairs, data, a, z, symbols, ranks):
    n = z - a
    for k in range(n):
        symbols[k] = byte_ids[data[a + k]]
    if n <= SHORT:
        return merge_short(pairs, symbols, ranks, n)
    return merge_long(pairs, symbols, ranks, n)


@njit_bare
def same_bytes(letters, at, data, a, n):
    """Whether these n bytes are the same, eight of them or more."""
    i, j, left = np.uint64(at), np.uint64(a), np.uint64(n)
    while left > _8:
        if load8(letters, i) != load8(data, j):
            return False
        i, j, left = i + _8, j + _8, left - _8
    return load8(letters, i + left - _8) == load8(data, j + left - _8)


@njit_within
def word_key(data, a, z):
    """The two numbers that a word of data[a:z] is found by; the second is never 0."""
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


@njit_within
def seen_before(seen, low):
    """Whether a word of that first number was asked for before, as far as is remembered."""
    mixed = stir(low)
    slot, mark = mixed & np.uint64(SEEN - 1), np.uint16(mixed >> np.uint64(48))
    known = seen[slot] == mark
    seen[slot] = mark
    return known


@njit_bare
def remember(cache, slot, low, high, data, a, z, symbols, n, safe):
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
    place = np.uint64(0)
    if size > INLINE:
        place = np.uint64(used[1])
        for k in range(size):
            letters[used[1] + k] = data[a + k]
        used[1] += size
    if n > 2 or size > INLINE:
        entries[slot, 2] = np.uint64(used[2]) | place << _32
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


@njit_within
def first_slot(low, high):
    """Where a word is looked for first."""
    return stir(low ^ (high * _MIX)) & _MASK


@njit_within
def look_up(cache, slot, low, high, data, a, n):
    """The slot, from first_slot's on, of the word of n bytes from a, found by `low` and `high`, or
    the one that it would take: free, where its second number is 0."""
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


@njit_within
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


@njit_bare
def _new_piece(data, a, z, bpe, room):
    """Writes the ids of a piece to room.symbols; returns how many."""
    if bpe.whole:
        token = token_of(bpe.slots, bpe.found, data, a, z)
        if token >= 0:
            room.symbols[0] = token
            return 1
    if bpe.orderly:
        return encode_greedy(bpe.greedy, data, a, z, room.symbols, room.dead)
    return _by_rank(bpe.bytes, bpe.pairs, data, a, z, room.symbols, room.ranks)


@njit_bare
def _encode(data, offsets, ends, counts, bpe, cache, room, out, sizes):
    """Writes the ids of all rows to out, their number to sizes; returns how many there are."""
    w, piece = np.int64(0), 0
    for row in range(len(counts)):
        before = w
        a = np.int64(offsets[row])
        for _ in range(counts[row]):
            z = np.int64(ends[piece])
            piece += 1
            found = False
            low = high = slot = np.uint64(0)
            kept = z - a <= LONGEST
            if kept:
                low, high = word_key(data, a, z)
                kept = z - a <= INLINE or seen_before(cache.seen, low)
            if kept:
                slot = look_up(cache, first_slot(low, high), low, high, data, a, z - a)
                found = cache.entries[slot, 1] != 0
            if found:
                w = recall(cache, slot, z - a, out, w)
            else:
                n = _new_piece(data, a, z, bpe, room)
                for k in range(n):
                    out[w + k] = room.symbols[k]
                w += n
                if kept:
                    remember(cache, slot, low, high, data, a, z, room.symbols, n, np.int64(0))
            a = z
        sizes[row] = w - before
    return w


@njit(cache=True, nogil=True)
def encode_pieces(data, offsets, ends, counts, bpe, cache):
    """(ids: uint32[], sizes: int64[rows]) of rows cut into pieces (scan.cut_rows)."""
    out = np.empty(offsets[-1] - offsets[0] + 1, np.uint32)
    sizes = np.empty(len(counts), np.int64)
    longest = 1
    piece = 0
    for row in range(len(counts)):
        at = int(offsets[row])
        for _ in range(counts[row]):
            longest = max(longest, ends[piece] - at)
            at = int(ends[piece])
            piece += 1
    room = Room(
        np.empty(longest, np.int64), np.empty(longest, np.int64), np.zeros(longest + 1, np.bool_)
    )
    return out[: _encode(data, offsets, ends, counts, bpe, cache, room, out, sizes)], sizes
