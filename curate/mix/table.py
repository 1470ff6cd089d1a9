"""The mix as a table for a terminal, and its numbers with their unit."""

from __future__ import annotations

from typing import Any

from llmcurate.base.disk.units import counted, format_percent
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal import table

MOST = 40  # rows printed; run.json has all
WIDE = 28  # columns of a name
HEAD = (
    *("source", "documents", "there", "in the mix"),
    *("share", "epochs", "unique", "never taken"),
)


def unit_text(mix: dict[str, Any]) -> str:
    """`tokens`, `tokens (estimated: bytes / 4)`, `bytes` or `documents`."""
    return "tokens (estimated: bytes / 4)" if mix["estimated"] else str(mix["unit"])


def text(mix: dict[str, Any]) -> list[str]:
    """Sources with their share, epochs and unique text; what is left out; overlaps."""
    rows = []
    for row in sorted(mix["rows"], key=lambda row: (-row["amount"], row["name"]))[:MOST]:
        rows.append(_cells(row, plain(row["name"], WIDE)))
        rows += [_cells(bucket, f"  {bucket['name']}") for bucket in row["buckets"]]
    if len(mix["rows"]) > MOST:
        rows.append([f"and {len(mix['rows']) - MOST} more"])
    rows.append(_cells(mix["total"], "all"))
    lines = [f"in {unit_text(mix)}; seed {mix['seed']}", *table(HEAD, rows, indent=2)]
    for source, reasons in sorted(mix["outside"].items()):
        counts = ", ".join(f"{n:,} {reason}" for reason, n in sorted(reasons.items()) if n)
        if counts:
            lines.append(f"  left out of {plain(source, WIDE)}: {counts}")
    return lines + overlap_lines(mix)


def _cells(row: dict[str, Any], name: str) -> list[str]:
    return [
        name,
        f"{row['documents']:,}",
        f"{row['size']:,}",
        f"{row['amount']:,}",
        format_percent(row["share"], 2),
        f"{row['epochs']:.2f}",
        f"{row['unique']:,}",
        f"{row['never']:,}",
    ]


def overlap_lines(mix: dict[str, Any]) -> list[str]:
    """Lines on the sources that have texts in common, the largest overlaps first."""
    overlap = mix.get("overlap")
    if not overlap:
        return []
    groups, size = overlap["groups"], overlap["documents"]
    documents = {row["name"]: row["documents"] for row in mix["rows"]}
    pairs = [
        (size[a][b], groups[a], groups[b])
        for a in range(len(groups))
        for b in range(len(groups))
        if a != b and size[a][b]
    ]
    lines = [
        f"  texts of one source that stand in another too ({overlap['by']}):"
        if pairs
        else f"  no text of one source stands in another ({overlap['by']})"
    ]
    for n, a, b in sorted(pairs, key=lambda p: (-p[0], p[1], p[2]))[:10]:
        part = format_percent(n / max(1, documents[a]))
        lines.append(f"    {plain(a, WIDE)} in {plain(b, WIDE)}: {counted(n, 'document')} ({part})")
    whole = mix["total"]["amount"]
    lines.append(
        f"  every text once: {overlap['unique']:,} of {whole:,} {mix['unit']} in the mix"
        f" ({format_percent(overlap['unique'] / max(1, whole))})"
    )
    return lines
