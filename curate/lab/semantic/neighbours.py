"""Semantic dedup from embeddings to decisions: clusters, similarities and the removal curve.

What does not depend on epsilon is kept in the step's folder: `basis.npz`, `embeddings.npy`,
`centroids.npy` and `similarity.parquet`. Another epsilon starts from the last of them.

Clusters are those of spherical k-means. Documents are unit vectors and so are centroids; a document
belongs to the centroid of the largest cosine (Dhillon and Modha 2001). Centroids are sums of whole
numbers, then whole numbers again (see matrix.py), so that the clusters are the same on any machine.
That is why this is not scikit-learn's MiniBatchKMeans or faiss, which sum floats in the order of
their threads; MiniBatchKMeans moreover is not spherical.

SemDeDup (Abbas et al. 2023) compares within a cluster. Two documents on either side of a border are
then never compared, so here a document is a member of its `nearest` clusters, and two are compared
if they share one. Products of blocks of bounded size are exact.
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
import pyarrow.compute as pc
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
from llmcurate.base.errors import UsageError
from llmcurate.base.kernels import njit

if TYPE_CHECKING:
    from curate.lab.semantic.semantic_duplicates import DedupSemantic


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


# Clusters and pairs as tasks: nearest centroids of ranges of rows, pairs of ranges of clusters. A
# task reads its rows from the mapped matrix. The result for a document does not depend on others of
# the range, and of what several clusters say of one the order is total: the highest similarity, of
# equal ones the partner preferred most. It holds some 100 MB. What is one task is done here,
# without files.


@dataclass(frozen=True)
class Matrix:
    """The embeddings, mapped: rows: int16[documents, size]; path: their file; run: who does tasks,
    which leave files beside it until they are read; sizes: of these."""

    rows: np.ndarray
    path: Path
    run: Run
    sizes: Sizes

    @contextmanager
    def task_folder(self, **arrays: np.ndarray) -> Iterator[Path]:
        """A folder for tasks, which holds these arrays."""
        with TemporaryDirectory(prefix=f"{TEMPORARY}tasks-", dir=self.path.parent) as name:
            folder = Path(name)
            for name, array in arrays.items():
                np.save(folder / f"{name}.npy", array)
                journal.note(folder / f"{name}.npy")
            yield folder
            journal.release(folder)


@dataclass(frozen=True)
class RangeTask(FolderTask):
    """A range of rows, or of clusters, of the matrix in a file. nearest: centroids of a row."""

    matrix: Path
    begin: int
    end: int
    nearest: int = 0

    def array(self, name: str) -> np.ndarray:
        """Return one of the arrays that all tasks read, mapped."""
        array: np.ndarray = np.load(self.folder / f"{name}.npy", mmap_mode="r")
        return array

    def save(self, **arrays: np.ndarray) -> None:
        """Write the arrays that are the result."""
        with replacing(self.file(FOUND)) as aside, aside.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def result(self) -> dict[str, np.ndarray]:
        """Return them."""
        with np.load(self.file(FOUND), allow_pickle=False) as arrays:
            return dict(arrays)


def nearest_by_tasks(
    matrix: Matrix, centroids: np.ndarray, rows: np.ndarray, nearest: int
) -> tuple[np.ndarray, np.ndarray]:
    """As `nearest_centroids`, by tasks."""
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
    """A task: the nearest centroids of a range of rows."""
    matrix = np.load(task.matrix, mmap_mode="r")
    rows = np.array(task.array("rows")[task.begin : task.end])
    centroids = np.array(task.array("centroids"))
    labels, cosines = nearest_centroids(matrix, centroids, rows, task.nearest)
    task.save(labels=labels, cosines=cosines)


def highest_by_tasks(
    matrix: Matrix, rows: np.ndarray, labels: np.ndarray, rank: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """As `highest`, by tasks."""
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
    """Bounds of ranges of things of these costs: int64[], each range as long as it costs no more
    than `most`, or a single thing."""
    cuts, spent = [0], 0
    for number, cost in enumerate(costs.tolist()):
        if spent and spent + cost > most:
            cuts.append(number)
            spent = 0
        spent += cost
    return [*cuts, len(costs)] if len(costs) else cuts


def compare_clusters(task: RangeTask) -> None:
    """A task: of the members of a range of clusters the highest similarities within them."""
    matrix = np.load(task.matrix, mmap_mode="r")
    bounds = np.array(task.array("bounds")[task.begin : task.end + 1])
    members = np.array(task.array("members")[bounds[0] : bounds[-1]])
    rows, numbers = np.unique(members, return_inverse=True)
    rank = task.array("rank")[rows]
    # As a corpus of these rows alone.
    best, partner = highest_within(matrix, rows, numbers, bounds - bounds[0], rank)
    own = np.flatnonzero(partner >= 0)
    task.save(rows=rows[own], similarity=best[own], partner=rows[partner[own]])


FOUND = "found.npz"  # what a task has found
SIMILARITY = "similarity.parquet"
EPSILONS = np.round(np.geomspace(0.001, 0.5, 55), 5)


def count_removed(similarity: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
    """int64[epsilons]: documents whose highest similarity, float64[documents], is above
    1 - epsilon."""
    ordered = np.sort(similarity)
    least = np.round(1.0 - epsilons, 12)
    counts: np.ndarray = len(ordered) - np.searchsorted(ordered, least, side="right")
    return counts


def curve(folder: Path | str, epsilons: np.ndarray = EPSILONS) -> pa.Table:
    """The removal curve of a finished run: columns epsilon, removed (documents), share.

    folder: the step's index, OUT/index/dedup_semantic, or any folder above similarity.parquet.
    UsageError where there is none.
    """
    paths = sorted(Path(folder).rglob(SIMILARITY))
    if not paths:
        raise UsageError(
            f"no {SIMILARITY} under {folder}; name the index folder of a dedup_semantic run"
        )
    rows = pq.read_table(paths[0], columns=["part", "similarity"])
    rows = rows.filter(pc.greater_equal(rows["part"], 0))
    counts = count_removed(rows["similarity"].fill_null(0.0).to_numpy(), epsilons)
    return pa.table(
        {"epsilon": epsilons, "removed": counts, "share": counts / max(1, rows.num_rows)}
    )


PROTOTYPICAL = "semantic:prototypical"


@dataclass(frozen=True)
class Nearest:
    """The most similar preferred document of each, by its row in the matrix.

    similarity: float64, the highest cosine to a document preferred to it, 0 without one; partner:
    int64, that document or -1; own: bool, not of an earlier corpus.
    """

    similarity: np.ndarray
    partner: np.ndarray
    own: np.ndarray


def number_documents(db: Any, order: str) -> int:
    """Makes the table documents (place, rank, part, n, id); returns their number. place: the
    document's row in the matrix, by a hash of its id."""
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
    """The embeddings of all documents."""
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
    """int64[]: rows that are not all zeros."""
    rows = [
        first + np.flatnonzero(matrix[first : first + semantic_matrix.ROWS].any(axis=1))
        for first in range(0, len(matrix), semantic_matrix.ROWS)
    ]
    return np.concatenate([np.empty(0, np.int64), *rows])


