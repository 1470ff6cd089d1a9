"""Benchmarks and scripts: what they import of the packages is there. None of them is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted([*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("scripts/*.py")])
OURS = {"curate", "tokenize_kit", "train", "kernel_cache", "pipelines", "benchmarks"}


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
