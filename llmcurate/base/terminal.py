"""What is printed: lines and JSON that a terminal can be given, the progress of long work, tables.

Documents, file names, URLs and answers of servers are written by strangers. A terminal obeys escape
sequences in them, and marks of direction make a line read otherwise than it is written (Unicode
TR 36). So all that is printed goes through here, with control characters made visible
(tests/test_architecture.py). Progress is always on stderr: a bar on a terminal, one line in a
notebook, lines in a log. Rich draws bars and lays out tables, and loads with the first one.

Ctrl-C and SIGTERM end a command at once, with a line, whatever it computes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TextIO

from llmcurate.base.disk.units import format_duration

# Marks of direction can make a page read otherwise than it is written (Unicode TR 36).
DIRECTION = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_COLOURS = re.compile(r"(\x1b\[[0-9;]*m)")
# What JSON lets through and a terminal obeys: DEL, C1, marks of direction, halves of surrogates.
_JSON_RAW = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def _visible(char: str) -> str:
    code = ord(char)
    if char in "\n\t":
        return char
    if code < 0x20:
        return chr(0x2400 + code)  # control pictures
    if code == 0x7F:
        return "\u2421"
    if 0xDC80 <= code < 0xDD00:  # a byte of a file's name that is no UTF-8 (PEP 383)
        return f"\\x{code - 0xDC00:02x}"
    if 0xD800 <= code < 0xE000:
        return "\ufffd"
    if code in DIRECTION or code == 0xFEFF or unicodedata.category(char) in ("Cc", "Zl", "Zp"):
        return f"[U+{code:04X}]"
    return char


def visible(text: str) -> str:
    """The text with control characters, marks of direction and bytes that are no UTF-8 made
    visible. Line ends and tabs stay."""
    # Most texts hold none, which a whole-string test finds at once.
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def one_line(text: object) -> str:
    """The same on one line: line ends and tabs are a space."""
    return visible(re.sub(r"[\t\r\n]+", " ", str(text)))


def echo(text: object = "", colours: bool = False, end: str = "\n", flush: bool = False) -> None:
    """Prints what a command answers, on stdout. colours: whether codes of colours in it are ours;
    whoever puts them in makes the text between them visible."""
    pieces = _COLOURS.split(str(text)) if colours else [str(text)]
    shown = "".join(p if n % 2 else visible(p) for n, p in enumerate(pieces))
    _write(sys.stdout, shown + end, flush)


def echo_json(value: Any, to: TextIO | None = None, default: Any = None) -> None:
    """Prints a value, or a record, as one line of JSON, on stdout unless a stream is given."""
    from llmcurate.base.messages import json_values

    line = json_line(json.dumps(json_values(value), ensure_ascii=False, default=default))
    _write(to or sys.stdout, line + "\n")


def answer(figures: Any, text: str, as_json: bool, quiet: bool = False) -> None:
    """Prints what a command found out: one line of JSON, else, unless it is quiet, the text."""
    if as_json:
        echo_json(figures)
    elif not quiet:
        echo(text)


def json_line(text: str) -> str:
    """JSON of the same value, whose characters a terminal obeys are escaped."""
    return _JSON_RAW.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def tell(text: object, end: str = "\n") -> None:
    """Prints lines for people on stderr; one line is `terminal.progress.say`'s."""
    _write(sys.stderr, visible(str(text)) + end, flush=True)


def _write(stream: TextIO, text: str, flush: bool = False) -> None:
    """Prints what is safe; what the stream's encoding lacks as Python writes it."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    print(text, end="", file=stream, flush=flush)


# Progress.

LOG_SECONDS = 10.0
NOTEBOOK_SECONDS = 0.5
PACE_SECONDS = 3600.0  # the pace is that of the last hour: a partition may take minutes
_shown: list[Progress] = []  # innermost last


def _in_notebook() -> bool:
    """Return whether a cell's output is where lines go, which draws a line again after a return."""
    return "ipykernel" in sys.modules