def highest_similarities(
    step: DedupSemantic, matrix: Matrix, rank: np.ndarray, folder: Path
) -> tuple[np.ndarray, np.ndarray]:
    """(similarity: float64[documents], partner: int64[documents]) within shared clusters; writes
    centroids.npy.

    With the policy `hard`, those are preferred that are farther from their centroid.
    """
    rows = _with_direction(matrix.rows)
    count, size = matrix.rows.shape
    numbers = np.arange(count)
    same = same_vectors(matrix.rows, rows, numbers if step.hard else rank)
    heads = rows[same == rows]
    clusters = step.clusters or default_clusters(len(heads))
    centroids = np.zeros((0, size), np.int16)
    similarity, partner = np.zeros(count), np.full(count, -1)
    if len(heads):
        centroids = fit(matrix.rows, heads, clusters, step.seed)
        labels, cosines = nearest_by_tasks(matrix, centroids, heads, step.nearest)
        if step.hard:
            to_centroid = np.zeros(count)
            to_centroid[heads] = cosines
            to_centroid[rows] = to_centroid[same]
            rank = np.empty(count, np.int64)
            rank[np.lexsort((numbers, to_centroid))] = numbers
        similarity, partner = highest_by_tasks(matrix, heads, labels, rank)
    copies = rows[same != rows]
    similarity[copies], partner[copies] = 1.0, same[same != rows]
    with replacing(folder / "centroids.npy") as aside, aside.open("wb") as file:
        np.save(file, centroids)
    return similarity, partner


def find(step: DedupSemantic, sketches: Sketches) -> Nearest:
    """The similarities in the step's folder, or, where none are yet, those computed now."""
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
    """(bool[documents]: those that go so that this share of the own ones stays, the least of their
    similarities, 1 where none goes).

    The most similar go first; equally similar ones in the order of their rows, a hash of their ids.
    Fewer go where fewer have a similar document. Documents of earlier corpora count as removed
    where own ones of their similarity are, so that chains go through them.
    """
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
    """int64[documents]: where the chain of partners of each document ends: at one that stays."""
    root = np.where(removed, partner, np.arange(len(removed)))
    while not np.array_equal(further := root[root], root):
        root = further
    return root


def prototypes(
    step: DedupSemantic, sketches: Sketches, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(rows, cosines) of the most prototypical documents among `rows`: those nearest to their
    centroid, so many that the share `prototypicality` is left. These go and not the far ones: with
    much data hard examples teach more than easy ones, and an example is easy where it is near
    (Sorscher et al. 2022, self-supervised prototypes, which D4, Tirumala et al. 2023, takes over).
    """
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
    """Writes the decisions; returns counts, notes and the removal curve."""
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
            "Embeddings are hashed TF-IDF with an SVD: they tell copies and near copies, and little"
            " of meaning."
        )
    path = folder / "centroids.npy"
    if path.exists():
        clusters = len(np.load(path, mmap_mode="r", allow_pickle=False))
        nearest = "its nearest one" if step.nearest == 1 else f"the {step.nearest} nearest"
        sentences.append(
            f"{counted(clusters, 'cluster')}; a document was compared within {nearest}."
        )
    return sentences
