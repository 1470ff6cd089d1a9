"""Passage deduplication in tasks, from sketches to decisions.

The phases are keys, shared, rows, owners and pieces, in this order. They read only the keys
(hashes) and positions of passages. `keys` writes the keys by partition. `shared` drops passages
that occur once. In `rows`, each task takes a group of sketch files, counts each remaining key in
it, and finds the group's most preferred document that has this key. In `owners`, each task takes a
range of keys, and chooses among the documents that the groups found for a key. In `pieces`, each
task decides on the passages of one group. The calling process only concatenates the results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.decisions import COLUMNS, PIECE, ROWS, Decided, join_pieces, write_piece
from curate.corpus.phases import Done, Facts, Phase, forget, run_phases
from curate.corpus.shuffle.buckets import buckets_of
from curate.corpus.shuffle.byte_rows import scratch_folder
from curate.corpus.shuffle.partitions import (
    BundleTask,
    PairFiles,
    PartitionWriter,
    bundles,
    pair_counts,
    partition_bits,
    read_partitions,
    sort_pairs,
    sort_repeated,
)
from curate.corpus.shuffle.tasks import (
    FolderTask,
    Group,
    GroupTask,
    groups,
    part_file,
    part_files,
    read_slice,
    run_tasks,
    write_slices,
)
from curate.corpus.sketches import Sketches, sketch_batches
from curate.dedup import survivors
from curate.dedup.passages.kernels import (
    NONE,
    drop_repeats,
    estimated_passages,
    preferred,
    unpacked,
)
from llmcurate.base.disk.database import scratch_database
from llmcurate.base.disk.files import replacing, temporary_name
from llmcurate.base.disk.units import counted
from llmcurate.base.messages import Message

# The shuffle finds passages that may occur more than once, by 64 bits of their keys (the second
# half). A passage is named by its group of sketch files and its 32-bit number in the group. Tasks
# on groups put (key, number) into partitions. Tasks on partitions then report to each group which
# of its passages share their 64 bits. A key that a group has very often, such as boilerplate of a
# site, enters the shuffle only a few times, because it is already known to be shared. So the
# commonest line does not inflate its partition.

REMEMBERED = 1 << 16  # keys of a group that are remembered to recognise repeats
_ROWS = 10_000  # sketches per batch


# Per group: a bit per passage, set if it is known to be shared. Per bundle of partitions: the
# numbers of shared passages (uint32) by group, and where those of each group begin (int64[groups +
# 1]). For all groups: the number of passages of each, int64[groups].
REPEATED, SHARED, STARTS, PASSAGES = "repeated.bits", "shared.u32", "starts.npy", "passages.i64"


@dataclass(frozen=True)
class KeysTask(GroupTask):
    bits: int
    segment_pairs: int


@dataclass(frozen=True)
class Keys(Message):
    passages: int  # all passages
    repeated: int  # passages already known to be repeated


def partition_passages(sketches: Sketches, folder: Path, groups: list[Group], about: int) -> Facts:
    """Run phase `keys`. The estimated number of passages, `about`, sets that of partitions."""
    bits = partition_bits(about, sketches.sizes.partition_pairs)
    tasks = [KeysTask(g.part, folder, g, bits, sketches.sizes.segment_pairs) for g in groups]
    done = run_tasks(sketches.run, f"{__name__}:write_keys", tasks, Keys)
    np.array([keys.passages for keys in done], np.int64).tofile(folder / PASSAGES)
    return {"partition_bits": bits, "repeated": sum(keys.repeated for keys in done)}


def write_keys(task: KeysTask) -> Keys:
    """Run a task: write the keys of a group of sketch files. The task takes 48 MB of memory, and
    one byte per passage."""
    passages = 0
    for file in task.group.files:
        with pq.ParquetFile(file.path, pre_buffer=False) as source:
            counts = source.read(columns=["passages"], use_threads=False)["passages"]
            passages += int(counts.to_numpy().sum())
    last_keys = np.zeros(REMEMBERED, np.uint64)
    last_numbers = np.full(REMEMBERED, NONE, np.uint32)
    repeated = np.zeros(passages, np.uint8)
    first = 0
    with ExitStack() as stack:
        paths = PairFiles.within(task.folder, task.part)
        aside = PairFiles(*(stack.enter_context(replacing(path, sync=False)) for path in paths))
        writer = PartitionWriter(aside, task.bits, min(task.segment_pairs, max(1, passages)))
        for file in task.group.files:
            with pq.ParquetFile(file.path, pre_buffer=False) as source:
                for batch in source.iter_batches(_ROWS, columns=["keys"], use_threads=False):
                    keys = np.ascontiguousarray(unpacked(batch.column(0), np.uint64)[0][:, 1])
                    passing = np.empty_like(keys), np.empty(len(keys), np.uint32)
                    size = drop_repeats(keys, first, last_keys, last_numbers, repeated, *passing)
                    writer.add(passing[0][:size], passing[1][:size])
                    first += len(keys)
        writer.close()
        bits = stack.enter_context(replacing(task.file(REPEATED), sync=False))
        np.packbits(repeated).tofile(bits)
    return Keys(passages, int(np.count_nonzero(repeated)))


def find_shared(sketches: Sketches, folder: Path, keys: Path, groups: int, facts: Facts) -> Facts:
    tasks = bundles(folder, keys, groups, facts["partition_bits"], sketches.sizes)
    done = run_tasks(sketches.run, f"{__name__}:write_shared", tasks, int)
    return {"pieces": len(tasks), "shared": sum(done)}


def write_shared(task: BundleTask) -> int:
    """Run a task: write the numbers of the shared passages in its partitions, by group. Return how
    many they are. The task takes 12 bytes of memory per pair (key, passage), and 30 more for each
    pair of the current partition."""
    files, (begin, stop) = task.pair_files(), (task.begin, task.stop)
    numbers: list[np.ndarray] = []
    owners: list[np.ndarray] = []
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder(task.folder))
        ends = np.cumsum(pair_counts(files, begin, stop), axis=0)
        partitions = read_partitions(files, begin, stop, scratch, task.mapped_bytes)
        for p, ((key, number), make_array) in enumerate(partitions):
            position = make_array(np.uint32)
            position[:] = np.arange(len(key), dtype=np.uint32)
            key, position = sort_repeated(key, position, task.bits, make_array)
            members = make_array(np.uint32)
            count = buckets_of(key, position, members, make_array(np.uint32))[0]
            is_shared = np.zeros(len(number), np.bool_)
            is_shared[members[:count]] = True
            at = np.flatnonzero(is_shared)
            numbers.append(number[at])
            owners.append(np.searchsorted(ends[:, p], at, "right").astype(np.int32))
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        starts = np.searchsorted(owner[order], np.arange(task.groups + 1)).astype(np.int64)
        values = stack.enter_context(replacing(task.file(SHARED), sync=False))
        np.concatenate(numbers)[order].tofile(values)
        table = stack.enter_context(replacing(task.file(STARTS), sync=False))
        with table.open("wb") as file:
            np.save(file, starts)
    return len(owner)


def shared_of(group: int, keys: Path, shared: Path, pieces: int) -> np.ndarray:
    """Return bool[passages] for a group: True if a passage may occur more than once. `keys` and
    `shared` are the folders of these phases, `pieces` is the number of tasks of `shared`."""
    passages = int(np.fromfile(keys / PASSAGES, np.int64)[group])
    bits = np.fromfile(part_file(keys, REPEATED, group), np.uint8)
    is_shared = np.unpackbits(bits, count=passages).view(np.bool_)
    for piece in range(pieces):
        table = np.load(part_file(shared, STARTS, piece), mmap_mode="r")
        begin, stop = table[group : group + 2].tolist()
        values = part_file(shared, SHARED, piece)
        is_shared[np.fromfile(values, np.uint32, stop - begin, offset=4 * begin)] = True
    return is_shared


# The rows of a group of sketch files: how often it has each key, and its preferred document. The
# task that decides on a key (`write_owners`) gets one row per group, for the most preferred
# document. With `keep: none` it gets a second row, for the least preferred document. A slice of
# keys therefore has one or two rows per group and key, even for a very frequent line. The
# occurrences themselves stay in files for the next task of the group (`write_pieces`).

SORT_MEMORY = "512MB"


class Runs:
    """Rows grouped by equal keys. A run is one such group; runs are in order of their keys.

    `run_of` is each row's run (uint32[rows]). The other attributes have one entry per run: `first`
    and `last` are its most and its least preferred row (uint32), and `total` is the number of
    occurrences (int64)."""

    def __init__(
        self, low: np.ndarray, high: np.ndarray, preference: np.ndarray, copies: np.ndarray
    ) -> None:
        rows = len(low)
        self.run_of = np.empty(rows, np.uint32)
        by_run = np.empty(rows, np.uint32), np.empty(rows, np.uint32), np.empty(rows, np.int64)
        order = sorted_rows(low, high)
        count = preferred(order, low, high, preference, copies, self.run_of, *by_run)
        self.first, self.last, self.total = (array[:count] for array in by_run)


def sorted_rows(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return uint32[rows]: the rows, sorted by (low, high). Equal rows keep their order."""
    numbers = np.arange(len(low), dtype=np.uint32)
    keys, order = sort_pairs(low.copy(), numbers, 0, lambda dtype: np.empty(len(low), dtype))
    same = keys[1:] == keys[:-1]
    # Keys that share only one half do so by chance, or were made to collide.
    if (same & (high[order[1:]] != high[order[:-1]])).any():
        return np.lexsort((high, low)).astype(np.uint32)
    return order


