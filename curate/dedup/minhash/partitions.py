"""Pairs (key, value) in partitions of a file, by the high bits of keys: an external radix sort.

A writer fills a segment in memory, orders it by partition and appends it. A partition is read back
from its place in every segment, in the order of arrival, and is then sorted by itself. So memory is
for one segment or one partition, whatever there is in all. A partition that is far larger than the
others (one key that very many have) lies in files that are mapped into memory.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

SEGMENT = 2_000_000  # pairs that are ordered at once
PARTITION = 1_000_000  # pairs a partition that are aimed at
LARGE = 16_000_000  # from so many pairs on, memory is that of files
DIGIT = 11  # bits that one pass of the sort looks at
KEYS, VALUES, SEGMENTS = "keys.u64", "values.u32", "segments.npy"


@njit(cache=True, nogil=True)
def by_partition(keys, values, bits, keys_out, values_out):
    """int64[2^bits + 1]: where each partition begins in the outputs, which hold the pairs ordered
    by the high `bits` of their keys; in a partition their order stays. Values may be absent."""
    # A shift by 64 is none: all keys of a single partition are shifted by 63 twice.
    shift, more = np.uint64(64 - max(bits, 1)), np.uint64(0 if bits else 1)
    starts = np.zeros((1 << bits) + 1, np.int64)
    for i in range(len(keys)):
        starts[np.int64(keys[i] >> shift >> more) + 1] += 1
    for p in range(1 << bits):
        starts[p + 1] += starts[p]
    place = starts[:-1].copy()
    for i in range(len(keys)):
        mine = np.int64(keys[i] >> shift >> more)
        keys_out[place[mine]] = keys[i]
        if len(values):
            values_out[place[mine]] = values[i]
        place[mine] += 1
    return starts


@njit(cache=True, nogil=True)
def sort_pass(keys, values, shift, keys_out, values_out):
    """One pass of a radix sort: the pairs ordered by the 11 bits of their keys from `shift` on;
    False, and nothing written, where all of them are the same."""
    low = np.uint64(shift)
    mask = np.uint64((1 << DIGIT) - 1)
    place = np.zeros((1 << DIGIT) + 1, np.int64)
    for i in range(len(keys)):
        place[np.int64((keys[i] >> low) & mask) + 1] += 1
    if place.max() == len(keys):
        return False
    for d in range(1 << DIGIT):
        place[d + 1] += place[d]
    for i in range(len(keys)):
        mine = np.int64((keys[i] >> low) & mask)
        keys_out[place[mine]] = keys[i]
        values_out[place[mine]] = values[i]
        place[mine] += 1
    return True


@njit(cache=True, nogil=True)
def maybe_shared(keys, values, room):
    """How many pairs have a key that another may have too; they come first in the arrays then, in
    order. Most keys of a corpus stand once, and need no sorting. room: uint8[2^k], zeros."""
    mask = np.uint64(len(room) - 1)
    for i in range(len(keys)):
        h = np.int64((keys[i] ^ (keys[i] >> np.uint64(29))) & mask)
        if room[h] < 2:
            room[h] += 1
    count = 0
    for i in range(len(keys)):
        h = np.int64((keys[i] ^ (keys[i] >> np.uint64(29))) & mask)
        if room[h] > 1:
            keys[count] = keys[i]
            values[count] = values[i]
            count += 1
    return count


def partition_bits(pairs: int) -> int:
    """By how many bits so many pairs are parted: 0 to 14."""
    return min(14, max(0, (max(1, pairs) - 1) // PARTITION).bit_length())


class PartitionWriter:
    """Writes uint64 keys, with uint32 values or without, into `keys.u64` and `values.u32`."""

    def __init__(
        self, folder: Path, bits: int, valued: bool = True, segment: int = SEGMENT
    ) -> None:
        self.folder, self.bits = folder, bits
        self._keys = np.empty(segment, np.uint64)
        self._values = np.empty(segment if valued else 0, np.uint32)
        self._ordered: tuple[np.ndarray, np.ndarray]
        self._ordered = np.empty_like(self._keys), np.empty_like(self._values)
        self._used = 0
        self._starts: list[Any] = []
        self._files = ((folder / KEYS).open("wb"), (folder / VALUES).open("wb"))

    def add(self, keys: np.ndarray, values: np.ndarray | None = None) -> None:
        """Takes more pairs, or keys alone."""
        at = 0
        while at < len(keys):
            size = min(len(keys) - at, len(self._keys) - self._used)
            here = slice(self._used, self._used + size)
            self._keys[here] = keys[at : at + size]
            if values is not None:
                self._values[here] = values[at : at + size]
            self._used += size
            at += size
            if self._used == len(self._keys):
                self._flush()

    def _flush(self) -> None:
        if self._used == 0:
            return
        keys, values = self._keys[: self._used], self._values[: self._used]
        self._starts.append(
            by_partition(keys, values, self.bits, self._ordered[0], self._ordered[1])
        )
        for file, array in zip(self._files, self._ordered, strict=True):
            file.write(array[: self._used].data)
        self._used = 0

    def close(self) -> None:
        """Ends the files; `segments.npy` says where the partitions are."""
        self._flush()
        for file in self._files:
            file.close()
        starts = np.array(self._starts, np.int64).reshape(-1, (1 << self.bits) + 1)
        np.save(self.folder / SEGMENTS, starts)


Room = Callable[[Any, str], np.ndarray]


class Partitions:
    """Reads what a PartitionWriter wrote. scratch: a folder for partitions that are too large."""

    def __init__(self, folder: Path, scratch: Path, valued: bool = True) -> None:
        self._starts = np.load(folder / SEGMENTS)
        before = np.cumsum(self._starts[:, -1])
        self._begin = np.concatenate([[0], before[:-1]]) if len(before) else before
        names = [(KEYS, np.uint64), (VALUES, np.uint32)][: 2 if valued else 1]
        self._files = [((folder / name).open("rb"), dtype) for name, dtype in names]
        self._scratch = scratch

    def __len__(self) -> int:
        return int(self._starts.shape[1]) - 1

    def __enter__(self) -> Partitions:
        return self

    def __exit__(self, *_: object) -> None:
        for file, _dtype in self._files:
            file.close()

    def read(self, part: int) -> tuple[list[np.ndarray], Room]:
        """([keys, values] of a partition as they arrived, what makes arrays of their size)."""
        counts = self._starts[:, part + 1] - self._starts[:, part]
        begin = self._begin + self._starts[:, part]
        size = int(counts.sum())

        def room(dtype: Any, name: str) -> np.ndarray:
            if size < LARGE:
                return np.empty(size, dtype)
            path = self._scratch / name
            mapped: np.ndarray = np.memmap(path, dtype, "w+", shape=(size,)).view(np.ndarray)
            path.unlink()
            return mapped

        found = []
        for number, (file, dtype) in enumerate(self._files):
            array = room(dtype, f"read-{number}")
            place = 0
            for first, count in zip(begin.tolist(), counts.tolist(), strict=True):
                file.seek(first * array.itemsize)
                file.readinto(array[place : place + count].view(np.uint8).data)
                place += count
            found.append(array)
        return found, room


def sort_pairs(
    keys: np.ndarray, values: np.ndarray, bits: int, room: Room
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs in order of their keys, whose high `bits` are the same; equal keys as they came.

    The arrays given are overwritten.
    """
    size = len(keys)
    other = room(np.uint64, "sort-0")[:size], room(np.uint32, "sort-1")[:size]
    for shift in range(0, 64 - bits, DIGIT):
        if sort_pass(keys, values, shift, *other):
            (keys, values), other = other, (keys, values)
    return keys, values
