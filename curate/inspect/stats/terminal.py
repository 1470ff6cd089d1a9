"""The statistics of a corpus for a terminal: one line a measure, bars for labels."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from curate.pages.html import plain
from curate.run.funnel import amount

WIDE = 78
BAR = 24
LABEL = 30
SPARKS = 16
BLOCKS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
ASCII = " .:-=+*%#"
TITLES = {"languages": "language", "domains": "domain", "sources": "source", "dates": "date"}
MOST = 20


def text(found: dict[str, Any], encoding: str | None = "utf-8") -> str:
    """A compact table; encoding: the terminal's, for bars in characters that it has."""
    blocks = BLOCKS if "utf" in (encoding or "").lower() else ASCII
    lines = [
        f"{found['documents']:,} documents, {amount(found['text_bytes'])} of text" + _besides(found)
    ]
    head = f"{'least':>8}{'10 %':>8}{'median':>8}{'90 %':>8}{'most':>8}{'mean':>8}"
    wide = max(len(_label(n)) for n in (*found["lengths"], *found["columns"])) + 2
    lines += ["", f"{'a document has':<{max(wide, 16)}}{head}"]
    for name, values in (*found["lengths"].items(), *found["columns"].items()):
        keys = ("least", "p10", "p50", "p90", "most", "mean")
        cells = "".join(f"{_short(values[k]):>8}" for k in keys)
        spark = _spark(values["histogram"]["counts"], blocks)
        lines.append(f"{_label(name):<{max(wide, 16)}}{cells}  {spark}")
    for group, title in TITLES.items():
        lines += _bars(title, found[group], found["documents"], blocks[-1])
    return "\n".join(lines)


def _besides(found: dict[str, Any]) -> str:
    rest = [
        (found["without_text"], "documents without text"),
        (sum(found["skipped"].values()), "other records skipped"),
        (found["corrupt"], "corrupt"),
    ]
    return "".join(f", {n:,} {what}" for n, what in rest if n)


def _bars(title: str, group: dict[str, Any], documents: int, block: str) -> list[str]:
    """The labels with the most documents; nothing where no document has one."""
    rows = group["top"][:MOST]
    if not rows:
        return []
    most = max(n for _, n, _ in rows)
    more = group["distinct"] - len(rows)
    lines = ["", title + (f" ({group['distinct']:,} in all)" if more > 0 else "")]
    for label, n, size in rows:
        bar = block * max(1, round(BAR * n / most))
        share = f"{100 * n / documents:.1f} %"
        lines.append(
            f"  {_label(label, LABEL):<{LABEL}} {bar:<{BAR}}{n:>10,}{share:>9}{amount(size):>9}"
        )
    without = documents - group["documents"]
    if without:
        lines.append(f"  {'(none)':<{LABEL}} {'':<{BAR}}{without:>10,}")
    return lines


def _label(name: str, most: int = LABEL + 10) -> str:
    shown = plain(name, most).replace("\n", " ").replace("\t", " ")
    return shown if len(shown) <= most else shown[: most - 1] + "\u2026"


def _short(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g}{unit}"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.0e}" if abs(value) < 0.001 else f"{value:.3g}"


def _spark(counts: list[int], blocks: str) -> str:
    """The histogram in a few characters, by the square root of the number."""
    groups = min(SPARKS, len(counts))
    cuts = [i * len(counts) // groups for i in range(groups + 1)]
    sums = [sum(counts[a:b]) for a, b in pairwise(cuts)]
    most = max(sums) or 1
    top = len(blocks) - 1
    return "".join(blocks[min(top, max(n > 0, round(top * (n / most) ** 0.5)))] for n in sums)