def ranks(documents: pa.Table, policy: str, folder: Path) -> np.ndarray:
    """Return int64[documents]: each document's position in the order of preference. Equal documents
    keep their order. The sort spills into `folder`."""
    count = len(documents)
    if survivors.preference(policy) == survivors.preference("first") or count < 2:
        return np.arange(count)
    rank = np.empty(count, np.int64)
    with scratch_database(folder / temporary_name("spill-ranks")) as db:
        db.execute(f"SET memory_limit = '{SORT_MEMORY}'")
        db.register("documents", documents.append_column("k", pa.array(np.arange(count))))
        order = f"SELECT k FROM documents ORDER BY {survivors.preference(policy)}, k"
        rank[db.execute(order).fetchnumpy()["k"]] = np.arange(count)
    return rank


ROW_SCHEMA = pa.schema(
    [
        ("low", pa.uint64()),
        ("high", pa.uint64()),
        ("document", pa.uint32()),  # its row in the same slice of the documents file
        ("copies", pa.int64()),  # occurrences; 0 in a second row
    ]
)


@dataclass(frozen=True)
class Members:
    """The possibly repeated passages of a group of files, sorted by document, then by position."""

    document: np.ndarray  # the number of the passage's document in the group
    a: np.ndarray  # the passage's first byte in the document
    z: np.ndarray  # the end of the passage (exclusive)
    low: np.ndarray  # one half of its key
    high: np.ndarray  # the other half


