"""A blocked Bloom filter over 64-bit keys, as numba kernels.

Putze, Sanders and Singler 2007, "Cache-, Hash- and Space-Efficient Bloom Filters": all bits of a
key lie in one block of 512 bits, which is a cache line, so a look-up costs one cache miss instead
of one per bit. A filter is one or more slices of such blocks (Almeida et al. 2007, scalable Bloom
filters). A key is present if any slice contains it, and it is inserted into the first slice that is
not full.

The upper 32 bits of a key, scaled to the number of blocks, select its block. The upper 9 bits of
key * M, key * M^2, ... modulo 2^64 select its bits in the block.

A unit is what is removed as a whole: a paragraph or a document. In n-gram modes (DCLM's bff,
dedup/bff/src/main.rs) its keys are hashes of all runs of n words (UAX #29, punctuation included,
case kept). A unit of fewer than n words has no key. In Dolma's modes a unit has one key, a hash of
its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from curate.corpus.shuffle.buckets import popcount
from curate.text.buffers import as_large_string, text_buffers
from curate.text.compared import in_form
from curate.text.hashing import hash128, mix
from curate.text.lines import longest, newline_lines, strip_space
from curate.text.uax29 import class_table, state_table, uax_hashes
from llmcurate.base.kernels import njit

if TYPE_CHECKING:
    from curate.documents.documents import Documents


BLOCK_BITS = 512
BLOCK_WORDS = 8
MOST_BLOCKS = 2**32 - 1  # 256 GiB per slice
HASH = "blocked512-mul"  # the name of this scheme in a filter file
AHEAD = 256  # keys whose blocks are prefetched together: 16 kB

_M = np.uint64(0x9E3779B97F4A7C15)
_32, _55, _6, _3 = np.uint64(32), np.uint64(55), np.uint64(6), np.uint64(3)
_63, _ONE = np.uint64(63), np.uint64(1)
# Columns of the array `slices`: int64[slices, 5].
FIRST, BLOCKS, PROBES, CAPACITY, INSERTED = range(5)


@njit(nogil=True, inline="always")
def _block(key, first, blocks):
    return (first + (((key >> _32) * blocks) >> _32)) << _3


@njit(nogil=True)
def contains(words, slices, key):
    """Return 1 if the filter seems to contain the key, else 0. There is no early exit at an unset
    bit: the processor could not predict this branch, and a wrong guess waits for memory."""
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
    """Load the blocks of keys[first:stop] into the processor's cache, to make insertion faster.
    Insertion waits for each read in turn, but these reads overlap. With a filter of 50 MB,
    insertion then takes a sixth of the time. The caller must use the returned value, or the
    compiler removes the reads."""
    bits_read = np.uint64(0)
    for s in range(len(slices)):
        at, blocks = np.uint64(slices[s, FIRST]), np.uint64(slices[s, BLOCKS])
        for k in range(first, stop):
            bits_read |= words[_block(keys[k], at, blocks)]
    return bits_read


@njit(nogil=True)
def insert(words, slices, s, key):
    """Set the key's bits in slice s. Return 1 if any of them was not set before, else 0."""
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
    """Return the first slice that is not full, or the last one."""
    s = 0
    while s + 1 < len(slices) and slices[s, INSERTED] >= slices[s, CAPACITY]:
        s += 1
    return s


@njit(nogil=True)
def look_up(words, slices, keys, first, stop, hits):
    """Set hits[k] (uint8) to 1 for each present key of keys[first:stop]. Return their number."""
    count = np.int64(0)
    for k in range(first, stop):
        hits[k] = contains(words, slices, keys[k])
        count += hits[k]
    return count


@njit(nogil=True)
def insert_new(words, slices, keys, first, stop, hits):
    """Insert those of keys[first:stop] that `look_up` did not find (hits[k] is 0). `slices` has one
    row per part of the filter. The number of keys in the row of the part that is filled grows."""
    s = open_slice(slices)
    for k in range(first, stop):
        if hits[k] == 0:
            slices[s, INSERTED] += insert(words, slices, s, keys[k])
            if slices[s, INSERTED] >= slices[s, CAPACITY]:
                s = open_slice(slices)


@njit(cache=True, nogil=True)
def count_hits(words, slices, keys):
    """Return the number of keys (uint64[n]) that the filter seems to contain."""
    count = np.int64(0)
    for k in range(len(keys)):
        count += contains(words, slices, keys[k])
    return count


@njit(cache=True, nogil=True)
def count_bits(words):
    total = np.int64(0)
    for w in words:
        total += popcount(w)
    return total


_PRIME = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Grams:
    """The keys of a batch of documents, grouped by unit (a paragraph or a whole document)."""

    rows: np.ndarray  # int64[documents + 1], the index of each document's first unit
    start: np.ndarray  # int64[units], the unit's first byte in its document
    end: np.ndarray  # int64[units], the end of the unit's bytes (exclusive)
    keys: np.ndarray  # uint64, in the order of the units
    count: np.ndarray  # int64[units], the number of the unit's keys

    def table(self) -> pa.Table:
        """Return a table with one row per document and list columns keys, count, start and end."""
        before = np.concatenate([[0], np.cumsum(self.count)])
        lists = {
            "keys": (before[self.rows], self.keys),
            "count": (self.rows, self.count),
            "start": (self.rows, self.start),
            "end": (self.rows, self.end),
        }
        return pa.table(
            {
                name: pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), pa.array(values))
                for name, (ends, values) in lists.items()
            }
        )


