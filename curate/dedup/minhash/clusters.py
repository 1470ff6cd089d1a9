"""The phases of MinHash deduplication. A killed run resumes after its last complete phase.

The phases are keys, buckets, candidates, ordered, compared (only with verification) and edges, in
this order; then the decisions are written. Tasks read sketches, make shingles, sort keys and verify
pairs. One process orders the candidates, finds the connected components and merges the results of
tasks. This process holds fixed buffers, one bit per document, and arrays of up to 20 bytes per
candidate; large arrays are mapped files (corpus/shuffle/byte_rows.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus import journal
from curate.corpus.decisions import COLUMNS, even_tables
from curate.corpus.phases import Done, Facts, Phase, forget, run_phases
from curate.corpus.shuffle.buckets import (
    BITS,
    ROWS_FILE,
    bucket_files,
    candidate_batches,
    candidates_before,
    chunks,
    find_buckets,
    ones_before,
    set_bits,
    write_candidate_rows,
)
from curate.corpus.shuffle.byte_rows import (
    SliceFiles,
    SliceWriter,
    count_up,
    load_array,
    map_array,
    new_array,
    read_slice,
    scratch_folder,
    unmap,
)
from curate.corpus.shuffle.partitions import (
    PairFiles,
    PartitionWriter,
    fixed_rows,
    partition_bits,
    partition_keys,
    read_partitions,
)
from curate.corpus.shuffle.tasks import (
    CandidateTask,
    FolderTask,
    Group,
    groups,
    part_files,
    run_tasks,
)
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run, Sketches
from curate.dedup import survivors
from curate.dedup.minhash.kernels import (
    GATHER,
    MOST,
    NONE,
    SMALL,
    SPREAD,
    Compared,
    clear_roots,
    count_partners,
    count_shared,
    flatten,
    follow,
    for_kernels,
    gather_texts,
    join_buckets,
    keep_best,
    match_buckets,
    members_of_two,
    order_by_part,
    part_components,
    renumber,
    shingle_sets,
    star_pairs,
)
from curate.text.buffers import as_large_string, text_array, text_buffers
from llmcurate.base.disk.database import arrow_batches, literal, paths_literal
from llmcurate.base.disk.files import TEMPORARY, remove, replacing

# Candidates are the documents that share a bucket. DuckDB sorts them by preference in one process,
# and spills to disk. A candidate has two numbers: c, its position in the order of the sketches, and
# k, its position in the order of preference. Ids are stored by k, so id k is read without a join.
# Buckets are then rewritten by k, so nothing later depends on the order of the input. If pairs are
# verified, the buckets are also divided into parts.

ORDER, NAMES, ENDS = "order.u32", "ids.utf8", "ids.i64"


def write_candidates(
    folder: Path, sketches: Sketches, groups: list[Group], bits: Path, count: int, policy: str
) -> Facts:
    """Run phase `candidates`. Write to files: one row per candidate (key, id, c and what sets the
    preference), the rank k of each candidate c, and the ids in order of k."""
    sizes = sketches.sizes
    paths = write_candidate_rows(sketches, folder, groups, bits, survivors.preferred_by(policy))
    order = new_array(count, np.uint32, folder, sizes.mapped_bytes)
    with (folder / NAMES).open("wb") as names, (folder / ENDS).open("wb") as ends:
        ends.write(np.zeros(1, np.int64).data)
        k = total = 0
        source = f"read_parquet({paths_literal(paths)})"
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


def all_rows(folder: Path, pieces: int, size: int) -> Iterator[pa.Table]:
    """Yield part, n and id of all candidates, in order of c, in tables of `size` rows."""

    def batches() -> Iterator[pa.RecordBatch]:
        for path in part_files(folder, ROWS_FILE, pieces):
            with pq.ParquetFile(path, pre_buffer=False) as source:
                yield from source.iter_batches(size, columns=["part", "n", "id"], use_threads=False)

    return even_tables(batches(), size)


class Ids:
    """The ids of candidates, by k, read from memory-mapped files."""

    def __init__(self, folder: Path) -> None:
        self._ends = map_array(folder / ENDS, np.int64)
        self._data = map_array(folder / NAMES, np.uint8)

    def of(self, numbers: np.ndarray) -> pa.LargeStringArray:
        """Return the ids of candidates k = numbers; an empty text for NONE."""
        return text_array(
            *gather_texts(self._data.view(np.ndarray), self._ends.view(np.ndarray), numbers)
        )

    def forget(self) -> None:
        unmap(self._ends)
        unmap(self._data)


def write_ordered(
    folder: Path, buckets: Path, pieces: int, order: np.ndarray, sizes: Sizes
) -> Facts:
    """Write all buckets to one pair of files, with k in place of documents. `order`
    (uint32[candidates]) holds the k of each c. With verification, `write_parts` is used instead."""
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


def write_parts(folder: Path, buckets: Path, pieces: int, order: np.ndarray, sizes: Sizes) -> Facts:
    """Divide the candidates and the buckets into parts. A part is what one later task compares.
    Candidates get new numbers, by part and then by k. Write the new numbers, the first number in
    each part, and the buckets of each part as lists of new numbers. `order` (uint32[candidates])
    holds the k of each c."""
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
    return np.searchsorted(begins, positions, "right") - 1


# Without verification, documents that share a bucket match: a bucket is a star, in which the most
# preferred member is joined to every other. The partner of a document is the document with which it
# shares most stars. Pairs are counted in partitions on disk; memory holds a parent, a partner and a
# count per candidate.

ROOTS, PARTNERS, SHARED = "roots.u32", "partners.u32", "shared.u16"
SIMILARITY = "similarity.f64"


def write_stars(
    folder: Path, ordered: Path, candidates: int, members: int, first: bool, sizes: Sizes
) -> Facts:
    """Group documents that share buckets into clusters, without comparing their texts. Write for
    each candidate k: the kept document of its cluster (`root`), the document it is paired with most
    often (`partner`), and the number of buckets that contain both. `members` is the size of all
    buckets together. If `first`, a document is paired only with the most preferred document of each
    bucket, and joins its partner's cluster. If not, all documents of a bucket join one cluster."""
    parent, partner = (
        new_array(candidates, np.uint32, folder, sizes.mapped_bytes) for _ in range(2)
    )
    count_up(parent)
    spread, gather = np.uint64(SPREAD), np.uint64(GATHER)
    scratch = folder.with_name(f"{TEMPORARY}scratch")
    scratch.mkdir(exist_ok=True)
    files, buckets = PairFiles.within(scratch), bucket_files(ordered, 1)
    bits = partition_bits(members, sizes.partition_pairs)
    writer = PartitionWriter(files, bits, sizes.segment_pairs, valued=False)
    for bucket_members, counts in chunks(buckets, sizes.bucket_members):
        writer.add(star_pairs(bucket_members, counts, parent, first, spread))
    writer.close()
    partner[:] = NONE
    weight = new_array(candidates, np.uint16, folder, sizes.mapped_bytes)
    weight[:] = 0
    for part in range(1 << writer.bits):
        (((keys,), _),) = read_partitions(
            [files], part, part + 1, scratch, sizes.mapped_bytes, valued=False
        )
        keys.sort()
        count_partners(keys, gather, partner, weight)
    remove(scratch, inside=scratch.parent)
    if first:
        follow(parent, partner)
    flatten(parent)
    clear_roots(parent, partner)
    shared = weight
    shared[:] = 0
    for bucket_members, counts in chunks(buckets, sizes.bucket_members):
        count_shared(bucket_members, counts, partner, shared)
    parent.tofile(folder / ROOTS)
    partner.tofile(folder / PARTNERS)
    shared.tofile(folder / SHARED)
    return {}


