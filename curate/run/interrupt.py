"""Interrupts that end a run at once, whatever it is computing."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from curate.terminal.output import tell

# Python raises KeyboardInterrupt only between two steps of its own; compiled code, as training a
# tokenizer or a long query, can keep it from doing so for minutes. A run may end anywhere, so after
# a grace period the process simply ends.
GRACE_SECONDS = 3.0
EXIT_CODE = 130  # 128 + SIGINT, as shells give it


@contextmanager
def prompt_interrupt() -> Iterator[None]:
    """Within, an interrupt that raised nothing for GRACE_SECONDS ends the process.

    Does nothing outside the main thread, in interactive Python, or where the caller handles SIGINT
    in its own way.
    """
    main = threading.current_thread() is threading.main_thread()
    typed = hasattr(sys, "ps1")  # a notebook or a prompt, which has more to lose than the run
    if not main or typed or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    over = threading.Event()

    def watch() -> None:
        while number := os.read(read_end, 1):
            if number[0] == signal.SIGINT and not over.wait(GRACE_SECONDS):
                tell("stopped; the same command goes on from here")
                os._exit(EXIT_CODE)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(write_end)
        watcher.join()
        os.close(read_end)
