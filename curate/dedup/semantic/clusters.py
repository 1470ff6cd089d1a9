"""Spherical k-means over the embeddings of a corpus (Dhillon and Modha 2001).

Documents are unit vectors and so are centroids; a document belongs to the centroid of the largest
cosine. Centroids are sums of whole numbers, then whole numbers again (see embeddings.py), so that
the clusters are the same on any machine. That is why this is not scikit-learn's MiniBatchKMeans or
faiss, which sum floats in the order of their threads; MiniBatchKMeans moreover is not spherical.
"""

from __future__ import annotations

import math

import numpy as np

from curate.dedup.semantic import embeddings
from curate.dedup.semantic.embeddings import blocks, squares, whole_numbers
from kernel_cache import njit

PER_CLUSTER = 128  # sampled documents a centroid; faiss takes at most 256
LARGEST = 50_000  # mean documents a cluster, by default
ITERATIONS = 20
SCORES = 1 << 23  # cosines to centroids that are held at once
SETTLED = 0.002  # share of the sample that still moves when it is enough


def default_clusters(documents: int) -> int:
    """About the square root of the documents, so that comparing within clusters costs their number
    to the power of 1.5; more where clusters would otherwise be larger than LARGEST."""
    return max(1, math.isqrt(documents), math.ceil(documents / LARGEST))


@njit(cache=True, nogil=True)
def largest(scores, labels, values):
    """The columns of the largest scores of each row: float32[rows, columns] into
    labels: int64[rows, nearest] and values: float32[rows, nearest], the largest first, ties by
    column; nearest <= columns."""
    nearest = labels.shape[1]
    for i in range(scores.shape[0]):
        filled = 0
        for c in range(scores.shape[1]):
            s = scores[i, c]
            if filled == nearest and s <= values[i, nearest - 1]:
                continue
            at = filled if filled < nearest else nearest - 1
            filled = min(filled + 1, nearest)
            while at > 0 and values[i, at - 1] < s:
                values[i, at] = values[i, at - 1]
                labels[i, at] = labels[i, at - 1]
                at -= 1
            values[i, at] = s
            labels[i, at] = c


@njit(cache=True, nogil=True)
def add_rows(block, labels, sums):
    """Adds the rows of block: float32[rows, size] to sums: float64[clusters, size]."""
    for i in range(block.shape[0]):
        for j in range(block.shape[1]):
            sums[labels[i], j] += block[i, j]


def nearest_centroids(
    matrix: np.ndarray, centroids: np.ndarray, rows: np.ndarray, nearest: int
) -> tuple[np.ndarray, np.ndarray]:
    """(labels: int64[rows, nearest], cosines: float64[rows]) of matrix rows: the nearest centroids
    first, and the cosine to the first. Fewer columns where there are fewer centroids."""
    nearest = min(nearest, len(centroids))
    labels = np.empty((len(rows), nearest), np.int64)
    cosines = np.empty(len(rows))
    turned = np.ascontiguousarray(centroids.astype(np.float32).T)
    lengths = squares(centroids)
    for which, block in blocks(
        matrix, rows, max(1, min(embeddings.ROWS, SCORES // len(centroids)))
    ):
        values = np.empty((len(block), nearest), np.float32)
        largest(block @ turned, labels[which], values)
        both = squares(block) * lengths[labels[which, 0]]
        cosines[which] = values[:, 0] / np.sqrt(np.where(both > 0, both, 1.0))
    return labels, cosines


def fit(matrix: np.ndarray, rows: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """int16[clusters or fewer, size]: centroids of the given rows of the matrix.

    The first PER_CLUSTER * clusters of them are looked at, which stand in order of a hash.
    Clusters that end up empty are none.
    """
    sample = rows[: PER_CLUSTER * clusters]
    start = np.random.default_rng(seed).permutation(len(sample))[:clusters]
    centroids = np.unique(matrix[np.sort(sample[start])], axis=0)
    before = np.full(len(sample), -1)
    for _ in range(ITERATIONS):
        labels = nearest_centroids(matrix, centroids, sample, 1)[0][:, 0]
        if (labels != before).mean() <= SETTLED:
            break
        before = labels
        sums = np.zeros(centroids.shape)
        for which, block in blocks(matrix, sample):
            add_rows(block, labels[which], sums)
        moved = whole_numbers(sums)
        sizes = np.bincount(labels, minlength=len(centroids))
        # One whose members cancel each other stays where it is.
        centroids = np.where(moved.any(axis=1, keepdims=True), moved, centroids)[sizes > 0]
        before = (np.cumsum(sizes > 0) - 1)[labels]
    return centroids
