"""Which members of a bucket match, where sharing it is not enough: Jaccard similarity decides.

Exact, from sets of shingles, or estimated, from signatures of a few bits a permutation. Either lie
in a file that is mapped into memory, so what is compared is limited by disk. Buckets come in order
of their keys.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from curate.atomic import replacing
from curate.dedup.minhash.bits import equal_values, estimated
from curate.dedup.minhash.candidates import mapped, release
from curate.dedup.minhash.decisions import SIMILARITY
from curate.dedup.minhash.forest import NONE, clear_roots, find, flatten, union
from curate.dedup.minhash.stars import PARTNERS, ROOTS
from curate.dedup.minhash.text import shingle_sets
from curate.dedup.shuffle.buckets import bucket_files, chunks
from curate.dedup.shuffle.candidates import Picked
from curate.dedup.shuffle.groups import run_tasks
from curate.dedup.shuffle.keys import fixed_rows
from curate.sketches import Run, Task
from curate.text.buffers import as_large_string

# A member is compared with so many centres and so many others of its bucket at most, the most
# preferred first: buckets of a hundred thousand unlike pages must not take days.
MOST = 1000
MAPPED_MEMBERS = 16_384  # members whose shingles may be mapped at once, some kB each
TEXTS = 1000  # documents whose shingles are made at once
VALUES, EXTENTS, SIGNATURES = "shingles.u64", "extents.i64", "signatures.u8"


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
    """What documents are compared by. With bits: packed signatures of `values` values, row k of
    `packed`. Without: the shingles shingles[extents[k, 0]:][:extents[k, 1]], sorted and distinct.
    """

    shingles: np.ndarray  # uint64
    extents: np.ndarray  # int64[documents, 2]
    packed: np.ndarray  # uint8[documents, bytes]
    values: int
    bits: int  # 0: by shingles


@njit(nogil=True)
def _similarity(by, d, e, least):
    """Similarity of two documents; -1 where it is below `least`."""
    if by.bits:
        equal = equal_values(by.packed[d], by.packed[e], by.values, by.bits)
        found = estimated(equal, by.values, by.bits)
        return found if found >= least else -1.0
    x, y = by.extents[d], by.extents[e]
    mine, other = by.shingles[x[0] : x[0] + x[1]], by.shingles[y[0] : y[0] + y[1]]
    return jaccard(mine, other, least)


@njit(cache=True, nogil=True)
def match_buckets(members, sizes, by, least, first, most, parent):
    """(k, other, similarity) of verified pairs, other < k.

    members: uint32, ascending within each bucket; sizes: uint32 of the buckets; parent:
    uint32[documents], the forest so far, changed in place.

    Each member is compared with the centres of its bucket, then with the others before it, except
    those it is connected with already; a member that nothing matches becomes a centre. `first`: a
    member is compared with those before it until one matches, whatever is connected.
    """
    left, right, similar = [np.uint32(0)], [np.uint32(0)], [0.0]
    met = np.empty((2, most), np.uint32)  # centres, others
    filled = np.zeros(2, np.int64)
    begin = np.int64(0)
    for size in sizes:
        filled[:] = 0
        for m in range(begin, begin + size):
            d = members[m]
            found = first and parent[d] != d
            for side in range(2):
                for c in range(filled[side]):
                    if first and found:
                        break
                    e = met[side, c]
                    if not first and find(parent, d) == find(parent, e):
                        found = True
                        continue
                    s = _similarity(by, d, e, least)
                    if s < 0.0:
                        continue
                    left.append(d)
                    right.append(e)
                    similar.append(s)
                    found = True
                    if first:
                        parent[d] = e
                    else:
                        union(parent, d, e)
            side = 1 if found else 0
            if filled[side] < most:
                met[side, filled[side]] = d
                filled[side] += 1
        begin += size
    return np.array(left)[1:], np.array(right)[1:], np.array(similar)[1:]


@njit(cache=True, nogil=True)
def keep_best(left, right, similar, forward, partner, best):
    """Makes partner[k] the most similar one that a verified pair gives k, of equals the lesser;
    best[k]: that similarity. Unless `forward`, a pair counts for both."""
    for i in range(len(left)):
        for turn in range(1 if forward else 2):
            k, other = (left[i], right[i]) if turn == 0 else (right[i], left[i])
            better = similar[i] > best[k] or (similar[i] == best[k] and other < partner[k])
            if partner[k] == NONE or better:
                partner[k] = other
                best[k] = similar[i]


def piece(folder: Path, part: int) -> tuple[Path, Path]:
    """A group's shingles (uint64) and how many each of its candidates has (int64)."""
    return folder / f"shingles-{part:05d}.u64", folder / f"counts-{part:05d}.i64"


def shingle_group_files(task: Task) -> dict[str, list[str]]:
    """What `shingle_group` reads and writes."""
    mine = Picked.load(task)
    return {"reads": mine.reads(), "writes": [str(p) for p in piece(mine.folder, mine.group.part)]}


