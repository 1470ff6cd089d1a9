"""What is printed: lines and JSON that a terminal can be given, the progress of long work, tables.

Documents, file names, URLs and answers of servers are written by strangers. A terminal obeys escape
sequences in them, and marks of direction make a line read otherwise than it is written (Unicode
TR 36). So all that is printed goes through here, with control characters made visible
(tests/test_architecture.py). Progress is always on stderr: a bar on a terminal, one line in a
notebook, lines in a log. Rich draws bars and measures characters, and loads with the first one.

All of it fits the terminal: tables are laid out for its width, or for 80 columns where there is
none, as in a pipe. Lines of prose break between words on a terminal alone: in a pipe or a log a
message stays one line, which `grep` finds whole (as git's and pip's). A word that is wider than the
terminal, such as a path, a URL, an id or a command in backticks, has a line of its own and is never
cut, so that it can be copied. JSON, recipes and other text for programs is printed as it is.

Ctrl-C and SIGTERM end a command at once, with a line, whatever it computes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
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


COMMAND = re.compile(r" *(next: +)?(cd \S+ && )?llmcurate \w")
SECOND = re.compile(r" +\S.*?  +(?=\S)")  # what stands before the second column
# A command in backticks is one word.
WORDS = re.compile(r" *(?:`(?:llmcurate|pip|cd|python) [^`\n]*`|[^ \n])+")


def width() -> int:
    """Columns of the terminal (COLUMNS where it is set), between 60 and 200; 80 without one."""
    return min(max(shutil.get_terminal_size((80, 24)).columns, 60), 200)


def wrapped(line: str, columns: int, hang: int | None = None) -> list[str]:
    """The lines of at most so many columns that a line makes, broken between words; all but the
    first one are indented by `hang`, by default as what stands two spaces or more behind the first
    words, else two more than the first line. A wider word is a line.

    A line of a command breaks as a shell takes it, so that it can be copied.
    """
    end = " \\" if COMMAND.match(line) else ""
    if columns_of(line) <= columns:
        return [line]
    if hang is None:
        second = SECOND.match(line)
        hang = second.end() if second else len(line) - len(line.lstrip(" ")) + 2
    lines = [""]
    for word in WORDS.findall(line):
        if lines[-1].strip() and columns_of(lines[-1] + word + end) > columns:
            lines[-1] += end
            lines.append(" " * hang + word.lstrip(" "))
        else:
            lines[-1] += word
    return lines


def columns_of(text: str) -> int:
    """Columns that a text takes: wide characters count twice, codes of colours not at all."""
    if text.isascii() and "\x1b" not in text:
        return len(text)
    from rich.cells import cell_len

    return cell_len(_COLOURS.sub("", text))


def _fitted(text: str, stream: TextIO) -> str:
    """The text with its lines broken, where the stream is a terminal."""
    if not stream.isatty():
        return text
    columns = width()
    return "\n".join("\n".join(wrapped(line, columns)) for line in text.split("\n"))


def echo(text: object = "", colours: bool = False, end: str = "\n", as_it_is: bool = False) -> None:
    """Prints what a command answers, on stdout. colours: whether codes of colours in it are ours;
    whoever puts them in makes the text between them visible. as_it_is: no line is broken."""
    pieces = _COLOURS.split(str(text)) if colours else [str(text)]
    shown = "".join(p if n % 2 else visible(p) for n, p in enumerate(pieces))
    _write(sys.stdout, (shown if as_it_is else _fitted(shown, sys.stdout)) + end, True)


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
    _write(sys.stderr, _fitted(visible(str(text)), sys.stderr) + end, flush=True)


def _write(stream: TextIO, text: str, flush: bool = False) -> None:
    """Prints what is safe; what the stream's encoding lacks as Python writes it."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    print(text, end="", file=stream, flush=flush)


# Progress.

LOG_SECONDS = 10.0
NOTEBOOK_SECONDS = 0.5
TITLE = 24  # characters of a title before a bar
PACE_SECONDS = 3600.0  # the pace is that of the last hour: a partition may take minutes
_shown: list[Progress] = []  # innermost last


def _in_notebook() -> bool:
    """Return whether a cell's output is where lines go, which draws a line again after a return."""
    return "ipykernel" in sys.modules


