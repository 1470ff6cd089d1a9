"""Only kernels that Python calls are cached.

numba inlines a kernel into its callers only if it compiles both in one process; a kernel from the
cache is called, which costs a filter more than the helper's own work.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
Name = tuple[str, str]  # module, function


def _decorator(node: ast.AST) -> str:
    """The njit decorator of a function, as text; "" for other nodes."""
    if isinstance(node, ast.FunctionDef):
        for decorator in node.decorator_list:
            if "njit" in (text := ast.unparse(decorator)):
                return text
    return ""


def _read(tree: ast.Module, module: str) -> tuple[dict[Name, str], set[Name]]:
    """(decorators of a module's kernels, what is named outside of kernels); one walk, since all
    modules have a million nodes."""
    kernels: dict[Name, str] = {}
    imported: dict[str, Name] = {}
    named: list[ast.Name | ast.Attribute] = []
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, inside = waiting.pop()
        if isinstance(node, ast.FunctionDef) and (decorator := _decorator(node)):
            kernels[module, node.name] = decorator
            inside = True
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {a.asname or a.name: (node.module, a.name) for a in node.names}
        elif isinstance(node, ast.Name | ast.Attribute) and not inside:
            named.append(node)
        if not inside or isinstance(node, ast.FunctionDef):
            waiting.extend((child, inside) for child in ast.iter_child_nodes(node))
    calls = set()
    for use in named:
        if isinstance(use, ast.Name):
            calls.add(imported.get(use.id, (module, use.id)))
        elif isinstance(use.value, ast.Name):
            calls.add((".".join(imported.get(use.value.id, ("", ""))), use.attr))
    return kernels, calls


@pytest.mark.lab
def test_kernels_that_only_kernels_call_are_not_cached() -> None:
    kernels: dict[Name, str] = {}
    by_python: set[Name] = set()
    packages = ("curate", "tokenize_kit", "train")
    paths = [path for name in packages for path in (ROOT / name).rglob("*.py")]
    for path in sorted(paths):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        source = path.read_text(encoding="utf-8")
        assert "from numba import njit" not in source, (
            f"{module}: llmcurate.base.kernels has the decorator"
        )
        defined, called = _read(ast.parse(source), module)
        kernels |= defined
        by_python |= called
    assert len(kernels) > 50
    cached = {name for name, decorator in kernels.items() if "cache=True" in decorator}
    assert cached - by_python == set()
    assert (kernels.keys() & by_python) - cached == set()
