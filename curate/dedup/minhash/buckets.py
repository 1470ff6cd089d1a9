"""Buckets: the documents that share a band key, as lists on disk.

Documents are numbered in order of (part, n). Those in a bucket are candidates; a bit each says so,
and the number of bits before it is a candidate's number c. Later every candidate gets a number k,
its place in the order in which copies are preferred, and buckets are rewritten in terms of k. All
that follows is in terms of k, so it does not depend on the order of the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numba import njit

from curate.atomic import TEMPORARY
from curate.dedup.minhash.partitions import (
    Partitions,
    PartitionWriter,
    maybe_shared,
    partition_bits,
    sort_pairs,
)
from curate.errors import RunFailed
from curate.sketches import SketchFile

MEMBERS, SIZES, BITS = "members.u32", "sizes.u32", "candidates.bits"
CHUNK = 1_000_000  # members of buckets in memory at once
SMALL = 24  # members that are sorted by insertion
MOST = 2**32 - 1  # documents that 32-bit numbers tell apart, with one to spare


@njit(cache=True, nogil=True)
def buckets_of(keys, values, members, sizes, bits):
    """(members, buckets): how many there are in the buckets of two or more pairs with the same
    key; keys ascend. Their values are put into `members`, the sizes into `sizes`; bits: uint64,
    a bit a value, those of members are set."""
    filled = buckets = 0
    begin = 0
    for i in range(1, len(keys) + 1):
        if i < len(keys) and keys[i] == keys[begin]:
            continue
        if i - begin > 1:
            for j in range(begin, i):
                v = values[j]
                members[filled] = v
                bits[v >> np.uint32(6)] |= np.uint64(1) << np.uint64(v & np.uint32(63))
                filled += 1
            sizes[buckets] = i - begin
            buckets += 1
        begin = i
    return filled, buckets


@njit(nogil=True)
def _ones(word):
    """How many bits of a uint64 are set."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(cache=True, nogil=True)
def ones_before(bits):
    """uint32[words + 1]: how many bits are set before each word of 64."""
    out = np.empty(len(bits) + 1, np.uint32)
    total = np.int64(0)
    for w in range(len(bits)):
        out[w] = total
        total += _ones(bits[w])
    out[len(bits)] = total
    return out


@njit(cache=True, nogil=True)
def set_bits(bits, first, stop):
    """int64: which of the bits from `first` to `stop` are set, counted from `first`."""
    out = np.empty(stop - first, np.int64)
    count = 0
    for i in range(first, stop):
        if bits[i >> 6] >> np.uint64(i & 63) & np.uint64(1):
            out[count] = i - first
            count += 1
    return out[:count].copy()


@njit(cache=True, nogil=True)
def renumber(members, sizes, bits, before, order):
    """Members, document numbers, become order[c] in place, ascending within their buckets."""
    begin = np.int64(0)
    for size in sizes:
        for i in range(begin, begin + size):
            d = members[i]
            below = (np.uint64(1) << np.uint64(d & np.uint32(63))) - np.uint64(1)
            w = d >> np.uint32(6)
            members[i] = order[np.int64(before[w]) + _ones(bits[w] & below)]
        if size > SMALL:
            members[begin : begin + size].sort()
        else:
            for i in range(begin + 1, begin + size):
                k, j = members[i], i
                while j > begin and members[j - 1] > k:
                    members[j] = members[j - 1]
                    j -= 1
                members[j] = k
        begin += size


