"""A blocked Bloom filter over 64-bit keys, as numba kernels.

Putze, Sanders and Singler 2007, "Cache-, Hash- and Space-Efficient Bloom Filters": the bits of a
key all lie in one block of 512 bits, a cache line, so a look-up costs one miss instead of k. A
filter is one or more slices of such blocks (Almeida et al. 2007, scalable Bloom filters): a key is
in it if it is in any slice, and goes into the first one that is not full.

Block: the upper 32 bits of the key, scaled to the number of blocks. Bits: the upper 9 bits of
key * M, key * M^2, ... modulo 2^64.
"""

from __future__ import annotations

import numpy as np

from llmcurate.base.kernels import njit

BLOCK_BITS = 512
BLOCK_WORDS = 8
MOST_BLOCKS = 2**32 - 1  # 256 GiB a slice
HASH = "blocked512-mul"  # names the above in a filter's file
AHEAD = 256  # keys whose blocks are read at once: 16 kB

_M = np.uint64(0x9E3779B97F4A7C15)
_32, _55, _6, _3 = np.uint64(32), np.uint64(55), np.uint64(6), np.uint64(3)
_63, _ONE = np.uint64(63), np.uint64(1)
# Masks that add up the bits of a word.
_PAIRS, _FOURS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_BYTES, _ONES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
# Columns of the array `slices`: int64[slices, 5].
FIRST, BLOCKS, PROBES, CAPACITY, INSERTED = range(5)


@njit(nogil=True, inline="always")
def _block(key, first, blocks):
    """The first word of the key's block in a slice."""
    return (first + (((key >> _32) * blocks) >> _32)) << _3


@njit(nogil=True)
def contains(words, slices, key):
    """Whether the key is in the filter (or seems to be): 1 or 0.

    Without an exit once a bit is not set: it cannot be predicted, and a wrong guess waits for
    memory.
    """
    any_hit = np.uint64(0)
    for s in range(len(slices)):
        at = _block(key, np.uint64(slices[s, FIRST]), np.uint64(slices[s, BLOCKS]))
        x = key
        hit = _ONE
        for _ in range(slices[s, PROBES]):
            x *= _M
            bit = x >> _55
            hit &= words[at + (bit >> _6)] >> (bit & _63)
        any_hit |= hit
    return np.uint8(any_hit & _ONE)


@njit(nogil=True)
def touch(words, slices, keys, first, stop):
    """Reads the blocks of keys[first:stop], so that they are in the cache when they are needed.

    These reads do not wait for each other, as those of test-and-insert do; on a filter of 50 MB
    that makes it six times as fast. Whoever calls this must return what it returns, or the
    compiler leaves it out.
    """
    bits_read = np.uint64(0)
    for s in range(len(slices)):
        at, blocks = np.uint64(slices[s, FIRST]), np.uint64(slices[s, BLOCKS])
        for k in range(first, stop):
            bits_read |= words[_block(keys[k], at, blocks)]
    return bits_read


@njit(nogil=True)
def insert(words, slices, s, key):
    """Sets the key's bits in slice s; returns whether one of them was not set, as 1 or 0."""
    at = _block(key, np.uint64(slices[s, FIRST]), np.uint64(slices[s, BLOCKS]))
    x = key
    new = np.uint64(0)
    for _ in range(slices[s, PROBES]):
        x *= _M
        bit = x >> _55
        mask = _ONE << (bit & _63)
        word = words[at + (bit >> _6)]
        new |= mask & ~word
        words[at + (bit >> _6)] = word | mask
    return np.int64(new != 0)


@njit(nogil=True)
def open_slice(slices):
    """The first slice that is not full, or the last one."""
    s = 0
    while s + 1 < len(slices) and slices[s, INSERTED] >= slices[s, CAPACITY]:
        s += 1
    return s


@njit(nogil=True)
def look_up(words, slices, keys, first, stop, hits):
    """Writes to hits: uint8[keys] which of keys[first:stop] are in the filter; returns how many."""
    count = np.int64(0)
    for k in range(first, stop):
        hits[k] = contains(words, slices, keys[k])
        count += hits[k]
    return count


@njit(nogil=True)
def insert_new(words, slices, keys, first, stop, hits):
    """Inserts those of keys[first:stop] that `look_up` did not find, and counts them."""
    s = open_slice(slices)
    for k in range(first, stop):
        if hits[k] == 0:
            slices[s, INSERTED] += insert(words, slices, s, keys[k])
            if slices[s, INSERTED] >= slices[s, CAPACITY]:
                s = open_slice(slices)


@njit(cache=True, nogil=True)
def count_hits(words, slices, keys):
    """Number of the keys: uint64[n] that are in the filter."""
    count = np.int64(0)
    for k in range(len(keys)):
        count += contains(words, slices, keys[k])
    return count


@njit(cache=True, nogil=True)
def add_keys(words, slices, keys, hits):
    """Test-and-insert, one key after the other; hits: uint8[n], whether each was there before."""
    s = open_slice(slices)
    bits_read = np.uint64(0)
    ahead = 0
    for k in range(len(keys)):
        if k == ahead:
            ahead = min(len(keys), k + AHEAD)
            bits_read |= touch(words, slices, keys, k, ahead)
        hits[k] = contains(words, slices, keys[k])
        if hits[k] == 0:
            slices[s, INSERTED] += insert(words, slices, s, keys[k])
            if slices[s, INSERTED] >= slices[s, CAPACITY]:
                s = open_slice(slices)
    return bits_read


@njit(cache=True, nogil=True)
def count_bits(words):
    """Set bits in words: uint64[n]."""
    total = np.int64(0)
    for w in words:
        w -= (w >> _ONE) & _PAIRS
        w = (w & _FOURS) + ((w >> np.uint64(2)) & _FOURS)
        w = (w + (w >> np.uint64(4))) & _BYTES
        total += np.int64((w * _ONES) >> np.uint64(56))
    return total
