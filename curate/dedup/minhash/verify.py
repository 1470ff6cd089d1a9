"""Verification of candidate pairs by their Jaccard similarity.

Exact, from sets of shingles, or estimated, from signatures of a few bits a permutation. A task
compares the candidates of one part (candidates.py), of which it reads what they are compared by and
their buckets, in order of the keys of these. A part of a single large component lies in files that
are mapped into memory, so what is compared is limited by disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from curate.corpus import journal
from curate.corpus.shuffle.byte_rows import (
    SliceFiles,
    SliceWriter,
    count_up,
    new_array,
    read_slice,
    unmap,
)
from curate.corpus.shuffle.candidates import CandidateTask
from curate.corpus.shuffle.partitions import fixed_rows
from curate.corpus.shuffle.tasks import run_tasks
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run, Task
from curate.dedup.minhash.candidates import BEGINS, POSITIONS, parts_of
from curate.dedup.minhash.components import (
    NONE,
    PARTNERS,
    ROOTS,
    SIMILARITY,
    clear_roots,
    find,
    flatten,
    union,
)
from curate.dedup.minhash.signatures import equal_values, estimated, shingle_sets
from curate.text.buffers import as_large_string
from llmcurate.base.disk.files import replacing, temporary_name
from llmcurate.base.disk.safe_paths import remove
from llmcurate.base.kernels import njit, read_only

# The first tasks read a group of sketch files each and write, for every candidate, its set of
# shingles or its packed signature, sorted into the part that compares it. A task holds some texts
# (Sizes.shingled_documents) and one segment of its output.

KIND = "compared"
COLUMNS = 2  # of its rows: the position of a candidate, how many bytes it has
SIGNATURES = 20_000  # signatures that are read at once

# (offsets, bytes) of the rows of a column of sketches.
Make = Callable[[pa.Array], tuple[np.ndarray, np.ndarray]]


def _write(task: Task, column: str, rows: int, make: Make) -> dict[str, Any]:
    candidates, ordered = CandidateTask.load(task), Path(task["ordered"])
    begins = np.fromfile(ordered / BEGINS, np.int64)
    written = SliceFiles.within(candidates.folder, KIND, candidates.group.part)
    with ExitStack() as stack:
        positions = stack.enter_context((ordered / POSITIONS).open("rb"))
        positions.seek(4 * candidates.before)
        files = SliceFiles(*(stack.enter_context(replacing(path)) for path in written))
        writer = SliceWriter(files, len(begins) - 1, Sizes.load(task).segment_bytes)
        for batch in candidates.batches([column], rows):
            position = np.fromfile(positions, np.uint32, len(batch))
            offsets, data = make(batch.column(0))
            rows_of_slice = np.empty((len(batch), COLUMNS), np.uint32)
            rows_of_slice[:, 0], rows_of_slice[:, 1] = position, np.diff(offsets)
            writer.add(parts_of(position, begins), rows_of_slice, offsets, data)
        writer.close()
    return {}


def shingle_group(task: Task) -> dict[str, Any]:
    """A task: the sets of shingles, uint64, of a group's candidates."""
    shingling = {name: task[name] for name in ("normalize", "unit", "size")}

    def make(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        offsets, values = shingle_sets(as_large_string(column), **shingling)
        return 8 * offsets, values.view(np.uint8)

    return _write(task, "text", Sizes.load(task).shingled_documents, make)


def sign_group(task: Task) -> dict[str, Any]:
    """A task: the packed signatures of a group's candidates, out of their sketches."""

    def make(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        rows = fixed_rows(column, np.uint8)
        width = rows.shape[1]
        return np.arange(len(rows) + 1, dtype=np.int64) * width, rows.reshape(-1)

    return _write(task, "signature", SIGNATURES, make)


# A member is compared with so many centres and so many others of its bucket at most, the most
# preferred first: buckets of a hundred thousand unlike pages must not take days.
MOST = 1000


@njit(nogil=True)
def jaccard(x: np.ndarray, y: np.ndarray, least: float = 0.0) -> float:
    """Jaccard similarity of two sorted arrays of distinct values; -1 where it is below `least`."""
    if len(x) == 0 or len(y) == 0:
        return 0.0 if least <= 0.0 else -1.0
    # With c common values similarity is c / (len(x) + len(y) - c).
    needed = least * (len(x) + len(y)) / (1.0 + least) - 1e-6
    spare = min(len(x), len(y)) - needed  # values without a counterpart that may still turn up
    i = j = common = 0
    while i < len(x) and j < len(y):
        if x[i] == y[j]:
            common += 1
            i += 1
            j += 1
        elif x[i] < y[j]:
            i += 1
        else:
            j += 1
        if max(i, j) - common > max(len(x), len(y)) - needed or min(i, j) - common > spare:
            return -1.0
    similar = common / (len(x) + len(y) - common)
    return similar if similar >= least else -1.0


class Compared(NamedTuple):
    """The features by which documents are compared. With bits: packed signatures of `values`
    values, that of k in row extents[k, 0] of `packed`. Without: the shingles shingles[extents[k,
    0]:][:extents[k, 1]], sorted and distinct.
    """

    shingles: np.ndarray  # uint64
    extents: np.ndarray  # int64[documents, 2]
    packed: np.ndarray  # uint8[documents, bytes]
    values: int
    bits: int  # 0: by shingles


@njit(nogil=True)
def _similarity(by, d, e, least):
    """Similarity of two documents; -1 where it is below `least`."""
    x, y = by.extents[d], by.extents[e]
    if by.bits:
        equal = equal_values(by.packed[x[0]], by.packed[y[0]], by.values, by.bits)
        similarity = estimated(equal, by.values, by.bits)
        return similarity if similarity >= least else -1.0
    shingles, other = by.shingles[x[0] : x[0] + x[1]], by.shingles[y[0] : y[0] + y[1]]
    return jaccard(shingles, other, least)


@njit(cache=True, nogil=True)
def match_buckets(members, sizes, by, least, first, most, parent):
    """(k, other, similarity) of verified pairs, other < k.

    members: uint32, ascending within each bucket; sizes: uint32 of the buckets; parent:
    uint32[documents], the forest so far, changed in place.

    Each member is compared with the centres of its bucket, then with the others before it, except
    those it is connected with already; a member that nothing matches becomes a centre. `first`: a
    member is compared with those before it until one matches, whatever is connected.
    """
    pair_k, pair_other, similar = [np.uint32(0)], [np.uint32(0)], [0.0]
    met = np.empty((2, most), np.uint32)  # centres, others
    filled = np.zeros(2, np.int64)
    begin = np.int64(0)
    for size in sizes:
        filled[:] = 0
        for m in range(begin, begin + size):
            d = members[m]
            matched = first and parent[d] != d
            for side in range(2):
                for c in range(filled[side]):
                    if first and matched:
                        break
                    e = met[side, c]
                    if not first and find(parent, d) == find(parent, e):
                        matched = True
                        continue
                    s = _similarity(by, d, e, least)
                    if s < 0.0:
                        continue
                    pair_k.append(d)
                    pair_other.append(e)
                    similar.append(s)
                    matched = True
                    if first:
                        parent[d] = e
                    else:
                        union(parent, d, e)
            side = 1 if matched else 0
            if filled[side] < most:
                met[side, filled[side]] = d
                filled[side] += 1
        begin += size
    return np.array(pair_k)[1:], np.array(pair_other)[1:], np.array(similar)[1:]


@njit(cache=True, nogil=True)
def keep_best(pair_k, pair_other, similar, forward, partner, best):
    """Makes partner[k] the most similar one that a verified pair gives k, of equals the lesser;
    best[k]: that similarity. Unless `forward`, a pair counts for both."""
    for i in range(len(pair_k)):
        for turn in range(1 if forward else 2):
            k, other = (pair_k[i], pair_other[i]) if turn == 0 else (pair_other[i], pair_k[i])
            better = similar[i] > best[k] or (similar[i] == best[k] and other < partner[k])
            if partner[k] == NONE or better:
                partner[k] = other
                best[k] = similar[i]


def match_file(folder: Path, part: int) -> Path:
    """Of each candidate of a part: root (uint32), partner (uint32), similarity (float64), each of
    the three for all of them, in terms of their positions in the part."""
    return folder / f"matches-{part:05d}.bin"


def match_part(task: Task) -> dict[str, Any]:
    """A task: root, partner and similarity of the candidates of a part."""
    part, folder = task["part"], Path(task["folder"])
    begin, count = task["begin"], task["count"]
    first, sizes = task["first"], Sizes.load(task)
    scratch = folder / temporary_name("scratch")
    scratch.mkdir(exist_ok=True)
    buckets = SliceFiles.within(Path(task["ordered"]), "buckets")
    groups = [SliceFiles.within(Path(task["compared"]), KIND, g) for g in range(task["groups"])]
    with ExitStack() as stack:
        stack.callback(remove, scratch, inside=folder)
        by = _compared(
            *read_slice(groups, part, COLUMNS, scratch, sizes.mapped_bytes), task, scratch
        )
        counts, data = read_slice([buckets], part, 1, scratch, sizes.mapped_bytes)
        members = data.view(np.uint32)
        new = partial(new_array, count, folder=scratch, mapped_bytes=sizes.mapped_bytes)
        parent, partner, best = new(np.uint32), new(np.uint32), new(np.float64)
        count_up(parent)
        partner[:] = NONE
        best[:] = 0.0
        for lot, lot_sizes in _lots(counts[:, 0], sizes.matched_members):
            positions = members[lot] - np.uint32(begin)
            k, other, similar = match_buckets(
                positions, lot_sizes, by, task["least"], first, task["most"], parent
            )
            keep_best(k, other, similar, first, partner, best)
            for array in (by.shingles, by.extents, by.packed):
                unmap(array)
        flatten(parent)
        clear_roots(parent, partner)
        aside = stack.enter_context(replacing(match_file(folder, part)))
        with aside.open("wb") as file:
            for array in (parent, partner, best):
                array.tofile(file)
    return {}


def _lots(sizes: np.ndarray, most: int) -> Iterator[tuple[slice, np.ndarray]]:
    """(where the members of whole buckets are, the sizes of these), about `most` members each."""
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


def _compared(rows: np.ndarray, data: np.ndarray, task: Task, scratch: Path) -> Compared:
    """The features of a part's candidates. rows: the position of each in the corpus, and its
    bytes."""
    sizes = Sizes.load(task)
    extents = new_array((len(rows), 2), np.int64, scratch, sizes.mapped_bytes)
    width, total = (1 if task["bits"] else 8), 0
    for at in range(0, len(rows), sizes.chunk_candidates):
        position, size = rows[at : at + sizes.chunk_candidates].T.astype(np.int64)
        ends = total + np.cumsum(size)
        position -= task["begin"]
        extents[position, 0], extents[position, 1] = (ends - size) // width, size // width
        total = int(ends[-1])
        unmap(extents)
    none = np.empty(0, np.uint64)
    if task["bits"]:
        extents[:, 0] //= task["width"]
        packed = data.reshape(-1, task["width"])
        return for_kernels(Compared(none, extents, packed, task["values"], task["bits"]))
    return for_kernels(Compared(data.view(np.uint64), extents, np.empty((0, 0), np.uint8), 0, 0))


def write_matches(
    folder: Path, run: Run, ordered: Path, order: Path, settings: dict[str, Any], sizes: Sizes
) -> dict[str, Any]:
    """Phase `edges`: root, partner and similarity of each k. order: k of each c, uint32;
    settings: of every task, beside its part."""
    begins = np.fromfile(ordered / BEGINS, np.int64).tolist()
    count = begins[-1]
    chunk = sizes.chunk_candidates
    paths = {"ordered": str(ordered), "folder": str(folder)}
    settings = {**paths, "sizes": sizes.dump(), "most": MOST, **settings}
    tasks = [
        {"part": part, "begin": begin, "count": stop - begin, **settings}
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
        size, path = task["count"], match_file(folder, task["part"])
        k_of_part = k_of[task["begin"] : task["begin"] + size]
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


def for_kernels(by: Compared) -> Compared:
    """The same in the one type that kernels take: read-only arrays."""
    shingles, extents, packed = map(read_only, (by.shingles, by.extents, by.packed))
    return by._replace(shingles=shingles, extents=extents, packed=packed)