def fixed_rows(column: pa.FixedSizeBinaryArray, dtype: Any) -> np.ndarray:
    """The rows of a fixed_size_binary column as a matrix of numbers; nulls are any numbers."""
    width = column.type.byte_width
    begin = column.offset * width
    data = np.frombuffer(column.buffers()[1], np.uint8)[begin : begin + len(column) * width]
    return data.view(dtype).reshape(len(column), width // np.dtype(dtype).itemsize)


def documents_in(files: tuple[SketchFile, ...]) -> int:
    """How many sketches there are; RunFailed above what their numbers can tell apart."""
    count = sum(pq.read_metadata(file.path).num_rows for file in files)
    if count >= MOST:
        raise RunFailed(
            f"dedup_minhash compares up to {MOST - 1:,} documents at once, these are {count:,};"
            " run it on parts, each with --against the ones before"
        )
    return count


def write_keys(folder: Path, files: tuple[SketchFile, ...], bands: int) -> dict[str, Any]:
    """Phase `keys`: (band key, document) of all sketches, in partitions."""
    count = documents_in(files)
    writer = PartitionWriter(folder, partition_bits(count * bands))
    first = 0
    for file in files:
        with pq.ParquetFile(file.path, pre_buffer=False) as source:
            rows = max(1, CHUNK // bands)
            for batch in source.iter_batches(rows, columns=["bands"], use_threads=False):
                found = fixed_rows(batch.column(0), np.uint64)
                numbers = np.arange(first, first + len(found), dtype=np.uint32)
                valid = batch.column(0).is_valid().to_numpy(zero_copy_only=False)
                if not valid.all():
                    found, numbers = found[valid], numbers[valid]
                writer.add(found.reshape(-1), np.repeat(numbers, bands))
                first += len(batch)
    writer.close()
    return {"documents": count, "partition_bits": writer.bits}


def write_buckets(folder: Path, keys: Path, documents: int) -> dict[str, Any]:
    """Phase `buckets`: members and sizes of the buckets in order of their keys, and the bits."""
    bits = np.zeros(documents // 64 + 1, np.uint64)
    high = 0
    members = buckets = 0
    scratch = folder.with_name(f"{TEMPORARY}scratch")
    scratch.mkdir(exist_ok=True)
    with ExitStack() as stack:
        parts = stack.enter_context(Partitions(keys, scratch))
        files = [stack.enter_context((folder / name).open("wb")) for name in (MEMBERS, SIZES)]
        high = (len(parts) - 1).bit_length()
        for part in range(len(parts)):
            (key, value), room = parts.read(part)
            # Four times as many counters as keys, so that few of those that stand once stay.
            counters = 1 << min(26, max(10, (4 * len(key)).bit_length()))
            left = maybe_shared(key, value, np.zeros(counters, np.uint8))
            key, value = sort_pairs(key[:left], value[:left], high, room)
            found = room(np.uint32, "members"), room(np.uint32, "sizes")
            counts = buckets_of(key, value, *found, bits)
            for file, array, count in zip(files, found, counts, strict=True):
                file.write(array[:count].data)
            members += counts[0]
            buckets += counts[1]
    scratch.rmdir()
    bits.tofile(folder / BITS)
    candidates = int(ones_before(bits)[-1])
    return {"members": members, "buckets": buckets, "candidates": candidates}


def chunks(folder: Path, most: int = CHUNK) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(members, sizes) of whole buckets, about `most` members at a time; copies, to be changed."""
    with (folder / MEMBERS).open("rb") as members, (folder / SIZES).open("rb") as sizes:
        waiting = np.empty(0, np.uint32)
        while True:
            if len(waiting) == 0:
                waiting = np.fromfile(sizes, np.uint32, most // 2)
                if len(waiting) == 0:
                    return
            ends = np.cumsum(waiting, dtype=np.int64)
            take = max(1, int(np.searchsorted(ends, most, "right")))
            mine, waiting = waiting[:take], waiting[take:]
            yield np.fromfile(members, np.uint32, int(ends[take - 1])), mine


def write_ordered(folder: Path, buckets: Path, order: np.ndarray) -> dict[str, Any]:
    """Phase `ordered`: the same buckets in terms of k. order: uint32[candidates], k of each c."""
    bits = np.fromfile(buckets / BITS, np.uint64)
    before = ones_before(bits)
    with (folder / MEMBERS).open("wb") as members, (folder / SIZES).open("wb") as sizes:
        for mine, counts in chunks(buckets):
            renumber(mine, counts, bits, before, order)
            members.write(mine.data)
            sizes.write(counts.data)
    return {}
