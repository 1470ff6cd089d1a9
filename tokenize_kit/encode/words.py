"""Pieces to ids: a cache of words that were met, and merging for those that were not.

The cache is emptied when it is full, so memory is bounded and ids never depend on it. A longer
piece is kept when it comes again: in a script without spaces few do, and keeping costs as much as
encoding.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from numba import njit

from tokenize_kit.bytes8 import hash_bytes, load8, load_few, stir
from tokenize_kit.encode.greedy import encode_greedy
from tokenize_kit.encode.merges import SHORT, merge_long, merge_short
from tokenize_kit.encode.trie import token_of

SLOTS = 1 << 18  # words of the cache, half of them in use at most
ARENA = 1 << 22  # bytes of long words, and ids of words of many
LONGEST = 64  # bytes of a word that is kept: longer ones hardly come again
SEEN = 1 << 17
INLINE = 15  # bytes of a word that stands in its entry
_LONG = np.uint64(0x80)
_32, _56 = np.uint64(32), np.uint64(56)
_LOW = np.uint64(0xFFFFFFFF)

# entries: uint64[SLOTS, 4]: the word, or its hash and place in `letters`; its ids, or their place
# in `ids`, and how many. used: int64[3]: entries, bytes of letters, ids.
# seen: uint16[SEEN], of words that do not stand in their entry and came once: a part of the hash.
Cache = namedtuple("Cache", "entries letters ids used seen")
# Of a byte-level BPE. bytes: int64[256]: the id of each byte; pairs: merges.pair_table;
# greedy: greedy.Greedy, which is used where `orderly`; slots, found: trie.build_trie of all tokens:
# where `whole`, a piece that is a token is that token, whatever merging gives.
Bpe = namedtuple("Bpe", "bytes pairs greedy orderly slots found whole")


def new_cache() -> Cache:
    """An empty one, 16 MiB."""
    return Cache(
        np.zeros((SLOTS, 4), np.uint64),
        np.empty(ARENA, np.uint8),
        np.empty(ARENA // 4, np.uint32),
        np.zeros(3, np.int64),
        np.zeros(SEEN, np.uint16),
    )


@njit(nogil=True)
def _by_rank(byte_ids, pairs, data, a, z, symbols, ranks):
    n = z - a
    for k in range(n):
        symbols[k] = byte_ids[data[a + k]]
    if n <= SHORT:
        return merge_short(pairs, symbols, ranks, n)
    return merge_long(pairs, symbols, ranks, n)


@njit(nogil=True, inline="always")
def same_bytes(letters, at, data, a, n):
    for k in range(n):
        if letters[at + k] != data[a + k]:
            return False
    return True


@njit(nogil=True, inline="always")
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


@njit(nogil=True, inline="always")
def seen_before(seen, low):
    """Whether a word of that first number was asked for before, as far as is remembered."""
    mixed = stir(low)
    slot, mark = mixed & np.uint64(SEEN - 1), np.uint16(mixed >> np.uint64(48))
    known = seen[slot] == mark
    seen[slot] = mark
    return known


@njit(nogil=True, inline="always")
def remember(entries, letters, ids, used, slot, low, high, data, a, z, symbols, n):
    """Fills an entry; empties the memory first where this word might not fit."""
    if used[0] > SLOTS // 2 or used[1] + LONGEST > ARENA or used[2] + LONGEST > ARENA // 4:
        for k in range(SLOTS):  # numba takes seconds to compile what slices do
            entries[k, 1] = np.uint64(0)
        for k in range(3):
            used[k] = 0
        slot = stir(low ^ (high * np.uint64(0x9E3779B97F4A7C15))) & np.uint64(SLOTS - 1)
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
    entries[slot, 3] = np.uint64(n)
    used[0] += 1


@njit(cache=True, nogil=True)
def encode_pieces(data, offsets, ends, counts, bpe, cache):
    """(ids: uint32[], sizes: int64[rows]) of rows cut into pieces (scan.cut_rows)."""
    total = offsets[-1] - offsets[0]
    out = np.empty(total, np.uint32)
    sizes = np.empty(len(counts), np.int64)
    longest = 1
    piece = 0
    for row in range(len(counts)):
        at = int(offsets[row])
        for _ in range(counts[row]):
            longest = max(longest, ends[piece] - at)
            at = int(ends[piece])
            piece += 1
    symbols, ranks = np.empty(longest, np.int64), np.empty(longest, np.int64)
    dead = np.zeros(longest + 1, np.bool_)
    # Taken out of their tuples once: that counts references, at every piece it would be a cost.
    entries, letters, ids, used, seen = cache
    byte_ids, pairs, greedy, orderly, whole_slots, whole_found, whole = bpe
    trie, found_tokens, tokens, token_pairs, joins = greedy
    pair_slots, pair_bits = token_pairs
    mask = np.uint64(SLOTS - 1)
    written = 0
    piece = 0
    for row in range(len(counts)):
        before = written
        a = int(offsets[row])
        for _ in range(counts[row]):
            z = int(ends[piece])
            piece += 1
            found = False
            low = high = slot = np.uint64(0)
            kept = z - a <= LONGEST
            if kept:
                low, high = word_key(data, a, z)
                kept = z - a <= INLINE or seen_before(seen, low)
            if kept:
                slot = stir(low ^ (high * np.uint64(0x9E3779B97F4A7C15))) & mask
                while entries[slot, 1] != 0:
                    if entries[slot, 0] == low and entries[slot, 1] == high:
                        n = int(entries[slot, 3])
                        if z - a > INLINE:
                            at = int(entries[slot, 2] >> _32)
                            found = same_bytes(letters, at, data, a, z - a)
                        else:
                            found = True
                        if found:
                            if n <= 2 and z - a <= INLINE:
                                out[written] = np.uint32(entries[slot, 2] & _LOW)
                                if n == 2:
                                    out[written + 1] = np.uint32(entries[slot, 2] >> _32)
                            else:
                                k0 = int(entries[slot, 2] & _LOW)
                                for k in range(n):
                                    out[written + k] = ids[k0 + k]
                            written += n
                            break
                    slot = (slot + np.uint64(1)) & mask
            if not found:
                n = 0
                if whole:
                    token = token_of(whole_slots, whole_found, data, a, z)
                    if token >= 0:
                        symbols[0] = token
                        n = 1
                if n == 0 and orderly:
                    n = encode_greedy(
                        trie, found_tokens, tokens, pair_slots, pair_bits, joins,
                        data, a, z, symbols, dead,
                    )  # fmt: skip
                elif n == 0:
                    n = _by_rank(byte_ids, pairs, data, a, z, symbols, ranks)
                for k in range(n):
                    out[written + k] = symbols[k]
                written += n
                if kept:
                    remember(entries, letters, ids, used, slot, low, high, data, a, z, symbols, n)
            a = z
        sizes[row] = written - before
    return out[:written], sizes
