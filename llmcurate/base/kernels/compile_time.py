"""What this process compiles: the CPU seconds, which a machine spends once, and who hears of it.

Importing this module loads no numba: it says before any kernel is loaded what is to happen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

seconds = 0.0


def nothing() -> None:
    """Nobody is to hear."""


# Called where this process begins to compile a kernel, and before it waits for one that another
# process compiles.
on_start: Callable[[], None] = nothing
on_busy: Callable[[], None] = nothing


def listen() -> None:
    """Counts from now on: numba says when a compilation begins and ends, in others or alone, and
    always under its lock."""
    from numba.core.event import Listener, register

    class Compilations(Listener):
        depth, began = 0, 0.0

        def on_start(self, event: Any) -> None:
            if self.depth == 0:
                on_start()
                self.began = time.process_time()
            self.depth += 1

        def on_end(self, event: Any) -> None:
            global seconds
            self.depth -= 1
            if self.depth == 0:
                seconds += time.process_time() - self.began

    register("numba:compile", Compilations())