@njit(nogil=True)
def _runs(hashes, count, size, seed, out):
    if count < size:
        return 0
    top = np.uint64(1)
    for _ in range(size - 1):
        top *= _PRIME
    salt = mix(seed ^ np.uint64(size)) if seed else np.uint64(size)
    value = np.uint64(0)
    for k in range(size):
        value = value * _PRIME + hashes[k]
    out[0] = mix(value ^ salt)
    for k in range(size, count):
        value = (value - hashes[k - size] * top) * _PRIME + hashes[k]
        out[k - size + 1] = mix(value ^ salt)
    return count - size + 1


@njit(cache=True, nogil=True)
def unit_grams(data, start, end, kinds, states, size, seed):
    """Return (keys, count): the hashes of all n-grams in order (uint64), and the number of n-grams
    of each unit (int64[units]). Unit k is data[start[k]:end[k]]."""
    capacity = longest(start, end) + 1
    starts, ends = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    hashes = np.empty(capacity, np.uint64)
    most = np.int64(0)
    for k in range(len(start)):
        most += end[k] - start[k]
    keys = np.empty(most, np.uint64)  # pages that are never written take no memory
    count = np.empty(len(start), np.int64)
    n = 0
    for k in range(len(start)):
        words = uax_hashes(data, start[k], end[k], kinds, states, starts, ends, hashes)
        count[k] = _runs(hashes, words, size, seed, keys[n:])
        n += count[k]
    return keys[:n], count


@njit(cache=True, nogil=True)
def whole_keys(data, start, end, seed):
    """Return (keys, count): a hash (uint64) of each unit data[start[k]:end[k]] that is not blank,
    and the number of hashes per unit (int64[units]), 0 for a blank unit and otherwise 1."""
    keys = np.empty(len(start), np.uint64)
    count = np.zeros(len(start), np.int64)
    n = 0
    for k in range(len(start)):
        a, z = strip_space(data, start[k], end[k])
        if a < z:
            low, _ = hash128(data, start[k], end[k])
            keys[n] = mix(low ^ seed)
            count[k] = 1
            n += 1
    return keys[:n], count


def _grams(
    docs: Documents,
    rows: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    keys: np.ndarray,
    count: np.ndarray,
) -> Grams:
    _, offsets = docs.buffers()
    base = np.repeat(offsets[:-1], np.diff(rows))
    has_keys = count > 0
    kept = np.concatenate([[0], np.cumsum(has_keys)])[rows]
    return Grams(kept, (start - base)[has_keys], (end - base)[has_keys], keys, count[has_keys])


def _windows(docs: Documents) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (rows, start, end) of the paragraphs as DCLM's program bff divides texts. A paragraph
    includes the newline before it, unless it is the first of its document."""
    lines = newline_lines(docs)
    start = lines.start - 1
    start[lines.rows[:-1]] += 1
    return lines.rows, start, lines.end


def _documents(docs: Documents) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    _, offsets = docs.buffers()
    return np.arange(len(offsets)), offsets[:-1], offsets[1:]


def grams_of(docs: Documents, whole: bool, size: int, seed: int, compare: str = "raw") -> Grams:
    """Return the n-grams (runs of `size` words) of each unit, as hashes. A unit is a document if
    `whole`; otherwise it is a paragraph, and texts are divided as in DCLM's program bff."""
    rows, start, end = _documents(docs) if whole else _windows(docs)
    texts = in_form(docs.buffers()[0], start, end, compare)
    keys, count = unit_grams(*texts, class_table(), state_table(), size, np.uint64(seed))
    return _grams(docs, rows, start, end, keys, count)


def paragraph_keys(docs: Documents, seed: int, compare: str = "raw") -> Grams:
    """Return one key per line that is not blank. A line includes its newline."""
    lines = newline_lines(docs)
    texts = in_form(docs.buffers()[0], lines.start, lines.end, compare)
    keys, count = whole_keys(*texts, np.uint64(seed))
    end = lines.end + 1
    end[lines.rows[1:] - 1] -= 1
    return _grams(docs, lines.rows, lines.start, end, keys, count)


def document_keys(docs: Documents, seed: int, key: str, compare: str = "raw") -> Grams:
    """Return one key per document: a hash of its URL if `key` is `url`, else of its text. A
    document has no key if its URL or text is blank or missing."""
    rows, start, end = _documents(docs)
    data, offsets = docs.buffers()
    if key == "url":
        data, offsets = text_buffers(as_large_string(docs.table["url"]))
    texts = in_form(data, offsets[:-1], offsets[1:], compare)
    keys, count = whole_keys(*texts, np.uint64(seed))
    return _grams(docs, rows, start, end, keys, count)
