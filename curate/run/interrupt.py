"""Signals that end a command at once, whatever it is computing: Ctrl-C and SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from llmcurate.base.terminal.output import tell

# Python raises KeyboardInterrupt only between two steps of its own; compiled code, as training a
# tokenizer or a long query, can keep it from doing so for minutes. A run may end anywhere, so after
# a grace period the process simply ends.
GRACE_SECONDS = 3.0
EXIT_CODES = {number: 128 + number for number in (signal.SIGINT, signal.SIGTERM)}  # as of shells
LINES = {
    signal.SIGINT: "stopped; the same command goes on from here",
    signal.SIGTERM: "llmcurate: stopped by SIGTERM; the same command goes on from here",
}


def end_on_sigterm() -> None:
    """From now on SIGTERM ends the process with a line, unless whoever started it had it ignored. A
    second one ends it at once."""
    process = os.getpid()

    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() == process:  # not in one that was forked
            tell(LINES[signal.SIGTERM])
        sys.exit(EXIT_CODES[signal.SIGTERM])

    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)


@contextmanager
def prompt_interrupt() -> Iterator[None]:
    """Within, a signal of EXIT_CODES that raised nothing for GRACE_SECONDS ends the process.

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
        while received := os.read(read_end, 1):
            number = received[0]
            if number in EXIT_CODES and not over.wait(GRACE_SECONDS):
                if signal.getsignal(number) != signal.SIG_DFL:  # else it is said already
                    tell(LINES[signal.Signals(number)])
                os._exit(EXIT_CODES[signal.Signals(number)])

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