def shingle_group(task: Task) -> dict[str, Any]:
    """A task: the sets of shingles of a group's candidates, TEXTS texts in memory."""
    mine = Picked.load(task)
    how = {name: task[name] for name in ("normalize", "unit", "size")}
    with ExitStack() as stack:
        asides = [stack.enter_context(replacing(p)) for p in piece(mine.folder, mine.group.part)]
        values, counts = (stack.enter_context(path.open("wb")) for path in asides)
        for batch in mine.batches(["text"], TEXTS):
            offsets, found = shingle_sets(as_large_string(batch.column(0)), **how)
            values.write(found.data)
            counts.write(np.diff(offsets).data)
    return {}


def write_shingles(folder: Path, run: Run, tasks: list[Task], order: np.ndarray) -> dict[str, Any]:
    """Phase `compared`: the candidates' sets of shingles in order of c, and by k where each is."""
    run_tasks(run, "curate.dedup.minhash.verify:shingle_group", tasks)
    extents = np.memmap(folder / EXTENTS, np.int64, "w+", shape=(max(1, len(order)), 2))
    total = done = 0
    for number, task in enumerate(tasks):
        values, counts = piece(folder, task["part"])
        found = np.fromfile(counts, np.int64)
        k = order[done : done + len(found)]
        extents[k, 0], extents[k, 1] = total + np.cumsum(found) - found, found
        total += int(found.sum())
        done += len(found)
        release(extents)
        if number == 0:
            values.rename(folder / VALUES)
        else:
            with (folder / VALUES).open("ab") as file, values.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 24)
            values.unlink()
        counts.unlink()
    if not tasks:
        (folder / VALUES).touch()
    extents.flush()
    return {}


def signature_file(folder: Path, part: int) -> Path:
    """The packed signatures of a group's candidates, in order of c."""
    return folder / f"signatures-{part:05d}.u8"


def sign_group_files(task: Task) -> dict[str, list[str]]:
    """What `sign_group` reads and writes."""
    mine = Picked.load(task)
    return {"reads": mine.reads(), "writes": [str(signature_file(mine.folder, mine.group.part))]}


def sign_group(task: Task) -> dict[str, Any]:
    """A task: the signatures of a group's candidates, out of their sketches."""
    mine = Picked.load(task)
    with (
        replacing(signature_file(mine.folder, mine.group.part)) as aside,
        aside.open("wb") as file,
    ):
        for batch in mine.batches(["signature"], 20_000):
            file.write(np.ascontiguousarray(fixed_rows(batch.column(0), np.uint8)).data)
    return {}


def write_signatures(
    folder: Path, run: Run, tasks: list[Task], order: np.ndarray, width: int
) -> dict[str, Any]:
    """Phase `compared`: the candidates' packed signatures of `width` bytes, by k."""
    run_tasks(run, "curate.dedup.minhash.verify:sign_group", tasks)
    shape = (max(1, len(order)), width)
    rows = np.memmap(folder / SIGNATURES, np.uint8, "w+", shape=shape)
    done = 0
    for task in tasks:
        path = signature_file(folder, task["part"])
        with path.open("rb") as file:
            while len(some := np.fromfile(file, np.uint8, 20_000 * width).reshape(-1, width)):
                rows[order[done : done + len(some)]] = some
                done += len(some)
                release(rows)
        path.unlink()
    rows.flush()
    return {}


def compared(folder: Path, width: int, values: int, bits: int) -> Compared:
    """What the phase `compared` wrote, mapped. width: bytes of a packed signature."""
    none, nowhere = np.empty(0, np.uint64), np.empty((0, 2), np.int64)
    if bits:
        packed = mapped(folder / SIGNATURES, np.uint8).reshape(-1, width)
        return Compared(none, nowhere, packed, values, bits)
    extents = mapped(folder / EXTENTS, np.int64).reshape(-1, 2)
    found = mapped(folder / VALUES, np.uint64)
    return Compared(found, extents, np.empty((0, 0), np.uint8), 0, 0)


def write_matches(
    folder: Path, ordered: Path, candidates: int, by: Compared, least: float, first: bool
) -> dict[str, Any]:
    """Phase `edges`: root, partner and similarity of each k."""
    parent = np.arange(candidates, dtype=np.uint32)
    partner = np.full(candidates, NONE, np.uint32)
    best = np.zeros(candidates, np.float64)
    read = plain(by)
    for members, sizes in chunks(bucket_files(ordered, 1), MAPPED_MEMBERS):
        k, other, similar = match_buckets(members, sizes, read, least, first, MOST, parent)
        keep_best(k, other, similar, first, partner, best)
        for array in (by.shingles, by.extents, by.packed):
            release(array)
    flatten(parent)
    clear_roots(parent, partner)
    parent.tofile(folder / ROOTS)
    partner.tofile(folder / PARTNERS)
    best.tofile(folder / SIMILARITY)
    return {}


def plain(by: Compared) -> Compared:
    """The same in the one type that kernels take: arrays of no class, not to be written to."""

    def view(array: np.ndarray) -> np.ndarray:
        found = array.view(np.ndarray)
        found.flags.writeable = False
        return found

    return by._replace(shingles=view(by.shingles), extents=view(by.extents), packed=view(by.packed))