# Per group, one record batch per slice: rows, and the documents that they refer to.
ROWS_FILE, DOCUMENTS_FILE = "rows.arrow", "documents.arrow"
# Per group: its passages (uint32[4, passages]: document, a, z, key), and the most preferred passage
# of each of its keys (uint32[keys]).
MEMBERS_FILE, FIRSTS_FILE = "members.npy", "firsts.npy"


def distinct(ascending: np.ndarray) -> np.ndarray:
    """Return ascending numbers without repeats."""
    return ascending[np.diff(ascending, prepend=-1) != 0]


def slice_of(low: np.ndarray, slices: int) -> np.ndarray:
    """Return int64[keys]: the slice of each key. The upper 32 bits of `low` choose the slice, as a
    fraction of 2^32."""
    high_bits = low >> np.uint64(32)
    return ((high_bits * np.uint64(slices)) >> np.uint64(32)).astype(np.int64)


@dataclass(frozen=True)
class RowsTask(GroupTask):
    keys: Path  # the folder of phase `keys`
    shared: Path  # the folder of phase `shared`
    pieces: int  # the number of pieces in the folder `shared`
    slices: int  # number of ranges of keys
    survivor: str
    keep: str


def write_rows(task: RowsTask) -> None:
    """Run a task: write the possibly repeated passages of a group, and a row per key, by slice of
    keys. The task takes 60 bytes of memory per passage, and holds two copies of the columns that
    describe the documents."""
    chosen = shared_of(task.part, task.keys, task.shared, task.pieces)
    columns = survivors.preferred_by(task.survivor)
    members, documents = _members(task.group, chosen, columns)
    numbers = distinct(members.document)
    rank = ranks(documents, task.survivor, task.folder)
    at = np.searchsorted(numbers, members.document)
    # By the document's rank, then by byte: the first occurrence in a document comes first.
    preference = (rank[at].astype(np.uint64) << np.uint64(32)) + members.a
    runs = Runs(members.low, members.high, preference, np.ones(len(at), np.int64))
    kept = np.stack([members.document, members.a, members.z, runs.run_of])
    for name, array in ((MEMBERS_FILE, kept), (FIRSTS_FILE, runs.first)):
        with replacing(task.file(name), sync=False) as aside, aside.open("wb") as file:
            np.save(file, array)
    sent: np.ndarray = runs.first
    copies: np.ndarray = runs.total
    if task.keep == "none":
        both = np.stack([runs.first, runs.last], axis=1).reshape(-1)
        copies = np.stack([copies, np.zeros_like(copies)], axis=1).reshape(-1)
        other = (copies > 0) | (at[both] != at[np.repeat(runs.first, 2)])
        sent, copies = both[other], copies[other]
    document = at[sent]
    low, high = members.low[sent], members.high[sent]
    slices = np.arange(task.slices)
    ends = np.searchsorted(slice_of(low, task.slices), slices, "right").tolist()
    documents_by_slice: list[np.ndarray] = []

    def rows() -> Iterator[pa.Table]:
        for begin, end in pairwise([0, *ends]):
            part = slice(begin, end)
            of_slice, row = np.unique(document[part], return_inverse=True)
            documents_by_slice.append(of_slice)
            columns = (low[part], high[part], row.astype(np.uint32), copies[part])
            yield pa.table([pa.array(array) for array in columns], schema=ROW_SCHEMA)

    write_slices(task.file(ROWS_FILE), ROW_SCHEMA, rows())
    tables = (documents.take(pa.array(of_slice)) for of_slice in documents_by_slice)
    write_slices(task.file(DOCUMENTS_FILE), documents.schema, tables)


