"""Ctrl-C that works while compiled code has the main thread.

Python raises KeyboardInterrupt only between two steps of its own; training a tokenizer or a long
query can keep it from doing so for minutes. What a run leaves when it ends anywhere is safe, so
after a grace period the process simply ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

GRACE_SECONDS = 3.0
EXIT_CODE = 130  # 128 + SIGINT, as shells give it


@contextmanager
def prompt() -> Iterator[None]:
    """Within, an interrupt that raised nothing for GRACE_SECONDS ends the process.

    Does nothing outside the main thread, or where the caller handles SIGINT in its own way.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    over = threading.Event()

    def watch() -> None:
        while number := os.read(told, 1):
            if number[0] == signal.SIGINT and not over.wait(GRACE_SECONDS):
                print("stopped; the same command goes on from here", file=sys.stderr, flush=True)
                os._exit(EXIT_CODE)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    before = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(tell)
        watcher.join()
        os.close(told)
