"""CPU seconds of this process without those that compile kernels, which a machine does once.

Counted where records of runs need them, so that forecasts rest on work that grows with the input.
"""

from __future__ import annotations

import sys
import time
from importlib.abc import MetaPathFinder
from typing import Any

_compiled = 0.0


def cpu_seconds() -> float:
    """CPU seconds of this process so far, without compilation."""
    return time.process_time() - _compiled


def compile_seconds() -> float:
    """CPU seconds that this process has compiled kernels for."""
    return _compiled


def _listen() -> None:
    """Counts from now on: numba says when a compilation begins and ends, in others or alone."""
    from numba.core.event import Listener, register

    class Clock(Listener):
        depth, began = 0, 0.0

        def on_start(self, event: Any) -> None:
            if self.depth == 0:
                self.began = time.process_time()
            self.depth += 1

        def on_end(self, event: Any) -> None:
            global _compiled
            self.depth -= 1
            if self.depth == 0:
                _compiled += time.process_time() - self.began

    register("numba:compile", Clock())


class _BeforeKernels(MetaPathFinder):
    """Finds nothing; it begins to listen when the first module with kernels is imported, for numba
    takes most of a second to load and many processes never need it."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name == "kernel_cache":
            sys.meta_path.remove(self)
            _listen()


if "kernel_cache" in sys.modules:
    _listen()
else:
    sys.meta_path.insert(0, _BeforeKernels())
