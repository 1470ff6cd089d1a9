"""Functions in files of the user's: named `FILE.py:FUNCTION`, checked unrun, loaded in workers.

Whatever such code raises ends the run with one line that names its file and line.
"""

from __future__ import annotations

import importlib
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from curate.errors import RunFailed, UsageError
from curate.pages.html import plain
from curate.steps.sources import digest_of, file_sources, names_in

FORM = "FILE.py:FUNCTION"
MOST_SHOWN = 200  # characters of an exception, which may quote a document
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
            raise UsageError(
                f"{name} is in no file, where workers could find it: write it to one (in a notebook"
                f" by %%writefile my_rules.py) and name it: 'my_rules.py:{name}'"
            )
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
        return f"{_shown(self.path)}:{self.name}"

    def sources(self) -> dict[str, Path]:
        """The file and those beside it that it imports, by module. UsageError where one of them
        cannot be read, or the file has no such function. Nothing is run."""
        try:
            sources, names = file_sources(self.path), names_in(self.path)
        except SyntaxError as error:
            where = _shown(Path(str(error.filename)))
            raise UsageError(f"{where}:{error.lineno}: {error.msg}") from None
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise UsageError(f"{self.shown}: cannot read the file ({reason})") from None
        if names is not None and self.name not in names:
            near = get_close_matches(self.name, names, 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"{_shown(self.path)} has no function {self.name!r}{hint}")
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
                place = f"{_shown(Path(file))}:{trace.tb_lineno}"
            trace = trace.tb_next
        reason = " ".join(plain(str(error), MOST_SHOWN).split())
        message = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        return RunFailed(f"{place}: {message} ({self.name}, {where})")


def is_function(text: str) -> bool:
    """Whether a text is of the form FILE.py:FUNCTION."""
    return _NAMED.fullmatch(text) is not None


def _shown(path: Path) -> str:
    """A path as from here where it lies below."""
    folder = Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
