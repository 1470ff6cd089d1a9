"""Distinct words of a corpus, counted and laid out for learning merges.

Memory grows with the distinct words, not with the texts; counts are 64-bit. The distinct words of
gigabytes of text have hundreds of millions of bytes. To save memory, only one array has an element
per symbol, an int32. Words are sorted by weight, so the weight of a word follows from its position.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from llmcurate.base.errors import RunFailed
from llmcurate.base.kernels import njit, read_only
from llmcurate.base.kernels.intrinsics import hash_bytes
from tokenize_kit.encode.parts import pack
from tokenize_kit.pattern.automaton import Table
from tokenize_kit.pattern.scan import cut_rows

_SLOTS, _BYTES = 1 << 16, 1 << 20


class WordCounts:
    """Counts the pieces into which patterns cut texts: call `add` for batches, then read `words`.
    tables: compiled patterns, applied one after the other; none if only `add_pieces` is used."""

    def __init__(self, tables: Sequence[Table] = ()) -> None:
        self.tables = tuple(table.kernel for table in tables)
        self.slots = np.full(_SLOTS, -1, np.int64)
        self.hashes = np.empty(_SLOTS // 2, np.uint64)
        self.counts = np.empty(_SLOTS // 2, np.int64)
        self.ends = np.zeros(_SLOTS // 2 + 1, np.int64)
        self.letters = np.empty(_BYTES, np.uint8)
        self.used = 0

    def add(self, data: np.ndarray, offsets: np.ndarray, weight: int = 1) -> None:
        """Count the pieces of texts. data: uint8[], valid UTF-8; offsets: int64[rows + 1]."""
        data = read_only(data)
        ends, _ = cut_rows(data, offsets, self.tables)
        self.add_pieces(data, int(offsets[0]), ends, np.full(len(ends), weight))

    def add_pieces(
        self, data: np.ndarray, start: int, ends: np.ndarray, weights: np.ndarray
    ) -> None:
        """Count adjoining pieces of `data` from `start` on. ends, weights: int64[pieces]."""
        data = read_only(data)
        at = 0
        while at < len(ends):
            at, start, self.used = _count(
                data, ends, at, start, weights, self.slots, self.hashes, self.counts, self.ends,
                self.letters, self.used,
            )  # fmt: skip
            if at < len(ends):
                self._grow(int(ends[at]) - start)

    def _grow(self, more: int) -> None:
        if self.used == len(self.counts):
            self.hashes = _wider(self.hashes, 2 * self.used)
            self.counts = _wider(self.counts, 2 * self.used)
            self.ends = _wider(self.ends, 2 * self.used + 1)
            del self.slots  # frees memory before the new slots are allocated
            self.slots = np.full(4 * self.used, -1, np.int64)
            _fill(self.slots, self.hashes, self.used)
        need = int(self.ends[self.used]) + more
        if need > len(self.letters):
            self.letters = _wider(self.letters, max(need, len(self.letters) * 3 // 2))

    def __len__(self) -> int:
        return self.used

    def words(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the distinct pieces: (bytes: uint8[], ends: int64[n + 1], counts: int64[n])."""
        ends = self.ends[: self.used + 1]
        return self.letters[: ends[-1]], ends, self.counts[: self.used]


def _wider(array: np.ndarray, size: int) -> np.ndarray:
    grown = np.empty(size, array.dtype)
    grown[: len(array)] = array
    return grown


@njit(cache=True, nogil=True)
def _fill(slots, hashes, used):
    mask = np.uint64(len(slots) - 1)
    for k in range(used):
        slot = hashes[k] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = k


@njit(cache=True, nogil=True)
def _count(data, ends, at, start, weights, slots, hashes, counts, word_ends, letters, used):
    mask = np.uint64(len(slots) - 1)
    while at < len(ends):
        z = ends[at]
        value = hash_bytes(data, start, z)
        slot = value & mask
        equal = False
        while slots[slot] >= 0:
            k = slots[slot]
            if hashes[k] == value and word_ends[k + 1] - word_ends[k] == z - start:
                equal = True
                b = word_ends[k]
                for i in range(z - start):
                    if letters[b + i] != data[start + i]:
                        equal = False
                        break
                if equal:
                    counts[k] += weights[at]
                    break
            slot = (slot + np.uint64(1)) & mask
        if not equal:
            b = word_ends[used]
            if used == len(counts) or b + z - start > len(letters):
                return at, start, used
            for i in range(z - start):
                letters[b + i] = data[start + i]
            word_ends[used + 1] = b + z - start
            hashes[used] = value
            counts[used] = weights[at]
            slots[slot] = used
            used += 1
        start = z
        at += 1
    return at, start, used