def _members(group: Group, chosen: np.ndarray, columns: list[str]) -> tuple[Members, pa.Table]:
    columns_of_batches: list[tuple[np.ndarray, ...]] = []
    # Needed for a group without sketches too: the reader of a slice expects the same columns from
    # all.
    stored = pq.read_schema(group.files[0].path)
    schema = pa.schema([*map(stored.field, columns), pa.field("id", pa.string())])
    documents = [schema.empty_table()]
    passages = sketches = 0
    for batch in sketch_batches(group.files, ["keys", "spans", *columns]):
        keys, rows = unpacked(batch["keys"], np.uint64)
        at = np.flatnonzero(chosen[passages : passages + len(keys)])
        passages += len(keys)
        document_of = np.searchsorted(rows, at, side="right") - 1
        table = pa.Table.from_batches([batch]).select([*columns, "id"])
        documents.append(table.take(pa.array(distinct(document_of))).cast(schema))
        span = unpacked(batch["spans"], np.uint32)[0][at]
        document = (document_of + sketches).astype(np.uint32)
        columns_of_batches.append((document, span[:, 0], span[:, 1], keys[at, 1], keys[at, 0]))
        sketches += len(batch)
    if not columns_of_batches:
        types = (np.uint32, np.uint32, np.uint32, np.uint64, np.uint64)
        columns_of_batches.append(tuple(np.empty(0, kind) for kind in types))
    arrays = (np.concatenate(kind) for kind in zip(*columns_of_batches, strict=True))
    return Members(*arrays), pa.concat_tables(documents).combine_chunks()


