"""Tables of plain text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def aligned(rows: Sequence[Sequence[str]], left: Iterable[int] = (0,), gap: str = "  ") -> str:
    """Rows of cells in columns; the columns named in `left` are set to the left."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    to_left = set(left)
    return "\n".join(
        gap.join(
            cell.ljust(width) if n in to_left else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def percent(share: float | None) -> str:
    """`5.3 %`, and `-` of nothing."""
    if share is None:
        return "-"
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f} %"
