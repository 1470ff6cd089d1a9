"""The start of llmcurate's processes: no file of the user is imported instead of a library module.

`python llmcurate/base/start.py MODULE ARGUMENTS` calls MODULE's `main`. The working folder, which
`python -m` puts first on sys.path, is removed. In a notebook, it stays on sys.path. If a file in it
then hides a module that llmcurate needs, an ImportError names the file. pandas is loaded only for
code that uses it (`late_pandas`). Otherwise pyarrow would import pandas to convert any value, which
takes a quarter of a second per process.
"""
# ruff: noqa: PTH118, PTH120 (pathlib imports modules that may be hidden)

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder

TYPE_CHECKING = False  # typing may be hidden too
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import FrameType, ModuleType

HERE = os.path.dirname(os.path.realpath(__file__))
HOME = os.path.dirname(os.path.dirname(HERE))  # the folder that holds llmcurate's packages
OURS = {"curate", "llmcurate", "tokenize_kit", "train"}
_hiding: list[str] = []  # the user's folders that come before the libraries on sys.path
plug_ins: set[str] = set()  # modules of the user that llmcurate is asked to load


class _Finder:
    """Finder of llmcurate's packages. Its ImportError names a file that hides a needed module."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        own = name in OURS
        hiding = PathFinder.find_spec(name, _hiding) if path is None else None
        file = hiding.origin if hiding else None
        if path is not None or not (own or file) or name in plug_ins:
            return None
        packages = [module.partition(".")[0] for module in importers(sys._getframe(1))]
        if OURS.isdisjoint(
            packages[:1] if own else packages[: [*packages, "__main__"].index("__main__")]
        ):
            return None
        folders = [HOME] if own else [folder for folder in sys.path if folder not in _hiding]
        known = PathFinder.find_spec(name, folders)
        if file and known:
            raise ImportError(f"{file} hides the module {name} that llmcurate needs: rename it")
        return known if own else None


def importers(frame: FrameType | None) -> list[str]:
    """Return the modules whose imports led to `frame`, from its own module to the outermost one."""
    names = []
    while frame is not None:
        names.append(str(frame.f_globals.get("__name__")))
        frame = frame.f_back
    return [n for n in names if n.partition(".")[0] not in ("importlib", "_frozen_importlib")]


def watch() -> None:
    """From now on, check this process's imports for files that hide a needed module."""
    module = sys.orig_argv[sys.orig_argv.index("-m") + 1] if "-m" in sys.argv[:1] else ""
    if module.partition(".")[0] in OURS:  # `python -m llmcurate` is about to be loaded
        leave_folder()
    script = getattr(sys.modules["__main__"], "__file__", None) or ""
    folders = {os.path.realpath(folder) for folder in ("", os.path.dirname(script))}
    folders -= {HOME, HERE, os.path.realpath(os.path.dirname(sys.executable))}  # Python's scripts
    _hiding[:] = [p for p in _parts_of_path()[0] if os.path.realpath(p) in folders]
    sys.meta_path.insert(sys.meta_path.index(PathFinder), _Finder)


def leave_folder() -> None:
    """Remove the working folder from sys.path; if PYTHONPATH names it, move it to the end."""
    working = os.path.realpath("")
    front, rest = _parts_of_path()
    sys.path[:] = [p for p in front if os.path.realpath(p) not in {working, HERE} - {HOME}] + rest
    named = (os.environ.get("PYTHONPATH") or HOME).split(os.pathsep)
    if working in map(os.path.realpath, named) and working not in sys.path:
        sys.path.append(working)
    _hiding.clear()


def _parts_of_path() -> tuple[list[str], list[str]]:
    library = os.path.dirname(os.__file__)
    start = sys.path.index(library) if library in sys.path else 0
    return sys.path[:start], sys.path[start:]


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line of a process that calls a module's `main`."""
    return [sys.executable, os.path.join(HERE, "start.py"), module, *arguments]


# Packages whose Python code does not import pandas. An import that seems to come from them comes
# from C code of pyarrow or DuckDB.
_WITHOUT_PANDAS = {*OURS, "pyarrow", "duckdb"}


def late_pandas() -> None:
    """Hide pandas from llmcurate, pyarrow and DuckDB in this process. The first other module that
    imports pandas, such as a plug-in, gets pandas; pyarrow then looks for pandas again."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _LatePandas())


class _LatePandas:
    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name != "pandas":
            return None
        importer = importers(sys._getframe(1))[0]
        if importer.partition(".")[0] in _WITHOUT_PANDAS and importer != "pyarrow.pandas_compat":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        spec = PathFinder.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def load(module: ModuleType) -> None:
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                execute(module)
                # Make pyarrow look for pandas again, unless it is importing pandas itself: the lock
                # that the look-up needs is then held.
                api = getattr(sys.modules.get("pyarrow.lib"), "_pandas_api", None)
                if api is not None and not api._lock.locked():
                    api.pd  # noqa: B018 (its getter looks again)

            spec.loader.exec_module = load  # type: ignore[method-assign]
        return spec


def main() -> None:
    """Call `main` of the module that the command line names, with the remaining arguments."""
    sys.path += [HOME] if HOME not in sys.path else []
    del sys.argv[0]
    sys.exit(import_module(sys.argv[0]).main())


if __name__ == "__main__":
    leave_folder()
    sys.path.insert(0, HOME)
    from llmcurate.base import start  # under the name that all other modules use

    sys.path.remove(HOME)
    start.main()
