"""Seals: what is wrong with a file, and how many files a task compares."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from llmcurate.base.disk import seals
from llmcurate.base.disk.seals import CompareTask, compare, fault, seal, tasks


def test_files_are_compared_in_tasks_of_so_many_bytes_and_one_file_more(monkeypatch) -> None:
    monkeypatch.setattr(seals, "TASK_BYTES", 80)
    for sizes, groups in (
        ([40, 39, 1, 5], [[40, 39, 1], [5]]),
        ([79, 1, 80, 81], [[79, 1], [80], [81]]),
        ([None] * 9, [[None] * 8, [None]]),  # of unknown size: an eighth of a task
        ([], []),
    ):
        files = [(Path(f"f{n}"), [size, "x"]) for n, size in enumerate(sizes)]
        found = list(tasks(files))
        assert [[sealed[0] for _, sealed in task.files] for task in found] == groups
        assert [task.part for task in found] == [*range(len(groups))]


@pytest.mark.parametrize(
    ("sealed", "wrong"),
    [
        (None, None),
        (["sha256"], None),
        ([2, "0" * 32], "has 3 bytes and was written with 2"),
        ([3, "0" * 32], "is not what was written"),
        ([None, "0" * 64], "is not what was written"),
        ("damage", "has a damaged record"),
        ([3], "has a damaged record"),
    ],
)
def test_a_seal_fault_says_what_differs(tmp_path: Path, sealed, wrong: str | None) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    if sealed == ["sha256"]:
        sealed = [None, hashlib.sha256(b"abc").hexdigest()]
    sealed = seal(path) if sealed is None else sealed
    found = fault(path, sealed)
    assert (found is None) if wrong is None else (found is not None and wrong in found)
    assert compare(CompareTask(0, [[str(path), sealed]])).faults == (
        {str(path): found} if wrong else {}
    )


def test_without_content_sizes_alone_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    assert fault(path, [3, "0" * 32], content=False) is None
    assert fault(path, [4, "0" * 32], content=False) is not None
    assert "missing" in str(fault(tmp_path / "b", [3, "0" * 32]))
