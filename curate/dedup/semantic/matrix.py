"""The embeddings of a whole corpus: one file of whole numbers, mapped into memory.

Rows stand in the order of a hash of the ids, so that nothing depends on the order of arrival, and
the first rows are a random sample. Hashed embeddings are made by tasks (embeddings_tasks.py); the
basis is fitted here, and rows are put into their places.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from curate.atomic import clear_temporary, replacing
from curate.dedup.semantic import embeddings_basis
from curate.dedup.semantic.embeddings import BATCH, whole_numbers
from curate.dedup.semantic.embeddings_basis import Basis
from curate.dedup.semantic.embeddings_tasks import frequencies, group_rows
from curate.disk.inside import remove
from curate.sketches import Sketches

MATRIX, BASIS = "embeddings.npy", "basis.npz"
WORK = "work"  # what tasks leave until the matrix is there


def hashed_basis(
    sketches: Sketches,
    place: np.ndarray,
    features: int,
    dimensions: int,
    residual: int,
    seed: int,
) -> Basis:
    """The basis in the step's folder: kept there, else that of the first earlier corpus with one,
    else fitted now."""
    own = sketches.folder / BASIS
    if own.exists():
        return Basis.load(own)
    earlier = [path for _, folder in sketches.earlier if (path := folder / own.name).exists()]
    if earlier:
        basis = Basis.load(earlier[0])
    else:
        df, sample = frequencies(sketches, _work(sketches), place, features)
        basis = embeddings_basis.fit(df, len(place), sample, dimensions, residual, seed)
    basis.save(own)
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
        known = column.is_valid().to_numpy(zero_copy_only=False)
        flat[known] = column.drop_null().flatten().to_numpy().reshape(-1, size)
        yield slice(done, done + len(batch)), whole_numbers(flat)
        done += len(batch)


def write_matrix(sketches: Sketches, place: np.ndarray, basis: Basis | None, size: int) -> Path:
    """Writes embeddings.npy, int16[documents, size], unless it is there.

    place: int64[documents] in order of arrival, the row of each; basis: the one in the step's
    folder; None for vectors that the sketches hold.
    """
    path = sketches.folder / MATRIX
    if not path.exists():
        rows = _stored_rows(sketches)
        if basis is not None:
            rows = group_rows(sketches, _work(sketches), sketches.folder / BASIS)
        with replacing(path) as aside:
            shape = (len(place), size)
            matrix = np.lib.format.open_memmap(aside, "w+", np.int16, shape)
            for which, some in rows:
                matrix[place[which]] = some
            matrix.flush()
            del matrix
    remove(sketches.folder / WORK, inside=sketches.folder)
    return path
