"""The architecture: modules do not import each other in circles, even for types only."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterable, Iterator, Set
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("curate", "tokenize_kit", "train", "llmcurate")


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules that import each other, directly or through others (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[set[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(imports.get(module, ())):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            component = set()
            while module not in component:
                component.add(stack.pop())
            if len(component) > 1:
                components.append(component)

    for module in sorted(imports):
        if module not in index:
            visit(module)
    return components


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=False, cache_dir=None)
    return {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}


def test_no_modules_form_a_circle(imports: dict[str, set[str]]) -> None:
    new: Iterable[list[str]] = [sorted(c) for c in circles(imports)]
    assert list(new) == []


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}}) == [{"b", "c"}]


def statements(path: Path) -> Iterator[ast.AST]:
    """The statements of a file at any depth, without their expressions, which are most nodes."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, name, ())


def test_every_import_names_an_existing_module() -> None:
    """mypy passes over modules that are missing, and looks neither at tests nor at benchmarks."""
    folders = (*PACKAGES, "tests", "benchmarks", "scripts")
    missing = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.module}"
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        for node in statements(path)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        if node.module.split(".")[0] in (*PACKAGES, "tests")
        if not (ROOT / node.module.replace(".", "/")).with_suffix(".py").exists()
        and not (ROOT / node.module.replace(".", "/")).is_dir()
    ]
    assert missing == []


# Modules that write to a terminal's streams: the printers, data that is asked for as such (`-o -`),
# and the pipe by which a worker answers.
PRINTERS = {
    "llmcurate/base/terminal.py",
    "curate/cli/execution.py",
}
WORDS = ("print", "echo", "stdout", "stderr")  # one of which a file has that prints


def test_only_printers_print() -> None:
    """What strangers wrote reaches a terminal through llmcurate/base/terminal.py alone."""
    direct = [
        f"{name}:{node.lineno}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if (name := path.relative_to(ROOT).as_posix()) not in PRINTERS
        if any(word in (text := path.read_text(encoding="utf-8")) for word in WORDS)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        if ast.unparse(node.func) in ("print", "typer.echo", "typer.secho", "click.echo")
        or (
            ast.unparse(node.func).startswith(("sys.stdout.", "sys.stderr.", "traceback.print_"))
            and not ast.unparse(node.func).endswith((".isatty", ".fileno", ".flush"))
        )
    ]
    assert direct == []


def test_only_command_modules_of_curate_import_the_command_line() -> None:
    """Imports for types count."""
    importers = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "curate").rglob("*.py")
        if "cli" not in path.parts
        for node in statements(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("curate.cli")
    }
    assert importers == set()


def test_no_test_file_imports_from_another() -> None:
    """Shared code is in modules without tests."""
    borrowed = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in statements(path)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").rpartition(".")[2].startswith("test_")
    ]
    assert borrowed == []


def test_class_variables_have_a_type_as_pydantic_on_python_3_10_needs() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "ClassVar"
    ]
    assert bare == []


def _tables(table: symtable.SymbolTable, names: Set[str]) -> Iterator[symtable.SymbolTable]:
    """The scopes of these names directly or indirectly within each other."""
    for inner in table.get_children():
        if inner.get_name() in names:
            yield inner
            yield from _tables(inner, names)


def test_no_function_reads_a_global_by_the_name_of_a_variable_of_a_comprehension() -> None:
    """CPython 3.12.1 takes such a name for unbound where it inlines the comprehension (PEP 709)."""
    found = []
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        scopes = [symtable.symtable(path.read_text(encoding="utf-8"), str(path), "exec")]
        for scope in scopes:
            scopes += scope.get_children()
            inlined = list(_tables(scope, {"listcomp", "setcomp", "dictcomp"}))
            if scope.get_type() == "function":
                bound, read = (
                    {s.get_name() for t in tables for s in t.get_symbols() if which(s)}
                    for tables, which in (
                        (inlined, symtable.Symbol.is_assigned),
                        ([scope, *inlined], symtable.Symbol.is_global),
                    )
                )
                found += [f"{path}:{scope.get_lineno()}: {name}" for name in sorted(bound & read)]
    assert found == []