# The task of a slice has one row per group and key (two with `keep: none`) and chooses the document
# that keeps the passage. It answers each group in the order of the group's keys, so answers need no
# keys. Clusters are numbered in order of their keys.

ANSWERS = pa.schema(
    [
        ("cluster", pa.int64()),  # in the slice; null: the passage occurs once
        ("lost", pa.bool_()),  # no occurrence is kept
        ("here", pa.bool_()),  # the most preferred document is in this group
        ("owner", pa.string()),  # the id of the most preferred document
        ("other", pa.string()),  # the least preferred document, if `lost` and `here`
    ]
)


# The answers of a slice, one record batch per group; the number of clusters per slice, int64[].
OWNERS_FILE, CLUSTERS = "owners.arrow", "clusters.i64"


@dataclass(frozen=True)
class OwnersTask(FolderTask):
    rows: Path  # the folder of phase `rows`
    groups: int
    survivor: str
    keep: str


@dataclass(frozen=True)
class Owners(Message):
    clusters: int  # sets of equal passages
    members: int  # passages in clusters
    dropped: int  # dropped passages
    lost: int  # clusters without a kept passage


def write_owners(task: OwnersTask) -> Owners:
    """Run a task: choose for each repeated passage of a slice the document that keeps it, and write
    this document's id. The task takes some 200 bytes of memory per key and group. Documents are
    sorted in a database, in 512 MB of memory and on disk."""
    groups = task.groups
    rows = [*read_slice(part_files(task.rows, ROWS_FILE, groups), task.part)]
    document_batches = [*read_slice(part_files(task.rows, DOCUMENTS_FILE, groups), task.part)]
    documents = pa.Table.from_batches(document_batches)
    sizes = np.array([len(batch) for batch in rows])
    documents_of_group = np.array([len(batch) for batch in document_batches])
    group = np.repeat(np.arange(groups), sizes)
    table = pa.Table.from_batches(rows).combine_chunks()
    low, high, document, copies = (column.to_numpy() for column in table.columns)
    document = document + np.repeat(np.cumsum(documents_of_group) - documents_of_group, sizes)
    # The rows of a key within a group are already in order of preference.
    preference = np.arange(len(low))
    if groups > 1:
        preference = ranks(documents.combine_chunks(), task.survivor, task.folder)[document]
    runs = Runs(low, high, preference.astype(np.uint64), copies)
    keeper, least = document[runs.first], document[runs.last]
    shared = runs.total > 1
    lost = shared & (keeper != least) & (task.keep == "none")
    cluster = np.where(shared, np.cumsum(shared) - 1, -1)

    answered = np.flatnonzero(copies > 0)
    run = runs.run_of[answered]
    is_own = shared[run] & (group[runs.first[run]] == group[answered])
    ids = documents["id"].combine_chunks()
    answers = pa.table(
        [
            pa.array(cluster[run], mask=~shared[run]),
            pa.array(lost[run]),
            pa.array(is_own),
            ids.take(pa.array(keeper[run], mask=~shared[run])),
            ids.take(pa.array(least[run], mask=~(lost[run] & is_own))),
        ],
        schema=ANSWERS,
    )
    bounds = np.searchsorted(group[answered], np.arange(groups + 1)).tolist()
    each = (answers.slice(begin, end - begin) for begin, end in pairwise(bounds))
    write_slices(task.file(OWNERS_FILE), ANSWERS, each)
    members = int(runs.total[shared].sum())
    kept = int(np.count_nonzero(shared & ~lost))
    return Owners(int(np.count_nonzero(shared)), members, members - kept, int(lost.sum()))


