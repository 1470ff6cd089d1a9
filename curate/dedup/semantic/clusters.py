"""Spherical k-means over the embeddings of a corpus, and the most similar pairs within clusters.

Documents are unit vectors and so are centroids; a document belongs to the centroid of the largest
cosine (Dhillon and Modha 2001). Centroids are sums of whole numbers, then whole numbers again (see
matrix.py), so that the clusters are the same on any machine. That is why this is not scikit-learn's
MiniBatchKMeans or faiss, which sum floats in the order of their threads; MiniBatchKMeans moreover
is not spherical.

SemDeDup (Abbas et al. 2023) compares within a cluster. Two documents on either side of a border are
then never compared, so here a document is a member of its `nearest` clusters, and two are compared
if they share one. Products of blocks of bounded size are exact.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from curate.dedup.semantic.matrix import ROWS, blocks, squared_lengths, whole_numbers
from llmcurate.base.kernels import njit

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
    matrix: np.ndarray,
    centroids: np.ndarray,
    rows: np.ndarray,
    nearest: int,
    block_rows: int = ROWS,
) -> tuple[np.ndarray, np.ndarray]:
    """(labels: int64[rows, nearest], cosines: float64[rows]) of matrix rows: the nearest centroids
    first, and the cosine to the first. Fewer columns where there are fewer centroids."""
    nearest = min(nearest, len(centroids))
    labels = np.empty((len(rows), nearest), np.int64)
    cosines = np.empty(len(rows))
    turned = np.ascontiguousarray(centroids.astype(np.float32).T)
    lengths = squared_lengths(centroids)
    for which, block in blocks(matrix, rows, max(1, min(block_rows, SCORES // len(centroids)))):
        values = np.empty((len(block), nearest), np.float32)
        largest(block @ turned, labels[which], values)
        both = squared_lengths(block) * lengths[labels[which, 0]]
        cosines[which] = values[:, 0] / np.sqrt(np.where(both > 0, both, 1.0))
    return labels, cosines


def fit(
    matrix: np.ndarray, rows: np.ndarray, clusters: int, seed: int, block_rows: int = ROWS
) -> np.ndarray:
    """int16[clusters or fewer, size]: centroids of the given rows of the matrix.

    The first PER_CLUSTER * clusters of them are looked at, which stand in order of a hash.
    Clusters that end up empty are none.
    """
    sample = rows[: PER_CLUSTER * clusters]
    start = np.random.default_rng(seed).permutation(len(sample))[:clusters]
    centroids = np.unique(matrix[np.sort(sample[start])], axis=0)
    before = np.full(len(sample), -1)
    for _ in range(ITERATIONS):
        labels = nearest_centroids(matrix, centroids, sample, 1, block_rows)[0][:, 0]
        if (labels != before).mean() <= SETTLED:
            break
        before = labels
        sums = np.zeros(centroids.shape)
        for which, block in blocks(matrix, sample, block_rows):
            add_rows(block, labels[which], sums)
        moved = whole_numbers(sums)
        sizes = np.bincount(labels, minlength=len(centroids))
        # One whose members cancel each other stays where it is.
        centroids = np.where(moved.any(axis=1, keepdims=True), moved, centroids)[sizes > 0]
        before = (np.cumsum(sizes > 0) - 1)[labels]
    return centroids


BLOCK = (1024, 8192)  # documents compared with documents at once


@njit(cache=True, nogil=True)
def row_keys(block):
    """uint64[rows]: a hash of each row of block: int16[rows, size]."""
    keys = np.empty(block.shape[0], np.uint64)
    for i in range(block.shape[0]):
        value = np.uint64(block.shape[1])
        for j in range(block.shape[1]):
            value = (value ^ np.uint64(block[i, j] + 32768)) * np.uint64(0x9E3779B97F4A7C15)
            value ^= value >> np.uint64(29)
        keys[i] = value
    return keys


@njit(cache=True, nogil=True)
def best_before(products, first, second, squares, roots, members, rank, best, partner):
    """Takes a block of products: float32[tall, wide] of members[first:] with members[second:] into
    best: float64[documents] and partner: int64[documents].

    members: int64[], rows of the matrix in order of preference; squares: float64[documents];
    roots: float64[members], those of their squares; rank: int64[documents]. Of equally similar
    partners the one preferred most.
    """
    for i in range(products.shape[0]):
        document = members[first + i]
        top, at = 0.0, -1
        for j in range(min(products.shape[1], first + i - second)):
            score = products[i, j] / roots[second + j]
            if score > top:
                top, at = score, j
        if at < 0:
            continue
        other = members[second + at]
        similar = products[i, at] / np.sqrt(squares[document] * squares[other])
        if similar > best[document] or (
            similar == best[document] and rank[other] < rank[partner[document]]
        ):
            best[document], partner[document] = similar, other


def same_vectors(matrix: np.ndarray, rows: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """int64[rows]: of each of `rows` the one with the same vector that is preferred most.

    Copies go no further than this: a template in a million pages costs no million squared.
    """
    keys = np.empty(len(rows), np.uint64)
    for first in range(0, len(rows), ROWS):
        keys[first : first + ROWS] = row_keys(matrix[rows[first : first + ROWS]])
    order = np.lexsort((rank[rows], keys))
    sorted_keys = keys[order]
    starts = np.concatenate([[True], sorted_keys[1:] != sorted_keys[:-1]])
    heads = rows[order][np.flatnonzero(starts)[np.cumsum(starts) - 1]] if len(rows) else rows
    preferred = np.empty(len(rows), np.int64)
    preferred[order] = heads
    for first in range(0, len(rows), ROWS):
        part = slice(first, first + ROWS)
        unlike = (matrix[rows[part]] != matrix[preferred[part]]).any(axis=1)  # same hash only
        preferred[part] = np.where(unlike, rows[part], preferred[part])
    return preferred


def members_of(
    rows: np.ndarray, labels: np.ndarray, rank: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(members: int64[], rows cluster by cluster in order of preference; bounds: int64[clusters +
    1], where each cluster that has any begins, and the end). Arguments as `highest` has them."""
    cells, members = labels.reshape(-1), np.repeat(rows, labels.shape[1])
    order = np.lexsort((rank[members], cells))
    return members[order], np.flatnonzero(np.diff(cells[order], prepend=-1, append=-1))


