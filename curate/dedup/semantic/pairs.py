"""The highest similarity of each document to one that is preferred to it.

SemDeDup (Abbas et al. 2023) compares within a cluster. Two documents on either side of a border
are then never compared, so here a document is a member of its `nearest` clusters, and two are
compared if they share one. Products of blocks of bounded size, exact (see embeddings.py).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from curate.dedup.semantic.embeddings import ROWS, squares
from kernel_cache import njit

TALL, WIDE = 1024, 8192  # documents compared with documents at once


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
        mine = members[first + i]
        top, at = 0.0, -1
        for j in range(min(products.shape[1], first + i - second)):
            score = products[i, j] / roots[second + j]
            if score > top:
                top, at = score, j
        if at < 0:
            continue
        other = members[second + at]
        similar = products[i, at] / np.sqrt(squares[mine] * squares[other])
        if similar > best[mine] or (similar == best[mine] and rank[other] < rank[partner[mine]]):
            best[mine], partner[mine] = similar, other


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
    found = np.empty(len(rows), np.int64)
    found[order] = heads
    for first in range(0, len(rows), ROWS):
        part = slice(first, first + ROWS)
        unlike = (matrix[rows[part]] != matrix[found[part]]).any(axis=1)  # same hash only
        found[part] = np.where(unlike, rows[part], found[part])
    return found


def members_of(
    rows: np.ndarray, labels: np.ndarray, rank: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(members: int64[], rows cluster by cluster in order of preference; bounds: int64[clusters +
    1], where each cluster that has any begins, and the end). Arguments as `highest` has them."""
    cells, members = labels.reshape(-1), np.repeat(rows, labels.shape[1])
    order = np.lexsort((rank[members], cells))
    return members[order], np.flatnonzero(np.diff(cells[order], prepend=-1, append=-1))


def highest(
    matrix: np.ndarray, rows: np.ndarray, labels: np.ndarray, rank: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(float64[documents], int64[documents]): of each row of the matrix the highest cosine to one
    that is preferred to it, and that one; 0 and -1 where there is none, or none above 0.

    rows: int64[], those that are compared, and labels: int64[rows, nearest], their clusters;
    rank: int64[documents], lower is preferred.
    """
    members, bounds = members_of(rows, labels, rank)
    return within(matrix, np.arange(len(matrix)), members, bounds, rank)


def within(
    matrix: np.ndarray, rows: np.ndarray, members: np.ndarray, bounds: np.ndarray, rank: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """As `highest`, of a corpus that some rows of the matrix are: rows: int64[documents]; members,
    bounds: of its clusters, as `members_of` gives them, and rank: by number in `rows`."""
    best = np.zeros(len(rows))
    partner = np.full(len(rows), -1)
    lengths = np.zeros(len(rows))
    for begin in range(0, len(rows), ROWS):
        lengths[begin : begin + ROWS] = squares(matrix[rows[begin : begin + ROWS]])
    for begin, end in pairwise(bounds.tolist()):
        mine = members[begin:end]
        roots = np.sqrt(lengths[mine])
        for first in range(0, len(mine), TALL):
            tall = matrix[rows[mine[first : first + TALL]]].astype(np.float32)
            for second in range(0, first + len(tall), WIDE):
                wide = matrix[rows[mine[second : min(second + WIDE, first + len(tall))]]]
                products = tall @ wide.astype(np.float32).T
                best_before(products, first, second, lengths, roots, mine, rank, best, partner)
    return best, partner
