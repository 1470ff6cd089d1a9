"""From band keys to decisions: buckets, edges, components and survivors, in DuckDB.

Every candidate (a document that shares a bucket) gets a number k, its place in the order in which
copies are preferred. All that follows is in terms of k, so it does not depend on the order of the
input, and the survivor of a component is its least k.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.database import literal

BATCH = 1_000_000


def find_candidates(db: Any, order: str) -> int:
    """Makes the tables candidates (k, part, n, id) and buckets (key, k); returns the candidates.

    sketches.bands: list of uint64, empty for documents without shingles. Keys of different bands
    differ, so buckets of all bands are grouped at once.
    """
    db.execute(
        """CREATE OR REPLACE TABLE members AS
        WITH keys AS (SELECT part, n, unnest(bands) AS key FROM sketches),
             shared AS (SELECT key FROM keys GROUP BY key HAVING count(*) > 1)
        SELECT part, n, key FROM keys SEMI JOIN shared USING (key)"""
    )
    db.execute(
        f"""CREATE OR REPLACE TABLE candidates AS
        SELECT row_number() OVER (ORDER BY {order}) - 1 AS k, part, n, id
        FROM sketches SEMI JOIN members USING (part, n)"""
    )
    db.execute(
        """CREATE OR REPLACE TABLE buckets AS
        SELECT key, k FROM members JOIN candidates USING (part, n)"""
    )
    db.execute("DROP TABLE members")
    return int(db.execute("SELECT count(*) FROM candidates").fetchone()[0])


def bucket_edges(db: Any) -> None:
    """Makes the table edges (k, other, weight): each member of a bucket with the most preferred
    one; weight: in how many buckets it is so."""
    db.execute(
        """CREATE OR REPLACE TABLE edges AS
        WITH heads AS (SELECT key, min(k) AS other FROM buckets GROUP BY key)
        SELECT k, other, count(*)::DOUBLE AS weight
        FROM buckets JOIN heads USING (key) WHERE k <> other GROUP BY k, other"""
    )


def keep_best_edge(db: Any) -> None:
    """One edge a document, to the most similar of those before it: what `first` decides by."""
    db.execute(
        """CREATE OR REPLACE TABLE edges AS SELECT k, other, weight FROM edges
        QUALIFY row_number() OVER (PARTITION BY k ORDER BY weight DESC, other) = 1"""
    )


def batches(db: Any, query: str, rows: int = BATCH) -> Iterator[pa.RecordBatch]:
    """The result of a query in Arrow batches; meanwhile the connection is free for others."""
    relation = db.cursor().sql(query)
    modern = hasattr(relation, "to_arrow_reader")  # else a DuckDB of 2025 or before
    yield from relation.to_arrow_reader(rows) if modern else relation.fetch_arrow_reader(rows)


def components(count: int, pairs: Iterator[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """int64[count]: of each of `count` nodes the least node of its connected component.

    Takes the edges batch by batch: memory is for the nodes and one batch.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    labels = np.arange(count)
    for left, right in pairs:
        ones = np.ones(len(left), np.int8)
        graph = coo_array((ones, (labels[left], labels[right])), shape=(count, count))
        labels = connected_components(graph, directed=False)[1][labels]
    _, least = np.unique(labels, return_index=True)
    roots: np.ndarray = least[np.unique(labels, return_inverse=True)[1]].astype(np.int64)
    return roots


def find_roots(db: Any, count: int) -> None:
    """Makes the table roots (k, root) of documents in components of two or more."""
    pairs = (
        (b.column(0).to_numpy(), b.column(1).to_numpy())
        for b in batches(db, "SELECT k, other FROM edges")
    )
    root = components(count, pairs)
    sizes = np.bincount(root, minlength=count)
    k = np.flatnonzero(sizes[root] > 1)
    found = pa.table({"k": k, "root": root[k]})
    db.register("found_roots", found)
    db.execute("CREATE OR REPLACE TABLE roots AS SELECT k, root FROM found_roots")
    db.unregister("found_roots")


def write_decisions(db: Any, path: Path, similarity: str, forward: bool) -> dict[str, int]:
    """Writes the decisions on all members of components; returns counts.

    similarity: SQL over p.weight, the weight of the edge to the partner, and `shared`, the number
    of buckets that both are in; forward: partners are only those preferred to the document.
    """
    both = "" if forward else "UNION ALL SELECT other AS k, k AS other, weight FROM edges"
    db.execute(
        f"""CREATE OR REPLACE TABLE partners AS
        WITH directed AS (SELECT k, other, weight FROM edges {both})
        SELECT k, other, weight FROM directed JOIN roots USING (k) WHERE k <> root
        QUALIFY row_number() OVER (PARTITION BY k ORDER BY weight DESC, other) = 1"""
    )
    db.execute(
        f"""CREATE OR REPLACE TABLE matches AS
        SELECT p.k, p.other, {similarity} AS similarity
        FROM partners p LEFT JOIN (
          SELECT k, count(*) AS shared FROM partners q
          JOIN buckets x USING (k) JOIN buckets y ON y.k = q.other AND y.key = x.key GROUP BY k
        ) s ON s.k = p.k"""
    )
    db.execute(
        """CREATE OR REPLACE TABLE numbered AS
        SELECT k AS root, id AS kept_id, row_number() OVER (ORDER BY id) - 1 AS cluster
        FROM candidates SEMI JOIN (SELECT root AS k FROM roots) USING (k)"""
    )
    db.execute(
        f"""COPY (
        SELECT c.part, c.n, c.k <> r.root AS drop, c.id, d.cluster::BIGINT AS cluster, d.kept_id,
               o.id AS partner_id, m.similarity::DOUBLE AS similarity, 'minhash' AS method,
               NULL::BIGINT AS span_start, NULL::BIGINT AS span_end
        FROM roots r JOIN candidates c USING (k) JOIN numbered d ON d.root = r.root
        LEFT JOIN matches m ON m.k = r.k LEFT JOIN candidates o ON o.k = m.other
        ORDER BY c.part, c.n) TO {literal(path)} (FORMAT parquet)"""
    )
    clusters, members = db.execute("SELECT count(DISTINCT root), count(*) FROM roots").fetchone()
    return {"clusters": clusters, "members": members, "dropped": members - clusters}
