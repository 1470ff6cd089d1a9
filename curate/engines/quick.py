"""numba without scipy.linalg, which it loads before its first kernel to see whether it is there.

No kernel of ours multiplies matrices, and in every process that was a quarter of a second.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_ASKS, _FOR = "numba.np.arraymath", "scipy.linalg.cython_blas"


class _Without(MetaPathFinder, Loader):
    """Loads one module of numba as if another were not installed; that one stays to be had."""

    def __init__(self) -> None:
        self._loader: Loader | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _ASKS:
            return None
        sys.meta_path.remove(self)
        found = PathFinder.find_spec(name, path)
        if found is not None and found.loader is not None:
            self._loader, found.loader = found.loader, self
        return found

    def exec_module(self, module: ModuleType) -> None:
        assert self._loader is not None
        hidden = _FOR not in sys.modules
        if hidden:
            sys.modules[_FOR] = None  # type: ignore[assignment]
        try:
            self._loader.exec_module(module)
        finally:
            if hidden:
                sys.modules.pop(_FOR, None)


def numba() -> None:
    """Call it before the first kernel runs; it loads nothing by itself."""
    if _ASKS not in sys.modules and not any(isinstance(f, _Without) for f in sys.meta_path):
        sys.meta_path.insert(0, _Without())
