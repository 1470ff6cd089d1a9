"""Python of others that a run executes: functions in files, and digests of its source.

A function of the user's is named `FILE.py:FUNCTION`, checked unrun and loaded in workers; whatever
it raises ends the run with one line that names its file and line. A plug-in's step is a module of a
package. Either is followed into what it imports from its own package, or, where it is in none, from
files beside it.
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

from curate.steps.failures import named, shown
from llmcurate.base.disk.files import cache_folder, text_digest, write_text
from llmcurate.base.errors import RunFailed, UsageError

FORM = "FILE.py:FUNCTION"
_NAMED = re.compile(r"(.+\.py):([^\W\d]\w*)", re.DOTALL)


@dataclass(frozen=True)
class FunctionInFile:
    """path: absolute, for a run may work in another folder."""

    path: Path
    name: str

    @classmethod
    def named(cls, text: str, folder: Path | None = None) -> FunctionInFile:
        """From FILE.py:FUNCTION, the file as from the recipe's folder or else from here. ValueError
        where the text is of another form."""
        match = _NAMED.fullmatch(text)
        if match is None or "://" in text:
            raise ValueError(f"write {FORM}, as in my_rules.py:keep")
        path = Path(match[1]).expanduser()
        if folder is not None and (folder / path).is_file():
            path = folder / path
        return cls(path.resolve(), match[2])

    @classmethod
    def of(cls, function: Callable[..., Any]) -> FunctionInFile:
        """Of a function object. UsageError for one that no file has under a name of its own."""
        name = getattr(function, "__qualname__", repr(function))
        file = getattr(getattr(function, "__code__", None), "co_filename", "")
        if not str(file).endswith(".py") or not Path(file).is_file():
            if not name.isidentifier() or function.__code__.co_freevars:
                raise UsageError(
                    f"{name} cannot be shipped to workers: write it as `def` at the top"
                )
            return cls(_written(function), name)
        if not name.isidentifier():
            raise UsageError(
                f"{name} of {file} has no name of its own there: make it a function of the module"
            )
        return cls(Path(file).resolve(), name)

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"

    @property
    def shown(self) -> str:
        """The name for messages."""
        return f"{shown(self.path)}:{self.name}"

    def sources(self) -> dict[str, Path]:
        """The file and those beside it that it imports, by module. UsageError where one of them
        cannot be read, or the file has no such function. Nothing is run."""
        try:
            sources, names = file_sources(self.path), names_in(self.path)
        except SyntaxError as error:
            where = shown(Path(str(error.filename)))
            raise UsageError(f"{where}:{error.lineno}: {error.msg}") from None
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise UsageError(f"{self.shown}: cannot read the file ({reason})") from None
        if names is not None and self.name not in names:
            near = get_close_matches(self.name, names, 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"{shown(self.path)} has no function {self.name!r}{hint}")
        return sources

    def digest(self) -> str:
        """A digest of the sources."""
        return digest_of(self.sources())

    def load(self) -> Callable[..., Any]:
        """The function, by running its file. RunFailed names what went wrong there."""
        sources = self.sources()
        files = {str(path) for path in sources.values()}
        for name, module in list(sys.modules.items()):
            if getattr(module, "__file__", None) in files:
                del sys.modules[name]  # of an earlier run, it may have been edited since
        module = types.ModuleType(f"_{self.path.stem}_of_recipe")
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module
        folder = str(self.path.parent)
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        try:
            exec(compile(self.path.read_bytes(), str(self.path), "exec"), module.__dict__)
            function = getattr(module, self.name)
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            raise self.failure(error, "when its file was run") from error
        finally:
            sys.path.remove(folder)
        # What it imports later is still found, but no file there stands before a library.
        if folder not in sys.path:
            sys.path.append(folder)
        if not callable(function):
            raise UsageError(f"{self.shown} is no function")
        return function  # type: ignore[no-any-return]

    def failure(self, error: BaseException, where: str) -> RunFailed:
        """The line of an exception that the code raised. where: what it was about."""
        place, trace = self.shown, error.__traceback__
        files = {str(path) for path in self.sources().values()}
        while trace is not None:
            file = trace.tb_frame.f_code.co_filename
            if file in files:
                place = f"{shown(Path(file))}:{trace.tb_lineno}"
            trace = trace.tb_next
        return RunFailed(f"{place}: {named(error)} ({self.name}, {where})")


def _written(function: Callable[..., Any]) -> Path:
    """A file in the cache, named for its content, with a function of a notebook and all that it
    uses. UsageError names what has no source."""
    parts: dict[str, str] = {}
    _collect(function.__name__, function, parts)
    text = "\n".join(["from __future__ import annotations", *parts.values()])
    path = cache_folder() / "functions" / text_digest(text)[:16] / "notebook.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


def _collect(name: str, value: Any, parts: dict[str, str]) -> None:
    """Adds the source of a value, behind those of the names that it uses."""
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
                f"the source of {name} is not known here: write it to a file (in a notebook by"
                f" %%writefile my_rules.py) and name it: 'my_rules.py:{name}'"
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
            f"the function uses {name}, a {type(value).__name__} that workers do not have: make it"
            " in the function, or write both to a file (in a notebook by %%writefile my_rules.py)"
        )
    del parts[name]  # behind what it uses
    parts[name] = text


def is_function(text: str) -> bool:
    """Return whether a text is of the form FILE.py:FUNCTION."""
    return _NAMED.fullmatch(text) is not None


# Sources.


def source_digest(module: str) -> str | None:
    """A digest of a module and of all that it imports from its own package, or, of a module in no
    package, from files beside it. None for one that is in no file."""
    origin = getattr(sys.modules.get(module), "__file__", None)
    if origin is None:
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
