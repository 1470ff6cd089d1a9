"""Finding files that may have changed since the last check."""

from __future__ import annotations

import os
from pathlib import Path

from curate.run.intact import changed_after, newest


def test_a_file_as_old_as_the_last_check_counts_as_unchanged(tmp_path: Path) -> None:
    path, gone = tmp_path / "a", tmp_path / "gone"
    path.touch()
    os.utime(path, ns=(0, 1000))
    for at, changed in ((999, [path, gone]), (1000, [gone]), (1001, [gone])):
        files = [(path, [0, "x"]), (gone, [0, "y"])]
        assert [file for file, _ in changed_after(at, files)] == changed
    assert newest([path]) == 1000 and newest([]) == 0
