"""Benchmarks and scripts: what they import of the packages is there, and smoke.py runs each."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted([*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("scripts/*.py")])
OURS = {"curate", "tokenize_kit", "train", "llmcurate", "pipelines", "benchmarks"}


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(module, name) of what code imports of ours, also in the code of processes that it starts,
    which stands in a string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant) and "import " in str(node.value):
            try:
                inner = ast.parse(str(node.value))
            except SyntaxError:
                continue  # prose
            yield from imports(inner)


@cache
def names_of(module: str) -> set[str] | None:
    """The names that a module binds; a package's are its modules too. None: there is none."""
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    names = {p.stem for p in path.iterdir()} if path.is_dir() else set()
    if not file.exists():
        return names if path.is_dir() else None
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return names


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.stem))
def test_imports_are_there(script: Path) -> None:
    tree = ast.parse(script.read_text(encoding="utf-8"))
    missing = [(m, name) for m, name in imports(tree) if name not in (names_of(m) or ())]
    assert missing == []


SMOKE = runpy.run_path(str(ROOT / "benchmarks" / "smoke.py"))


def test_every_script_is_a_benchmark_that_smoke_runs_or_is_named_as_none() -> None:
    scripts = {path.stem for path in ROOT.glob("benchmarks/*.py")}
    assert sorted([*SMOKE["BENCHMARKS"], *SMOKE["NO_BENCHMARKS"]]) == sorted(scripts)


def test_every_benchmark_is_named_on_a_page() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    text = "".join(path.read_text(encoding="utf-8") for path in pages)
    assert [name for name in SMOKE["BENCHMARKS"] if f"{name}.py" not in text] == []


def test_ten_commits_run_every_benchmark_a_minute_each() -> None:
    slices = [SMOKE["slice_of"](number) for number in range(SMOKE["SLICES"])]
    assert sorted(name for part in slices for name in part) == sorted(SMOKE["BENCHMARKS"])
    assert max(map(SMOKE["seconds"], slices)) <= 60
    assert SMOKE["slice_of"](1234) == slices[4]


@pytest.mark.parametrize(
    ("code", "good", "line"),
    [
        ("print('rows'); print('rate  5/s')", True, r"new: rate 5/s \(\d+ s of CPU\)"),
        ("import no_such_peer", True, "new: skipped, no_such_peer is not installed"),
        ("import curate.no_such_module", False, r"(?s)new: failed.*no_such_module.*"),
        ("raise SystemExit('the texts differ')", False, "(?s)new: failed.*the texts differ"),
    ],
)
def test_a_benchmark_has_a_line(
    code: str, good: bool, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new.py").write_text(code)
    run = SMOKE["run"]
    monkeypatch.setitem(run.__globals__, "HERE", tmp_path)
    monkeypatch.setitem(SMOKE["BENCHMARKS"], "new", (1, ""))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    well, printed = run("new")
    assert well is good and re.fullmatch(line, printed)
