"""Pairs (key, value) in partitions of a file, by the high bits of keys: an external radix sort.

The first half of the shuffle writes the pairs (key, document) of the sketches of a group: `keys`,
below. Documents are numbered in order of (part, n).

A writer fills a segment in memory, orders it by partition and appends it. Partitions are read back
from their range in every segment of every writer, in the order of arrival, and each is then sorted
by itself. So memory is for one segment, or for the partitions that are read, whatever there is in
all. A partition that is far larger than the others (one key that very many have) lies in files that
are mapped into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.phases import Facts
from curate.corpus.shuffle.byte_rows import new_array
from curate.corpus.shuffle.tasks import MOST, FolderTask, Group, GroupTask, part_file, run_tasks
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Sketches
from llmcurate.base.disk.files import replacing
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import Damaged, RunFailed
from llmcurate.base.kernels import njit

DIGIT = 11  # bits that one pass of the sort looks at


@njit(cache=True, nogil=True)
def order_by_partition(keys, values, bits, keys_out, values_out):
    """int64[2^bits + 1]: where each partition begins in the outputs, which hold the pairs ordered
    by the high `bits` of their keys; in a partition their order stays. Values may be absent."""
    # A shift by 64 is none: all keys of a single partition are shifted by 63 twice.
    shift, more = np.uint64(64 - max(bits, 1)), np.uint64(0 if bits else 1)
    starts = np.zeros((1 << bits) + 1, np.int64)
    for i in range(len(keys)):
        starts[np.int64(keys[i] >> shift >> more) + 1] += 1
    for p in range(1 << bits):
        starts[p + 1] += starts[p]
    position = np.empty(1 << bits, np.int64)
    for p in range(1 << bits):
        position[p] = starts[p]
    for i in range(len(keys)):
        partition = np.int64(keys[i] >> shift >> more)
        keys_out[position[partition]] = keys[i]
        if len(values):
            values_out[position[partition]] = values[i]
        position[partition] += 1
    return starts


@njit(cache=True, nogil=True)
def pair_sums(keys, values, starts):
    """uint64[partitions]: of each partition a sum over its pairs in which a change of any bit
    shows. Values may be absent."""
    sums = np.zeros(len(starts) - 1, np.uint64)
    for p in range(len(sums)):
        for i in range(starts[p], starts[p + 1]):
            x = keys[i]
            if len(values):
                x ^= (np.uint64(values[i]) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            sums[p] += x ^ (x >> np.uint64(31))
    return sums


@njit(cache=True, nogil=True)
def sort_pass(keys, values, shift, keys_out, values_out):
    """One pass of a radix sort: the pairs ordered by the 11 bits of their keys from `shift` on;
    False, and nothing written, where all of them are the same."""
    low = np.uint64(shift)
    mask = np.uint64((1 << DIGIT) - 1)
    position = np.zeros((1 << DIGIT) + 1, np.int64)
    for i in range(len(keys)):
        position[np.int64((keys[i] >> low) & mask) + 1] += 1
    most = np.int64(0)
    for d in range(len(position)):
        most = max(most, position[d])
    if most == len(keys):
        return False
    for d in range(1 << DIGIT):
        position[d + 1] += position[d]
    for i in range(len(keys)):
        digit = np.int64((keys[i] >> low) & mask)
        keys_out[position[digit]] = keys[i]
        values_out[position[digit]] = values[i]
        position[digit] += 1
    return True


@njit(cache=True, nogil=True)
def keep_repeated(keys, values, counters):
    """How many pairs have a key that another may have too; they come first in the arrays then, in
    order. Most keys of a corpus stand once, and need no sorting. counters: uint8[2^k], zeros."""
    mask = np.uint64(len(counters) - 1)
    for i in range(len(keys)):
        h = np.int64((keys[i] ^ (keys[i] >> np.uint64(29))) & mask)
        if counters[h] < 2:
            counters[h] += 1
    count = 0
    for i in range(len(keys)):
        h = np.int64((keys[i] ^ (keys[i] >> np.uint64(29))) & mask)
        if counters[h] > 1:
            keys[count] = keys[i]
            values[count] = values[i]
            count += 1
    return count


def partition_bits(pairs: int, partition_pairs: int) -> int:
    """How many bits of their keys divide so many pairs into partitions of that size: 0 to 14."""
    return min(14, max(0, (max(1, pairs) - 1) // partition_pairs).bit_length())


class PairFiles(NamedTuple):
    """What a writer writes: keys, values, and where each partition begins in each segment, with the
    sum of its pairs."""

    keys: Path
    values: Path
    starts: Path

    @classmethod
    def within(cls, folder: Path, number: int = 0) -> PairFiles:
        """Those of writer `number` in a folder."""
        names = ("keys.u64", "values.u32", "starts.npy")
        return cls(*(part_file(folder, name, number) for name in names))


class PartitionWriter:
    """Writes uint64 keys, with uint32 values or without, `segment` pairs at a time."""

    def __init__(self, files: PairFiles, bits: int, segment: int, valued: bool = True) -> None:
        self.bits = bits
        self._keys = np.empty(segment, np.uint64)
        self._values = np.empty(segment if valued else 0, np.uint32)
        self._ordered: tuple[np.ndarray, np.ndarray]
        self._ordered = np.empty_like(self._keys), np.empty_like(self._values)
        self._used = 0
        self._starts: list[Any] = []
        self._sums: list[Any] = []
        self._starts_path = files.starts
        self._files = (files.keys.open("wb"), files.values.open("wb"))

    def add(self, keys: np.ndarray, values: np.ndarray | None = None) -> None:
        """Takes more pairs, or keys alone."""
        at = 0
        while at < len(keys):
            size = min(len(keys) - at, len(self._keys) - self._used)
            target = slice(self._used, self._used + size)
            self._keys[target] = keys[at : at + size]
            if values is not None:
                self._values[target] = values[at : at + size]
            self._used += size
            at += size
            if self._used == len(self._keys):
                self._flush()

    def _flush(self) -> None:
        if self._used == 0:
            return
        keys, values = self._keys[: self._used], self._values[: self._used]
        starts = order_by_partition(keys, values, self.bits, *self._ordered)
        self._starts.append(starts)
        self._sums.append(pair_sums(*self._ordered, starts))
        for file, array in zip(self._files, self._ordered, strict=True):
            file.write(array[: self._used].data)
        self._used = 0

    def close(self) -> None:
        """Ends the files."""
        self._flush()
        for file in self._files:
            file.close()
        starts = np.array(self._starts, np.int64).reshape(-1, (1 << self.bits) + 1)
        sums = np.array(self._sums, np.uint64).reshape(-1, 1 << self.bits).view(np.int64)
        with self._starts_path.open("wb") as file:
            np.save(file, np.hstack((starts, sums)))


def _tables(files: PairFiles) -> tuple[np.ndarray, np.ndarray]:
    """Where partitions begin in each segment, int64[segments, partitions + 1], and the sums of
    their pairs, uint64[segments, partitions]; mapped."""
    table = np.load(files.starts, mmap_mode="r")
    starts = table.shape[1] // 2 + 1
    return table[:, :starts], table[:, starts:].view(np.uint64)


# Makes arrays of the size of a partition.
MakeArray = Callable[[Any], np.ndarray]


def pair_counts(files: Sequence[PairFiles], begin: int, stop: int) -> np.ndarray:
    """int64[writers, partitions]: how many pairs each has in the partitions `begin` to `stop`."""
    counts = np.zeros((len(files), stop - begin), np.int64)
    for number, each in enumerate(files):
        starts = _tables(each)[0][:, begin : stop + 1]
        counts[number] = np.diff(starts, axis=1).sum(axis=0)
    return counts


def read_partitions(
    files: Sequence[PairFiles],
    begin: int,
    stop: int,
    scratch: Path,
    mapped_bytes: int,
    valued: bool = True,
) -> list[tuple[list[np.ndarray], MakeArray]]:
    """([keys, values] as they arrived, what makes arrays of their size) of partitions `begin` to
    `stop`, from all writers in order. scratch, mapped_bytes: as `new_array` has them.

    Of each segment one range is read; opened are the files of one writer at a time. Damaged where
    the pairs read are not those that were written.
    """
    # Of a table as wide as there are partitions only the columns in question.
    tables = [_tables(each) for each in files]
    slices = [np.array(starts[:, begin : stop + 1], np.int64) for starts, _ in tables]
    sums = [np.array(of_pairs[:, begin:stop]) for _, of_pairs in tables]
    lengths = [np.array(starts[:, -1], np.int64) for starts, _ in tables]
    sizes = sum((np.diff(starts, axis=1).sum(axis=0) for starts in slices), np.zeros(stop - begin))
    dtypes = (np.uint64, np.uint32)[: 2 if valued else 1]
    partitions: list[tuple[list[np.ndarray], MakeArray]] = []
    for size in sizes.astype(np.int64).tolist():
        make = partial(new_array, size, folder=scratch, mapped_bytes=mapped_bytes)
        partitions.append(([make(dtype) for dtype in dtypes], make))
    filled = [0] * len(partitions)
    for each, starts, file_sums, length in zip(files, slices, sums, lengths, strict=True):
        with ExitStack() as stack:
            opened = [stack.enter_context(path.open("rb")) for path in each[: len(dtypes)]]
            before = 0
            for segment, expected, pairs in zip(starts, file_sums, length.tolist(), strict=True):
                counts = np.diff(segment).tolist()
                for number, (file, dtype) in enumerate(zip(opened, dtypes, strict=True)):
                    file.seek((before + int(segment[0])) * np.dtype(dtype).itemsize)
                    for p, count in enumerate(counts):
                        array = partitions[p][0][number][filled[p] : filled[p] + count]
                        file.readinto(array.view(np.uint8).data)
                for p, count in enumerate(counts):
                    read = [x[filled[p] : filled[p] + count] for x in partitions[p][0]]
                    values = read[1] if valued else np.empty(0, np.uint32)
                    if pair_sums(read[0], values, np.array([0, count]))[0] != expected[p]:
                        raise Damaged(f"{each.keys} is not what was written")
                filled = [at + count for at, count in zip(filled, counts, strict=True)]
                before += pairs
    return partitions


def sort_pairs(
    keys: np.ndarray, values: np.ndarray, bits: int, make: MakeArray
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs in order of their keys, whose high `bits` are the same; equal keys as they came.

    The arrays given are overwritten.
    """
    size = len(keys)
    other = make(np.uint64)[:size], make(np.uint32)[:size]
    for shift in range(0, 64 - bits, DIGIT):
        if sort_pass(keys, values, shift, *other):
            (keys, values), other = other, (keys, values)
    return keys, values


