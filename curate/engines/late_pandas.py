"""pandas for those who use it: Arrow's first array does not load it.

pyarrow asks for pandas as soon as it converts a value, which might be one of pandas', and so each
process that makes an array loads it, for a quarter of a second. In processes of ours, workers and
the command, where `install` was called, it is not there for modules of ours; the first other module
that imports it, such as a plug-in's, gets it, and pyarrow is told.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from llmcurate.base.start import OURS, importers

NAME = "pandas"
# Packages that import no pandas: where one of them seems to, pyarrow or DuckDB does, from C.
WITHOUT = {*OURS, "pyarrow", "duckdb"}


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != NAME:
            return None
        importer = importers(sys._getframe(1))[0]
        if importer.partition(".")[0] in WITHOUT and importer != "pyarrow.pandas_compat":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        spec = PathFinder.find_spec(name, path, target)
        loader: Any = spec.loader if spec else None
        if loader is not None:
            execute = loader.exec_module

            def load(module: ModuleType) -> None:
                with suppress(ValueError):
                    sys.meta_path.remove(self)
                execute(module)
                _tell_arrow()

            loader.exec_module = load
        return spec


def _tell_arrow() -> None:
    """pyarrow, which may have looked in vain, takes series and such for what they are from now on;
    where it is what imports pandas, it holds the lock and needs nobody to say so."""
    api = getattr(sys.modules.get("pyarrow.lib"), "_pandas_api", None)
    if api is not None and not api._lock.locked():
        api.pd  # noqa: B018 (its getter looks again)


def install() -> None:
    """From now on, for this process."""
    if NAME not in sys.modules:
        sys.meta_path.insert(0, _Finder())
