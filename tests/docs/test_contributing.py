"""The code of CONTRIBUTING.md's walk-through works as printed."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from curate.formats.kinds import FORMATS, Format

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def run(module: str, test: str, name: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tests of a walk-through, with its module under its name."""
    made = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, made)
    exec(compile(module, f"{name}.py", "exec"), made.__dict__)
    names: dict[str, Any] = {}
    exec(compile(test, f"test of {name}", "exec"), names)
    return [value for name, value in names.items() if name.startswith("test_")]


def blocks() -> list[str]:
    found = re.findall(r"^ +```python\n(.*?)^ +```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    return [textwrap.dedent(block) for block in found]


def test_the_filter_of_the_walk_through_passes_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = run(*blocks()[:2], "curate.filters.capitals", monkeypatch)
    assert len(claims) == 2
    for claim in claims:
        claim()


def test_the_reader_of_the_walk_through_passes_its_test(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read = Format("srt", "curate.formats.srt", endings=(".srt",))
    monkeypatch.setitem(FORMATS, "srt", read)
    (claim,) = run(*blocks()[2:], "curate.formats.srt", monkeypatch)
    claim(tmp_path)
