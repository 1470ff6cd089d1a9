"""Overlap of methods, on runs written by hand."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from curate.documents.edits import EDIT
from curate.lab.evaluate.comparison import overlap
from llmcurate.base.messages import json_values


def write_run(out: Path, kept: dict[str, list[str]], gone: dict[str, str]) -> Path:
    """kept: id -> steps that edited it; gone: id -> step that dropped it."""
    for name in ("corpus", "rejected"):
        (out / name).mkdir(parents=True)
    edits = [
        [{"step": s, "rule": "r", "start": 0, "end": 1, "replacement": None} for s in steps]
        for steps in kept.values()
    ]
    table = {"id": list(kept), "edits": pa.array(edits, pa.list_(EDIT))}
    pq.write_table(pa.table(table), out / "corpus/part-00000.parquet")
    table = {"id": list(gone), "step": list(gone.values())}
    pq.write_table(pa.table(table), out / "rejected/part-00000.parquet")
    return out


def test_shares_are_of_what_the_method_of_the_row_removed(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", {"1": [], "2": []}, {"3": "x", "4": "x", "9": "read"})
    second = write_run(
        tmp_path / "b", {"1": ["pii"], "2": ["y"], "3": ["y"]}, {"4": "y", "9": "read"}
    )
    third = write_run(tmp_path / "c", {"1": [], "2": [], "3": [], "4": []}, {"9": "read"})
    runs = {"a": (first, ["x"]), "b": (second, ["y"]), "c": (third, ["z"])}
    table = overlap(runs, tmp_path / "spill")
    assert table.methods == ["a", "b", "c"]
    assert (table.removed, table.changed) == ([2, 1, 0], [2, 3, 0])
    assert table.both == [[2, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert table.both_changed == [[2, 2, 0], [2, 3, 0], [0, 0, 0]]
    assert table.cuts
    assert json_values(table)["share_removed_too"] == [[1, 0.5, 0], [1, 1, 0], [None, None, None]]
    assert json_values(table)["share_changed_too"][1] == [0.666667, 1, 0]
