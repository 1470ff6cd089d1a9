"""Documents beside similar ones: the order of in-context pretraining (Shi et al. 2024).

Vectors are those of `dedup_semantic` without a model (TF-IDF of hashed words, an SVD, a residual),
of whole numbers. The paper walks through the graph of nearest neighbours; here a tree of halves
comes first: a part of more than LEAF documents is cut in the middle between two that lie far apart,
and within a part the walk goes to the nearest document that it has not been at. So each document is
looked at log2(documents / LEAF) times, and compared with those of its part alone.

On disk lie 384 bytes a document meanwhile, in memory 24.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.products.tokenizers import packing
from llmcurate.base.disk.files import remove, reserve
from llmcurate.base.disk.units import counted
from tokenize_kit.shards.shuffle import Draws, keys

FEATURES, DIMENSIONS, RESIDUAL, SEED = 2**18, 128, 64, 1  # as dedup_semantic has them
LEAF = 1024
SCRATCH = ".scratch-neighbours"

Corpus = Callable[..., Iterator[pa.RecordBatch]]


@packing("neighbours")
def by_neighbours(corpus: Corpus, folder: Path) -> tuple[Draws, str]:
    """The keys that order documents, each beside similar ones, and a line that says how similar."""
    found = find_neighbours(corpus, folder)
    return found.draws, found.says


@dataclass(frozen=True)
class Neighbours:
    """draws: keys that order documents; cosine, before: the mean cosine of two documents that lie
    side by side, in that order and in an order by hash; says: that in a line."""

    draws: Draws
    cosine: float
    before: float
    says: str


def find_neighbours(corpus: Corpus, folder: Path, leaf: int = LEAF) -> Neighbours:
    """The order of a corpus with columns id and text. folder: for files meanwhile. It depends on
    the documents alone, in whatever order they come."""
    from curate.lab.semantic.matrix import UNIT

    scratch = folder / SCRATCH
    remove(scratch, inside=folder)
    scratch.mkdir(parents=True)
    try:
        hashes, basis = _fit(corpus)
        by_hash = np.argsort(hashes, kind="stable")
        matrix = _write_matrix(corpus, basis, by_hash, scratch / "vectors.npy")
        path = walk(matrix, leaf)
        mean = [_adjacent(matrix, order) / UNIT**2 for order in (path, np.arange(len(path)))]
        del matrix
    finally:
        remove(scratch, inside=folder)
    position = np.empty(len(path), np.uint64)
    step = np.uint64((2**64 - 1) // max(1, len(path)))
    position[path] = np.arange(len(path), dtype=np.uint64) * step
    says = (
        f"packing: {counted(len(path), 'document')} beside similar ones; two that lie side by side"
        f" have a cosine of {mean[0]:.3f} in the mean, {mean[1]:.3f} in an order by hash"
    )
    return Neighbours(Draws.of_ids(hashes[by_hash], position), mean[0], mean[1], says)


def _counts(corpus: Corpus) -> Iterator[tuple[pa.Array, tuple[np.ndarray, ...]]]:
    """(ids, hashed counts) batch by batch."""
    from curate.lab.semantic.matrix import hashed_counts
    from curate.text.buffers import as_large_string, text_buffers
    from curate.text.words import word_table

    for batch in corpus(["id", "text"]):
        table = word_table(*text_buffers(as_large_string(batch["text"])))
        yield batch["id"], hashed_counts(table.rows, table.hash, FEATURES)


def _fit(corpus: Corpus) -> tuple[np.ndarray, Any]:
    """(hashes of the ids: uint64[documents], the basis, of a sample by those hashes)."""
    from curate.lab.semantic import matrix as embeddings

    df = np.zeros(FEATURES, np.int64)
    all_hashes = [np.empty(0, np.uint64)]
    sample: list[tuple[int, np.ndarray, np.ndarray]] = []
    for ids, (offsets, buckets, counts) in _counts(corpus):
        df += np.bincount(buckets, minlength=FEATURES)
        drawn = keys(pa.chunked_array([ids]))
        all_hashes.append(drawn)
        for row, key in enumerate(drawn.tolist()):
            span = slice(offsets[row], offsets[row + 1])
            if span.start < span.stop and (len(sample) < embeddings.SAMPLE or key < sample[-1][0]):
                sample.append((key, buckets[span].copy(), counts[span].copy()))
        sample.sort(key=lambda entry: entry[0])
        del sample[embeddings.SAMPLE :]
    ends = np.concatenate([[0], np.cumsum([len(b) for _, b, _ in sample])]).astype(np.int64)
    flat = (
        np.concatenate([np.empty(0, np.uint32), *(b for _, b, _ in sample)]),
        np.concatenate([np.empty(0, np.uint16), *(c for *_, c in sample)]),
    )
    hashes = np.concatenate(all_hashes)
    return hashes, embeddings.fit(df, len(hashes), (ends, *flat), DIMENSIONS, RESIDUAL, SEED)


def _write_matrix(corpus: Corpus, basis: Any, by_hash: np.ndarray, path: Path) -> np.ndarray:
    """int16[documents, dimensions], mapped: the vectors, in order of the hashes of ids."""
    from curate.lab.semantic.matrix import whole_numbers

    row_of = np.empty(len(by_hash), np.int64)
    row_of[by_hash] = np.arange(len(by_hash))
    shape = (len(by_hash), basis.size)
    matrix: np.ndarray = np.lib.format.open_memmap(path, "w+", np.int16, shape)
    reserve(path)
    done = 0
    for ids, counts in _counts(corpus):
        matrix[row_of[done : done + len(ids)]] = whole_numbers(basis.vectors(*counts))
        done += len(ids)
    return matrix


def _products(matrix: np.ndarray, rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """int64[rows]: exact inner products with a vector (dedup/semantic/matrix.py says why)."""
    from curate.lab.semantic.matrix import blocks

    out = np.empty(len(rows), np.int64)
    wide = vector.astype(np.float32)
    for which, block in blocks(matrix, rows):
        out[which] = block @ wide
    return out


def walk(matrix: np.ndarray, leaf: int = LEAF) -> np.ndarray:
    """int64[rows]: an order of all rows in which near ones lie side by side. matrix: int16[rows,
    dimensions], vectors of one length; equal products are decided by the row."""
    path = np.empty(len(matrix), np.int64)
    waiting, done = [np.arange(len(matrix))] if len(matrix) else [], 0
    while waiting:
        rows = waiting.pop()
        tail = matrix[path[done - 1]].astype(np.int64) if done else None
        if len(rows) <= leaf:
            path[done : done + len(rows)] = _greedy(matrix, rows, tail)
            done += len(rows)
            continue
        pole = matrix[rows[np.argmin(_products(matrix, rows, matrix[rows[0]]))]]
        toward = _products(matrix, rows, pole)
        opposite = matrix[rows[np.argmin(toward)]]
        difference = toward - _products(matrix, rows, opposite)
        order = np.lexsort((rows, -difference))
        half = len(rows) // 2
        parts = [np.sort(rows[order[:half]]), np.sort(rows[order[half:]])]
        if tail is not None:
            nearer = int(tail @ (pole.astype(np.int64) - opposite))
            parts = parts if nearer >= 0 else parts[::-1]
        waiting += parts[::-1]  # the first one is next
    return path


def _greedy(matrix: np.ndarray, rows: np.ndarray, tail: np.ndarray | None) -> np.ndarray:
    block = matrix[rows].astype(np.float32)
    similar = block @ block.T
    at = 0 if tail is None else int(np.argmax(block @ tail.astype(np.float32)))
    order = np.empty(len(rows), np.int64)
    for n in range(len(rows)):
        order[n] = at
        similar[:, at] = -np.inf
        at = int(np.argmax(similar[at]))
    return rows[order]


def _adjacent(matrix: np.ndarray, order: np.ndarray) -> float:
    total = 0
    for first in range(0, len(order) - 1, 4096):
        block = matrix[order[first : first + 4097]].astype(np.int64)
        total += int(np.einsum("ij,ij->", block[:-1], block[1:]))
    return total / max(1, len(order) - 1)
