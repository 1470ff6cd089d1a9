"""Embeddings are rows of whole numbers, of which products are exact.

A vector is scaled to length UNIT and rounded to whole numbers. Inner products of such vectors are
whole numbers below 2^24, and so are all their partial sums (Cauchy and Schwarz), which float32
holds exactly: a matrix product gives the same bits whatever the library, its threads, its blocks
and the order of its sums. Clusters and similarities therefore depend on the vectors alone. Rounding
moves a cosine by about 0.0001.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

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


def counts_of(batch: pa.RecordBatch) -> Counts:
    """The counts of sketches, from their columns buckets and counts."""
    buckets, counts = batch.column("buckets"), batch.column("counts")
    offsets = buckets.offsets.to_numpy()
    span = slice(offsets[0], offsets[-1])
    values = buckets.values.to_numpy()[span], counts.values.to_numpy()[span]
    return Counts((offsets - offsets[0]).astype(np.int64), *values)
