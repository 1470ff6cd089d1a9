"""Tables of plain text for a terminal. Rich lays them out and loads with the first one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, TextIO

from llmcurate.base.terminal.output import one_line

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
    """Whether the stream is a terminal that wants colours (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
