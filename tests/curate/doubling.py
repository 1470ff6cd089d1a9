"""Check that work grows linearly with its input, not with its square."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def grows_linearly(work: Callable[[Any], object], make: Callable[[int], Any], size: int) -> bool:
    """Whether four times as much takes less than ten times as long; sixteen times is quadratic."""

    def seconds(value: Any) -> float:
        began = time.process_time()
        work(value)
        return time.process_time() - began

    once, fourfold = (min(seconds(make(n)) for _ in range(2)) for n in (size, 4 * size))
    return fourfold < 10 * once + 0.02