# local: True if all occurrences are in one document, or the kept one is in the same document.
DECISIONS = pa.schema([*COLUMNS, ("local", pa.bool_())])


@dataclass(frozen=True)
class PiecesTask(GroupTask):
    rows: Path  # the folder of phase `rows`
    owners: Path  # the folder of phase `owners`
    slices: int  # the number of slices in the folder `owners`
    method: str  # the name of the step


def write_pieces(task: PiecesTask) -> int:
    """Run a task: write which repeated passages of a group are kept and which are cut, ordered by
    document and byte. Return the number of cut bytes. Memory holds the ids of the documents, and 30
    bytes per passage."""
    answers = [*read_slice(part_files(task.owners, OWNERS_FILE, task.slices), task.part)]
    # Clusters are numbered within a slice; add the clusters of the earlier slices.
    clusters = np.fromfile(task.owners / CLUSTERS, np.int64)
    before = np.repeat(np.cumsum(clusters) - clusters, [len(batch) for batch in answers])
    table = pa.Table.from_batches(answers).combine_chunks()
    cut: list[int] = []
    write_piece(task.file(PIECE), DECISIONS, _decisions(task, table, before, cut))
    return sum(cut)


def bytes_under(document: np.ndarray, a: np.ndarray, z: np.ndarray, last: int) -> tuple[int, int]:
    """Return (number of bytes that the spans cover, `last` for the next call). Spans are ordered by
    document, then `a`, and may overlap. `last` is the end of the earlier spans, 0 at first."""
    doc, begin, end = (array.astype(np.int64) for array in (document, a, z))
    ends = np.maximum.accumulate(np.concatenate([[last], (doc << 32) | end]))
    covered = np.where(ends[:-1] >> 32 == doc, ends[:-1] & 0xFFFFFFFF, 0)
    return int(np.maximum(end - np.maximum(begin, covered), 0).sum()), int(ends[-1])


def _decisions(
    task: PiecesTask, answers: pa.Table, before: np.ndarray, cut: list[int]
) -> Iterator[pa.RecordBatch]:
    document, a, z, key = np.load(part_file(task.rows, MEMBERS_FILE, task.part))
    firsts = np.load(part_file(task.rows, FIRSTS_FILE, task.part))
    shared = answers["cluster"].is_valid().to_numpy()
    members_shared = np.flatnonzero(shared[key])
    if not len(members_shared):
        return
    cluster = answers["cluster"].fill_null(0).to_numpy() + before
    lost, is_own = (answers[name].to_numpy() for name in ("lost", "here"))
    owner, other = (answers[name].chunk(0) for name in ("owner", "other"))
    names = pa.concat_arrays([owner, other])
    batches = [*sketch_batches(task.group.files, [])]
    sketches = pa.Table.from_batches(batches).combine_chunks()
    ids = sketches["id"].chunk(0)
    part, n = (sketches[name].to_numpy() for name in ("part", "n"))
    last = 0
    for begin in range(0, len(members_shared), ROWS):
        at = members_shared[begin : begin + ROWS]
        k, document_of = key[at], document[at]
        keeper = is_own[k] & (document_of == document[firsts[k]])
        removed = lost[k] | ~(is_own[k] & (at == firsts[k]))
        counted = removed & (part[document_of] >= 0)  # not in earlier corpora
        size, last = bytes_under(document_of[counted], a[at][counted], z[at][counted], last)
        cut.append(size)
        # The partner is the most preferred document. If that document loses its passage too, its
        # own partner is the least preferred one.
        partner = np.where(keeper & lost[k], len(owner) + k.astype(np.int64), k)
        columns = [
            pa.array(part[document_of], pa.int32()),
            pa.array(n[document_of], pa.int64()),
            pa.array(removed),
            ids.take(pa.array(document_of)),
            pa.array(cluster[k]),
            names.take(pa.array(partner, mask=lost[k])),
            names.take(pa.array(partner, mask=~removed)),
            pa.array(np.ones(len(at)), mask=~removed),
            pa.repeat(pa.scalar(task.method), len(at)),
            pa.array(a[at].astype(np.int64)),
            pa.array(z[at].astype(np.int64)),
            pa.array(keeper & ~lost[k]),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=DECISIONS)