# Candidate pairs are verified by the Jaccard similarity of their sets of shingles, or by the bits
# of their fingerprints (SimHash). First, one task per group of sketch files writes these features
# of each candidate, sorted into the part that compares it. Then one task per part reads features
# and buckets, and compares the candidates. Features of a part that is one large component lie in
# mapped files. A task holds some texts (Sizes.shingled_documents) and one segment of its output.

KIND = "compared"
NUMBERS = 2  # numbers per candidate: its position, and the bytes of its features
FINGERPRINTS = 20_000  # per batch


@dataclass(frozen=True)
class ComparedTask(CandidateTask):
    """A task that writes the shingles or fingerprints of the candidates in a group of files."""

    ordered: Path  # the folder of phase `ordered`
    segment_bytes: int
    shingling: tuple[str, str, int] | None  # arguments of `shingle_sets`, None for fingerprints


def write_compared(task: ComparedTask) -> None:
    """Run a task: write the features of the candidates in one group of files, sorted by part."""
    begins = np.fromfile(task.ordered / BEGINS, np.int64)
    written = SliceFiles.within(task.folder, KIND, task.part)
    with ExitStack() as stack:
        positions = stack.enter_context((task.ordered / POSITIONS).open("rb"))
        positions.seek(4 * task.before)
        files = SliceFiles(*(stack.enter_context(replacing(path)) for path in written))
        writer = SliceWriter(files, len(begins) - 1, task.segment_bytes)
        for batch in candidate_batches(task):
            position = np.fromfile(positions, np.uint32, len(batch))
            if task.shingling is None:
                rows = fixed_rows(batch.column(0), np.uint8)
                offsets = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
                data = rows.reshape(-1)
            else:
                ends, values = shingle_sets(as_large_string(batch.column(0)), *task.shingling)
                offsets, data = 8 * ends, values.view(np.uint8)
            rows_of_slice = np.empty((len(batch), NUMBERS), np.uint32)
            rows_of_slice[:, 0], rows_of_slice[:, 1] = position, np.diff(offsets)
            writer.add(parts_of(position, begins), rows_of_slice, offsets, data)
        writer.close()


