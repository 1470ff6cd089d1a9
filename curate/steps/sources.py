"""Source that a run executes beside curate's: its files, and a digest of what is in them.

A plug-in's step is a module of a package, a function of the user's a file by its path. Either is
followed into what it imports from its own package, or, where it is in none, from files beside it.
The fields of a step of ours have a digest too, which says if the schema of recipes is still theirs.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from llmcurate.base.disk.files import text_digest
from llmcurate.base.start import HOME


def source_digest(module: str) -> str | None:
    """A digest of a module and of all that it imports from its own package, or, of a module in no
    package, from files beside it. None for modules of curate, whose steps have a version, and for
    one that is in no file."""
    origin = getattr(sys.modules.get(module), "__file__", None)
    if module.split(".")[0] == "curate" or origin is None:
        return None
    path = Path(origin)
    up = module.count(".") + (path.name == "__init__.py")
    name = module if module != "__main__" else path.stem
    package = module.split(".")[0] if up else None
    return digest_of(_sources(path.absolute().parents[up], {name: path}, package))


def file_sources(path: Path) -> dict[str, Path]:
    """A file by itself and what it imports from files beside it, by the names of modules. OSError,
    UnicodeDecodeError or SyntaxError where one of them cannot be read."""
    return _sources(path.parent, {path.stem: path}, None)


def digest_of(sources: dict[str, Path]) -> str:
    """A digest of modules' names and texts."""
    texts = (f"{name}\0{sources[name].read_text(encoding='utf-8')}" for name in sorted(sources))
    return text_digest("\0".join(texts), "xxh3-128")


def fields_digest(location: str, modules: Iterable[str]) -> str:
    """A digest of a class's location and of all that its modules say outside of functions: fields,
    constants, docstrings of classes. No module is loaded; one without a file has no lines."""
    lines = [location]
    for module in modules:
        lines += _outside_functions(module)
    return text_digest("\n".join(lines))[:16]


@cache
def _outside_functions(module: str) -> list[str]:
    lines: list[str] = []
    depth: float = math.inf  # of the function or import that a line belongs to
    path = Path(HOME, *module.split(".")).with_suffix(".py")
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        indent = len(line) - len(line.lstrip())
        if line.strip() and (indent < depth or (indent == depth and line[indent] not in ")]}")):
            left_out = line.lstrip().startswith(("def ", "async ", "@", "import ", "from ", "#"))
            depth = indent if left_out else math.inf
        if depth == math.inf and line.strip():
            lines.append(line)
    return lines


def _sources(root: Path, first: dict[str, Path], package: str | None) -> dict[str, Path]:
    """Modules by name: the first one, and what they import below root."""
    sources: dict[str, Path] = {}
    waiting = list(first)
    while waiting:
        name = waiting.pop()
        file = first.get(name) or _file(root, name)
        if file is None or name in sources or package not in (None, name.split(".")[0]):
            continue
        sources[name] = file
        home = name if file.name == "__init__.py" else name.rpartition(".")[0]
        waiting += _imports(file, home)
    return sources


def _file(root: Path, module: str) -> Path | None:
    base = root.joinpath(*module.split("."))
    paths = (base / "__init__.py", base.with_name(f"{base.name}.py"))
    return next((path for path in paths if path.is_file()), None)


def _imports(file: Path, package: str) -> Iterator[str]:
    """The modules that a source may import: `from a import b` names a and a.b."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            base = ".".join(filter(None, [*above, node.module]))
            yield from (base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names))


def names_in(file: Path) -> list[str] | None:
    """The names that a file gives at its top: functions, classes, values, imports. None where it
    imports all that another module has. Nothing of it is run."""
    names: list[str] = []
    waiting: list[ast.AST] = list(ast.parse(file.read_text(encoding="utf-8"), str(file)).body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names += [(alias.asname or alias.name).split(".")[0] for alias in node.names]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        else:
            waiting += ast.iter_child_nodes(node)
    return None if "*" in names else names
