"""CPU seconds of this process without those that compile kernels, which a machine does once.

Counted where records of runs need them, so that forecasts rest on work that grows with the input.
The kernels' own package counts what it compiles; here it is asked, and never loaded: numba takes
most of a second, and many processes never need it.
"""

from __future__ import annotations

import sys
import time


def cpu_seconds() -> float:
    """CPU seconds of this process so far, without compilation."""
    return time.process_time() - compile_seconds()


def compile_seconds() -> float:
    """CPU seconds that this process has compiled kernels for."""
    clock = sys.modules.get("kernel_cache.compile_time")
    return float(getattr(clock, "seconds", 0.0))  # not there while it is being loaded
