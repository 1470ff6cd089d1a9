"""Pairs (key, value), written to partitions that are chosen by the high bits of the keys: an
external radix sort. This is the first half of the shuffle. The values are numbers of documents,
counted in order of arrival. A writer sorts a segment of pairs by partition and appends it to its
files. A reader collects a partition from one range of every segment of every writer, then sorts the
pairs. So memory holds one segment, or the partitions being read. Very large partitions (a key of
very many documents) are memory-mapped files."""

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

DIGIT = 11  # bits per pass of the sort


@njit(cache=True, nogil=True)
def order_by_partition(keys, values, bits, keys_out, values_out):
    """Write the pairs to the outputs, ordered by the high `bits` bits of their keys. Within a
    partition, pairs keep their order. Return int64[2^bits + 1]: where each partition begins.
    `values` may be empty."""
    # A shift by 64 bits has no effect. So with a single partition, shift by 63 and then by 1.
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
    """Return uint64[partitions]: a checksum of each partition's pairs. `values` may be empty."""
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
    """Sort the pairs by 11 bits of their keys, from bit `shift` on: one pass of a radix sort. If
    these bits are the same in all keys, write nothing and return False."""
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
    """Move the pairs whose key may occur again to the front, in their order, and return the number
    of these pairs. Most keys of a corpus occur once and need no sorting. `counters` is an array of
    uint8 zeros, whose length is a power of 2."""
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
    """Return how many key bits (0 to 14) give about `partition_pairs` pairs per partition."""
    return min(14, max(0, (max(1, pairs) - 1) // partition_pairs).bit_length())


class PairFiles(NamedTuple):
    """The files that one PartitionWriter writes."""

    keys: Path  # uint64[pairs]
    values: Path  # uint32[pairs]
    starts: Path  # per segment: the start of each partition, and the checksum of its pairs

    @classmethod
    def within(cls, folder: Path, number: int = 0) -> PairFiles:
        """Return the paths of the files that writer `number` writes in a folder."""
        names = ("keys.u64", "values.u32", "starts.npy")
        return cls(*(part_file(folder, name, number) for name in names))


class PartitionWriter:
    """A writer of keys (uint64), with or without values (uint32), to partitions. It sorts and
    writes `segment` pairs at a time."""

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
        """Add pairs of key and value, or keys alone, to the partitions."""
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
        self._flush()
        for file in self._files:
            file.close()
        starts = np.array(self._starts, np.int64).reshape(-1, (1 << self.bits) + 1)
        sums = np.array(self._sums, np.uint64).reshape(-1, 1 << self.bits).view(np.int64)
        with self._starts_path.open("wb") as file:
            np.save(file, np.hstack((starts, sums)))


def _tables(files: PairFiles) -> tuple[np.ndarray, np.ndarray]:
    table = np.load(files.starts, mmap_mode="r")
    starts = table.shape[1] // 2 + 1
    return table[:, :starts], table[:, starts:].view(np.uint64)


# A function that makes an array of a partition's length, with the given dtype.
MakeArray = Callable[[Any], np.ndarray]


def pair_counts(files: Sequence[PairFiles], begin: int, stop: int) -> np.ndarray:
    """Return int64[writers, partitions]: the number of pairs that each writer wrote to each of the
    partitions from `begin` to `stop`."""
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
    """Return ([keys, values], make) for each partition from `begin` to `stop` (exclusive). `keys`
    and `values` are its pairs from all writers, in order, and the function `make` makes further
    arrays of the same length. Only these partitions are read. `scratch` and `mapped_bytes` are
    passed to `new_array`. Raise Damaged if the pairs differ from their checksum."""
    # Only the columns for these partitions, of a table with one per partition.
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
    """Return the pairs sorted by key; pairs with equal keys stay in their order. `bits` is the
    number of high bits that are the same in all keys. The given arrays are overwritten."""
    size = len(keys)
    output = make(np.uint64)[:size], make(np.uint32)[:size]
    for shift in range(0, 64 - bits, DIGIT):
        if sort_pass(keys, values, shift, *output):
            (keys, values), output = output, (keys, values)
    return keys, values


def fixed_rows(column: pa.FixedSizeBinaryArray, dtype: Any) -> np.ndarray:
    """Return a fixed_size_binary column as a matrix of numbers; null rows are undefined."""
    width = column.type.byte_width
    begin = column.offset * width
    data = np.frombuffer(column.buffers()[1], np.uint8)[begin : begin + len(column) * width]
    rows: np.ndarray = data.view(dtype).reshape(len(column), width // np.dtype(dtype).itemsize)
    return rows


def documents_in(groups: list[Group], label: str, most: int = MOST) -> int:
    """Return the number of documents in all groups. Raise RunFailed if there are `most` or more,
    because documents have 32-bit numbers."""
    count = sum(group.rows for group in groups)
    if count >= most:
        raise RunFailed(
            f"{label} compares at most {counted(most - 1, 'document')}, but there are {count:,}:"
            " run it on parts of the corpus, each with --against the parts before it"
        )
    return count


@dataclass(frozen=True)
class KeysTask(GroupTask):
    """A task that writes a pair (key, document) for each key in a group of sketch files. (Sketches
    are short descriptions of documents.)"""

    column: str  # column of the sketches that has the keys
    width: int  # number of keys per document
    bits: int  # number of high bits of a key that choose a partition
    sizes: Sizes


def partition_keys(
    sketches: Sketches, folder: Path, groups: list[Group], label: str, column: str, width: int
) -> Facts:
    """Write a pair (key, document) for each key in all groups of sketch files (short descriptions
    of documents), into `folder`. `column` is a fixed_size_binary column of these files. The first
    `width` 64-bit numbers of a value are the document's keys; null means that it has no keys."""
    count, sizes = documents_in(groups, label), sketches.sizes
    bits = partition_bits(count * width, sizes.partition_pairs)
    tasks = [KeysTask(g.part, folder, g, column, width, bits, sizes) for g in groups]
    run_tasks(sketches.run, f"{__name__}:write_keys", tasks)
    return {"documents": count, "groups": len(groups), "partition_bits": bits}


def write_keys(task: KeysTask) -> None:
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
    """A task on adjacent partitions, from `begin` to `stop`."""

    keys: Path  # folder of the pairs
    groups: int  # number of groups that wrote the pairs
    bits: int  # number of high bits of a key that choose a partition
    begin: int
    stop: int
    mapped_bytes: int  # arrays of this size or more are memory-mapped

    def pair_files(self) -> list[PairFiles]:
        return [PairFiles.within(self.keys, group) for group in range(self.groups)]


def bundles(folder: Path, keys: Path, groups: int, bits: int, sizes: Sizes) -> list[BundleTask]:
    """Return the tasks that together cover all partitions."""
    count = 1 << bits
    return [
        BundleTask(part, folder, keys, groups, bits, b, min(b + BUNDLE, count), sizes.mapped_bytes)
        for part, b in enumerate(range(0, count, BUNDLE))
    ]


def sort_repeated(
    keys: np.ndarray, values: np.ndarray, bits: int, make: MakeArray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs sorted by key, but leave out most of those whose key occurs only once."""
    # Four times as many counters as keys, so that few keys that occur once are kept.
    counters = 1 << min(26, max(10, (4 * len(keys)).bit_length()))
    count = keep_repeated(keys, values, np.zeros(counters, np.uint8))
    return sort_pairs(keys[:count], values[:count], bits, make)
