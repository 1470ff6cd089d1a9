"""How much of what one method removes another removes too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from curate.disk.database import database, literal, paths_literal
from curate.documents.rejected import rejected_files


@dataclass(frozen=True)
class Overlap:
    """methods: in order; removed[a]: documents that method a removed, changed[a]: removed or cut a
    passage of; both[a][b]: removed by a and by b, both_changed likewise."""

    methods: list[str]
    removed: list[int]
    both: list[list[int]]
    changed: list[int]
    both_changed: list[list[int]]

    @property
    def cuts(self) -> bool:
        """Whether any method cut passages out of documents that stay."""
        return self.changed != self.removed

    def dump(self) -> dict[str, Any]:
        """As JSON values; shares are of what the method of the row removed."""
        return {
            "methods": self.methods,
            "removed": self.removed,
            "removed_by_both": self.both,
            "share_removed_too": shares(self.removed, self.both),
            "changed": self.changed,
            "changed_by_both": self.both_changed,
            "share_changed_too": shares(self.changed, self.both_changed),
        }


def shares(own: list[int], both: list[list[int]]) -> list[list[float | None]]:
    """both[a][b] / own[a]; None where a removed nothing."""
    return [[round(n / own[a], 6) if own[a] else None for n in row] for a, row in enumerate(both)]


def overlap(runs: Mapping[str, tuple[Path, list[str]]], spill: Path, threads: int = 1) -> Overlap:
    """The overlap of finished runs over the same input.

    runs: by method, OUT and the labels of its steps; documents are known by their ids, which all
    runs over one input share.
    """
    methods = list(runs)
    with database(spill, threads) as db:
        db.execute("CREATE TABLE gone (nth INTEGER, id VARCHAR, removed BOOLEAN)")
        for nth, (out, labels) in enumerate(runs.values()):
            _add(db, nth, out, labels)
        pairs = db.execute(
            """SELECT a.nth, b.nth, count(*), count(*) FILTER (a.removed AND b.removed)
            FROM gone a JOIN gone b USING (id) GROUP BY 1, 2"""
        ).fetchall()
    size = len(methods)
    both = [[0] * size for _ in methods]
    changed = [[0] * size for _ in methods]
    for a, b, any_, removed in pairs:
        changed[a][b], both[a][b] = any_, removed
    return Overlap(
        methods,
        [both[a][a] for a in range(size)],
        both,
        [changed[a][a] for a in range(size)],
        changed,
    )


def _add(db: Any, nth: int, out: Path, labels: list[str]) -> None:
    """Adds what the steps of one run removed or cut."""
    steps = "[" + ", ".join(literal(label) for label in labels) + "]"
    rejected = rejected_files(out)
    kept = sorted((out / "corpus").glob("part-*.parquet"))
    if rejected:
        db.execute(
            f"""INSERT INTO gone SELECT {nth}, id, true FROM read_parquet({paths_literal(rejected)})
            WHERE list_contains({steps}, step)"""
        )
    if kept and "edits" in pq.read_schema(kept[0]).names:
        mine = f"list_contains({steps}, e.step)"
        db.execute(
            f"""INSERT INTO gone SELECT {nth}, id, false FROM read_parquet({paths_literal(kept)})
            WHERE len(list_filter(edits, lambda e: {mine})) > 0"""
        )