@dataclass(frozen=True)
class Request:
    """The settings of one passage deduplication."""

    survivor: str  # the survivor policy
    keep: str  # which occurrences to keep
    method: str  # the step's name in decisions


def phases(request: Request, sketches: Sketches, sketch_groups: list[Group]) -> list[Phase]:
    """Return the phases that run before the file of decisions is written."""
    run, count = sketches.run, len(sketch_groups)

    def keys(folder: Path, done: Done) -> Facts:
        about = sum(estimated_passages(pq.read_metadata(file.path)) for file in sketches.files)
        return partition_passages(sketches, folder, sketch_groups, about)

    def shared(folder: Path, done: Done) -> Facts:
        return find_shared(sketches, folder, done.folder("keys"), count, done.facts)

    def rows(folder: Path, done: Done) -> Facts:
        # An upper bound: a group merges the rows of a repeated key into one.
        most = (done.facts["shared"] + done.facts["repeated"]) * (1 + (request.keep == "none"))
        slices = max(1, -(-most // sketches.sizes.slice_rows))
        before = done.folder("keys"), done.folder("shared"), done.facts["pieces"]
        tasks = [
            RowsTask(g.part, folder, g, *before, slices, request.survivor, request.keep)
            for g in sketch_groups
        ]
        run_tasks(run, f"{__name__}:write_rows", tasks)
        return {"slices": slices}

    def owners(folder: Path, done: Done) -> Facts:
        tasks = [
            OwnersTask(part, folder, done.folder("rows"), count, request.survivor, request.keep)
            for part in range(done.facts["slices"])
        ]
        answers = run_tasks(run, f"{__name__}:write_owners", tasks, Owners)
        np.array([owners.clusters for owners in answers], np.int64).tofile(folder / CLUSTERS)
        names = ("clusters", "members", "dropped", "lost")
        return {name: sum(getattr(owners, name) for owners in answers) for name in names}

    def pieces(folder: Path, done: Done) -> Facts:
        before = done.folder("rows"), done.folder("owners"), done.facts["slices"]
        tasks = [PiecesTask(g.part, folder, g, *before, request.method) for g in sketch_groups]
        return {"cut": sum(run_tasks(run, f"{__name__}:write_pieces", tasks, int))}

    return [
        Phase("keys", keys),
        Phase("shared", shared),
        Phase("rows", rows, frees=("keys", "shared")),
        Phase("owners", owners),
        Phase("pieces", pieces, frees=("rows", "owners")),
    ]


def resolve(request: Request, sketches: Sketches) -> Decided:
    """Run all phases and write the decisions on every passage that occurs more than once. Return
    the counts, among them `cut`, the number of cut bytes."""
    sketch_groups = groups(sketches, sketches.sizes.task_passages, estimated_passages)
    done = run_phases(sketches.folder, phases(request, sketches, sketch_groups))
    pieces = part_files(done.folder("pieces"), PIECE, len(sketch_groups))
    join_pieces(sketches.decisions, DECISIONS, pieces)
    forget(sketches.folder)
    counts, notes = {n: done.facts[n] for n in ("clusters", "members", "dropped", "cut")}, []
    if request.keep == "none":
        notes = [
            f"{counted(done.facts['lost'], 'passage')} occurred in more than one document; no"
            " occurrence was kept (keep: none)."
        ]
    return Decided(counts, notes)