def highest(
    matrix: np.ndarray,
    rows: np.ndarray,
    labels: np.ndarray,
    rank: np.ndarray,
    block: tuple[int, int] = BLOCK,
) -> tuple[np.ndarray, np.ndarray]:
    """(float64[documents], int64[documents]): of each row of the matrix the highest cosine to one
    that is preferred to it, and that one; 0 and -1 where there is none, or none above 0.

    rows: int64[], those that are compared, and labels: int64[rows, nearest], their clusters;
    rank: int64[documents], lower is preferred.
    """
    members, bounds = members_of(rows, labels, rank)
    return highest_within(matrix, np.arange(len(matrix)), members, bounds, rank, block)


def highest_within(
    matrix: np.ndarray,
    rows: np.ndarray,
    members: np.ndarray,
    bounds: np.ndarray,
    rank: np.ndarray,
    block: tuple[int, int] = BLOCK,
) -> tuple[np.ndarray, np.ndarray]:
    """As `highest`, of a corpus that some rows of the matrix are: rows: int64[documents]; members,
    bounds: of its clusters, as `members_of` gives them, and rank: by number in `rows`."""
    height, width = block
    best = np.zeros(len(rows))
    partner = np.full(len(rows), -1)
    lengths = np.zeros(len(rows))
    for begin in range(0, len(rows), ROWS):
        lengths[begin : begin + ROWS] = squared_lengths(matrix[rows[begin : begin + ROWS]])
    for begin, end in pairwise(bounds.tolist()):
        cluster = members[begin:end]
        roots = np.sqrt(lengths[cluster])
        for first in range(0, len(cluster), height):
            tall = matrix[rows[cluster[first : first + height]]].astype(np.float32)
            for second in range(0, first + len(tall), width):
                wide = matrix[rows[cluster[second : min(second + width, first + len(tall))]]]
                products = tall @ wide.astype(np.float32).T
                best_before(products, first, second, lengths, roots, cluster, rank, best, partner)
    return best, partner
