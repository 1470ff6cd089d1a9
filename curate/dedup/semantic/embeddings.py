"""The embeddings of a whole corpus: one file of whole numbers, mapped into memory.

A vector is scaled to length UNIT and rounded to whole numbers. Inner products of such vectors are
whole numbers below 2^24, and so are all their partial sums (Cauchy and Schwarz), which float32
holds exactly: a matrix product gives the same bits whatever the library, its threads, its blocks
and the order of its sums. Clusters and similarities therefore depend on the vectors alone. Rounding
moves a cosine by about 0.0001.

Rows stand in the order of a hash of the ids, so that nothing depends on the order of arrival, and
the first rows are a random sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from curate.atomic import replacing
from curate.dedup.semantic import embeddings_basis
from curate.dedup.semantic.embeddings_basis import Basis
from curate.sketches import Sketches

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


def squares(block: np.ndarray) -> np.ndarray:
    """float64[rows]: squared lengths of rows of whole numbers, exact."""
    wide = block.astype(np.int64)
    found: np.ndarray = np.einsum("ij,ij->i", wide, wide)
    return found.astype(np.float64)


def blocks(
    matrix: np.ndarray, rows: np.ndarray, most: int | None = None
) -> Iterator[tuple[slice, np.ndarray]]:
    """(which, float32 block) of rows: int64[], at most so many of them at a time."""
    step = most or ROWS
    for first in range(0, len(rows), step):
        which = slice(first, min(first + step, len(rows)))
        yield which, matrix[rows[which]].astype(np.float32)


def _counts(batch: pa.RecordBatch) -> Counts:
    buckets, counts = batch.column("buckets"), batch.column("counts")
    offsets = buckets.offsets.to_numpy()
    span = slice(offsets[0], offsets[-1])
    values = buckets.values.to_numpy()[span], counts.values.to_numpy()[span]
    return Counts((offsets - offsets[0]).astype(np.int64), *values)


def _frequencies(sketches: Sketches, place: np.ndarray, features: int) -> tuple[np.ndarray, Counts]:
    """(df: int64[features], the counts of the sampled documents in order of their places)."""
    df = np.zeros(features, np.int64)
    chosen: list[tuple[int, np.ndarray, np.ndarray]] = []
    done = 0
    for batch in sketches.batches(["buckets", "counts"], BATCH):
        found = _counts(batch)
        df += np.bincount(found.buckets, minlength=features)
        here = place[done : done + len(batch)]
        done += len(batch)
        for d in np.flatnonzero(here < embeddings_basis.SAMPLE):
            span = slice(found.offsets[d], found.offsets[d + 1])
            if span.start < span.stop:
                copies = found.buckets[span].copy(), found.counts[span].copy()
                chosen.append((int(here[d]), *copies))
    chosen.sort(key=lambda row: row[0])
    offsets = np.concatenate([[0], np.cumsum([len(row[1]) for row in chosen])]).astype(np.int64)
    buckets = np.concatenate([np.empty(0, np.uint32), *(row[1] for row in chosen)])
    counts = np.concatenate([np.empty(0, np.uint16), *(row[2] for row in chosen)])
    return df, Counts(offsets, buckets, counts)


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
    own = sketches.folder / "basis.npz"
    if own.exists():
        return Basis.load(own)
    earlier = [path for _, folder in sketches.earlier if (path := folder / own.name).exists()]
    if earlier:
        basis = Basis.load(earlier[0])
    else:
        df, sample = _frequencies(sketches, place, features)
        basis = embeddings_basis.fit(df, len(place), sample, dimensions, residual, seed)
    basis.save(own)
    return basis


def _vectors(sketches: Sketches, basis: Basis | None) -> Iterator[np.ndarray]:
    """Vectors of all documents in order of arrival, float32[rows, size] a batch."""
    if basis is None:
        for batch in sketches.batches(["vector"], BATCH):
            column = batch.column("vector")
            size = column.type.list_size
            flat = np.zeros((len(batch), size), np.float32)
            known = column.is_valid().to_numpy(zero_copy_only=False)
            flat[known] = column.drop_null().flatten().to_numpy().reshape(-1, size)
            yield flat
        return
    for batch in sketches.batches(["buckets", "counts"], BATCH):
        yield basis.vectors(*_counts(batch))


def write_matrix(sketches: Sketches, place: np.ndarray, basis: Basis | None, size: int) -> Path:
    """Writes embeddings.npy, int16[documents, size], unless it is there.

    place: int64[documents] in order of arrival, the row of each; basis: None for vectors that the
    sketches hold.
    """
    path = sketches.folder / "embeddings.npy"
    if path.exists():
        return path
    with replacing(path) as aside:
        shape = (len(place), size)
        matrix = np.lib.format.open_memmap(aside, "w+", np.int16, shape)
        done = 0
        for vectors in _vectors(sketches, basis):
            matrix[place[done : done + len(vectors)]] = whole_numbers(vectors)
            done += len(vectors)
        matrix.flush()
        del matrix
    return path