@dataclass(frozen=True)
class Verification:
    """Settings for verifying candidate pairs (see `match_buckets`)."""

    width: int  # bytes per fingerprint, 0 to compare shingles
    least: float  # the least similarity of a match
    first: bool  # True: match a candidate only to the first similar one
    most: int = MOST  # the limit, for centres and for other members each


@dataclass(frozen=True)
class MatchTask(FolderTask):
    """A task that matches the candidates of one part: `count` candidates from number `begin` on."""

    begin: int
    count: int
    ordered: Path  # the folder of phase `ordered`
    compared: Path  # the folder of phase `compared`
    groups: int  # the number of groups of files in the folder `compared`
    by: Verification
    sizes: Sizes


# Three arrays over the candidates of a part: root (uint32), partner (uint32) and similarity
# (float64). Roots and partners are positions in the part.
MATCH_FILE = "matches.bin"


def match_part(task: MatchTask) -> None:
    """Run a task: compare the candidates of one part. Write for each the kept document of its
    cluster (`root`), the most similar document (`partner`) and their similarity."""
    by, sizes, count = task.by, task.sizes, task.count
    buckets = SliceFiles.within(task.ordered, "buckets")
    groups = [SliceFiles.within(task.compared, KIND, group) for group in range(task.groups)]
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder(task.folder))
        rows, features = read_slice(groups, task.part, NUMBERS, scratch, sizes.mapped_bytes)
        compared = _compared(rows, features, task, scratch)
        counts, data = read_slice([buckets], task.part, 1, scratch, sizes.mapped_bytes)
        members = data.view(np.uint32)
        new = partial(new_array, count, folder=scratch, mapped_bytes=sizes.mapped_bytes)
        parent, partner, best = new(np.uint32), new(np.uint32), new(np.float64)
        count_up(parent)
        partner[:] = NONE
        best[:] = 0.0
        for batch, batch_sizes in _bucket_batches(counts[:, 0], sizes.matched_members):
            positions = members[batch] - np.uint32(task.begin)
            k, other, similar = match_buckets(
                positions, batch_sizes, compared, by.least, by.first, by.most, parent
            )
            keep_best(k, other, similar, by.first, partner, best)
            for array in compared:
                unmap(array)
        flatten(parent)
        clear_roots(parent, partner)
        aside = stack.enter_context(replacing(task.file(MATCH_FILE)))
        with aside.open("wb") as file:
            for array in (parent, partner, best):
                array.tofile(file)


