"""CONTRIBUTING.md: the code of its walk-through works as it stands there."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def test_the_filter_of_the_walk_through_passes_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^ +```python\n(.*?)^ +```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    module, test = (textwrap.dedent(block) for block in blocks)
    capitals = ModuleType("curate.filters.capitals")
    monkeypatch.setitem(sys.modules, capitals.__name__, capitals)
    exec(compile(module, "capitals.py", "exec"), capitals.__dict__)
    names: dict[str, object] = {}
    exec(compile(test, "test_capitals.py", "exec"), names)
    claims = [value for name, value in names.items() if name.startswith("test_")]
    assert len(claims) == 2
    for claim in claims:
        assert callable(claim)
        claim()
