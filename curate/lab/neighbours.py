"""Order of documents that puts similar ones next to each other, for in-context pretraining (Shi et
al. 2024).

Vectors are those of the step `dedup_semantic` without a model, as integers: TF-IDF of hashed words,
reduced by an SVD, and the hashed rest that the SVD leaves over. The paper walks through the graph
of nearest neighbours. Here the corpus is first halved by two documents that are far apart: each
half is nearer to one of them. Each half is halved again, until a group has at most LEAF documents.
Within a group the walk goes to the nearest document not yet visited. So each document is read
log2(documents / LEAF) times and compared only with those of its group.

The search takes 384 bytes per document on disk and 24 in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.products.tokenizers import packing
from llmcurate.base.disk.files import allocate, remove
from llmcurate.base.disk.units import counted
from tokenize_kit.shards.shuffle import DocumentKeys, keys

FEATURES, DIMENSIONS, RESIDUAL, SEED = 2**18, 128, 64, 1  # the defaults of dedup_semantic
LEAF = 1024
SCRATCH = ".scratch-neighbours"

Corpus = Callable[..., Iterator[pa.RecordBatch]]


@packing("neighbours")
def by_neighbours(corpus: Corpus, folder: Path) -> tuple[DocumentKeys, str]:
    """Return (keys that order documents by similarity, one line on how similar adjacent ones
    are)."""
    found = find_neighbours(corpus, folder)
    return found.draws, found.summary


@dataclass(frozen=True)
class Neighbours:
    """An order of documents in which adjacent documents are similar."""

    draws: DocumentKeys  # keys that sort the documents
    cosine: float  # mean cosine of adjacent documents
    before: float  # mean cosine of adjacent documents in an order by hash
    summary: str  # one line with these figures


def find_neighbours(corpus: Corpus, folder: Path, leaf: int = LEAF) -> Neighbours:
    """Return an order of documents in which similar ones are adjacent. `corpus` has the columns id
    and text; `folder` is for temporary files. Groups of more than `leaf` documents are halved
    before their documents are compared. The order of the input does not matter."""
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
    summary = (
        f"packing: {counted(len(path), 'document')} ordered by similarity; adjacent documents have"
        f" a mean cosine of {mean[0]:.3f}, and {mean[1]:.3f} in an order by hash"
    )
    return Neighbours(DocumentKeys.of_ids(hashes[by_hash], position), mean[0], mean[1], summary)


def _counts(corpus: Corpus) -> Iterator[tuple[pa.Array, tuple[np.ndarray, ...]]]:
    from curate.lab.semantic.matrix import hashed_counts
    from curate.text.buffers import as_large_string, text_buffers
    from curate.text.words import word_table

    for batch in corpus(["id", "text"]):
        table = word_table(*text_buffers(as_large_string(batch["text"])))
        yield batch["id"], hashed_counts(table.rows, table.hash, FEATURES)


def _fit(corpus: Corpus) -> tuple[np.ndarray, Any]:
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
    from curate.lab.semantic.matrix import whole_numbers

    row_of = np.empty(len(by_hash), np.int64)
    row_of[by_hash] = np.arange(len(by_hash))
    shape = (len(by_hash), basis.size)
    matrix: np.ndarray = np.lib.format.open_memmap(path, "w+", np.int16, shape)
    allocate(path)
    done = 0
    for ids, counts in _counts(corpus):
        matrix[row_of[done : done + len(ids)]] = whole_numbers(basis.vectors(*counts))
        done += len(ids)
    return matrix


def _products(matrix: np.ndarray, rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    from curate.lab.semantic.matrix import blocks

    out = np.empty(len(rows), np.int64)
    wide = vector.astype(np.float32)
    for span, block in blocks(matrix, rows):
        out[span] = block @ wide
    return out


def walk(matrix: np.ndarray, leaf: int = LEAF) -> np.ndarray:
    """Return int64[rows]: an order of all rows in which similar rows are adjacent. `matrix` is
    int16[rows, dimensions], vectors of equal norm. Sets of more than `leaf` rows are halved by
    similarity. In a smaller set, the row most similar to the last row comes next; among equally
    similar rows, this is the row with the lowest number."""
    path = np.empty(len(matrix), np.int64)
    pending, done = [np.arange(len(matrix))] if len(matrix) else [], 0
    while pending:
        rows = pending.pop()
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
        pending += parts[::-1]  # the first part is next
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
