"""The start of our processes: no file of the user's is imported in place of a module.

`python llmcurate/base/start.py MODULE ARGUMENTS` calls MODULE's `main`. The working folder, which
`python -m` puts first on the path of modules, is off it. A notebook keeps its folder there: a file
in it that hides a module which ours need is an error that names the file.

pandas is for those who use it (`late_pandas`). pyarrow asks for it as soon as it converts a
value, which might be one of pandas', and so each process that makes an array would load it, for a
quarter of a second.
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
HOME = os.path.dirname(os.path.dirname(HERE))  # the folder of our packages
OURS = {"curate", "llmcurate", "tokenize_kit", "train"}
_hiding: list[str] = []  # the user's folders on the path of modules, before the libraries
plug_ins: set[str] = set()  # modules of the user's that we are to load


class _Finder:
    """Finds our packages for each other; ImportError names a file that hides a module from them."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        own = name in OURS
        hiding = PathFinder.find_spec(name, _hiding) if path is None else None
        file = hiding.origin if hiding else None
        if path is not None or not (own or file) or name in plug_ins:
            return None
        by = [module.partition(".")[0] for module in importers(sys._getframe(1))]
        if OURS.isdisjoint(by[:1] if own else by[: [*by, "__main__"].index("__main__")]):
            return None
        folders = [HOME] if own else [folder for folder in sys.path if folder not in _hiding]
        known = PathFinder.find_spec(name, folders)
        if file and known:
            raise ImportError(f"{file} hides the module {name} that llmcurate needs: rename it")
        return known if own else None


def importers(frame: FrameType | None) -> list[str]:
    """The modules whose code an import is made for, the nearest first. frame: that asks for it."""
    names = []
    while frame is not None:
        names.append(str(frame.f_globals.get("__name__")))
        frame = frame.f_back
    return [n for n in names if n.partition(".")[0] not in ("importlib", "_frozen_importlib")]


def watch() -> None:
    """Look at the imports of this process from now on."""
    module = sys.orig_argv[sys.orig_argv.index("-m") + 1] if "-m" in sys.argv[:1] else ""
    if module.partition(".")[0] in OURS:  # `python -m llmcurate`, which is about to be loaded
        leave_folder()
    script = getattr(sys.modules["__main__"], "__file__", None) or ""
    folders = {os.path.realpath(folder) for folder in ("", os.path.dirname(script))}
    folders -= {HOME, HERE, os.path.realpath(os.path.dirname(sys.executable))}  # its scripts
    _hiding[:] = [p for p in _parts_of_path()[0] if os.path.realpath(p) in folders]
    sys.meta_path.insert(sys.meta_path.index(PathFinder), _Finder)


def leave_folder() -> None:
    """Take the working folder off the path of modules; if PYTHONPATH names it, to the end of it."""
    working = os.path.realpath("")
    front, rest = _parts_of_path()
    sys.path[:] = [p for p in front if os.path.realpath(p) not in {working, HERE} - {HOME}] + rest
    named = (os.environ.get("PYTHONPATH") or HOME).split(os.pathsep)
    if working in map(os.path.realpath, named) and working not in sys.path:
        sys.path.append(working)
    _hiding.clear()


def _parts_of_path() -> tuple[list[str], list[str]]:
    """The path of modules before Python's own library, and from there on."""
    library = os.path.dirname(os.__file__)
    start = sys.path.index(library) if library in sys.path else 0
    return sys.path[:start], sys.path[start:]


def command(module: str, *arguments: str) -> list[str]:
    """The command line of a process that calls `main` of a module."""
    return [sys.executable, os.path.join(HERE, "start.py"), module, *arguments]


# Packages that import no pandas: where one of them seems to, pyarrow or DuckDB does, from C.
_WITHOUT_PANDAS = {*OURS, "pyarrow", "duckdb"}


def late_pandas() -> None:
    """Hide pandas from modules of ours in this process, a worker or the command; the first other
    module that imports it, such as a plug-in's, gets it, and pyarrow is told."""
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
                _tell_arrow()

            spec.loader.exec_module = load  # type: ignore[method-assign]
        return spec


def _tell_arrow() -> None:
    """pyarrow, which may have looked in vain, takes series and such for what they are from now on;
    where it is what imports pandas, it holds the lock and needs nobody to say so."""
    api = getattr(sys.modules.get("pyarrow.lib"), "_pandas_api", None)
    if api is not None and not api._lock.locked():
        api.pd  # noqa: B018 (its getter looks again)


def main() -> None:
    """Call the `main` of the module that the command line names, with the rest of it."""
    sys.path += [HOME] if HOME not in sys.path else []
    del sys.argv[0]
    sys.exit(import_module(sys.argv[0]).main())


if __name__ == "__main__":
    leave_folder()
    sys.path.insert(0, HOME)
    from llmcurate.base import start  # by the name that all others import it by

    sys.path.remove(HOME)
    start.main()
