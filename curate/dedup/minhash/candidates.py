"""Candidates, the documents that share a bucket, in the order in which copies are preferred.

The order is DuckDB's, by a sort that spills, in one process. A candidate has two numbers: c, its
position among the candidates as sketches arrive, and k, its position in the order of preference.
Ids are kept in the order of k, one after the other in a file, so that id number k is read without a
join. Buckets are then rewritten in terms of k, so that nothing after depends on the order of the
input; where pairs are verified they are also cut into parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.shuffle.buckets import bucket_files, chunks
from curate.corpus.shuffle.byte_rows import (
    SliceFiles,
    SliceWriter,
    count_up,
    load_array,
    map_array,
    new_array,
    unmap,
)
from curate.corpus.shuffle.candidates import (
    BITS,
    CandidateTask,
    candidate_tasks,
    number_of,
    ones_before,
)
from curate.corpus.shuffle.tasks import Group, run_tasks
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Sketches, Task
from curate.dedup import survivors
from curate.dedup.minhash.components import flatten, union
from curate.text.buffers import as_large_string, text_array, text_buffers
from llmcurate.base.disk.database import arrow_batches, paths_literal
from llmcurate.base.disk.files import replacing
from llmcurate.base.kernels import njit

ORDER, NAMES, ENDS = "order.u32", "ids.utf8", "ids.i64"


@njit(cache=True, nogil=True)
def gather_texts(data, ends, numbers):
    """(bytes: uint8, offsets: int64[len(numbers) + 1]) of the texts of these numbers; text k is
    data[ends[k]:ends[k + 1]]; a number outside of them is an empty one."""
    offsets = np.zeros(len(numbers) + 1, np.int64)
    for i in range(len(numbers)):
        k = np.int64(numbers[i])
        size = ends[k + 1] - ends[k] if k < len(ends) - 1 else 0
        offsets[i + 1] = offsets[i] + size
    out = np.empty(offsets[-1], np.uint8)
    for i in range(len(numbers)):
        k = np.int64(numbers[i])
        for j in range(offsets[i + 1] - offsets[i]):
            out[offsets[i] + j] = data[ends[k] + j]
    return out, offsets


def row_files(folder: Path, count: int) -> list[Path]:
    """The candidates' rows, a file a group."""
    return [folder / f"rows-{part:05d}.parquet" for part in range(count)]


def write_rows(task: Task) -> dict[str, Any]:
    """A task: rows (what they are preferred by, part, n, id, c) of a group's candidates, in order
    of c, a batch at a time."""
    source = CandidateTask.load(task)
    columns = list(task["columns"])
    schema = source.schema(columns).append(pa.field("c", pa.uint32()))
    c = source.before
    with (
        replacing(row_files(source.folder, source.group.part + 1)[-1]) as aside,
        pq.ParquetWriter(aside, schema, compression="lz4") as writer,
    ):
        for batch in source.batches(columns, Sizes.load(task).batch_candidates):
            number = pa.array(np.arange(c, c + len(batch), dtype=np.uint32))
            table = pa.Table.from_batches([batch]).append_column("c", number)
            writer.write_table(table.cast(schema))
            c += len(batch)
    return {}


