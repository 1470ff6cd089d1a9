"""Which kernels are cached: those that Python calls, and no others.

numba inlines a kernel into its callers only where it compiles both in one process; one that comes
from the cache is called, which costs a filter more than the helper's own work.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Name = tuple[str, str]  # module, function


def _decorator(node: ast.AST) -> str:
    """The njit decorator of a function, as text; "" for other nodes."""
    if isinstance(node, ast.FunctionDef):
        for decorator in node.decorator_list:
            if "njit" in (text := ast.unparse(decorator)):
                return text
    return ""


def _called(tree: ast.Module, module: str) -> Iterator[tuple[Name, bool]]:
    """(name, whether a kernel names it) of everything that a module's code names."""
    names: dict[str, Name] = {}
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = (node.module, alias.name)
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def visit(node: ast.AST, kernel: bool) -> Iterator[tuple[Name, bool]]:
        kernel = kernel or bool(_decorator(node))
        if isinstance(node, ast.Name):
            yield names.get(node.id, (module, node.id)), kernel
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield (modules.get(node.value.id, ""), node.attr), kernel
        for child in ast.iter_child_nodes(node):
            yield from visit(child, kernel)

    yield from visit(tree, False)


def test_kernels_that_only_kernels_call_are_not_cached() -> None:
    kernels: dict[Name, str] = {}
    by_python: set[Name] = set()
    packages = ("curate", "tokenize_kit", "train")
    paths = [path for name in packages for path in (ROOT / name).rglob("*.py")]
    for path in sorted(paths):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and (decorator := _decorator(node)):
                kernels[module, node.name] = decorator
        by_python |= {name for name, kernel in _called(tree, module) if not kernel}
    assert len(kernels) > 50
    cached = {name for name, decorator in kernels.items() if "cache=True" in decorator}
    assert cached - by_python == set()
    assert (kernels.keys() & by_python) - cached == set()
