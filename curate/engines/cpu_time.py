"""CPU seconds of this process without those that compile kernels, which a machine does once.

Counted where records of runs need them, so that forecasts rest on work that grows with the input.
The kernels' own package counts what it compiles.
"""

from __future__ import annotations

import time

from llmcurate.base.kernels import compile_time


def cpu_seconds() -> float:
    """CPU seconds of this process so far, without compilation."""
    return time.process_time() - compile_seconds()


def compile_seconds() -> float:
    """CPU seconds that this process has compiled kernels for."""
    return compile_time.seconds