def write_candidates(
    folder: Path, sketches: Sketches, groups: list[Group], bits: Path, count: int, policy: str
) -> dict[str, Any]:
    """Phase `candidates`: their rows; k of each c; ids in order of k. policy: of the survivor."""
    columns = survivors.preferred_by(policy)
    sizes = sketches.sizes
    tasks = candidate_tasks(groups, bits, folder, columns=columns, sizes=sizes.dump())
    run_tasks(sketches.run, "curate.dedup.minhash.candidates:write_rows", tasks)
    order = new_array(count, np.uint32, folder, sizes.mapped_bytes)
    with (folder / NAMES).open("wb") as names, (folder / ENDS).open("wb") as ends:
        ends.write(np.zeros(1, np.int64).data)
        k = total = 0
        source = f"read_parquet({paths_literal(row_files(folder, len(groups)))})"
        query = f"SELECT c, id FROM {source} ORDER BY {survivors.preference(policy)}"
        rows = sketches.connection.sql(query)
        for batch in arrow_batches(rows, sizes.batch_candidates) if count else ():
            order[batch.column(0).to_numpy()] = np.arange(k, k + len(batch), dtype=np.uint32)
            data, offsets = text_buffers(as_large_string(batch.column(1)))
            names.write(data[offsets[0] : offsets[-1]].data)
            ends.write((offsets[1:] - offsets[0] + total).data)
            k += len(batch)
            total += int(offsets[-1] - offsets[0])
    order.tofile(folder / ORDER)
    return {}


def all_rows(folder: Path, pieces: int, size: int) -> Iterator[pa.RecordBatch]:
    """(part, n, id) of all candidates in order of c, `size` at a time whatever the pieces."""
    waiting: list[pa.RecordBatch] = []
    waiting_rows = 0
    for path in row_files(folder, pieces):
        with pq.ParquetFile(path, pre_buffer=False) as source:
            for batch in source.iter_batches(size, columns=["part", "n", "id"], use_threads=False):
                waiting.append(batch)
                waiting_rows += len(batch)
                while waiting_rows >= size:
                    table = pa.Table.from_batches(waiting).combine_chunks()
                    yield table.slice(0, size).to_batches()[0]
                    waiting = table.slice(size).to_batches()
                    waiting_rows -= size
    if waiting_rows:
        yield pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]


class Ids:
    """The candidates' ids by k, from files that are mapped into memory."""

    def __init__(self, folder: Path) -> None:
        self._ends = map_array(folder / ENDS, np.int64)
        self._data = map_array(folder / NAMES, np.uint8)

    def of(self, numbers: np.ndarray) -> pa.LargeStringArray:
        """Their ids; an empty text for a number that no candidate has."""
        return text_array(
            *gather_texts(self._data.view(np.ndarray), self._ends.view(np.ndarray), numbers)
        )

    def forget(self) -> None:
        """Gives the memory of what was read back to the system."""
        unmap(self._ends)
        unmap(self._data)


def null_where(array: pa.Array, mask: np.ndarray) -> pa.Array:
    """The array with nulls where `mask` is set."""
    return pc.if_else(pa.array(~mask), array, pa.scalar(None, array.type))


SMALL = 24  # members that are sorted by insertion


@njit(cache=True, nogil=True)
def renumber(members, sizes, bits, before, order):
    """Members, document numbers, become order[c] in place, ascending within buckets of at most
    SMALL of them."""
    begin = np.int64(0)
    for size in sizes:
        for i in range(begin, begin + size):
            members[i] = order[number_of(members[i], bits, before)]
        if size <= SMALL:
            for i in range(begin + 1, begin + size):
                k, j = members[i], i
                while j > begin and members[j - 1] > k:
                    members[j] = members[j - 1]
                    j -= 1
                members[j] = k
        begin += size


def write_ordered(
    folder: Path, buckets: Path, pieces: int, order: np.ndarray, sizes: Sizes
) -> dict[str, Any]:
    """Phase `ordered`: the same buckets in terms of k, in one piece. order: uint32[candidates], k
    of each c."""
    bits = np.fromfile(buckets / BITS, np.uint64)
    before = ones_before(bits)
    ((members_path, sizes_path),) = bucket_files(folder, 1)
    with members_path.open("wb") as members_file, sizes_path.open("wb") as sizes_file:
        for members, counts in chunks(bucket_files(buckets, pieces), sizes.bucket_members):
            renumber(members, counts, bits, before, order)
            ends = np.cumsum(counts, dtype=np.int64)
            for bucket in np.flatnonzero(counts > SMALL).tolist():
                members[ends[bucket] - counts[bucket] : ends[bucket]].sort()
            members_file.write(members.data)
            sizes_file.write(counts.data)
    return {}


