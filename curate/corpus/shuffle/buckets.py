"""The second half of the shuffle: find the documents that share a key. A bucket is the list, on
disk, of the documents that share one key. The documents in a bucket are candidates for being
duplicates. The first half put pairs (key, document) into partitions; a task reads BUNDLE adjacent
partitions, some four million pairs. The task needs 12 bytes of memory per pair, and 20 more per
pair of the partition being sorted. Very large partitions are in memory-mapped files. One file for
all tasks has a bit per document, which is set for candidates. Candidates are numbered in the order
of these bits, from 0; the name for such a number is `c`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.phases import Facts
from curate.corpus.shuffle.byte_rows import scratch_folder
from curate.corpus.shuffle.partitions import BundleTask, bundles, read_partitions, sort_repeated
from curate.corpus.shuffle.tasks import CandidateTask, Group, part_files, run_tasks
from curate.corpus.sketches import Sketches, sketch_batches
from llmcurate.base.disk.files import replacing
from llmcurate.base.kernels import njit
from llmcurate.base.messages import Message

BITS = "candidates.bits"


@njit(nogil=True)
def popcount(word):
    """Return the number of set bits in a uint64."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(nogil=True)
def number_of(d, bits, before):
    """Return the number of set bits before bit number d. `before` is ones_before(bits)."""
    below = (np.uint64(1) << np.uint64(d & np.uint32(63))) - np.uint64(1)
    w = d >> np.uint32(6)
    return np.int64(before[w]) + popcount(bits[w] & below)


@njit(cache=True, nogil=True)
def ones_before(bits):
    """Return uint32[words + 1]: the number of set bits before each 64-bit word, and their total."""
    out = np.empty(len(bits) + 1, np.uint32)
    total = np.int64(0)
    for w in range(len(bits)):
        out[w] = total
        total += popcount(bits[w])
    out[len(bits)] = total
    return out


@njit(cache=True, nogil=True)
def set_bits(bits, first, stop):
    """Return int64[]: the positions of the set bits from `first` to `stop`, minus `first`."""
    out = np.empty(stop - first, np.int64)
    count = 0
    for i in range(first, stop):
        if bits[i >> 6] >> np.uint64(i & 63) & np.uint64(1):
            out[count] = i - first
            count += 1
    return out[:count].copy()


