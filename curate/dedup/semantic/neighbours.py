"""Semantic dedup from embeddings to decisions: clusters, similarities and the removal curve.

What does not depend on epsilon is kept in the step's folder: `basis.npz`, `embeddings.npy`,
`centroids.npy` and `similarity.parquet`. Another epsilon starts from the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.sketches import Sketches
from curate.dedup.semantic import clusters as semantic_clusters
from curate.dedup.semantic import compare
from curate.dedup.semantic import matrix as semantic_matrix
from curate.dedup.semantic.compare import Matrix
from llmcurate.base.disk.database import literal
from llmcurate.base.disk.files import clear_temporary, replacing
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from curate.dedup.semantic.semantic_duplicates import DedupSemantic


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


def _keep_array(path: Path, array: np.ndarray) -> None:
    with replacing(path) as aside, aside.open("wb") as file:
        np.save(file, array)


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
    same = semantic_clusters.same_vectors(matrix.rows, rows, numbers if step.hard else rank)
    heads = rows[same == rows]
    clusters = step.clusters or semantic_clusters.default_clusters(len(heads))
    centroids = np.zeros((0, size), np.int16)
    similarity, partner = np.zeros(count), np.full(count, -1)
    if len(heads):
        centroids = semantic_clusters.fit(matrix.rows, heads, clusters, step.seed)
        labels, cosines = compare.nearest_centroids(matrix, centroids, heads, step.nearest)
        if step.hard:
            to_centroid = np.zeros(count)
            to_centroid[heads] = cosines
            to_centroid[rows] = to_centroid[same]
            rank = np.empty(count, np.int64)
            rank[np.lexsort((numbers, to_centroid))] = numbers
        similarity, partner = compare.highest(matrix, heads, labels, rank)
    copies = rows[same != rows]
    similarity[copies], partner[copies] = 1.0, same[same != rows]
    _keep_array(folder / "centroids.npy", centroids)
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
        clusters = step.clusters or semantic_clusters.default_clusters(len(rows))
        centroids = semantic_clusters.fit(matrix.rows, rows, clusters, step.seed)
    else:
        centroids = np.load(sketches.folder / "centroids.npy", allow_pickle=False)
    _, cosines = compare.nearest_centroids(matrix, centroids, rows, 1)
    first = np.lexsort((rows, -cosines))[:count]
    return rows[first], cosines[first]


def decide(step: DedupSemantic, order: str, sketches: Sketches) -> dict[str, Any]:
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
    _write(
        db, sketches.decisions, step.method, members, removed, root, nearest, least, pruned, cosines
    )
    similarity = nearest.similarity[nearest.own]
    shares = count_removed(similarity, EPSILONS) / max(1, len(similarity))
    now = float(removed[nearest.own].mean()) if len(similarity) else 0.0
    epsilon = step.epsilon if step.keep_fraction is None else max(0.0, 1.0 - least)
    return {
        "clusters": int(len(members) - removed.sum()),
        "members": len(members),
        "dropped": int(removed.sum()) + len(pruned),
        "prototypical": len(pruned),
        "notes": _notes(step, sketches.folder),
        "curves": [
            {
                "title": "Share of documents removed over epsilon",
                "x_label": "epsilon",
                "y_label": "share removed",
                "x": EPSILONS.tolist(),
                "y": shares.tolist(),
                "mark": [epsilon, now, f"epsilon {epsilon:.4g}"],
            }
        ],
    }


def _notes(step: DedupSemantic, folder: Path) -> list[str]:
    """Sentences of the report on how the decisions were made."""
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


def _write(
    db: Any,
    path: Path,
    method: str,
    members: np.ndarray,
    removed: np.ndarray,
    root: np.ndarray,
    nearest: Nearest,
    least: float,
    pruned: np.ndarray,
    cosines: np.ndarray,
) -> None:
    """Writes the decisions file. least: the limit of similarity."""
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
               o.id AS partner_id, c.similarity, '{method}' AS method,
               NULL::BIGINT AS span_start, NULL::BIGINT AS span_end, {least!r}::DOUBLE AS threshold
        FROM copies c JOIN documents d USING (place) JOIN numbered r USING (root)
        LEFT JOIN documents o ON o.place = c.partner
        UNION ALL
        SELECT d.part, d.n, true, d.id, NULL, NULL, NULL, p.similarity, '{PROTOTYPICAL}',
               NULL, NULL, {least_pruned!r}::DOUBLE
        FROM pruned p JOIN documents d USING (place)
        ORDER BY part, n, method) TO {literal(path)} (FORMAT parquet)"""
    )
    for name in ("copies", "pruned"):
        db.unregister(name)
