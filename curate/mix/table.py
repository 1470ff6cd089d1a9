"""The mix as a table for a terminal, and its numbers with their unit."""

from __future__ import annotations

from typing import Any

from curate.pages.html import plain

MOST = 40  # rows printed; run.json has all
WIDE = 28  # columns of a name


def unit_text(mix: dict[str, Any]) -> str:
    """`tokens`, `tokens (estimated: bytes / 4)`, `bytes` or `documents`."""
    return "tokens (estimated: bytes / 4)" if mix["estimated"] else str(mix["unit"])


def text(mix: dict[str, Any]) -> list[str]:
    """Sources with their share, epochs and unique text; what is left out; overlaps."""
    rows = mix["rows"]
    wide = min(WIDE, max(8, *(len(row["name"]) for row in rows))) + 2
    head = ("documents", "there", "in the mix", "share", "epochs", "unique", "never taken")
    lines = [f"in {unit_text(mix)}; seed {mix['seed']}"]
    lines.append(f"  {'source':<{wide}}" + "".join(f"{h:>{_wide(h)}}" for h in head))
    shown = sorted(rows, key=lambda row: (-row["amount"], row["name"]))
    for row in shown[:MOST]:
        lines.append(_line(row, plain(row["name"], WIDE), wide, head))
        for bucket in row["buckets"]:
            lines.append(_line(bucket, f"  {bucket['name']}", wide, head))
    if len(rows) > MOST:
        lines.append(f"  and {len(rows) - MOST} more")
    lines.append(_line(mix["total"], "all", wide, head))
    for source, reasons in sorted(mix["outside"].items()):
        counts = ", ".join(f"{n:,} {reason}" for reason, n in sorted(reasons.items()) if n)
        if counts:
            lines.append(f"  left out of {plain(source, WIDE)}: {counts}")
    return lines + overlap_lines(mix)


def _wide(head: str) -> int:
    return {"documents": 13, "share": 9, "epochs": 9, "never taken": 13}.get(head, 19)


def _line(row: dict[str, Any], name: str, wide: int, head: tuple[str, ...]) -> str:
    cells = (
        f"{row['documents']:,}",
        f"{row['size']:,}",
        f"{row['amount']:,}",
        f"{100 * row['share']:.2f} %",
        f"{row['epochs']:.2f}",
        f"{row['unique']:,}",
        f"{row['never']:,}",
    )
    return f"  {name:<{wide}}" + "".join(
        f"{c:>{_wide(h)}}" for c, h in zip(cells, head, strict=True)
    )


def overlap_lines(mix: dict[str, Any]) -> list[str]:
    """Lines on the sources that have texts in common, the largest overlaps first."""
    overlap = mix.get("overlap")
    if not overlap:
        return []
    groups, size = overlap["groups"], overlap["documents"]
    there = {row["name"]: row["documents"] for row in mix["rows"]}
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
        part = 100 * n / max(1, there[a])
        lines.append(f"    {plain(a, WIDE)} in {plain(b, WIDE)}: {n:,} documents ({part:.1f} %)")
    whole = mix["total"]["amount"]
    lines.append(
        f"  every text once: {overlap['unique']:,} of {whole:,} {mix['unit']} in the mix"
        f" ({100 * overlap['unique'] / max(1, whole):.1f} %)"
    )
    return lines
