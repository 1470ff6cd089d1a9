"""Workspaces: the newest run by its number, and the folder that the next one takes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from curate.run.ledger import Ledger
from curate.run.workspace import Workspace, create, find
from llmcurate.base.errors import UsageError


def made(folder: Path, *names: str, mark: str = "corpus.json") -> Workspace:
    """A workspace with runs of these names, each of which holds a file."""
    for name in names:
        path = folder / "runs" / name / mark
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return Workspace(folder, folder / "runs")


def test_the_newest_run_is_the_one_with_the_greatest_number(tmp_path: Path) -> None:
    workspace = made(tmp_path, "0009-z", "10000-a", "0010-b", "notes", "99-short", "0011")
    made(tmp_path, "10001-empty", mark="log")
    made(tmp_path, "10002-encode", mark="manifest.json")
    assert [n for n, _ in workspace.numbered()] == [9, 10, 10000, 10001, 10002]
    assert workspace.newest("corpus") == (10000, tmp_path / "runs/10000-a")
    assert workspace.need("shards").name == "10002-encode" and workspace.newest("model") is None
    with pytest.raises(UsageError, match=r"no model in .* yet: run `llmcurate pretrain` first"):
        workspace.need("model")


def test_folders_set_aside_by_a_restart_are_not_counted_as_runs(tmp_path: Path) -> None:
    workspace = made(tmp_path, "0001-a", "0001-a.1", "0002-v1.5", "0003-b.2")
    assert [p.name for _, p in workspace.numbered()] == ["0001-a", "0002-v1.5", "0003-b.2"]


def test_a_run_continues_in_its_folder_and_another_takes_the_next_number(tmp_path: Path) -> None:
    assert Workspace(tmp_path, tmp_path / "none").out_for("a", "x").name == "0001-a"
    workspace = made(tmp_path, "0007-a", "0003-a", "0005-b")
    for name in ("0003-a", "0005-b"):
        ledger = Ledger(tmp_path / "runs" / name)
        ledger.begin_run("x")
        ledger.close()
    with sqlite3.connect(tmp_path / "runs/0007-a/ledger.db") as db:
        db.execute("CREATE TABLE other (a)")
    assert workspace.out_for("a", "x").name == "0003-a"
    assert workspace.out_for("b", "x").name == "0005-b"
    assert (
        workspace.out_for("a", "y").name == workspace.out_for("c", "x").name[:5] + "a" == "0008-a"
    )


def test_the_nearest_workspace_above_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a/b"
    create(tmp_path)
    create(inner)
    (inner / "llmcurate.yaml").write_text("runs: out\nworkers: 3\n")
    (inner / "deep").mkdir()
    assert find(inner / "deep") == Workspace(inner, inner / "out", 3)
    assert find(tmp_path / "a") == Workspace(tmp_path, tmp_path / "runs", 0)
    assert create(tmp_path) == [] and find(Path("/")) is None
