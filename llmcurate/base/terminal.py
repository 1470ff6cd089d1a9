"""Output: lines and JSON that are safe for a terminal, the progress of long work, tables.

Documents, file names, URLs and servers' answers are written by strangers, and terminals obey escape
sequences in them. So everything printed goes through this module (tests/test_architecture.py),
which makes control characters and direction marks visible (Unicode TR 36). Progress is on stderr: a
bar on a terminal, one line in a notebook, several lines in a log. Rich draws the bars, and is
loaded only then.

Tables fit the terminal's width, or 80 columns if there is no terminal. Long lines are broken
between words only on a terminal. In a pipe or a log, a message stays one line, which `grep` finds.
A word wider than the terminal (a path, a URL, a command in backticks) has its own line, so that it
can be copied. Text for programs is printed unchanged. Ctrl-C and SIGTERM end a command at once.
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

# Direction marks can make a page read differently from how it is written (Unicode TR 36).
DIRECTION = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
# Characters that JSON allows and a terminal obeys: DEL, C1, direction marks, lone surrogates.
_JSON_RAW = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def _visible(char: str) -> str:
    code = ord(char)
    if char in "\n\t":
        return char
    if code < 0x20:
        return chr(0x2400 + code)  # control pictures
    if code == 0x7F:
        return "\u2421"
    if 0xDC80 <= code < 0xDD00:  # a byte of a file name that is not valid UTF-8 (PEP 383)
        return f"\\x{code - 0xDC00:02x}"
    if 0xD800 <= code < 0xE000:
        return "\ufffd"
    if code in DIRECTION or code == 0xFEFF or unicodedata.category(char) in ("Cc", "Zl", "Zp"):
        return f"[U+{code:04X}]"
    return char


def visible(text: str) -> str:
    """Return the text with visible signs for control characters, direction marks and invalid UTF-8
    bytes. Line ends and tabs are kept."""
    # Most texts have no such character, and a test of the whole string is fast.
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def one_line(text: object) -> str:
    """Return visible(text) on one line: line ends and tabs become spaces."""
    return visible(re.sub(r"[\t\r\n]+", " ", str(text)))


COMMAND = re.compile(r" *(next: +)?(cd \S+ && )?llmcurate \w")
SECOND = re.compile(r" +\S.*?  +(?=\S)")  # the text before the second column
# A command in backticks is one word.
WORDS = re.compile(r" *(?:`(?:llmcurate|pip|cd|python) [^`\n]*`|[^ \n])+")


def width() -> int:
    """Return $COLUMNS, else the terminal's width (80 without a terminal), limited to 60 to 200."""
    return min(max(shutil.get_terminal_size((80, 24)).columns, 60), 200)


def wrapped(line: str, columns: int, hang: int | None = None) -> list[str]:
    """Break a line between words into lines of at most `columns`. A wider word has its own line.
    Later lines are indented by `hang`. By default they begin below the text after the line's first
    gap of two or more spaces; without such a gap, they are indented by two more spaces. A command
    line is broken with backslashes, so that a shell accepts a copy of it."""
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
    """Return the columns that a text takes: two for a wide character."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _fitted(text: str, stream: TextIO) -> str:
    if not stream.isatty():
        return text
    columns = width()
    return "\n".join("\n".join(wrapped(line, columns)) for line in text.split("\n"))


def echo(text: object = "", end: str = "\n", as_it_is: bool = False) -> None:
    """Print a command's answer on stdout. If `as_it_is`, no line is broken."""
    shown = visible(str(text))
    _write(sys.stdout, (shown if as_it_is else _fitted(shown, sys.stdout)) + end, True)


def echo_json(value: Any, to: TextIO | None = None, default: Any = None) -> None:
    """Print a value or a record as one line of JSON, on stdout or on the stream `to`. `default`
    converts values that JSON does not have, as in json.dumps."""
    from llmcurate.base.messages import json_values

    line = json_line(json.dumps(json_values(value), ensure_ascii=False, default=default))
    _write(to or sys.stdout, line + "\n")


def print_result(figures: Any, text: str, as_json: bool, quiet: bool = False) -> None:
    """Print a command's result: `figures` as a line of JSON, else `text` unless `quiet`."""
    if as_json:
        echo_json(figures)
    elif not quiet:
        echo(text)


def json_line(text: str) -> str:
    """Escape the characters in JSON that a terminal would obey. The JSON value does not change."""
    return _JSON_RAW.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def print_lines(text: object, end: str = "\n") -> None:
    """Print lines for people on stderr. For a single line use `say`."""
    _write(sys.stderr, _fitted(visible(str(text)), sys.stderr) + end, flush=True)