def _bucket_batches(sizes: np.ndarray, most: int) -> Iterator[tuple[slice, np.ndarray]]:
    begin = 0
    for at in range(0, len(sizes), most):
        waiting = sizes[at : at + most]
        ends = np.cumsum(waiting, dtype=np.int64)
        done = 0
        while done < len(waiting):
            before = int(ends[done - 1]) if done else 0
            take = max(done + 1, int(np.searchsorted(ends, before + most, "right")))
            stop = begin + int(ends[take - 1])
            yield slice(begin + before, stop), np.ascontiguousarray(waiting[done:take])
            done = take
        begin += int(ends[-1])


def _compared(rows: np.ndarray, data: np.ndarray, task: MatchTask, scratch: Path) -> Compared:
    by, sizes = task.by, task.sizes
    extents = new_array((len(rows), 2), np.int64, scratch, sizes.mapped_bytes)
    width, total = (1 if by.width else 8), 0
    for at in range(0, len(rows), sizes.chunk_candidates):
        position, size = rows[at : at + sizes.chunk_candidates].T.astype(np.int64)
        ends = total + np.cumsum(size)
        position -= task.begin
        extents[position, 0], extents[position, 1] = (ends - size) // width, size // width
        total = int(ends[-1])
        unmap(extents)
    if by.width:
        extents[:, 0] //= by.width
        bits = data.reshape(-1, by.width)
        return for_kernels(Compared(np.empty(0, np.uint64), extents, bits))
    return for_kernels(Compared(data.view(np.uint64), extents, np.empty((0, 0), np.uint8)))


def write_matches(
    folder: Path,
    run: Run,
    ordered: Path,
    order: Path,
    compared: Path,
    groups: int,
    by: Verification,
    sizes: Sizes,
) -> Facts:
    """Compare candidates in tasks, and merge the results. Write for each candidate k the kept
    document of its cluster, the most similar document and the similarity. `order` is the file with
    the k of each c. `ordered`, `compared` and `groups` are as in `MatchTask`."""
    begins = np.fromfile(ordered / BEGINS, np.int64).tolist()
    count, chunk = begins[-1], sizes.chunk_candidates
    tasks = [
        MatchTask(part, folder, begin, stop - begin, ordered, compared, groups, by, sizes)
        for part, (begin, stop) in enumerate(pairwise(begins))
    ]
    run_tasks(run, f"{__name__}:match_part", tasks)
    new = partial(new_array, count, folder=folder, mapped_bytes=sizes.mapped_bytes)
    k_of = new(np.uint32)  # of each position
    with order.open("rb") as ks, (ordered / POSITIONS).open("rb") as positions:
        while len(k := np.fromfile(ks, np.uint32, chunk)):
            k_of[np.fromfile(positions, np.uint32, chunk)] = k
    root, partner, best = new(np.uint32), new(np.uint32), new(np.float64)
    for task in tasks:
        size, path = task.count, task.file(MATCH_FILE)
        k_of_part = k_of[task.begin : task.begin + size]
        for at in range(0, size, chunk):
            stop = min(at + chunk, size)
            k = k_of_part[at:stop]
            roots, partners = (
                np.fromfile(path, np.uint32, stop - at, offset=4 * (at + size * i)) for i in (0, 1)
            )
            root[k] = k_of_part[roots]
            absent = partners == NONE
            partner[k] = np.where(absent, NONE, k_of_part[np.where(absent, 0, partners)])
            best[k] = np.fromfile(path, np.float64, stop - at, offset=8 * (size + at))
        journal.release(path)
        path.unlink()
    root.tofile(folder / ROOTS)
    partner.tofile(folder / PARTNERS)
    best.tofile(folder / SIMILARITY)
    return {}


