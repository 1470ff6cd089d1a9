"""CPU seconds that this process has compiled kernels for, which a machine does once.

numba says when a compilation begins and ends, in others or alone, and always under its lock.
"""

from __future__ import annotations

import time
from typing import Any

from numba.core.event import Listener, register

seconds = 0.0


class _Compilations(Listener):
    def __init__(self) -> None:
        self._depth, self._began = 0, 0.0

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._began = time.process_time()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        global seconds
        self._depth -= 1
        if self._depth == 0:
            seconds += time.process_time() - self._began


register("numba:compile", _Compilations())
