"""Keys that a Bloom dedup looks up: 64 bits of n-grams, paragraphs or documents, by unit.

A unit is what is removed as a whole. In n-gram modes (DCLM's bff, dedup/bff/src/main.rs) its keys
are those of all runs of n words (UAX #29, punctuation included, case kept); a unit of fewer words
has one key, of all of them, where it has the least number, else none. In Dolma's modes it has one
key, of its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from curate.text.buffers import as_large_string, text_buffers
from curate.text.hashing import hash128, mix
from curate.text.lines import newline_lines, strip_space
from curate.text.uax29 import class_table, state_table, uax_hashes
from llmcurate.base.kernels import njit

if TYPE_CHECKING:
    from curate.documents.documents import Documents


_PRIME = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Grams:
    """rows: int64[rows + 1], the first unit of each row; start, end: int64[units], bytes within
    the row; keys: uint64[], by unit; first: int64[units], how many keys begin in the unit; last:
    how many end in it (the same array where no key spans units)."""

    rows: np.ndarray
    start: np.ndarray
    end: np.ndarray
    keys: np.ndarray
    first: np.ndarray
    last: np.ndarray

    def table(self) -> pa.Table:
        """The sketch: a row a document, in lists."""
        before = np.concatenate([[0], np.cumsum(self.first)])
        lists = {
            "keys": (before[self.rows], self.keys),
            "first": (self.rows, self.first),
            "last": (self.rows, self.last if self.last is not self.first else self.last[:0]),
            "start": (self.rows, self.start),
            "end": (self.rows, self.end),
        }
        return pa.table(
            {
                name: pa.LargeListArray.from_arrays(
                    pa.array(np.minimum(ends, len(values)), pa.int64()), pa.array(values)
                )
                for name, (ends, values) in lists.items()
            }
        )


@njit(nogil=True)
def _runs(hashes, count, size, least, seed, out):
    """Keys of all runs of `size` words, put into out; fewer words, but `least`, are one run."""
    if count < size:
        if count < least or count == 0:
            return 0
        size = count
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


@njit(nogil=True)
def _longest(start, end):
    longest = np.int64(0)
    for k in range(len(start)):
        longest = max(longest, end[k] - start[k])
    return longest


@njit(cache=True, nogil=True)
def unit_grams(data, start, end, kinds, states, size, least, seed):
    """(keys: uint64[], count: int64[units]) of the units data[start[k]:end[k]]."""
    capacity = _longest(start, end) + 1
    starts, ends = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    hashes = np.empty(capacity, np.uint64)
    most = np.int64(0)
    for k in range(len(start)):
        most += end[k] - start[k]
    keys = np.empty(most, np.uint64)  # memory that is never touched is never used
    count = np.empty(len(start), np.int64)
    n = 0
    for k in range(len(start)):
        words = uax_hashes(data, start[k], end[k], kinds, states, starts, ends, hashes)
        count[k] = _runs(hashes, words, size, least, seed, keys[n:])
        n += count[k]
    return keys[:n], count


@njit(cache=True, nogil=True)
def spanning_grams(data, offsets, rows, start, end, kinds, states, size, least, seed):
    """(keys: uint64[], first, last: int64[units]): runs of words of whole rows, and how many of
    them begin and end in each unit data[start[k]:end[k]] of the row."""
    n_rows = len(offsets) - 1
    capacity = _longest(offsets[:-1], offsets[1:]) + 1
    starts, ends = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    hashes = np.empty(capacity, np.uint64)
    keys = np.empty(offsets[n_rows] - offsets[0], np.uint64)
    first = np.zeros(len(start), np.int64)
    last = np.zeros(len(start), np.int64)
    n = 0
    for r in range(n_rows):
        words = uax_hashes(data, offsets[r], offsets[r + 1], kinds, states, starts, ends, hashes)
        runs = _runs(hashes, words, size, least, seed, keys[n:])
        length = words - runs + 1
        a = z = rows[r]
        for k in range(runs):
            while starts[k] >= end[a]:
                a += 1
            while starts[k + length - 1] >= end[z]:
                z += 1
            first[a] += 1
            last[z] += 1
        n += runs
    return keys[:n], first, last


@njit(cache=True, nogil=True)
def whole_keys(data, start, end, seed):
    """(keys: uint64[], count: int64[units]): the key of each unit's bytes, none for a unit of
    nothing but white space."""
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
    first: np.ndarray,
    last: np.ndarray,
) -> Grams:
    """Without units that hold no key, which are never removed; spans within their rows."""
    _, offsets = docs.buffers()
    base = np.repeat(offsets[:-1], np.diff(rows))
    has_keys = (first > 0) | (last > 0)
    kept = np.concatenate([[0], np.cumsum(has_keys)])[rows]
    first_kept = first[has_keys]
    last_kept = first_kept if last is first else last[has_keys]
    return Grams(
        kept, (start - base)[has_keys], (end - base)[has_keys], keys, first_kept, last_kept
    )


def _windows(docs: Documents) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """bff's paragraphs: (rows, start, end) between newlines; from the second of a row on, each
    begins with its newline."""
    lines = newline_lines(docs)
    start = lines.start - 1
    start[lines.rows[:-1]] += 1
    return lines.rows, start, lines.end


def _documents(docs: Documents) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    _, offsets = docs.buffers()
    return np.arange(len(offsets)), offsets[:-1], offsets[1:]


def paragraph_grams(docs: Documents, size: int, least: int, seed: int) -> Grams:
    """n-grams of each of bff's paragraphs."""
    data, _ = docs.buffers()
    rows, start, end = _windows(docs)
    keys, count = unit_grams(
        data, start, end, class_table(), state_table(), size, least, np.uint64(seed)
    )
    return _grams(docs, rows, start, end, keys, count, count)


def document_grams(docs: Documents, size: int, least: int, seed: int) -> Grams:
    """n-grams of each document, which is one unit."""
    data, _ = docs.buffers()
    rows, start, end = _documents(docs)
    keys, count = unit_grams(
        data, start, end, class_table(), state_table(), size, least, np.uint64(seed)
    )
    return _grams(docs, rows, start, end, keys, count, count)


def both_grams(docs: Documents, size: int, least: int, seed: int) -> Grams:
    """n-grams of each document, which may span its paragraphs; units are the paragraphs."""
    data, offsets = docs.buffers()
    rows, start, end = _windows(docs)
    tables = class_table(), state_table()
    keys, first, last = spanning_grams(
        data, offsets, rows, start, end, *tables, size, least, np.uint64(seed)
    )
    return _grams(docs, rows, start, end, keys, first, last)


def paragraph_keys(docs: Documents, seed: int) -> Grams:
    """One key a line of more than white space; a line goes with the newline behind it."""
    data, _ = docs.buffers()
    lines = newline_lines(docs)
    keys, count = whole_keys(data, lines.start, lines.end, np.uint64(seed))
    end = lines.end + 1
    end[lines.rows[1:] - 1] -= 1
    return _grams(docs, lines.rows, lines.start, end, keys, count, count)


def document_keys(docs: Documents, seed: int, key: str) -> Grams:
    """One key a document, of its text or its URL, where it has one."""
    rows, start, end = _documents(docs)
    data, offsets = docs.buffers()
    if key == "url":
        data, offsets = text_buffers(as_large_string(docs.table["url"]))
    keys, count = whole_keys(data, offsets[:-1], offsets[1:], np.uint64(seed))
    return _grams(docs, rows, start, end, keys, count, count)
