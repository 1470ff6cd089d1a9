"""The source of a plug-in's step: which files it is written in, and a digest of what is in them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from curate.disk.files import text_digest


def source_digest(module: str) -> str | None:
    """A digest of a module and of all that it imports from its own package, or, of a module in no
    package, from files beside it. None for modules of curate, whose steps have a version, and for
    one that is in no file."""
    origin = getattr(sys.modules.get(module), "__file__", None)
    if module.split(".")[0] == "curate" or origin is None:
        return None
    path = Path(origin)
    up = module.count(".") + (path.name == "__init__.py")
    root = path.absolute().parents[up]
    package = module.split(".")[0] if up else None
    name = module if module != "__main__" else path.stem
    texts: dict[str, str] = {}
    waiting = [name]
    while waiting:
        name = waiting.pop()
        file = _file(root, name)
        if file is None or name in texts or package not in (None, name.split(".")[0]):
            continue
        texts[name] = file.read_text(encoding="utf-8")
        home = name if file.name == "__init__.py" else name.rpartition(".")[0]
        waiting += _imports(texts[name], home)
    return text_digest("\0".join(f"{n}\0{texts[n]}" for n in sorted(texts)), "xxh3-128")


def _file(root: Path, module: str) -> Path | None:
    base = root.joinpath(*module.split("."))
    paths = (base / "__init__.py", base.with_name(f"{base.name}.py"))
    return next((path for path in paths if path.is_file()), None)


def _imports(source: str, package: str) -> Iterator[str]:
    """The modules that a source may import: `from a import b` names a and a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            base = ".".join(filter(None, [*above, node.module]))
            yield from (base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names))
