"""Semantic dedup from embeddings to decisions: clusters, similarities and the removal curve.

A document is removed if its cosine to a preferred document is above 1 - epsilon (a setting).
Results that do not depend on epsilon are kept in the step's folder: `basis.npz`, `embeddings.npy`,
`centroids.npy` and `similarity.parquet`. A run with another epsilon starts from
`similarity.parquet`.

Clusters are those of spherical k-means: documents and centroids are unit vectors, and a document
belongs to the centroid with the largest cosine (Dhillon and Modha 2001). Document vectors are
integers. A centroid is the sum of its cluster's vectors, scaled and rounded to integers again (see
matrix.py), so clusters are the same on every machine. scikit-learn's MiniBatchKMeans and faiss sum
floats in the order of their threads, and MiniBatchKMeans is not spherical.

SemDeDup (Abbas et al. 2023) compares documents within a cluster, and so never compares two similar
documents on either side of a border. Here a document belongs to its `nearest` clusters (a setting),
and two documents are compared if they have a cluster in common. The inner products of documents are
exact, and are computed in blocks of bounded size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus import journal
from curate.corpus.decisions import Curve, Decided
from curate.corpus.shuffle.tasks import FolderTask, run_tasks
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run, Sketches
from curate.lab.semantic import matrix as semantic_matrix
from curate.lab.semantic.matrix import ROWS, blocks, squared_lengths, whole_numbers
from llmcurate.base.disk.database import literal
from llmcurate.base.disk.files import TEMPORARY, clear_temporary, replacing
from llmcurate.base.disk.units import counted
from llmcurate.base.kernels import njit

if TYPE_CHECKING:
    from curate.lab.semantic.semantic_duplicates import DedupSemantic


PER_CLUSTER = 128  # sampled documents per centroid; faiss takes at most 256
LARGEST = 50_000  # largest mean number of documents per cluster, by default
ITERATIONS = 20
SCORES = 1 << 23  # cosines to centroids per block
CONVERGED = 0.002  # k-means ends when at most this share of the sample changes its cluster


def default_clusters(documents: int) -> int:
    """Return about the square root of the number of documents, so that comparisons within clusters
    grow as documents^1.5. Return more if clusters would have more than LARGEST documents."""
    return max(1, math.isqrt(documents), math.ceil(documents / LARGEST))


@njit(cache=True, nogil=True)
def largest(scores, labels, values):
    """Find the n largest scores of each row of scores: float32[rows, columns], n <= columns. Write
    them to values: float32[rows, n], the largest first, and their columns to labels: int64[rows,
    n]. Among equal scores the lower column comes first."""
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
    """Add each row of `block` (float32[rows, size]) to the sum of its cluster, a row of `sums`
    (float64[clusters, size]). `labels` (int64[rows]) are the clusters of the rows."""
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
    """Return (labels: int64[rows, nearest], cosines: float64[rows]): the numbers of the centroids
    that are nearest to each of `rows`, and the cosine to the nearest one. If there are fewer
    centroids than `nearest`, labels has all of them."""
    nearest = min(nearest, len(centroids))
    labels = np.empty((len(rows), nearest), np.int64)
    cosines = np.empty(len(rows))
    turned = np.ascontiguousarray(centroids.astype(np.float32).T)
    lengths = squared_lengths(centroids)
    for span, block in blocks(matrix, rows, max(1, min(block_rows, SCORES // len(centroids)))):
        values = np.empty((len(block), nearest), np.float32)
        largest(block @ turned, labels[span], values)
        both = squared_lengths(block) * lengths[labels[span, 0]]
        cosines[span] = values[:, 0] / np.sqrt(np.where(both > 0, both, 1.0))
    return labels, cosines


def fit(
    matrix: np.ndarray, rows: np.ndarray, clusters: int, seed: int, block_rows: int = ROWS
) -> np.ndarray:
    """Cluster `rows` of the matrix by k-means and return the centroids, int16[clusters or fewer,
    size]; no cluster is empty. Only the first PER_CLUSTER * clusters rows are used. They are a
    random sample, as the matrix is in the order of a hash of the ids."""
    sample = rows[: PER_CLUSTER * clusters]
    start = np.random.default_rng(seed).permutation(len(sample))[:clusters]
    centroids = np.unique(matrix[np.sort(sample[start])], axis=0)
    before = np.full(len(sample), -1)
    for _ in range(ITERATIONS):
        labels = nearest_centroids(matrix, centroids, sample, 1, block_rows)[0][:, 0]
        if (labels != before).mean() <= CONVERGED:
            break
        before = labels
        sums = np.zeros(centroids.shape)
        for span, block in blocks(matrix, sample, block_rows):
            add_rows(block, labels[span], sums)
        moved = whole_numbers(sums)
        sizes = np.bincount(labels, minlength=len(centroids))
        # A centroid whose members sum to zero is not moved.
        centroids = np.where(moved.any(axis=1, keepdims=True), moved, centroids)[sizes > 0]
        before = (np.cumsum(sizes > 0) - 1)[labels]
    return centroids


BLOCK = (1024, 8192)  # documents that are compared with documents in one product


@njit(cache=True, nogil=True)
def row_keys(block):
    """Return uint64[rows]: a hash of each row of a block, int16[rows, size]."""
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
    """Update each document's partner: the most similar document (by cosine) before it in `members`.
    `first` and `second` are where the rows and columns of `products` begin in `members`.

    Arrays:
        best, partner  float64[documents] and int64[documents]: cosine and partner, updated
        members        int64[]: rows of the matrix, preferred documents first
        products       float32[rows, columns]: inner products of documents
        squares        float64[documents]: squared lengths
        roots          float64[members]: lengths
        rank           int64[documents]: lower for preferred documents; decides among equal cosines
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
    """Return int64[rows]: for each row, the row of lowest `rank` with the same vector. Later only
    rows of lowest rank are compared, so a million equal pages do not cost 10^12 comparisons."""
    keys = np.empty(len(rows), np.uint64)
    for first in range(0, len(rows), ROWS):
        keys[first : first + ROWS] = row_keys(matrix[rows[first : first + ROWS]])
    order = np.lexsort((rank[rows], keys))
    sorted_keys = keys[order]
    starts = np.concatenate([[True], sorted_keys[1:] != sorted_keys[:-1]])
    chosen = rows[order][np.flatnonzero(starts)[np.cumsum(starts) - 1]] if len(rows) else rows
    preferred = np.empty(len(rows), np.int64)
    preferred[order] = chosen
    for first in range(0, len(rows), ROWS):
        part = slice(first, first + ROWS)
        unlike = (matrix[rows[part]] != matrix[preferred[part]]).any(
            axis=1
        )  # a collision of hashes
        preferred[part] = np.where(unlike, rows[part], preferred[part])
    return preferred


