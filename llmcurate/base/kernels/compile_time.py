"""The compile time of this process in CPU seconds, and callbacks: one before a compilation begins,
one before this process waits for another that compiles. This module does not load numba."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

seconds = 0.0


def nothing() -> None:
    """Do nothing: the default of `on_start` and `on_busy`."""


# Called when this process begins to compile a kernel, and before it waits for another process that
# compiles one.
on_start: Callable[[], None] = nothing
on_busy: Callable[[], None] = nothing


def listen() -> None:
    """Count compile time from now on. Time in nested compilations is counted once."""
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
