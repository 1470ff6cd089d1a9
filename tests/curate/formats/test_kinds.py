"""Each format has a reader, a page of the documentation, and a known extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from curate.formats.kinds import FORMATS, PACKING, format_by_name

PROJECT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", FORMATS)
def test_a_line_of_the_table_is_a_reader_and_is_documented(name: str) -> None:
    kind = FORMATS[name]
    assert callable(kind.reader.read)
    assert f"`{name}`" in (PROJECT / "docs/inputs.md").read_text(encoding="utf-8")
    if kind.extra:
        settings = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
        assert f'\n{kind.extra} = ["{kind.package}>=' in settings


@pytest.mark.lab
def test_names_tell_a_format_whatever_the_packing() -> None:
    names = {
        "a.warc.gz": "archive", "a.warc.wat.gz": "wat", "a.warc.wet.gz": "archive",
        "a.jsonl.bz2": "jsonl", "A.WACZ": "wacz", "arXiv_src_1001_001.tar": "latex",
        "b.txt.xz": "text", "c.bin": None,
    }  # fmt: skip
    assert {name: format_by_name(name) for name in names} == names
    for ending in PACKING:
        for name in ("x.CSV", "X.csv"):
            assert format_by_name(name + ending) == format_by_name(name + ending.upper()) == "csv"


def test_readers_load_their_libraries_late(tmp_path: Path) -> None:
    script = (
        "import sys; from curate.formats.kinds import FORMATS;"
        " [f.reader for f in FORMATS.values()];"
        " print([f.package for f in FORMATS.values() if f.package in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=PROJECT
    )
    assert done.stdout.strip() == "[]", done.stderr
