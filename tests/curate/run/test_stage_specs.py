"""A stage's specification: its paths hold wherever its folder lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from curate.run.worker.specification import absolute, relative_paths, relocate

FILES = ["lists/a.txt", "/m/x/tokenizer.json", "/m/en.bin", "/m/th.bin", "odd=name.txt"]


@pytest.mark.parametrize(
    ("setting", "want"),
    [
        ("lists/a.txt", "/root/here/lists/a.txt"),
        ("@lists/a.txt", "@/root/here/lists/a.txt"),
        ("set=lists/a.txt", "set=/root/here/lists/a.txt"),
        ("odd=name.txt", "/root/here/odd=name.txt"),
        ("/m/x", "/root/m/x"),
        ("/m/x/", "/root/m/x"),
        ("/m/{lang}.bin", "/root/m/{lang}.bin"),
        ("/other/{lang}.bin", "/other/{lang}.bin"),
        ("list", "list"),
        ("lists/a.tx", "lists/a.tx"),
        ("", ""),
        ("@", "@"),
        (3, 3),
        (None, None),
    ],
)
def test_settings_name_their_files_below_a_workers_root(monkeypatch, setting, want):
    monkeypatch.setattr(Path, "cwd", lambda: Path("/here"))
    assert relocate(setting, FILES, "/root") == want
    assert relocate({"k": [setting, "text"], "lists/a.txt": 1}, FILES, "/root") == {
        "k": [want, "text"],
        "/root/here/lists/a.txt": 1,
    }


def test_paths_come_back_from_where_the_folder_is_now():
    spec = {
        "input": "/out/stages/0",
        "ids": None,
        "decisions": "/out/stages/0/d.parquet",
    }
    kept = relative_paths(spec, Path("/out/stages/1"), os.path.relpath)
    assert "/out" not in str(kept)
    assert relative_paths(kept, Path("/out/stages/1"), absolute) == spec
    there = relative_paths(kept, Path("/root/out/stages/1"), absolute)
    assert there["input"] == "/root/out/stages/0"
