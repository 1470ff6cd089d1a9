"""The embeddings of a whole corpus: one file of rows of whole numbers, mapped into memory.

A vector is scaled to length UNIT and rounded to whole numbers. Inner products of such vectors are
whole numbers below 2^24, and so are all their partial sums (Cauchy and Schwarz), which float32
holds exactly: a matrix product gives the same bits whatever the library, its threads, its blocks
and the order of its sums. Clusters and similarities therefore depend on the vectors alone. Rounding
moves a cosine by about 0.0001.

Rows stand in the order of a hash of the ids, so that nothing depends on the order of arrival, and
the first rows are a random sample. Hashed embeddings are made by tasks, a group of sketch files
each; the basis is fitted in the caller, which puts rows into their positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from curate.corpus import journal
from curate.corpus.shuffle.tasks import Group, groups, run_tasks
from curate.corpus.sketches import Sketches, Task, sketch_batches
from curate.dedup.semantic import hashed
from curate.dedup.semantic.hashed import Basis
from llmcurate.base.disk.files import clear_temporary, replacing, reserve
from llmcurate.base.disk.safe_paths import remove

UNIT = 4000
BATCH = 1000  # documents whose sketches are read at once
ROWS = 8192  # of the matrix that are looked at together


class Counts(NamedTuple):
    """Hashed counts of documents: int64[documents + 1], uint32[], uint16[]."""

    offsets: np.ndarray
    buckets: np.ndarray
    counts: np.ndarray


def whole_numbers(vectors: np.ndarray) -> np.ndarray:
    """int16[rows, size]: vectors of length UNIT, rounded; what is no number, or 0, gives zeros."""
    exact = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0)
    exact = exact.astype(np.float64)
    length = np.sqrt(np.einsum("ij,ij->i", exact, exact))[:, None]
    scaled = exact * (UNIT / np.where(length > 0, length, 1.0))
    # The contract of the products, see above.
    assert vectors.shape[1] <= 8192
    rounded: np.ndarray = np.rint(scaled).astype(np.int16)
    return rounded


def squared_lengths(block: np.ndarray) -> np.ndarray:
    """float64[rows]: squared lengths of rows of whole numbers, exact."""
    wide = block.astype(np.int64)
    sums: np.ndarray = np.einsum("ij,ij->i", wide, wide)
    return sums.astype(np.float64)


def blocks(
    matrix: np.ndarray, rows: np.ndarray, most: int = ROWS
) -> Iterator[tuple[slice, np.ndarray]]:
    """(which, float32 block) of rows: int64[], at most so many of them at a time."""
    for first in range(0, len(rows), most):
        which = slice(first, min(first + most, len(rows)))
        yield which, matrix[rows[which]].astype(np.float32)


def counts_of(batch: pa.RecordBatch) -> Counts:
    """The counts of sketches, from their columns buckets and counts."""
    buckets, counts = batch.column("buckets"), batch.column("counts")
    offsets = buckets.offsets.to_numpy()
    span = slice(offsets[0], offsets[-1])
    values = buckets.values.to_numpy()[span], counts.values.to_numpy()[span]
    return Counts((offsets - offsets[0]).astype(np.int64), *values)


# A row is made of its document alone and document frequencies are whole numbers, so that the result
# does not depend on how sketch files are grouped.


def frequencies(
    sketches: Sketches, work: Path, row_of: np.ndarray, features: int
) -> tuple[np.ndarray, Counts]:
    """(df: int64[features], the counts of the sampled documents in order of their rows). row_of: as
    `write_matrix` has it; work: a folder for files."""
    tasks, sample_rows = [], []
    for group in groups(sketches, sketches.sizes.task_embeddings):
        rows = row_of[group.first : group.first + group.rows]
        sample = np.flatnonzero(rows < hashed.SAMPLE)
        sample_rows.append(rows[sample])
        settings = {"sample": sample.tolist(), "features": features, "folder": str(work)}
        tasks.append({**group.dump(), **settings})
    run_tasks(sketches.run, f"{__name__}:count_group", _missing(tasks, counts_file))
    df = np.zeros(features, np.int64)
    chosen: list[tuple[int, np.ndarray, np.ndarray]] = []
    for task, rows in zip(tasks, sample_rows, strict=True):
        with np.load(counts_file(task), allow_pickle=False) as arrays:
            df += arrays["df"]
            each, buckets, counts = (arrays[name] for name in ("offsets", "buckets", "counts"))
        for d, at in enumerate(rows.tolist()):
            span = slice(each[d], each[d + 1])
            if span.start < span.stop:
                chosen.append((at, buckets[span], counts[span]))
    chosen.sort(key=lambda row: row[0])
    offsets = np.concatenate([[0], np.cumsum([len(row[1]) for row in chosen])]).astype(np.int64)
    buckets = np.concatenate([np.empty(0, np.uint32), *(row[1] for row in chosen)])
    counts = np.concatenate([np.empty(0, np.uint16), *(row[2] for row in chosen)])
    return df, Counts(offsets, buckets, counts)


def counts_file(task: Task) -> Path:
    """The file of a group's counts: df: int64[features]; offsets, buckets, counts: of its
    sample."""
    return Path(task["folder"], f"counts-{task['part']:05d}.npz")


def count_group(task: Task) -> dict[str, Any]:
    """A task: how many documents of a group have each feature, and its sampled documents."""
    df = np.zeros(task["features"], np.int64)
    sample = np.array(task["sample"], np.int64)
    chosen = [Counts(np.empty(0, np.int64), np.empty(0, np.uint32), np.empty(0, np.uint16))]
    done = 0
    for batch in _counts(Group.load(task)):
        df += np.bincount(batch.buckets, minlength=len(df))
        stop = done + len(batch.offsets) - 1
        for d in sample[np.searchsorted(sample, done) : np.searchsorted(sample, stop)] - done:
            span = slice(batch.offsets[d], batch.offsets[d + 1])
            size = np.array([span.stop - span.start])
            chosen.append(Counts(size, batch.buckets[span].copy(), batch.counts[span].copy()))
        done = stop
    sizes, buckets, counts = (np.concatenate(column) for column in zip(*chosen, strict=True))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    with replacing(counts_file(task)) as aside, aside.open("wb") as file:
        np.savez(file, df=df, offsets=offsets, buckets=buckets, counts=counts)
    return {}


def group_rows(sketches: Sketches, work: Path, basis: Path) -> Iterator[tuple[slice, np.ndarray]]:
    """(which documents, by arrival; their rows: int16[documents, size]) group by group. basis: its
    file; work: a folder for files."""
    settings = {"basis": str(basis), "folder": str(work)}
    sketch_groups = groups(sketches, sketches.sizes.task_embeddings)
    tasks = [{**group.dump(), **settings} for group in sketch_groups]
    run_tasks(sketches.run, f"{__name__}:embed_group", _missing(tasks, rows_file))
    for task in tasks:
        rows = np.load(rows_file(task), allow_pickle=False)
        yield slice(task["first"], task["first"] + task["rows"]), rows


def rows_file(task: Task) -> Path:
    """The rows of a group's documents, by arrival: int16[documents, size]."""
    return Path(task["folder"], f"rows-{task['part']:05d}.npy")


