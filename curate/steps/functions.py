"""User functions that a run executes, and digests of their source.

A user's function is named `FILE.py:FUNCTION`. It is checked without being run, then loaded in
workers. An exception in it ends the run with one line that names file and line. A digest covers a
module and its imports from the same package or, for a file in no package, from files beside it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from curate.steps.failures import named, relative_path
from llmcurate.base.disk.files import cache_folder, text_digest, write_text
from llmcurate.base.errors import RunFailed, UsageError

FORM = "FILE.py:FUNCTION"
_NAMED = re.compile(r"(.+\.py):([^\W\d]\w*)", re.DOTALL)


@dataclass(frozen=True)
class FunctionInFile:
    """A function in a Python file."""

    path: Path  # absolute, because a run may work in another folder
    name: str

    @classmethod
    def named(cls, text: str, folder: Path | None = None) -> FunctionInFile:
        """Parse FILE.py:FUNCTION. The file is looked for in `folder` (the recipe's), then in the
        current folder. Raise ValueError for text of another form."""
        match = _NAMED.fullmatch(text)
        if match is None or "://" in text:
            raise ValueError(f"write {FORM}, as in my_rules.py:keep")
        path = Path(match[1]).expanduser()
        if folder is not None and (folder / path).is_file():
            path = folder / path
        return cls(path.resolve(), match[2])

    @classmethod
    def of(cls, function: Callable[..., Any]) -> FunctionInFile:
        """Return the place of a function. A notebook's function is written to a file. Raise
        UsageError for a function that is not at the top level or has no source."""
        name = getattr(function, "__qualname__", repr(function))
        code = getattr(function, "__code__", None)
        file = getattr(code, "co_filename", "")
        if not str(file).endswith(".py") or not Path(file).is_file():
            if code is None or not name.isidentifier() or code.co_freevars:
                raise UsageError(
                    f"{name} cannot be sent to workers: define it with `def` at the top level"
                )
            return cls(_written(function), name)
        if not name.isidentifier():
            raise UsageError(
                f"{name} in {file} is not a top-level function: define it at the top level"
            )
        return cls(Path(file).resolve(), name)

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"

    @property
    def shown(self) -> str:
        return f"{relative_path(self.path)}:{self.name}"

    def sources(self) -> dict[str, Path]:
        """Return {module name: path} for the file and the files beside it that it imports. No file
        is run. Raise UsageError if a file cannot be read or if the file lacks the function
        `name`."""
        try:
            sources = _sources(self.path.parent, {self.path.stem: self.path}, None)
            names = names_in(self.path)
        except SyntaxError as error:
            where = relative_path(Path(str(error.filename)))
            raise UsageError(f"{where}:{error.lineno}: {error.msg}") from None
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise UsageError(f"{self.shown}: cannot read the file ({reason})") from None
        if names is not None and self.name not in names:
            near = get_close_matches(self.name, names, 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"{relative_path(self.path)} has no function {self.name!r}{hint}")
        body = ast.parse(self.path.read_text(encoding="utf-8-sig")).body
        if any(isinstance(n, ast.AsyncFunctionDef) and n.name == self.name for n in body):
            raise UsageError(f"{self.shown} is an async function: define it by `def` alone")
        return sources

    def digest(self) -> str:
        return digest_of(self.sources())

    def parameters(self) -> set[str]:
        """Return the parameter names of the function `self.name`. They are collected from all
        functions with this name in the file and in the files that it imports. The file is not run.
        """
        trees = (
            ast.parse(path.read_text(encoding="utf-8-sig")) for path in self.sources().values()
        )
        nodes = (node for tree in trees for node in tree.body)
        same = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == self.name]
        return {part.arg for n in same for part in ast.walk(n.args) if isinstance(part, ast.arg)}

    def load(self) -> Callable[..., Any]:
        """Run the file and return the function. Raise RunFailed with the place of an error."""
        sources = self.sources()
        files = {str(path) for path in sources.values()}
        for name, module in list(sys.modules.items()):
            if getattr(module, "__file__", None) in files:
                del sys.modules[name]  # loaded by an earlier run; the file may have changed
        module = types.ModuleType(f"_{self.path.stem}_of_recipe")
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module
        folder = str(self.path.parent)
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        # Else a module edited twice within a second could be read as it was compiled before.
        written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            exec(compile(self.path.read_bytes(), str(self.path), "exec"), module.__dict__)
            function = getattr(module, self.name)
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            raise self.failure(error, "when its file was run") from error
        finally:
            sys.dont_write_bytecode = written
            sys.path.remove(folder)
        # Later imports still find files in the folder, but only if no library has that name.
        if folder not in sys.path:
            sys.path.append(folder)
        if not callable(function):
            raise UsageError(f"{self.shown} is not a function")
        return function  # type: ignore[no-any-return]

    def failure(self, error: BaseException, where: str) -> RunFailed:
        """Return a RunFailed for an exception in the function, with the file and line. where: what
        the run was doing, for the message."""
        place, trace = self.shown, error.__traceback__
        files = {str(path) for path in self.sources().values()}
        while trace is not None:
            file = trace.tb_frame.f_code.co_filename
            if file in files:
                place = f"{relative_path(Path(file))}:{trace.tb_lineno}"
            trace = trace.tb_next
        return RunFailed(f"{place}: {named(error)} ({self.name}, {where})")


def _written(function: Callable[..., Any]) -> Path:
    """Write a notebook's function, with everything it uses, to a file in the cache, and return the
    path. The name of the file depends on its content. Raise UsageError for an object without
    source."""
    parts: dict[str, str] = {}
    _collect(function.__name__, function, parts)
    text = "\n".join(["from __future__ import annotations", *parts.values()])
    path = cache_folder() / "functions" / text_digest(text)[:16] / "notebook.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


def _collect(name: str, value: Any, parts: dict[str, str]) -> None:
    if name in parts:
        return
    parts[name] = ""
    home = getattr(value, "__module__", None)
    written = isinstance(value, (type, types.FunctionType))
    if isinstance(value, types.ModuleType):
        text = f"import {value.__name__} as {name}"
    elif home not in (None, "__main__") and getattr(value, "__qualname__", "").isidentifier():
        text = f"from {home} import {value.__qualname__} as {name}"
    elif written:
        try:
            text = textwrap.dedent(inspect.getsource(value))
        except (OSError, TypeError):
            raise UsageError(
                f"the source of {name} is not available: write it to a file (in a notebook with"
                f" %%writefile my_rules.py) and give 'my_rules.py:{name}'"
            ) from None
        around = vars(sys.modules["__main__"]) | getattr(value, "__globals__", {})
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name) and node.id in around:
                _collect(node.id, around[node.id], parts)
    elif isinstance(value, re.Pattern):
        text = f"import re\n{name} = re.compile({value.pattern!r}, {value.flags})"
    else:
        with suppress(ValueError, SyntaxError):
            if ast.literal_eval(repr(value)) == value:
                parts[name] = f"{name} = {value!r}"
                return
        raise UsageError(
            f"the function uses {name}, a {type(value).__name__} that workers do not have: create"
            " it in the function, or write both to a file (in a notebook: %%writefile my_rules.py)"
        )
    del parts[name]  # moved after the names that it uses
    parts[name] = text


def is_function(text: str) -> bool:
    return _NAMED.fullmatch(text) is not None


def source_digest(module: str) -> str | None:
    """Return a digest of a module and its imports from its own package or, for a module in no
    package, from files beside it. None if the module has no file."""
    origin = getattr(sys.modules.get(module), "__file__", None)
    if origin is None:
        return None
    path = Path(origin)
    up = module.count(".") + (path.name == "__init__.py")
    name = module if module != "__main__" else path.stem
    package = module.split(".")[0] if up else None
    return digest_of(_sources(path.absolute().parents[up], {name: path}, package))


def digest_of(sources: dict[str, Path]) -> str:
    texts = (f"{name}\0{sources[name].read_text(encoding='utf-8')}" for name in sorted(sources))
    return text_digest("\0".join(texts), "xxh3-128")


def _sources(root: Path, first: dict[str, Path], package: str | None) -> dict[str, Path]:
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
    """Yield the modules that a source may import: `from a import b` names a and a.b."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8-sig"), str(file))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            base = ".".join(filter(None, [*above, node.module]))
            yield from (base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names))


def names_in(file: Path) -> list[str] | None:
    """Return the names defined at the top level of a file: functions, classes, values, imports.
    None if the file has a star import. The file is not run."""
    names: list[str] = []
    waiting: list[ast.AST] = list(ast.parse(file.read_text(encoding="utf-8-sig"), str(file)).body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names += [(alias.asname or alias.name).split(".")[0] for alias in node.names]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        else:
            waiting += ast.iter_child_nodes(node)
    return None if "*" in names else names