def fixed_rows(column: pa.FixedSizeBinaryArray, dtype: Any) -> np.ndarray:
    """The rows of a fixed_size_binary column as a matrix of numbers; nulls are any numbers."""
    width = column.type.byte_width
    begin = column.offset * width
    data = np.frombuffer(column.buffers()[1], np.uint8)[begin : begin + len(column) * width]
    rows: np.ndarray = data.view(dtype).reshape(len(column), width // np.dtype(dtype).itemsize)
    return rows


def documents_in(groups: list[Group], label: str, most: int = MOST) -> int:
    """How many sketches there are; RunFailed from `most` on, which 32-bit numbers cannot tell
    apart."""
    count = sum(group.rows for group in groups)
    if count >= most:
        raise RunFailed(
            f"{label} compares up to {counted(most - 1, 'document')} at once, these are {count:,};"
            " run it on parts, each with --against the ones before"
        )
    return count


@dataclass(frozen=True)
class KeysTask(GroupTask):
    """The pairs of a group are to be written. column, width: as `partition_keys` has them; bits: of
    the partitions."""

    column: str
    width: int
    bits: int
    sizes: Sizes


def partition_keys(
    sketches: Sketches, folder: Path, groups: list[Group], label: str, column: str, width: int
) -> Facts:
    """The phase: every group's pairs into `folder`. column: of the sketches, fixed_size_binary,
    whose first `width` numbers of 64 bits are keys, each by itself; null: a document without."""
    count, sizes = documents_in(groups, label), sketches.sizes
    bits = partition_bits(count * width, sizes.partition_pairs)
    tasks = [KeysTask(g.part, folder, g, column, width, bits, sizes) for g in groups]
    run_tasks(sketches.run, f"{__name__}:write_keys", tasks)
    return {"documents": count, "groups": len(groups), "partition_bits": bits}


def write_keys(task: KeysTask) -> None:
    """A task: the pairs of a group."""
    group, width, sizes = task.group, task.width, task.sizes
    first = group.first
    segment = min(sizes.segment_pairs, max(1, group.rows * width))
    with ExitStack() as stack:
        files = PairFiles.within(task.folder, group.part)
        aside = PairFiles(*(stack.enter_context(replacing(path)) for path in files))
        writer = PartitionWriter(aside, task.bits, segment)
        for file in group.files:
            with pq.ParquetFile(file.path, pre_buffer=False) as source:
                rows = max(1, sizes.read_keys // width)
                for batch in source.iter_batches(rows, columns=[task.column], use_threads=False):
                    keys = fixed_rows(batch.column(0), np.uint64)[:, :width]
                    numbers = np.arange(first, first + len(keys), dtype=np.uint32)
                    valid = batch.column(0).is_valid().to_numpy(zero_copy_only=False)
                    if not valid.all():
                        keys, numbers = keys[valid], numbers[valid]
                    writer.add(keys.reshape(-1), np.repeat(numbers, width))
                    first += len(batch)
        writer.close()


BUNDLE = 4  # partitions of a task


@dataclass(frozen=True)
class BundleTask(FolderTask):
    """A few partitions that lie side by side, from `begin` to `stop`, are to be read. keys: the
    folder of the pairs of so many groups; bits: of the partitions."""

    keys: Path
    groups: int
    bits: int
    begin: int
    stop: int
    mapped_bytes: int

    def pair_files(self) -> list[PairFiles]:
        """Return the files of all groups."""
        return [PairFiles.within(self.keys, group) for group in range(self.groups)]


def bundles(folder: Path, keys: Path, groups: int, bits: int, sizes: Sizes) -> list[BundleTask]:
    """Return the tasks on all partitions."""
    count = 1 << bits
    return [
        BundleTask(part, folder, keys, groups, bits, b, min(b + BUNDLE, count), sizes.mapped_bytes)
        for part, b in enumerate(range(0, count, BUNDLE))
    ]


def sort_repeated(
    keys: np.ndarray, values: np.ndarray, bits: int, make: MakeArray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs whose key another one may have too, sorted as `sort_pairs` does."""
    # Four times as many counters as keys, so that few of those that stand once stay.
    counters = 1 << min(26, max(10, (4 * len(keys)).bit_length()))
    count = keep_repeated(keys, values, np.zeros(counters, np.uint8))
    return sort_pairs(keys[:count], values[:count], bits, make)