def _write(stream: TextIO, text: str, flush: bool = False) -> None:
    """Print safe text. Characters that the stream's encoding lacks become backslash escapes."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    print(text, end="", file=stream, flush=flush)


# Progress.

LOG_SECONDS = 10.0
NOTEBOOK_SECONDS = 0.5
TITLE = 24  # fewest columns of a title before a bar
PACE_SECONDS = 3600.0  # the pace is that of the last hour, because a partition may take minutes
_displays: list[Progress] = []  # nested displays, the innermost one last


def fit_note(note: str, columns: int) -> str:
    """Return the comma-separated parts of a note that fit, or its first words if no part fits."""
    for comma in (", ", " "):
        parts = note.split(comma)
        while parts and columns_of(comma.join(parts)) > columns:
            parts.pop()
        if parts:
            return comma.join(parts)
    return ""


class Progress:
    """A display of how many of `total` units of work are finished, used as a context manager.
    `done` units were finished by an earlier run. The estimate of the remaining time leaves out the
    first unit, because functions are compiled during this unit."""

    def __init__(self, title: str, total: int, quiet: bool = False, done: int = 0) -> None:
        self.title, self.total, self.done = one_line(title), total, done
        self._quiet = quiet
        self._bar: Any = None
        self._task: Any = None
        self._shown_at = time.monotonic()
        self._mentioned = False
        self._drawn = 0  # characters of the line in a notebook

    def __enter__(self) -> Progress:
        _displays.append(self)
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
            self.title = self.title[: max(TITLE, console.width // 2 - 8)]
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
                self.title, total=self.total, completed=self.done, note=""
            )
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        _displays.remove(self)
        if self._bar is not None:
            self._bar.stop()
        if self._drawn:
            print_lines("")

    def update(
        self,
        done: int | None = None,
        note: str = "",
        seconds_left: float | None = None,
        total: int | None = None,
    ) -> None:
        """Count one more unit as done, or set the number of finished units to `done`. `note` is
        shown beside the number. `seconds_left`, if the caller knows it, is shown in a log's line; a
        bar estimates the remaining time itself. `total` replaces the number of all units."""
        self.done = self.done + 1 if done is None else done
        self.total = self.total if total is None else total
        note = one_line(note)
        if self._bar is not None:
            title, bar = columns_of(self.title), self._bar.columns[1].bar_width
            counts = 2 * len(str(max(self.total, self.done))) + 1  # 7 for the time, 5 for gaps
            note = fit_note(note, self._bar.console.width - title - bar - counts - 12)
            self._bar.update(self._task, completed=self.done, total=self.total, note=note)
        elif not self._quiet:
            parts = [note] if note else []
            if seconds_left is not None:
                parts.append(f"{format_duration(seconds_left)} left")
            self._log("".join(f", {part}" for part in parts))

    def _log(self, tail: str) -> None:
        notebook = "ipykernel" in sys.modules
        if time.monotonic() - self._shown_at < (NOTEBOOK_SECONDS if notebook else LOG_SECONDS):
            return
        self._shown_at = time.monotonic()
        line = f"{self.title}: {self.done} of {self.total}{tail}"
        if notebook:
            print(f"\r{line.ljust(self._drawn)}", end="", file=sys.stderr, flush=True)
            self._drawn = len(line)
        else:
            print_lines(line)


def show_note(note: str) -> None:
    """Show beside the progress bar what the current work waits for. Without a bar, the note goes to
    the log, where the first note appears at once."""
    if not _displays:
        return
    progress = _displays[-1]
    if not progress._mentioned:
        progress._mentioned = True
        progress._shown_at -= LOG_SECONDS
    progress.update(progress.done, note)


def say(message: str, quiet: bool = False) -> None:
    """Print a plain line for people on stderr."""
    if not quiet:
        print_lines(one_line(message))


def suggest(*words: object, quiet: bool = False) -> None:
    """Print `next:` and the command to run next, quoted for a shell, on stderr."""
    say(f"next: {shlex.join(['llmcurate', *map(str, words)])}", quiet)


# Tables.

GAP = 2  # blank columns between two columns of a table


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Iterable[int] = (0,),
    indent: int = 0,
) -> list[str]:
    """Return the lines of a table that fits the terminal, its columns two spaces apart.

    If it would be too wide, the layout with the fewest lines is used: (1) titles and wide texts
    wrap at words; (2) they wrap, and the first cell of each row has its own line above the other
    cells; (3) each row is a block: its first cell and, below it, each other cell after its title.

    head: titles of the columns, () for none. left: columns that are aligned to the left; all others
    are aligned to the right."""
    cells = [[one_line(cell) for cell in row] for row in ([head] if head else []) + [*rows]]
    if not cells:
        return []
    count, room = max(map(len, cells)), width() - indent
    cells = [row + [""] * (count - len(row)) for row in cells]
    grid = _Grid(cells, bool(head), set(left), room)
    layouts = [grid.lines(grid.widest())]
    if layouts == [None]:
        layouts = [grid.lines(grid.sizes(0)), grid.lines(grid.sizes(1)), grid.blocks()]
    return [(" " * indent + line).rstrip() for line in min(filter(None, layouts), key=len)]


@dataclass(frozen=True)
class _Grid:
    """The cells of a table, in rows of equal length."""

    cells: list[list[str]]
    titled: bool  # True if the first row has titles
    left: set[int]  # columns that are aligned to the left
    room: int  # width of a line

    def widest(self, start: int = 0) -> list[int]:
        """Return the width of each column, from row `start` on."""
        columns = zip(*self.cells[start:], strict=True)
        return [max(map(columns_of, column)) for column in columns]

    def sizes(self, first: int) -> list[int]:
        """Return the widths of the columns from `first` on. All titles may wrap. Until the table
        fits, the widest left-aligned column is narrowed by 1; no column gets narrower than its
        longest word."""
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
        """Return the table's lines for columns of the widths `sizes`, or None if it is too wide. If
        `sizes` has one width too few, each row's first cell is on its own line above its other
        cells."""
        first, lines = len(self.cells[0]) - len(sizes), []
        if sum(sizes) + GAP * (len(self.cells[0]) - 1) > self.room or not sizes:
            return None
        for y, row in enumerate(self.cells):
            lines += wrapped(row[0], self.room) if first and row[0].strip() else []
            pieces = [wrapped(cell, n, 0) for cell, n in zip(row[first:], sizes, strict=True)]
            height = max(map(len, pieces))
            if self.titled and y == 0:  # titles, which stand right above their columns
                pieces = [[""] * (height - len(piece)) + piece for piece in pieces]
            for texts in zip_longest(*pieces, fillvalue=""):
                line = "  " * first
                for x, (text, size) in enumerate(zip(texts, sizes, strict=True), first):
                    pad, shown = " " * (size - columns_of(text)), text
                    line += (shown + pad if x in self.left else pad + shown) + " " * GAP
                lines.append(line)
        return lines

    def blocks(self) -> list[str]:
        """Return each row's first cell and, below it, one line per other cell. Numbers are aligned
        to the right."""
        titles = self.cells[0] if self.titled else [""] * len(self.cells[0])
        hang = max(map(columns_of, titles[1:]), default=0) + 2 * self.titled
        numbers = [n for x, n in enumerate(self.widest(self.titled)) if x and x not in self.left]
        lines = []
        for row in self.cells[self.titled :]:
            lines += wrapped(row[0], self.room) if row[0].strip() else []
            for x, cell in enumerate(row[1:], 1):
                pad = 0 if x in self.left else max(numbers) - columns_of(cell)
                line = f"  {titles[x]:{hang - columns_of(titles[x]) + len(titles[x])}}{' ' * pad}"
                lines += wrapped(line + cell, self.room, hang + 4) if cell else []
        return lines


def _longest(cell: str) -> int:
    return max((columns_of(word.strip()) for word in WORDS.findall(cell)), default=0)


# Python raises KeyboardInterrupt only between its own instructions. Compiled code, such as the
# training of a tokenizer or a long query, can delay it for minutes. So the process is ended after a
# grace period, which is safe at any point of a run.
GRACE_SECONDS = 3.0
EXIT_CODES = {number: 128 + number for number in (signal.SIGINT, signal.SIGTERM)}  # as shells do
ONE_GO = ("generate", "evaluate", "predict")  # long commands that do not resume


def stopped(number: int = signal.SIGINT) -> str:
    """Return the line that says how the process was stopped, and if it can resume."""
    line = "stopped" if number == signal.SIGINT else "llmcurate: stopped by SIGTERM"
    resumes = not sys.argv[1:] or sys.argv[1] not in ONE_GO
    return f"{line}; run the same command to resume" if resumes else line


def end_on_sigterm() -> None:
    """From now on, the first SIGTERM prints a line and ends the process, and a second one ends it
    at once. This does nothing if the process was started with SIGTERM ignored."""
    process = os.getpid()

    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() == process:  # false in a forked process
            print_lines(stopped(number))
        sys.exit(EXIT_CODES[signal.SIGTERM])

    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)


@contextmanager
def prompt_interrupt() -> Iterator[None]:
    """Within the block, let SIGINT and SIGTERM end the process after GRACE_SECONDS at most. This
    does nothing outside the main thread, in interactive Python, or if the caller handles SIGINT."""
    main = threading.current_thread() is threading.main_thread()
    interactive = hasattr(sys, "ps1")  # a notebook or a prompt, which has more to lose than the run
    if not main or interactive or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    finished = threading.Event()

    def watch() -> None:
        while received := os.read(read_end, 1):
            number = received[0]
            if number in EXIT_CODES and not finished.wait(GRACE_SECONDS):
                if signal.getsignal(number) != signal.SIG_DFL:  # else the line was printed already
                    print_lines(stopped(number))
                os._exit(EXIT_CODES[signal.Signals(number)])

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    try:
        yield
    finally:
        finished.set()
        signal.set_wakeup_fd(before)
        os.close(write_end)
        watcher.join()
        os.close(read_end)