POSITIONS, BEGINS = "places.u32", "begins.i64"


@njit(cache=True, nogil=True)
def join_buckets(members, sizes, bits, before, parent):
    """Joins the trees of the members of each bucket. members: document numbers; parent: uint32 by
    c, changed in place."""
    begin = np.int64(0)
    for size in sizes:
        head = np.uint32(number_of(members[begin], bits, before))
        for i in range(begin + 1, begin + size):
            union(parent, head, np.uint32(number_of(members[i], bits, before)))
        begin += size


@njit(cache=True, nogil=True)
def part_components(root, most, part):
    """int64[parts + 1]: before how many candidates each part begins. root: uint32 by c, flat;
    part: uint32 by c, made here: that of its component. Components fill parts in order of their
    roots; a part holds up to `most` candidates, or one component alone."""
    part[:] = 0
    for c in range(len(root)):
        part[root[c]] += 1
    sizes = [np.int64(0)]  # of the parts
    for c in range(len(root)):
        r = root[c]
        if r != c:
            part[c] = part[r]
            continue
        if sizes[-1] and sizes[-1] + part[c] > most:
            sizes.append(np.int64(0))
        sizes[-1] += part[c]
        part[c] = len(sizes) - 1
    begins = np.zeros(len(sizes) + 1, np.int64)
    for p in range(len(sizes)):
        begins[p + 1] = begins[p] + sizes[p]
    return begins


@njit(cache=True, nogil=True)
def order_by_part(order, part, begins, by_k, position):
    """Fills position[c], that of c when candidates are ordered by part, then by k = order[c].
    by_k: uint32 of any values."""
    following = begins.copy()
    for c in range(len(order)):
        by_k[order[c]] = c
    for k in range(len(order)):
        c = by_k[k]
        position[c] = following[part[c]]
        following[part[c]] += 1


def write_parts(
    folder: Path, buckets: Path, pieces: int, order: np.ndarray, sizes: Sizes
) -> dict[str, Any]:
    """Phase `ordered` where matches are verified: the positions of candidates by c, where each part
    begins among them, and the buckets in terms of positions, a slice a part.

    order: uint32[candidates], k of each c. Within a part positions are in the order of k, so all
    that is decided by the lesser of two k is decided by positions as well.
    """
    count = len(order)
    most = max(sizes.part_candidates, -(-count // sizes.parts))
    mapped = sizes.mapped_bytes
    bits = load_array(buckets / BITS, np.uint64, mapped)
    before = ones_before(bits)
    files = bucket_files(buckets, pieces)
    position, begins = order, np.array([0, count])
    if count > most:
        parent, part, position = (new_array(count, np.uint32, folder, mapped) for _ in range(3))
        count_up(parent)
        for members, counts in chunks(files, sizes.bucket_members):
            join_buckets(members, counts, bits, before, parent)
        flatten(parent)
        begins = part_components(parent, most, part)
        order_by_part(order, part, begins, parent, position)
    position.tofile(folder / POSITIONS)
    begins.tofile(folder / BEGINS)
    writer = SliceWriter(SliceFiles.within(folder, "buckets"), len(begins) - 1, sizes.segment_bytes)
    for members, counts in chunks(files, sizes.bucket_members):
        renumber(members, counts, bits, before, position)
        ends = np.cumsum(counts, dtype=np.int64)
        offsets = np.concatenate([np.zeros(1, np.int64), ends])
        parts = parts_of(members[offsets[:-1]], begins)
        writer.add(parts, counts[:, None], 4 * offsets, members.view(np.uint8))
    writer.close()
    return {"parts": len(begins) - 1}


def parts_of(positions: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The part that each position is in."""
    return np.searchsorted(begins, positions, "right") - 1