SCHEMA = COLUMNS.append(pa.field("cluster_size", pa.int64()))  # members in earlier corpora included


def _number_clusters(
    db: Any,
    ids: Ids,
    root: np.ndarray,
    member: np.ndarray,
    partner: np.ndarray,
    scratch: Path,
    batch_size: int,
) -> int:
    rows = scratch / ".part-roots.parquet"
    schema = pa.schema([("k", pa.uint32()), ("id", pa.large_string())])
    with pq.ParquetWriter(rows, schema, compression="lz4") as writer:
        for begin in range(0, len(root), batch_size):
            stop = min(begin + batch_size, len(root))
            k = set_bits(member, begin, stop) + begin
            k = k[root[k] == k]
            writer.write_table(pa.table([pa.array(k, pa.uint32()), ids.of(k)], schema=schema))
            ids.forget()
    count = 0
    query = f"SELECT k FROM read_parquet({literal(rows)}) ORDER BY id"
    for batch in arrow_batches(db.sql(query), batch_size):
        k = batch.column(0).to_numpy()
        partner[k] = np.arange(count, count + len(k), dtype=np.uint32)
        count += len(k)
    rows.unlink()
    return count


def _similarities(edges: Path, bands: int, rows: int, mapped_bytes: int) -> tuple[np.ndarray, Any]:
    """Return a value per candidate, and a function from values to similarities. Values of verified
    pairs are the similarities. Others are numbers of shared bands: at similarity s, a share s^rows
    of the bands is expected to be shared."""
    if (edges / SIMILARITY).exists():
        return map_array(edges / SIMILARITY, np.float64), lambda similarity: similarity
    of = (np.arange(bands + 1) / bands) ** (1.0 / rows)
    return load_array(edges / SHARED, np.uint16, mapped_bytes), lambda shared: of[shared]


def write_decisions(
    request: Request, sketches: Sketches, candidates: Path, pieces: int, edges: Path
) -> dict[str, int]:
    """Write the decisions on all members of clusters, ordered by part and n. Return the counts for
    the report. The folder `candidates` has the rows of the candidates in `pieces` files, `edges`
    their clusters."""
    db, path, sizes = sketches.connection, sketches.decisions, sketches.sizes
    mapped, batch_size = sizes.mapped_bytes, sizes.batch_candidates
    root = load_array(edges / ROOTS, np.uint32, mapped)
    partner = new_array(len(root), np.uint32, path.parent, mapped)
    partner[:] = load_array(edges / PARTNERS, np.uint32, mapped)
    size = new_array(len(root), np.uint32, path.parent, mapped)
    size[:] = 0
    for begin in range(0, len(root), batch_size):
        np.add.at(size, root[begin : begin + batch_size], 1)
    values, similarity_of = _similarities(edges, *request.banding, mapped)
    member = members_of_two(root)
    ids = Ids(candidates)
    count = _number_clusters(db, ids, root, member, partner, path.parent, batch_size)
    members = 0
    with (
        (candidates / ORDER).open("rb") as order,
        pq.ParquetWriter(path, SCHEMA) as writer,
    ):
        for batch in all_rows(candidates, pieces, batch_size):
            k = np.fromfile(order, np.uint32, len(batch))
            rows_of_members = np.flatnonzero(
                member[k >> 6] >> (k & 63).astype(np.uint64) & np.uint64(1)
            )
            rows, k = batch.take(pa.array(rows_of_members)), k[rows_of_members]
            kept = root[k]
            drop = kept != k
            other = np.where(drop, partner[k], NONE)
            similarity = similarity_of(values[k])
            columns = [
                rows.column(0).cast(pa.int32()),
                rows.column(1).cast(pa.int64()),
                pa.array(drop),
                rows.column(2).cast(pa.string()),
                pa.array(partner[kept], pa.int64()),
                ids.of(kept).cast(pa.string()),
                pc.if_else(pa.array(drop), ids.of(other).cast(pa.string()), None),
                pa.array(similarity, mask=~drop),
                pa.repeat(request.method, len(k)),
                pa.nulls(len(k), pa.int64()),
                pa.nulls(len(k), pa.int64()),
                pa.array(size[kept], pa.int64()),
            ]
            writer.write_table(pa.table(columns, schema=SCHEMA))
            members += len(k)
            unmap(values)
            ids.forget()
    return {"clusters": count, "members": members, "dropped": members - count}