class Progress:
    """Counts done of total under a title; use as a context manager. done: by an earlier run.

    The time that is left goes by the pace since the first one was done: what comes before it, as
    kernels that compile, is done once.
    """

    def __init__(self, title: str, total: int, quiet: bool = False, done: int = 0) -> None:
        self.title, self.total, self.done = one_line(title), total, done
        self._quiet = quiet
        self._bar: Any = None
        self._task: Any = None
        self._said = time.monotonic()
        self._mentioned = False
        self._drawn = 0  # characters of the line in a notebook

    def __enter__(self) -> Progress:
        _shown.append(self)
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description:<24}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                console=Console(stderr=True),
                transient=True,
                speed_estimate_period=PACE_SECONDS,
            )
            self._task = self._bar.add_task(
                self.title, total=self.total, completed=self.done, note=""
            )
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        _shown.remove(self)
        if self._bar is not None:
            self._bar.stop()
        if self._drawn:
            tell("")

    def update(
        self, done: int | None = None, note: str = "", seconds_left: float | None = None
    ) -> None:
        """One more done, or `done` in all; note: what to say beside it. seconds_left: for a line of
        a log, where the work knows it; a bar goes by its own pace."""
        self.done = self.done + 1 if done is None else done
        note = one_line(note)
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, note=note)
        elif not self._quiet:
            parts = [note] if note else []
            if seconds_left is not None:
                parts.append(f"{format_duration(seconds_left)} left")
            self._say("".join(f", {part}" for part in parts))

    def _say(self, tail: str) -> None:
        notebook = _in_notebook()
        if time.monotonic() - self._said < (NOTEBOOK_SECONDS if notebook else LOG_SECONDS):
            return
        self._said = time.monotonic()
        line = f"{self.title}: {self.done} of {self.total}{tail}"
        if notebook:
            print(f"\r{line.ljust(self._drawn)}", end="", file=sys.stderr, flush=True)
            self._drawn = len(line)
        else:
            tell(line)


def mention(note: str) -> None:
    """Says what the work that is shown waits for: beside its bar, or as a line of the log, the
    first one at once. Nothing where no progress is shown."""
    if not _shown:
        return
    progress = _shown[-1]
    if not progress._mentioned:
        progress._mentioned = True
        progress._said -= LOG_SECONDS
    progress.update(progress.done, note)


def say(message: str, quiet: bool = False) -> None:
    """A plain line for people, on stderr."""
    if not quiet:
        tell(one_line(message))


# Tables.

WIDTH = 10_000  # columns: lines are neither wrapped nor cut


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Iterable[int] = (0,),
    indent: int = 0,
    bold: Iterable[tuple[int, int]] = (),
) -> list[str]:
    """The lines of a table, its columns two spaces apart; wide characters count twice.

    head: titles of the columns, () for none. left: columns set to the left, all others are set to
    the right. bold: (row, column) of cells that are bold on a terminal with colours.
    """
    from rich.table import Table
    from rich.text import Text

    grid = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(head), header_style=""
    )
    cells = [list(row) for row in rows]
    columns = len(head) or max(map(len, cells), default=0)
    to_left, strong = set(left), set(bold)
    for n in range(columns):
        title = Text(head[n]) if head else ""
        grid.add_column(title, justify="left" if n in to_left else "right", no_wrap=True)
    for y, row in enumerate(cells):
        grid.add_row(*(_cell(c, (y, x) in strong) for x, c in enumerate(row)))
    lines = _console(bool(strong)).render_lines(grid, pad=False)
    texts = ["".join(_segment(s) for s in line).rstrip() for line in lines]
    return [" " * indent + text for text in texts]


def _cell(value: str, bold: bool) -> Any:
    from rich.text import Text

    return Text(one_line(value), "bold" if bold else "")


def _segment(segment: Any) -> str:
    style = segment.style
    text: str = segment.text
    return f"\x1b[1m{text}\x1b[0m" if style is not None and style.bold else text


@lru_cache(maxsize=2)
def _console(colours: bool) -> Any:
    from rich.console import Console

    return Console(width=WIDTH, force_terminal=False, legacy_windows=False)


def coloured(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that wants colours (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


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
