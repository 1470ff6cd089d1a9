"""Which windows can stand more than once: a sieve before any suffix is sorted.

A window of L symbols is represented by its anchor, the block of b symbols in it whose hash is least
(winnowing: Schleimer, Wilkerson and Aiken 2003). Equal windows have equal anchors, so a window
whose anchor's hash was seen at one place only stands once. Hashes are counted in two slots each of
a table (a counting Bloom filter): a window that passes may still stand once, one that does not pass
never stands twice.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from curate.atomic import replacing
from curate.text.hashing import mix
from kernel_cache import njit

_BASE = np.uint64(0x9E3779B97F4A7C15)
_SMALLEST, _LARGEST = 16, 32  # log2 of the slots: 16 KiB to 1 GiB
_SLOTS = 64  # slots an anchor: of single anchors one in 1000 passes by chance, (2 / 64)^2


def block_of(window: int) -> int:
    """Symbols of an anchor's block: two thirds of the window."""
    return max(1, 2 * window // 3)


class Sieve:
    """Counts anchors, then tells which windows may stand twice. window: L, in symbols."""

    def __init__(self, window: int, symbols: int) -> None:
        """symbols: of the whole corpus, about; decides how much memory the table takes."""
        self.window, self.block = window, block_of(window)
        anchors = 1 + 2 * symbols // (window - self.block + 2)
        bits = min(_LARGEST, max(_SMALLEST, math.ceil(math.log2(anchors * _SLOTS))))
        self._shift = 64 - bits
        self._table = np.zeros(1 << (bits - 2), np.uint8)

    def save(self, path: Path) -> None:
        """Writes the counts, whole or not at all."""
        with replacing(path) as aside, aside.open("wb") as file:
            np.save(file, self._table)

    @classmethod
    def load(cls, path: Path, window: int) -> Sieve:
        """What `save` wrote, mapped."""
        found = cls(window, 0)
        # "c", since arrays that may be written to are of the type that kernels are compiled for.
        found._table = np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
        found._shift = 62 - int(math.log2(len(found._table)))
        return found

    def count(self, symbols: np.ndarray, offsets: np.ndarray) -> None:
        """Takes the anchors of documents: symbols: uint8[], uint16[] or uint32[]; offsets:
        int64[rows + 1]."""
        _count(symbols, offsets, self.window, self.block, self._table, self._shift)

    def passing(self, symbols: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """bool[offsets[-1] - offsets[0]]: whether the window that starts there may stand twice."""
        marks = np.zeros(int(offsets[-1] - offsets[0]), np.bool_)
        _pass(symbols, offsets, self.window, self.block, self._table, self._shift, marks)
        return marks


@njit(nogil=True, inline="always")
def _add(table, slot):
    """Counts to two, in two bits."""
    cell, low = slot >> np.uint64(2), (slot & np.uint64(3)) << np.uint64(1)
    seen = (np.uint64(table[cell]) >> low) & np.uint64(3)
    if seen < np.uint64(2):
        table[cell] += np.uint8(np.uint64(1) << low)


@njit(nogil=True, inline="always")
def _twice(table, slot):
    cell, low = slot >> np.uint64(2), (slot & np.uint64(3)) << np.uint64(1)
    return (np.uint64(table[cell]) >> low) & np.uint64(2) != np.uint64(0)


@njit(nogil=True)
def _row(symbols, start, stop, window, block, ring, table, shift, marks, base, counting):
    """The anchors of symbols[start:stop]: of blocks with the same hash the last one in a window is
    its anchor, so that the choice depends on the window alone."""
    wide = window - block + 1
    drop = np.uint64(1)
    for _ in range(block):
        drop *= _BASE
    value = np.uint64(0)
    for i in range(start, start + block - 1):
        value = value * _BASE + np.uint64(symbols[i]) + np.uint64(1)
    best = np.uint64(0)
    place = told = -1
    passes = False
    at = 0  # of the block in the ring
    for p in range(start, stop - block + 1):
        value = value * _BASE + np.uint64(symbols[p + block - 1]) + np.uint64(1)
        if p > start:
            value -= (np.uint64(symbols[p - 1]) + np.uint64(1)) * drop
        hashed = mix(value)
        ring[at] = hashed
        if place < 0 or hashed <= best:
            best, place = hashed, p
        elif place <= p - wide:
            best, place = hashed, p
            k = at
            for back in range(1, wide):
                k = k - 1 if k else wide - 1
                if ring[k] < best:
                    best, place = ring[k], p - back
        at = at + 1 if at + 1 < wide else 0
        first = p - wide + 1
        if first < start:
            continue
        if place != told:
            told = place
            one = (best * _BASE) >> np.uint64(shift)  # the least hashes begin alike
            two = mix(best) >> np.uint64(shift)
            if counting:
                _add(table, one)
                _add(table, two)
            else:
                passes = _twice(table, one) and _twice(table, two)
        if not counting:
            marks[first - base] = passes


@njit(cache=True, nogil=True)
def _count(symbols, offsets, window, block, table, shift):
    ring = np.empty(window - block + 1, np.uint64)
    none = np.empty(0, np.bool_)
    for r in range(len(offsets) - 1):
        if offsets[r + 1] - offsets[r] >= window:
            a, z = offsets[r], offsets[r + 1]
            _row(symbols, a, z, window, block, ring, table, shift, none, offsets[0], True)


@njit(cache=True, nogil=True)
def _pass(symbols, offsets, window, block, table, shift, marks):
    ring = np.empty(window - block + 1, np.uint64)
    for r in range(len(offsets) - 1):
        if offsets[r + 1] - offsets[r] >= window:
            a, z = offsets[r], offsets[r + 1]
            _row(symbols, a, z, window, block, ring, table, shift, marks, offsets[0], False)