SORT_MEMORY = "128MB"


@dataclass(frozen=True)
class Request:
    """The settings of one MinHash deduplication."""

    label: str
    method: str
    banding: tuple[int, int]  # (bands, rows per band)
    width: int  # bytes per fingerprint, 0 to compare texts
    verify: float | None  # the least similarity of a match; None: a shared band is enough
    survivor: str  # which document of a cluster is kept
    shingling: tuple[str, str, int] | None  # arguments of `shingle_sets`, None for fingerprints


def phases(request: Request, sketches: Sketches) -> list[Phase]:
    """Return the phases that run before the decisions are written."""
    first = request.survivor == "first"
    sizes = sketches.sizes
    sketch_groups = groups(sketches, sizes.task_documents)

    def keys(folder: Path, done: Done) -> Facts:
        return partition_keys(
            sketches, folder, sketch_groups, request.label, "bands", request.banding[0]
        )

    def buckets(folder: Path, done: Done) -> Facts:
        return find_buckets(sketches, folder, done.folder("keys"), done.facts)

    def candidates(folder: Path, done: Done) -> Facts:
        count, bits = done.facts["candidates"], done.file("buckets", BITS)
        return write_candidates(folder, sketches, sketch_groups, bits, count, request.survivor)

    def ordered(folder: Path, done: Done) -> Facts:
        order = load_array(done.file("candidates", ORDER), np.uint32, sizes.mapped_bytes)
        arguments = done.folder("buckets"), done.facts["pieces"], order, sizes
        return (write_ordered if request.verify is None else write_parts)(folder, *arguments)

    def compare(folder: Path, done: Done) -> Facts:
        column, read = ("text",), sizes.shingled_documents
        if request.width:
            column, read = ("signature",), FINGERPRINTS
        bits = done.file("buckets", BITS)
        more = column, read, done.folder("ordered"), sizes.segment_bytes, request.shingling
        tasks = [
            ComparedTask(g.part, folder, g, bits, before, *more)
            for g, before in zip(sketch_groups, candidates_before(sketch_groups, bits), strict=True)
        ]
        run_tasks(sketches.run, f"{__name__}:write_compared", tasks)
        return {}

    def edges(folder: Path, done: Done) -> Facts:
        ordered, count = done.folder("ordered"), done.facts["candidates"]
        if request.verify is None:
            return write_stars(folder, ordered, count, done.facts["members"], first, sizes)
        by = Verification(request.width, request.verify, first)
        order, compared = done.file("candidates", ORDER), done.folder("compared")
        groups = len(sketch_groups)
        return write_matches(folder, sketches.run, ordered, order, compared, groups, by, sizes)

    verified = request.verify is not None
    return [
        Phase("keys", keys),
        Phase("buckets", buckets, frees=("keys",)),
        Phase("candidates", candidates),
        Phase("ordered", ordered, frees=() if verified else ("buckets",)),
        *([Phase("compared", compare, frees=("buckets",))] if verified else ()),
        Phase("edges", edges, frees=("ordered", "compared")),
    ]


def resolve(request: Request, sketches: Sketches) -> tuple[Facts, dict[str, int]]:
    """Run all phases and write the decisions. Return the facts from the phases, and the counts for
    the report."""
    # The database only runs two sorts, and more memory does not make them faster.
    sketches.connection.execute(f"SET memory_limit = '{SORT_MEMORY}'")
    done = run_phases(sketches.folder, phases(request, sketches))
    folders = done.folder("candidates"), done.facts["groups"], done.folder("edges")
    counts = write_decisions(request, sketches, *folders)
    forget(sketches.folder)
    return done.facts, {**counts, "candidates": done.facts["candidates"]}
