"""Any text in Markdown, so that no character of it is Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable


def code(text: str) -> str:
    """Any text as a code span on one line; what is no printable character is escaped."""
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    shown = "".join(escaped)
    if not shown.strip():
        shown = json.dumps(shown)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    space = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{space}{shown}{space}{fence}"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Cells are Markdown; a bar in one, in code as well, would end it."""
    lines = [head, tuple("---" for _ in head), *rows]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)