def embed_group(task: Task) -> dict[str, Any]:
    """A task: the rows of a group."""
    basis, group = Basis.load(Path(task["basis"])), Group.load(task)
    rows = np.empty((group.rows, basis.size), np.int16)
    done = 0
    for batch in _counts(group):
        stop = done + len(batch.offsets) - 1
        rows[done:stop] = whole_numbers(basis.vectors(*batch))
        done = stop
    with replacing(rows_file(task)) as aside, aside.open("wb") as file:
        np.save(file, rows)
    return {}


def _counts(group: Group) -> Iterator[Counts]:
    for batch in sketch_batches(group.files, ["buckets", "counts"], BATCH):
        yield counts_of(batch)


def _missing(tasks: list[Task], file: Callable[[Task], Path]) -> list[Task]:
    """The tasks whose files a killed run has not left: files are whole or absent."""
    return [task for task in tasks if not file(task).exists()]


MATRIX, BASIS = "embeddings.npy", "basis.npz"
WORK = "work"  # what tasks leave until the matrix is there


def hashed_basis(
    sketches: Sketches,
    row_of: np.ndarray,
    features: int,
    dimensions: int,
    residual: int,
    seed: int,
) -> Basis:
    """The basis in the step's folder: kept there, else that of the first earlier corpus with one,
    else fitted now."""
    file = sketches.folder / BASIS
    if file.exists():
        return Basis.load(file)
    earlier = [path for _, folder in sketches.earlier if (path := folder / file.name).exists()]
    if earlier:
        basis = Basis.load(earlier[0])
    else:
        df, sample = frequencies(sketches, _work(sketches), row_of, features)
        basis = hashed.fit(df, len(row_of), sample, dimensions, residual, seed)
    basis.save(file)
    return basis


def _work(sketches: Sketches) -> Path:
    work = sketches.folder / WORK
    work.mkdir(exist_ok=True)
    clear_temporary(work)
    return work


def _stored_rows(sketches: Sketches) -> Iterator[tuple[slice, np.ndarray]]:
    """As `group_rows`, of vectors that the sketches hold."""
    done = 0
    for batch in sketches.batches(["vector"], BATCH):
        column = batch.column("vector")
        size = column.type.list_size
        flat = np.zeros((len(batch), size), np.float32)
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        flat[valid] = column.drop_null().flatten().to_numpy().reshape(-1, size)
        yield slice(done, done + len(batch)), whole_numbers(flat)
        done += len(batch)


def write_matrix(sketches: Sketches, row_of: np.ndarray, basis: Basis | None, size: int) -> Path:
    """Writes embeddings.npy, int16[documents, size], unless it is there.

    row_of: int64[documents] in order of arrival, the row of each; basis: the one in the step's
    folder; None for vectors that the sketches hold.
    """
    path = sketches.folder / MATRIX
    if not path.exists():
        rows = _stored_rows(sketches)
        if basis is not None:
            rows = group_rows(sketches, _work(sketches), sketches.folder / BASIS)
        with replacing(path) as aside:
            shape = (len(row_of), size)
            matrix = np.lib.format.open_memmap(aside, "w+", np.int16, shape)
            reserve(aside)
            for which, block in rows:
                matrix[row_of[which]] = block
            matrix.flush()
            del matrix
    journal.release(sketches.folder / WORK)
    remove(sketches.folder / WORK, inside=sketches.folder)
    return path
