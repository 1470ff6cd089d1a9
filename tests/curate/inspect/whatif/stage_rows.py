"""What stages stored, and which documents must be measured or sketched again, from that alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from curate.corpus.stage_files import part_path

Rows = dict[tuple[int, int], dict[str, Any]]
NEVER = 99
EDITING = {"c4", "newline_runs", "pii"}  # of the steps in these tests


def folders(out: Path) -> list[Path]:
    """The folders of a run's stages."""
    record = json.loads((out / "run.json").read_text())
    return [out / "stages" / s["folder"] for s in record["stages"]]


def stored(folder: Path, kind: str) -> Rows:
    """Rows by partition and number; no list of edits is an empty one."""
    found = {}
    for path in sorted(folder.glob(f"part-*.{kind}.parquet")):
        part = int(path.name.split(".")[0][5:])
        table = pq.read_table(path)
        inner = table if kind == "rejected" else pq.read_table(part_path(folder, part, "keys"))
        for n, row in zip(inner["_n"].to_pylist(), table.to_pylist(), strict=True):
            found[part, n] = row | {"edits": row["edits"] or []}
    return found


def other(old: Rows, new: Rows) -> list[tuple[int, int]]:
    """Those that were not there, or otherwise."""
    return [key for key, row in new.items() if key not in old or old[key] != row]


def to_measure(
    old: list[Path], new: list[Path], k: int, chain: list[str], applied: bool
) -> set[tuple[int, int]]:
    """Documents of stage k of two runs that the second must measure again: new to the stage or with
    another row (columns of steps apart), cut otherwise by the applied step (the chain's first), or
    with a step that edits between their first marks in the two."""
    entered = [_without_columns(stored(f[k - 1], "kept")) for f in (old, new)] if k else [{}, {}]
    again = set(other(*entered))
    sides = [stored(f[k], "kept") | stored(f[k], "rejected") for f in (old, new)]
    edits = [i for i, step in enumerate(chain) if step in EDITING]
    for key in sides[0].keys() & sides[1].keys():
        rows = [side[key] for side in sides]
        first = [chain.index(r["step"]) if "step" in r else NEVER for r in rows]
        if any(r.get("step") == "read" for r in rows):
            continue
        cuts = [[e for e in r["edits"] if applied and e["step"] == chain[0]] for r in rows]
        if cuts[0] != cuts[1] or any(min(first) <= p < max(first) for p in edits):
            again.add(key)
    return again


def _without_columns(rows: Rows) -> Rows:
    return {k: {n: v for n, v in row.items() if "." not in n} for k, row in rows.items()}


def to_sketch(old: Path, new: Path) -> int:
    """Kept documents of a stage that are new to its sketches, or otherwise."""
    return len(other(stored(old, "kept"), stored(new, "kept")))
