"""Property tests draw the same examples on every run; LLMCURATE_EXPLORE=1 draws new ones."""

from __future__ import annotations

import gc
import os
import signal

from hypothesis import settings

# Triton's kernels are interpreted, for there is no GPU; triton reads this when it is imported.
os.environ.setdefault("TRITON_INTERPRET", "1")

settings.register_profile("same", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile("explore" if os.environ.get("LLMCURATE_EXPLORE") else "same")

# numba makes millions of objects that stay: looking through them for garbage every 700 of them took
# a twelfth of the time that such tests take.
gc.set_threshold(50_000, 20, 50)

# Under nohup, or in the background of a script, Ctrl-C is ignored, and so it would be by commands
# that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
