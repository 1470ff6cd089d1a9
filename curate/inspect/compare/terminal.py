"""A comparison for a terminal."""

from __future__ import annotations

from curate.inspect.compare.compare import Comparison, Row
from curate.inspect.compare.overlap import shares
from curate.inspect.report.page import BYTES_A_TOKEN
from curate.run.funnel import amount
from curate.terminal.tables import aligned, percent


def text(found: Comparison) -> str:
    """Two tables: what each method left, and how much of it the others remove too."""
    how = "counted" if found.measured else f"estimated, {BYTES_A_TOKEN:g} bytes a token"
    head = ("method", "documents", "gone", "text", "gone", "tokens", "seconds", "parent", "worker")
    rows: list[tuple[str, ...]] = [(*head, "kept ids")]
    rows.append(
        (
            "(input)",
            f"{found.documents:,}",
            "",
            amount(found.bytes),
            "",
            tokens(found.tokens),
            *[""] * 4,
        )
    )
    rows += [_line(row) for row in found.rows]
    lines = [aligned(rows, left=(0, 9)), f"tokens: {how}; parent, worker: most memory of a process"]
    lines += [f"{row.method}: {row.note}" for row in found.rows if row.note]
    both = found.overlap
    if both is not None:
        lines += ["", "of the documents that the method on the left removed, the others remove:"]
        lines.append(_matrix(both.methods, shares(both.removed, both.both)))
        if both.cuts:
            lines += ["", "the same for documents that were removed or lost a passage:"]
            lines.append(_matrix(both.methods, shares(both.changed, both.both_changed)))
    return "\n".join(lines)


def _line(row: Row) -> tuple[str, ...]:
    if row.documents is None or row.bytes is None or row.tokens is None:
        return (row.method, *["-"] * 8, "")
    return (
        row.method,
        f"{row.documents:,}",
        percent(row.documents_removed),
        amount(row.bytes),
        percent(row.bytes_removed),
        tokens(row.tokens),
        "-" if row.seconds is None else f"{row.seconds:.1f}",
        "-" if row.peak_parent is None else amount(row.peak_parent),
        "-" if row.peak_worker is None else amount(row.peak_worker),
        row.kept_ids[:12],
    )


def tokens(count: int) -> str:
    """`6.55 M`."""
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")):
        if count >= size:
            return f"{count / (1e3 if unit == ' k' else size):.3g}{unit}"
    return str(count)


def _matrix(methods: list[str], values: list[list[float | None]]) -> str:
    body = [[m, *(percent(v) for v in row)] for m, row in zip(methods, values, strict=True)]
    return aligned([["", *methods], *body])
