"""Clusters of copies: their sizes, similarities, and a few pairs side by side."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from curate.inspect.report.store import KEY, Histogram, Range, Store, edges_of, read_rows

PAIRS = 2  # by hash, besides the least similar one
CHARS = 20_000  # of each text that is compared
SIZES = (2, 3, 4, 5, 10, 20, 50, 100, 1000)  # a cluster counts for the last one it reaches
LARGEST = 5
FETCH = 100_000


@dataclass(frozen=True)
class Pair:
    """A dropped document and the one it was found to be a copy of."""

    id: str
    partner: str
    similarity: float
    text: str
    other: str


@dataclass
class Method:
    """One dedup's figures. sizes: clusters by the bound of SIZES that they reach; passages: whether
    members are passages, which were cut, and not whole documents, which were dropped; dropped: the
    members that went."""

    JSON = (
        "clusters", "members", "of", "dropped", "sizes", "largest", "unknown?",
        "unknown_whole?unknown", "similarity?",
    )  # fmt: skip
    name: str
    clusters: int = 0
    members: int = 0
    passages: bool = False
    unknown: int | None = None  # what went without a cluster: seen before, nobody knows where
    unknown_whole: int = 0  # of these, whole documents
    dropped: int = 0
    sizes: dict[int, int] = field(default_factory=dict)
    largest: list[tuple[int, str | None]] = field(default_factory=list)  # members, who stays
    similarity: Histogram | None = None
    pairs: list[Pair] = field(default_factory=list)

    @property
    def counted(self) -> bool:
        """Return whether it has anything to show."""
        return bool(self.members or self.unknown)

    @property
    def of(self) -> str:
        """The kind of its members."""
        return "passages" if self.passages else "documents"


def gather(store: Store) -> dict[str, Method]:
    """The figures of each method in decisions.parquet, by name."""
    if not store.has_decisions:
        return {}
    # A member went if it has a partner, or if no copy stays.
    store.db.execute(
        """CREATE OR REPLACE TEMP TABLE clusters AS
        SELECT method, cluster, count(*) AS size, min(kept_id) AS kept_id,
               count(*) FILTER (partner_id IS NOT NULL OR kept_id IS NULL) AS gone
        FROM decisions WHERE cluster IS NOT NULL GROUP BY method, cluster"""
    )
    methods = []
    for name, unknown, whole, spans in store.rows(
        """SELECT method, count(*) - count(cluster),
               count(*) FILTER (cluster IS NULL AND span_start IS NULL), count(span_start)
        FROM decisions GROUP BY method ORDER BY method"""
    ):
        ((clusters, members, gone),) = store.rows(
            """SELECT count(*), coalesce(sum(size), 0)::BIGINT, coalesce(sum(gone), 0)::BIGINT
            FROM clusters WHERE method = ?""",
            [name],
        )
        method = Method(name, clusters, members, spans > 0, unknown or None, whole, gone)
        for size, n in store.rows(
            "SELECT size, count(*) FROM clusters WHERE method = ? GROUP BY size ORDER BY size",
            [name],
        ):
            bound = max((s for s in SIZES if s <= size), default=SIZES[0])
            method.sizes[bound] = method.sizes.get(bound, 0) + n
        method.largest = store.rows(
            f"""SELECT size, kept_id FROM clusters WHERE method = ?
            ORDER BY size DESC, kept_id LIMIT {LARGEST}""",
            [name],
        )
        _similarities(store, method)
        methods.append(method)
    _pairs(store, methods)
    return {method.name: method for method in methods}


def _similarities(store: Store, method: Method) -> None:
    where = "FROM decisions WHERE method = ? AND similarity IS NOT NULL"
    ((least, most, n),) = store.rows(
        f"SELECT min(similarity), max(similarity), count(*) {where}", [method.name]
    )
    if not n or least == most:
        return
    method.similarity = edges_of(Range(False, n, least, most))
    at = store.db.execute(f"SELECT similarity {where}", [method.name])
    while rows := at.fetchmany(FETCH):
        method.similarity.add(np.array([r[0] for r in rows], np.float64))


def _pairs(store: Store, methods: list[Method]) -> None:
    chosen: dict[str, list[tuple[str, str, float]]] = {}
    for method in methods:
        if method.passages:
            continue  # what was cut stands among the examples of cuts
        part = """FROM decisions WHERE method = ? AND partner_id IS NOT NULL AND partner_id <> id
        AND partner_corpus IS NULL"""
        rows = store.rows(
            f"SELECT id, partner_id, similarity {part} ORDER BY similarity, {KEY}, id LIMIT 1",
            [method.name],
        )
        rows += store.rows(
            f"SELECT id, partner_id, similarity {part} ORDER BY {KEY}, id LIMIT {PAIRS}",
            [method.name],
        )
        unique = dict.fromkeys((a, b, 1.0 if s is None else s) for a, b, s in rows)
        most = 1 if method.similarity is None else PAIRS + 1
        chosen[method.name] = list(unique)[:most]
    ids = sorted({i for rows in chosen.values() for a, b, _ in rows for i in (a, b)})
    if not ids:
        return
    positions = store.find(ids)
    texts = read_rows(positions.values(), ["text"], CHARS)
    for method in methods:
        for a, b, similarity in chosen.get(method.name, ()):
            if a in positions and b in positions:
                first, second = (texts[positions[i]]["text"] or "" for i in (a, b))
                method.pairs.append(Pair(a, b, similarity, first, second))
