"""The CPU clock that excludes compilation does not disturb modules being loaded."""

from __future__ import annotations

import subprocess
import sys

from tests.curate.command_line import environment

LOADS_IN_TWO_THREADS = """
import importlib, sys, threading, time
from curate.engines.base import cpu_seconds

cpu_seconds()
assert "numba" not in sys.modules
other = threading.Thread(target=importlib.import_module, args=("numba",), daemon=True)
other.start()
while "numba" not in sys.modules:
    time.sleep(0.001)
import llmcurate.base.kernels.cache
other.join()
"""


def test_kernels_load_while_another_thread_loads_what_they_need():
    """Neither waits for ever: nothing is loaded under the lock of all imports."""
    command = [sys.executable, "-c", LOADS_IN_TWO_THREADS]
    subprocess.run(command, env=environment(), timeout=60, check=True)