def candidates_before(groups: list[Group], bits: Path) -> list[int]:
    """Return for each group of files the number of candidates (possible duplicates) in earlier
    groups. `bits` is the file with one bit per document, which is set for candidates."""
    all_bits = np.fromfile(bits, np.uint64)
    before = ones_before(all_bits)
    words = [group.first // 64 for group in groups]
    return [
        int(before[word]) + len(set_bits(all_bits, 64 * word, group.first))
        for word, group in zip(words, groups, strict=True)
    ]


@njit(cache=True, nogil=True)
def buckets_of(keys, values, members, sizes):
    """Find the buckets: a key in two or more pairs makes a bucket of these pairs. `keys` must be
    ascending. Write the values of the buckets to `members` and the size of each bucket to `sizes`.
    Return (number of members, number of buckets)."""
    filled = buckets = 0
    begin = 0
    for i in range(1, len(keys) + 1):
        if i < len(keys) and keys[i] == keys[begin]:
            continue
        if i - begin > 1:
            for j in range(begin, i):
                members[filled] = values[j]
                filled += 1
            sizes[buckets] = i - begin
            buckets += 1
        begin = i
    return filled, buckets


@njit(cache=True, nogil=True)
def mark(bits, members):
    """Set the bit of each number in `members`. `bits` is an array of uint64 words."""
    for v in members:
        bits[v >> np.uint32(6)] |= np.uint64(1) << np.uint64(v & np.uint32(63))


BucketFiles = tuple[Path, Path]  # members and sizes of a piece, both uint32


def bucket_files(folder: Path, count: int) -> list[BucketFiles]:
    names = ("members.u32", "sizes.u32")
    members, sizes = (part_files(folder, name, count) for name in names)
    return list(zip(members, sizes, strict=True))


@dataclass(frozen=True)
class Buckets(Message):
    members: int
    buckets: int


def find_buckets(sketches: Sketches, folder: Path, keys: Path, facts: Facts) -> Facts:
    """Write the buckets (lists of documents that share a key) in order of keys, one pair of files
    per task. One more file has a bit per document, set for documents in buckets. `keys` is the
    folder that `partition_keys` wrote, and `facts` the counts that it returned. Return the counts
    of pairs of files, members, buckets and documents in buckets. Memory holds one bit per
    document."""
    tasks = bundles(folder, keys, facts["groups"], facts["partition_bits"], sketches.sizes)
    done = run_tasks(sketches.run, f"{__name__}:write_buckets", tasks, Buckets)
    bits = np.zeros(facts["documents"] // 64 + 1, np.uint64)
    for members, _ in bucket_files(folder, len(tasks)):
        with members.open("rb") as file:
            while len(chunk := np.fromfile(file, np.uint32, sketches.sizes.bucket_members)):
                mark(bits, chunk)
    bits.tofile(folder / BITS)
    return {
        "pieces": len(tasks),
        "members": sum(piece.members for piece in done),
        "buckets": sum(piece.buckets for piece in done),
        "candidates": int(ones_before(bits)[-1]),
    }


def write_buckets(task: BundleTask) -> Buckets:
    members = buckets = 0
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder(task.folder))
        names = bucket_files(task.folder, task.part + 1)[-1]
        asides = [stack.enter_context(replacing(path)) for path in names]
        files = [stack.enter_context(path.open("wb")) for path in asides]
        read = task.pair_files()
        waiting = read_partitions(read, task.begin, task.stop, scratch, task.mapped_bytes)
        while waiting:
            (key, value), make_array = waiting.pop(0)
            key, value = sort_repeated(key, value, task.bits, make_array)
            arrays = make_array(np.uint32), make_array(np.uint32)
            counts = buckets_of(key, value, *arrays)
            for file, array, size in zip(files, arrays, counts, strict=True):
                file.write(array[:size].data)
            members += int(counts[0])
            buckets += int(counts[1])
    return Buckets(members, buckets)


def chunks(files: Sequence[BucketFiles], most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield whole buckets (lists of documents) in order, as (members, sizes): documents, and the
    length of each bucket. About `most` documents are read at a time. The caller may change the
    arrays."""
    for piece in files:
        with piece[0].open("rb") as members, piece[1].open("rb") as sizes:
            waiting = np.empty(0, np.uint32)
            while True:
                if len(waiting) == 0:
                    waiting = np.fromfile(sizes, np.uint32, most // 2)
                    if len(waiting) == 0:
                        break
                ends = np.cumsum(waiting, dtype=np.int64)
                count = max(1, int(np.searchsorted(ends, most, "right")))
                part, waiting = waiting[:count], waiting[count:]
                yield np.fromfile(members, np.uint32, int(ends[count - 1])), part


def candidate_batches(task: CandidateTask) -> Iterator[pa.RecordBatch]:
    """Yield the sketches of a task's candidates in batches, in order of partition and number."""
    word, first = divmod(task.group.first, 64)
    words = (first + task.group.rows) // 64 + 1
    bits = np.fromfile(task.bits, np.uint64, words, offset=8 * word)
    for batch in sketch_batches(task.group.files, [*task.columns], task.read):
        chosen = set_bits(bits, first, first + len(batch))
        first += len(batch)
        if len(chosen):
            yield batch if len(chosen) == len(batch) else batch.take(pa.array(chosen))


ROWS_FILE = "rows.parquet"  # of a group's candidates


def write_rows(task: CandidateTask) -> None:
    """Run a task: write a row per candidate (possible duplicate) of a group, in order. The columns
    are those of the task, then part (partition), n (number in it), id and c (candidate number)."""
    schema = task.schema().append(pa.field("c", pa.uint32()))
    c = task.before
    with (
        replacing(task.file(ROWS_FILE)) as aside,
        pq.ParquetWriter(aside, schema, compression="lz4") as writer,
    ):
        for batch in candidate_batches(task):
            number = pa.array(np.arange(c, c + len(batch), dtype=np.uint32))
            table = pa.Table.from_batches([batch]).append_column("c", number)
            writer.write_table(table.cast(schema))
            c += len(batch)


def write_candidate_rows(
    sketches: Sketches, folder: Path, groups: list[Group], bits: Path, columns: list[str]
) -> list[Path]:
    """Write the rows of all candidates (possible duplicates), one file per group, and return the
    paths. The columns are `columns` of the sketches, then part and n (together the document's key),
    id, and c (0 for the first candidate, 1 for the second, ...). `bits` is the file with one bit
    per document, which is set for candidates."""
    read = sketches.sizes.batch_candidates
    tasks = [
        CandidateTask(g.part, folder, g, bits, before, tuple(columns), read)
        for g, before in zip(groups, candidates_before(groups, bits), strict=True)
    ]
    run_tasks(sketches.run, f"{__name__}:write_rows", tasks)
    return part_files(folder, ROWS_FILE, len(groups))