BLOCK = np.int64(6)  # bits of a position within a block of cells

# cells: int32[]: words with -1 before, between and after them. A token's id is in its first and its
# last cell; the first cell of the right one of two merged tokens becomes -2. lengths: int32[]:
# cells of each token. values: int64[classes]: the distinct weights, falling; bounds:
# int64[classes + 1]: first cell of each class; blocks: int32[]: class of the first cell of each
# block; pairs: weighted occurrences of all pairs.
Text = namedtuple("Text", "cells lengths blocks bounds values pairs")


def lay_out(
    symbols: np.ndarray,
    ends: np.ndarray,
    weights: np.ndarray,
    numbers: np.ndarray | None = None,
) -> Text:
    """Return words laid out as a `Text`, whose field `lengths` is empty until merges are learned.
    Words of one symbol, which have no pairs, or of weight 0 are left out. symbols: uint8[] or
    int32[], the words concatenated; ends: int64[words + 1], their bounds; weights: int64[words];
    numbers: int32[], the id of each symbol, by default the symbol itself. Raises LlmcurateError if
    there are more than 2^31 symbols."""
    words = np.flatnonzero((np.diff(ends) > 1) & (weights > 0))
    words = words[np.argsort(-weights[words], kind="stable")]
    sizes = ends[words + 1] - ends[words]
    total = int(sizes.sum()) + len(words) + 1
    if total >= 2**31:
        raise RunFailed(
            f"the corpus has {total:,} bytes of distinct pieces, more than 2,147,483,647:"
            " train on a sample (--sample-bytes)"
        )
    if numbers is None:
        numbers = np.arange(int(symbols.max(initial=0)) + 1, dtype=np.int32)
    sorted_weights = weights[words]
    first = np.flatnonzero(np.diff(sorted_weights, prepend=-1))
    cells, bounds = _cells(symbols, ends, words, numbers, first, total)
    positions = np.arange(0, total, 1 << BLOCK)
    blocks = np.maximum(np.searchsorted(bounds, positions, side="right") - 1, 0).astype(np.int32)
    pairs = int(np.dot(sorted_weights, sizes - 1))
    return Text(cells, np.zeros(0, np.int32), blocks, bounds, sorted_weights[first], pairs)


@njit(cache=True, nogil=True)
def _cells(symbols, ends, words, numbers, first, total):
    cells = np.full(total, -1, np.int32)
    bounds = np.empty(len(first) + 1, np.int64)
    at, k = np.int64(1), 0
    for w in range(len(words)):
        if k < len(first) and first[k] == w:
            bounds[k] = at
            k += 1
        for position in range(ends[words[w]], ends[words[w] + 1]):
            cells[at] = numbers[symbols[position]]
            at += 1
        at += 1
    bounds[k] = total
    return cells, bounds


@njit(nogil=True, forceinline=True)
def weight_at(blocks, bounds, values, at):
    """Return the weight of a word. at: the index in a Text's array `cells` of any element of the
    word. blocks, bounds, values: fields of the same Text."""
    k = np.int64(blocks[at >> BLOCK])
    while at >= bounds[k + 1]:
        k += 1
    return values[k]


_BATCH = 4 << 20  # bytes


def weighted_batches(
    documents: Iterable[tuple[str, int]],
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield texts in batches; all texts of a batch have the same weight: (data: uint8[], offsets:
    int64[texts + 1], weight)."""
    waiting: dict[int, list[bytes]] = {}
    size = 0
    for text, weight in documents:
        raw = text.encode("utf-8")
        waiting.setdefault(weight, []).append(raw)
        size += len(raw)
        if size >= _BATCH:
            for of_weight, batch in waiting.items():
                yield *pack(batch), of_weight
            waiting.clear()
            size = 0
    for of_weight, batch in waiting.items():
        yield *pack(batch), of_weight