def members_of(
    rows: np.ndarray, labels: np.ndarray, rank: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of all clusters, cluster by cluster and preferred rows first (int64[]), and
    where each non-empty cluster begins and the last one ends (int64[clusters + 1]). The arguments
    are those of `highest`."""
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
    """Return two arrays with an entry per row of the matrix: the highest cosine to a more preferred
    row in one of its clusters, and the number of that row (0 and -1 if no cosine is above 0).

    Arguments:
        rows    int64[]: the rows to compare
        labels  int64[rows, nearest]: their clusters
        rank    int64[documents]: lower for preferred documents
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
    """Return (cosines, partners): each document's highest cosine to a preferred document (of lower
    `rank`) in one of its clusters, and this partner. Without a cosine above 0 they are 0 and -1.
    `rows`, int64[documents], are the documents' rows in the matrix. Other arrays number documents
    by their place in `rows`. `members` and `bounds` are the clusters, from `members_of`."""
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


# Tasks: nearest centroids of ranges of rows, pairs of ranges of clusters. A task reads its rows
# from the mapped matrix and takes about 100 MB. The ranges do not change the result: of several
# clusters the highest similarity wins, then the preferred partner. A single task runs in this
# process, without files.


@dataclass(frozen=True)
class Matrix:
    """The embeddings of all documents as a memory map."""

    rows: np.ndarray  # int16[documents, size]
    path: Path  # file of the embeddings; tasks write into its folder
    run: Run  # executes tasks
    sizes: Sizes  # of tasks

    @contextmanager
    def task_folder(self, **arrays: np.ndarray) -> Iterator[Path]:
        with TemporaryDirectory(prefix=f"{TEMPORARY}tasks-", dir=self.path.parent) as name:
            folder = Path(name)
            for name, array in arrays.items():
                np.save(folder / f"{name}.npy", array)
                journal.note(folder / f"{name}.npy")
            yield folder
            journal.release(folder)


@dataclass(frozen=True)
class RangeTask(FolderTask):
    """A task on a range of rows or of clusters."""

    matrix: Path  # file of the embeddings
    begin: int
    end: int
    nearest: int = 0  # number of centroids per row

    def array(self, name: str) -> np.ndarray:
        array: np.ndarray = np.load(self.folder / f"{name}.npy", mmap_mode="r")
        return array

    def save(self, **arrays: np.ndarray) -> None:
        with replacing(self.file(FOUND)) as aside, aside.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def result(self) -> dict[str, np.ndarray]:
        with np.load(self.file(FOUND), allow_pickle=False) as arrays:
            return dict(arrays)


def nearest_by_tasks(
    matrix: Matrix, centroids: np.ndarray, rows: np.ndarray, nearest: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the result of `nearest_centroids`. Large work is divided into tasks for workers."""
    step = max(1, matrix.sizes.task_cosines // max(1, len(centroids)))
    if len(rows) <= step:
        return nearest_centroids(matrix.rows, centroids, rows, nearest)
    with matrix.task_folder(centroids=centroids, rows=rows) as folder:
        tasks = [
            RangeTask(part, folder, matrix.path, begin, min(begin + step, len(rows)), nearest)
            for part, begin in enumerate(range(0, len(rows), step))
        ]
        run_tasks(matrix.run, f"{__name__}:label_rows", tasks)
        results = [task.result() for task in tasks]
    labels, cosines = (np.concatenate([e[name] for e in results]) for name in ("labels", "cosines"))
    return labels, cosines


def label_rows(task: RangeTask) -> None:
    """Run a RangeTask: find the nearest centroids of each row in a range."""
    matrix = np.load(task.matrix, mmap_mode="r")
    rows = np.array(task.array("rows")[task.begin : task.end])
    centroids = np.array(task.array("centroids"))
    labels, cosines = nearest_centroids(matrix, centroids, rows, task.nearest)
    task.save(labels=labels, cosines=cosines)


def highest_by_tasks(
    matrix: Matrix, rows: np.ndarray, labels: np.ndarray, rank: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the result of `highest`. Large work is divided into tasks for workers."""
    members, bounds = members_of(rows, labels, rank)
    sizes = np.diff(bounds)
    cuts = cut_evenly(sizes * (sizes + 1) // 2, matrix.sizes.task_products)
    if len(cuts) <= 2:
        return highest(matrix.rows, rows, labels, rank)
    best, partner = np.zeros(len(matrix.rows)), np.full(len(matrix.rows), -1)
    with matrix.task_folder(members=members, bounds=bounds, rank=rank) as folder:
        tasks = [
            RangeTask(part, folder, matrix.path, begin, end)
            for part, (begin, end) in enumerate(pairwise(cuts))
        ]
        run_tasks(matrix.run, f"{__name__}:compare_clusters", tasks)
        for task in tasks:
            arrays = task.result()
            row, similar, other = arrays["rows"], arrays["similarity"], arrays["partner"]
            same = (similar == best[row]) & (rank[other] < rank[partner[row]])
            better = (similar > best[row]) | same
            row = row[better]
            best[row], partner[row] = similar[better], other[better]
    return best, partner


def cut_evenly(costs: np.ndarray, most: int) -> list[int]:
    """Return the bounds of ranges of items. Each range costs at most `most` or is a single item."""
    cuts, spent = [0], 0
    for number, cost in enumerate(costs.tolist()):
        if spent and spent + cost > most:
            cuts.append(number)
            spent = 0
        spent += cost
    return [*cuts, len(costs)] if len(costs) else cuts


def compare_clusters(task: RangeTask) -> None:
    """Run a RangeTask: find the highest similarity of each document in a range of clusters."""
    matrix = np.load(task.matrix, mmap_mode="r")
    bounds = np.array(task.array("bounds")[task.begin : task.end + 1])
    members = np.array(task.array("members")[bounds[0] : bounds[-1]])
    rows, numbers = np.unique(members, return_inverse=True)
    rank = task.array("rank")[rows]
    # These rows are compared as a separate corpus.
    best, partner = highest_within(matrix, rows, numbers, bounds - bounds[0], rank)
    own = np.flatnonzero(partner >= 0)
    task.save(rows=rows[own], similarity=best[own], partner=rows[partner[own]])


FOUND = "found.npz"  # the result of a task
SIMILARITY = "similarity.parquet"
EPSILONS = np.round(np.geomspace(0.001, 0.5, 55), 5)


def count_removed(similarity: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
    """Return int64[epsilons]: how many similarities (float64[documents]) are above 1 - epsilon."""
    ordered = np.sort(similarity)
    least = np.round(1.0 - epsilons, 12)
    counts: np.ndarray = len(ordered) - np.searchsorted(ordered, least, side="right")
    return counts


PROTOTYPICAL = "semantic:prototypical"


@dataclass(frozen=True)
class Nearest:
    """The most similar document that the dedup prefers to keep, for each document (matrix row)."""

    similarity: np.ndarray  # float64: cosine, or 0 without a partner
    partner: np.ndarray  # int64: row of the preferred document, or -1
    own: np.ndarray  # bool: False for documents of an earlier corpus


def number_documents(db: Any, order: str) -> int:
    """Create the table `documents` (place, rank, part, n, id) and return its number of rows.
    `place` is the document's row in the matrix, in the order of a hash of the id. `rank` is 0 for
    the most preferred document. `part` is the partition and `n` the row in it."""
    db.execute(
        f"""CREATE OR REPLACE TABLE documents AS
        SELECT row_number() OVER (ORDER BY md5(id), id, part, n) - 1 AS place,
               row_number() OVER (ORDER BY {order}) - 1 AS rank, part, n, id
        FROM sketches"""
    )
    return int(db.execute("SELECT count(*) FROM documents").fetchall()[0][0])


def _column(db: Any, expression: str, order: str) -> np.ndarray:
    rows = db.execute(f"SELECT {expression} AS x FROM documents ORDER BY {order}").fetchnumpy()
    return np.ascontiguousarray(rows["x"])


def matrix_of(step: DedupSemantic, sketches: Sketches) -> Matrix:
    """Return the embeddings of all documents. They are computed and written first if missing."""
    path = sketches.folder / semantic_matrix.MATRIX
    basis, size, row_of = None, 0, np.empty(0, np.int64)
    if not path.exists():
        row_of = _column(sketches.connection, "place", "part, n")
        if step.hashed:
            basis = semantic_matrix.hashed_basis(
                sketches, row_of, step.features, step.dimensions, step.residual, step.seed
            )
            size = basis.size
        else:
            first = next(iter(sketches.batches(["vector"], 1)))
            size = first.column("vector").type.list_size
    semantic_matrix.write_matrix(sketches, row_of, basis, size)
    return Matrix(
        np.load(path, mmap_mode="r", allow_pickle=False), path, sketches.run, sketches.sizes
    )


def _with_direction(matrix: np.ndarray) -> np.ndarray:
    rows = [
        first + np.flatnonzero(matrix[first : first + semantic_matrix.ROWS].any(axis=1))
        for first in range(0, len(matrix), semantic_matrix.ROWS)
    ]
    return np.concatenate([np.empty(0, np.int64), *rows])


def highest_similarities(
    step: DedupSemantic, matrix: Matrix, rank: np.ndarray, folder: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Return (similarity: float64[documents], partner: int64[documents]): each document's highest
    cosine to a more preferred document, and that document (0 and -1 if no cosine is above 0).
    Documents with a low `rank` are preferred, or, if the step prefers hard documents, those far
    from their centroid. Also write centroids.npy."""
    rows = _with_direction(matrix.rows)
    count, size = matrix.rows.shape
    numbers = np.arange(count)
    same = same_vectors(matrix.rows, rows, numbers if step.hard else rank)
    distinct = rows[same == rows]
    clusters = step.clusters or default_clusters(len(distinct))
    centroids = np.zeros((0, size), np.int16)
    similarity, partner = np.zeros(count), np.full(count, -1)
    if len(distinct):
        centroids = fit(matrix.rows, distinct, clusters, step.seed)
        labels, cosines = nearest_by_tasks(matrix, centroids, distinct, step.nearest)
        if step.hard:
            to_centroid = np.zeros(count)
            to_centroid[distinct] = cosines
            to_centroid[rows] = to_centroid[same]
            rank = np.empty(count, np.int64)
            rank[np.lexsort((numbers, to_centroid))] = numbers
        similarity, partner = highest_by_tasks(matrix, distinct, labels, rank)
    copies = rows[same != rows]
    similarity[copies], partner[copies] = 1.0, same[same != rows]
    with replacing(folder / "centroids.npy") as aside, aside.open("wb") as file:
        np.save(file, centroids)
    return similarity, partner


def find(step: DedupSemantic, sketches: Sketches) -> Nearest:
    """Return the similarities in the step's folder. They are computed and saved first if
    missing."""
    db = sketches.connection
    corpus_rows = _column(db, "part >= 0", "place")
    path = sketches.folder / SIMILARITY
    if path.exists():
        kept = pq.read_table(path, columns=["place", "similarity", "partner"])
        similarity, partner = np.zeros(len(corpus_rows)), np.full(len(corpus_rows), -1)
        row = kept["place"].to_numpy()
        similarity[row] = kept["similarity"].fill_null(0.0).to_numpy()
        partner[row] = kept["partner"].fill_null(-1).to_numpy()
        return Nearest(similarity, partner, corpus_rows)
    rank = _column(db, "rank", "place")
    matrix = matrix_of(step, sketches)
    similarity, partner = highest_similarities(step, matrix, rank, sketches.folder)
    none = partner < 0
    table = pa.table(
        {
            "place": np.arange(len(corpus_rows)),
            "similarity": pa.array(similarity, mask=none),
            "partner": pa.array(partner, mask=none),
        }
    )
    db.register("found", table)
    with replacing(path) as aside:
        db.execute(
            f"""COPY (
            SELECT d.part, d.n, d.id, f.similarity, o.id AS partner_id, f.place, f.partner
            FROM found f JOIN documents d USING (place) LEFT JOIN documents o ON o.place = f.partner
            ORDER BY d.part, d.n) TO {literal(aside)} (FORMAT parquet)"""
        )
    db.unregister("found")
    return Nearest(similarity, partner, corpus_rows)


def removed_share(nearest: Nearest, keep_fraction: float) -> tuple[np.ndarray, float]:
    """Return (removed, lowest): which documents to remove (bool[documents]) to keep the share
    `keep_fraction` of the run's own documents, and the lowest similarity of a removed document (1
    if none is removed). The documents with the highest similarity are removed first; ties are
    decided by row. In `removed`, documents of earlier corpora with a similarity of at least
    `lowest` are True too. So the function `roots_of`, which follows partners up to a kept document,
    does not stop at these documents."""
    removals = round((1.0 - keep_fraction) * int(nearest.own.sum()))
    rows = np.flatnonzero(nearest.own & (nearest.partner >= 0))
    first = rows[np.lexsort((rows, -nearest.similarity[rows]))[:removals]]
    removed = np.zeros(len(nearest.own), np.bool_)
    removed[first] = True
    if not len(first):
        return removed, 1.0
    least = float(nearest.similarity[first[-1]])
    return removed | (~nearest.own & (nearest.similarity >= least)), least


def roots_of(removed: np.ndarray, partner: np.ndarray) -> np.ndarray:
    """Return int64[documents]: the kept document to which each document's chain of partners
    leads."""
    root = np.where(removed, partner, np.arange(len(removed)))
    while not np.array_equal(further := root[root], root):
        root = further
    return root


def prototypes(
    step: DedupSemantic, sketches: Sketches, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (rows, cosines) of the documents to remove as prototypical: the documents in `rows`
    that are nearest to their centroid. The setting `prototypicality` is the share to keep.
    Prototypical documents are easy examples; with much data, hard ones teach more (Sorscher et al.
    2022, self-supervised prototypes, used by D4, Tirumala et al. 2023)."""
    matrix = matrix_of(step, sketches)
    rows = rows[np.isin(rows, _with_direction(matrix.rows), assume_unique=True)]
    assert step.prototypicality is not None
    count = round((1.0 - step.prototypicality) * len(rows))
    if count == 0:
        return rows[:0], np.empty(0)
    if step.recluster:
        clusters = step.clusters or default_clusters(len(rows))
        centroids = fit(matrix.rows, rows, clusters, step.seed)
    else:
        centroids = np.load(sketches.folder / "centroids.npy", allow_pickle=False)
    _, cosines = nearest_by_tasks(matrix, centroids, rows, 1)
    first = np.lexsort((rows, -cosines))[:count]
    return rows[first], cosines[first]


def decide(step: DedupSemantic, order: str, sketches: Sketches) -> Decided:
    """Write which documents the step removes. Return counts, notes, and a curve: the share of
    documents that would be removed at each of EPSILONS (1 - least similarity of a duplicate)."""
    clear_temporary(sketches.folder)
    db = sketches.connection
    count = number_documents(db, order)
    nearest = (
        find(step, sketches) if count else Nearest(np.zeros(0), np.zeros(0, int), np.zeros(0, bool))
    )
    if step.keep_fraction is None:
        removed, least = nearest.similarity > step.least, step.least
    else:
        removed, least = removed_share(nearest, step.keep_fraction)
    root = roots_of(removed, nearest.partner)
    members = np.flatnonzero(removed | np.isin(np.arange(count), root[removed]))
    pruned, cosines = np.empty(0, np.int64), np.empty(0)
    if step.prototypicality is not None and count:
        pruned, cosines = prototypes(step, sketches, np.flatnonzero(~removed & nearest.own))
    drop = removed[members]
    copies = pa.table(
        {
            "place": members,
            "drop": drop,
            "root": root[members],
            "partner": pa.array(nearest.partner[members], mask=~drop),
            "similarity": pa.array(nearest.similarity[members], mask=~drop),
        }
    )
    db.register("copies", copies)
    db.register("pruned", pa.table({"place": pruned, "similarity": cosines}))
    least_pruned = float(cosines.min()) if len(cosines) else 0.0
    db.execute(
        f"""COPY (
        WITH numbered AS (
          SELECT place AS root, id AS kept_id, row_number() OVER (ORDER BY id) - 1 AS cluster
          FROM documents SEMI JOIN (SELECT root AS place FROM copies) USING (place))
        SELECT d.part, d.n, c.drop, d.id, r.cluster::BIGINT AS cluster, r.kept_id,
               o.id AS partner_id, c.similarity, '{step.method}' AS method,
               NULL::BIGINT AS span_start, NULL::BIGINT AS span_end, {least!r}::DOUBLE AS threshold
        FROM copies c JOIN documents d USING (place) JOIN numbered r USING (root)
        LEFT JOIN documents o ON o.place = c.partner
        UNION ALL
        SELECT d.part, d.n, true, d.id, NULL, NULL, NULL, p.similarity, '{PROTOTYPICAL}',
               NULL, NULL, {least_pruned!r}::DOUBLE
        FROM pruned p JOIN documents d USING (place)
        ORDER BY part, n, method) TO {literal(sketches.decisions)} (FORMAT parquet)"""
    )
    for name in ("copies", "pruned"):
        db.unregister(name)
    similarity = nearest.similarity[nearest.own]
    shares = count_removed(similarity, EPSILONS) / max(1, len(similarity))
    now = float(removed[nearest.own].mean()) if len(similarity) else 0.0
    epsilon = step.epsilon if step.keep_fraction is None else max(0.0, 1.0 - least)
    counts = {
        "clusters": int(len(members) - removed.sum()),
        "members": len(members),
        "dropped": int(removed.sum()) + len(pruned),
        "prototypical": len(pruned),
    }
    removal = Curve(
        "Share of documents removed over epsilon",
        "epsilon",
        "share removed",
        EPSILONS.tolist(),
        shares.tolist(),
        (epsilon, now, f"epsilon {epsilon:.4g}"),
    )
    return Decided(counts, _notes(step, sketches.folder), [removal])


def _notes(step: DedupSemantic, folder: Path) -> list[str]:
    sentences = []
    if step.hashed:
        sentences.append(
            "Embeddings are hashed TF-IDF with an SVD: they detect duplicates and near-duplicates,"
            " but little similarity of meaning."
        )
    path = folder / "centroids.npy"
    if path.exists():
        clusters = len(np.load(path, mmap_mode="r", allow_pickle=False))
        nearest = "its nearest one" if step.nearest == 1 else f"the {step.nearest} nearest"
        sentences.append(
            f"{counted(clusters, 'cluster')}; a document was compared within {nearest}."
        )
    return sentences
