"""report.html: the run as one self-contained page. Text from documents is shown as text."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from curate.report import funnel

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:60rem;padding:1rem;color:#1c2733}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem;border-bottom:1px solid #d5dde5}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.25rem .5rem;border-bottom:1px solid #e6ebf0;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.bar{background:#e6ebf0;height:.7rem;min-width:6rem}.bar i{
  display:block;height:100%;background:#2f6f9f}
pre{white-space:pre-wrap;background:#f5f7f9;padding:.75rem;overflow-wrap:anywhere}
.wide{overflow-x:auto}svg{max-width:100%;height:auto}
"""


def _row(cells: list[str], tag: str = "td", numbers: frozenset[int] = frozenset()) -> str:
    inner = "".join(
        f"<{tag}{' class=n' if i in numbers else ''}>{c}</{tag}>" for i, c in enumerate(cells)
    )
    return f"<tr>{inner}</tr>"


def _wide(rows: str) -> str:
    return f"<div class=wide><table>{rows}</table></div>"


def _funnel(record: dict[str, Any]) -> str:
    total = max(1, record["totals"]["read"])
    numbers = frozenset({1, 2, 3, 6})
    head = ["step", "in", "dropped", "out", "left", "reasons", "seconds"]
    body = [_row(head, "th", numbers)]
    for r in funnel.rows(record):
        reasons = ", ".join(f"{k}&nbsp;{n}" for k, n in r.rules.items())
        if r.cut_bytes:
            reasons += f"{'; ' if reasons else ''}cut {funnel.amount(r.cut_bytes)}"
        bar = f'<div class=bar><i style="width:{100 * r.after / total:.1f}%"></i></div>'
        cells = [escape(r.step), str(r.before), str(r.dropped), str(r.after), bar, reasons]
        body.append(_row([*cells, f"{r.seconds:.1f}"], numbers=numbers))
    return _wide("".join(body))


def _curve(points: list[dict[str, Any]]) -> str:
    """The training loss as an inline SVG."""
    known = [(p["step"], p["loss"]) for p in points if p.get("loss") is not None]
    if len(known) < 2:
        return ""
    width, height, left, bottom = 640, 220, 40, 24
    steps = [s for s, _ in known]
    low, high = min(v for _, v in known), max(v for _, v in known)
    span, rise = max(1, steps[-1] - steps[0]), max(1e-9, high - low)
    path = " ".join(
        f"{left + (s - steps[0]) / span * (width - left - 8):.1f},"
        f"{8 + (high - v) / rise * (height - bottom - 8):.1f}"
        for s, v in known
    )
    return (
        f'<svg viewBox="0 0 {width} {height}" role=img aria-label="training loss by step">'
        f'<polyline points="{path}" fill="none" stroke="#2f6f9f" stroke-width="2"/>'
        f'<text x="2" y="16" font-size="12">{high:.2f}</text>'
        f'<text x="2" y="{height - bottom}" font-size="12">{low:.2f}</text>'
        f'<text x="{left}" y="{height - 6}" font-size="12">step {steps[0]}</text>'
        f'<text x="{width - 8}" y="{height - 6}" font-size="12" text-anchor="end">'
        f"step {steps[-1]}</text></svg>"
    )


def _products(record: dict[str, Any]) -> str:
    parts = []
    for product in record["products"]:
        parts.append(f"<p>{escape(funnel.product_line(product))}</p>")
        if product["makes"] == "model":
            parts.append(_curve(product.get("metrics", [])))
            parts.append(f"<p>A sample:</p><pre>{escape(product['summary']['sample'])}</pre>")
    return "<h2>Products</h2>" + "".join(parts) if parts else ""


def render(record: dict[str, Any], out: Path) -> str:
    """The page for a run's record."""
    t = record["totals"]
    inputs = "".join(
        _row([escape(f["path"]), f["format"], funnel.amount(f["bytes"])], numbers=frozenset({2}))
        for f in record["inputs"][:50]
    )
    more = len(record["inputs"]) - 50
    title = f"llmcurate: {record['recipe']}"
    corrupt = "".join(
        _row([escape(e["file"]), str(e["offset"]), escape(e["what"])])
        for s in record["stages"][:1]
        for e in s["corrupt_examples"][:20]
    )
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><p>{escape(record['description'])}</p>"
        f"<p><b>{t['read']}</b> documents read, <b>{t['kept']}</b> kept, <b>{t['rejected']}</b>"
        f" rejected; {t['skipped']} other records skipped, {t['corrupt']} corrupt;"
        f" {funnel.amount(t['bytes_in'])} in, {funnel.amount(t['bytes_out'])} of text out,"
        f" {t['seconds']:.1f} s.</p>"
        "<p>Why one document went: <code>llmcurate explain ID</code>. Every rejected document is in"
        " <code>rejected/</code> with all its reasons.</p>"
        + (f"<h2>Funnel</h2>{_funnel(record)}" if record["stages"] else "")
        + "".join(f"<p>Note: {escape(n)}.</p>" for n in record["notices"][:50])
        + _products(record)
        + (f"<h2>Corrupt input</h2>{_wide(corrupt)}" if corrupt else "")
        + f"<h2>Input</h2>{_wide(inputs)}"
        + (f"<p>and {more} more files</p>" if more > 0 else "")
        + "</body></html>\n"
    )