def what_fits(note: str, columns: int) -> str:
    """The first parts of a note, between commas, that take no more columns; else whole words."""
    for comma in (", ", " "):
        parts = note.split(comma)
        while parts and columns_of(comma.join(parts)) > columns:
            parts.pop()
        if parts:
            return comma.join(parts)
    return ""


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
                TimeRemainingColumn,
            )
            from rich.progress import Progress as RichProgress

            console = Console(stderr=True)
            self._bar = RichProgress(
                TextColumn("{task.description}", markup=False),
                BarColumn(max(0, console.width - 60) // 4),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                console=console,
                transient=True,
                speed_estimate_period=PACE_SECONDS,
            )
            self._task = self._bar.add_task(
                self.title[:TITLE], total=self.total, completed=self.done, note=""
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
            title, bar = columns_of(self.title[:TITLE]), self._bar.columns[1].bar_width
            counts = 2 * len(str(max(self.total, self.done))) + 1  # 7 for the time, 5 for gaps
            note = what_fits(note, self._bar.console.width - title - bar - counts - 12)
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


def suggest(*words: object, quiet: bool = False) -> None:
    """`next:` and the command that comes next, quoted as a shell takes it, on stderr."""
    say(f"next: {shlex.join(['llmcurate', *map(str, words)])}", quiet)


# Tables.

GAP = 2  # columns between two of a table


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Iterable[int] = (0,),
    indent: int = 0,
    bold: Iterable[tuple[int, int]] = (),
) -> list[str]:
    """The lines of a table that fits the terminal, its columns two spaces apart.

    Where it is too wide, its titles and its widest texts wrap at words, or each row stands below
    its first cell, or is a block: its first cell, and below it the others, each behind its title.
    Of these layouts the one that fits with the fewest lines is taken.

    head: titles of the columns, () for none. left: columns of text, set to the left; all others
    are set to the right. bold: (row, column) of cells that are bold on a terminal with colours.
    """
    cells = [[one_line(cell) for cell in row] for row in ([head] if head else []) + [*rows]]
    if not cells:
        return []
    count, room = max(map(len, cells)), width() - indent
    cells = [row + [""] * (count - len(row)) for row in cells]
    grid = _Grid(cells, bool(head), set(left), {(y + bool(head), x) for y, x in bold}, room)
    layouts = [grid.lines(grid.widest())]
    if layouts == [None]:
        layouts = [grid.lines(grid.sizes(0)), grid.lines(grid.sizes(1)), grid.blocks()]
    return [(" " * indent + line).rstrip() for line in min(filter(None, layouts), key=len)]


@dataclass(frozen=True)
class _Grid:
    """The cells of a table, rows of one length; titled: whether the first row holds titles; room:
    columns for a line."""

    cells: list[list[str]]
    titled: bool
    left: set[int]
    bold: set[tuple[int, int]]
    room: int

    def widest(self, start: int = 0) -> list[int]:
        """Columns of the widest cells of each column; start: the first row that counts."""
        columns = zip(*self.cells[start:], strict=True)
        return [max(map(columns_of, column)) for column in columns]

    def sizes(self, first: int) -> list[int]:
        """The same from a column on, where titles and texts wrap, the widest ones first, until it
        is enough or only words are left."""
        words = [max(map(_longest, column)) for column in zip(*self.cells, strict=True)][first:]
        body = self.widest(self.titled) or [0] * len(self.cells[0])
        sizes = [max(pair) for pair in zip(map(_longest, self.cells[0]), body, strict=True)][first:]
        while sum(sizes) + GAP * (len(self.cells[0]) - 1) > self.room:
            wide = [x for x, n in enumerate(sizes) if x + first in self.left and n > words[x]]
            if not wide:
                break
            sizes[max(wide, key=lambda x: (sizes[x], x))] -= 1
        return sizes

    def lines(self, sizes: list[int]) -> list[str] | None:
        """The rows, their last columns of these sizes, below the first cell if it is none of them;
        None where they do not fit."""
        first, lines = len(self.cells[0]) - len(sizes), []
        if sum(sizes) + GAP * (len(self.cells[0]) - 1) > self.room or not sizes:
            return None
        for y, row in enumerate(self.cells):
            lines += wrapped(row[0], self.room) if first and row[0].strip() else []
            pieces = [wrapped(cell, n, 0) for cell, n in zip(row[first:], sizes, strict=True)]
            height = max(map(len, pieces))
            if self.titled and y == 0:  # stand right above their columns
                pieces = [[""] * (height - len(piece)) + piece for piece in pieces]
            for texts in zip_longest(*pieces, fillvalue=""):
                line = "  " * first
                for x, (text, size) in enumerate(zip(texts, sizes, strict=True), first):
                    pad, shown = " " * (size - columns_of(text)), self._shown(y, x, text)
                    line += (shown + pad if x in self.left else pad + shown) + " " * GAP
                lines.append(line)
        return lines

    def blocks(self) -> list[str]:
        """A line each cell, numbers set to the right of the widest one."""
        titles = self.cells[0] if self.titled else [""] * len(self.cells[0])
        hang = max(map(columns_of, titles[1:]), default=0) + 2 * self.titled
        numbers = [n for x, n in enumerate(self.widest(self.titled)) if x and x not in self.left]
        lines = []
        for y, row in enumerate(self.cells[self.titled :], self.titled):
            lines += wrapped(row[0], self.room) if row[0].strip() else []
            for x, cell in enumerate(row[1:], 1):
                pad = 0 if x in self.left else max(numbers) - columns_of(cell)
                line = f"  {titles[x]:{hang - columns_of(titles[x]) + len(titles[x])}}{' ' * pad}"
                lines += (
                    wrapped(line + self._shown(y, x, cell), self.room, hang + 4) if cell else []
                )
        return lines

    def _shown(self, y: int, x: int, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if text and (y, x) in self.bold else text


def _longest(cell: str) -> int:
    return max((columns_of(word.strip()) for word in WORDS.findall(cell)), default=0)


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
