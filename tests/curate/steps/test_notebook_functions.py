"""Functions of a notebook: shipped with their source and with what they use."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from typing import Any

import pytest

from curate.steps.functions import FunctionInFile
from llmcurate.base.errors import UsageError

CELL = """\
import json as j
import re
LIMIT = 3
WORD = re.compile(r"\\w+")

def words(text):
    return len(WORD.findall(text))

def keep(text):
    return words(j.loads(text)) >= LIMIT

handle = object()

def lost(text):
    return handle
"""


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a text as a cell does: under a name that linecache knows. Returns its names."""
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path))

    def run(text: str) -> dict[str, Any]:
        linecache.cache["<cell>"] = (len(text), None, text.splitlines(True), "<cell>")
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(text, "<cell>", "exec"), names)
        return names

    return run


def test_a_function_comes_with_its_helpers_imports_and_values(cell: Any) -> None:
    function = FunctionInFile.of(cell(CELL)["keep"])
    loaded = function.load()
    assert loaded('"one two three"') and not loaded('"one"')
    assert loaded.__module__ not in sys.modules or loaded.__module__ != "__main__"


def test_editing_a_function_or_its_helper_recomputes_its_step(cell: Any) -> None:
    before = FunctionInFile.of(cell(CELL)["keep"])
    assert FunctionInFile.of(cell(CELL)["keep"]) == before
    for old, new in (("LIMIT = 3", "LIMIT = 4"), ("len(", "1 + len(")):
        assert FunctionInFile.of(cell(CELL.replace(old, new))["keep"]) != before


def test_values_that_workers_cannot_receive_are_named(cell: Any) -> None:
    with pytest.raises(UsageError, match="uses handle, a object that workers do not have"):
        FunctionInFile.of(cell(CELL)["lost"])
    with pytest.raises(UsageError, match="define it with `def` at the top"):
        FunctionInFile.of(eval(compile("lambda text: True", "<cell>", "eval")))


def test_a_function_without_a_known_source_is_refused_with_the_way_out(cell: Any) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def keep(text): return True", "<nowhere>", "exec"), names)
    with pytest.raises(UsageError, match=r"%%writefile my_rules\.py"):
        FunctionInFile.of(names["keep"])
