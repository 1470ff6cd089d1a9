"""The page's beginning: the run in figures and in words, the funnel, and the time it took."""

from __future__ import annotations

from typing import Any

from curate.pages import charts
from curate.pages.html import bar, count, lead, name, percent, section, shown, table
from curate.run import funnel
from curate.run.funnel import Row, amount

# Where no tokenizer says it: the rule of thumb for English and a vocabulary of some ten thousand.
BYTES_A_TOKEN = 4.0


def bytes_a_token(record: dict[str, Any]) -> tuple[float, bool]:
    """(bytes of text a token, whether this run's tokenizer measured it)."""
    for product in record["products"]:
        if product["makes"] == "shards" and product.get("tokens"):
            return product["bytes"] / product["tokens"], True
    return BYTES_A_TOKEN, False


def tiles(record: dict[str, Any]) -> str:
    """The run's totals."""
    t = record["totals"]
    ratio, measured = bytes_a_token(record)
    pairs = [
        (count(t["read"]), "documents read"),
        (count(t["kept"]), f"kept ({percent(t['kept'], t['read'])})"),
        (count(t["rejected"]), "rejected, each with a reason"),
        (amount(t["bytes_out"]), "of text kept"),
        (
            ("" if measured else "about ") + count(t["bytes_out"] / ratio),
            "tokens" if measured else "tokens (estimate)",
        ),
        (_time(t["seconds"]), "from start to end"),
    ]
    if not t["read"]:
        pairs = pairs[-1:]
    cells = "".join(f"<div class=tile><b>{a}</b><span>{b}</span></div>" for a, b in pairs)
    return f"<div class=tiles>{cells}</div>"


def words(record: dict[str, Any]) -> str:
    """What happened, in two or three sentences."""
    t = record["totals"]
    if not t["read"]:
        return ""
    said = [
        f"{count(t['read'])} documents ({amount(t['bytes_in'])}) were read and"
        f" {count(t['kept'])} of them kept."
    ]
    top = list(t["by_rule"].items())[:3]
    if top:
        reasons = ", ".join(f"<code>{shown(rule)}</code> ({count(n)})" for rule, n in top)
        said.append(f"Most frequent first reasons: {reasons}.")
    if t["skipped"]:
        said.append(f"{count(t['skipped'])} other records held no documents and were skipped.")
    if t["corrupt"]:
        said.append(
            f"{count(t['corrupt'])} stretches of the input could not be read"
            " (<a href='#corrupt'>listed below</a>)."
        )
    return lead(" ".join(said))


def chapter(record: dict[str, Any]) -> tuple[str, str, str]:
    """The funnel, a step a row."""
    rows = funnel.rows(record)
    if not rows:
        return section("funnel", "Funnel")
    ratio, measured = bytes_a_token(record)
    about = {s["label"]: s["about"] for s in record.get("steps", [])}
    known = about | {"read": "What the reader refused.", "engine": "Set aside by the engine."}
    total = max(1, record["totals"]["read"])
    tokens = f"{'' if measured else 'about '}{ratio:.2f} bytes a token"
    head = ["step", "in", "dropped", "out", "left of all", "text in", "text out", "tokens out"]
    body = [_row(r, total, known.get(r.step, ""), ratio) for r in rows]
    return section(
        "funnel",
        "Funnel",
        lead(
            "Documents pass the steps from top to bottom. One that several rules mark is counted"
            " as dropped where the first of them stands. Sizes are of text, without annotations;"
            f" tokens are estimated at {tokens}"
            + (
                " (this run's tokenizer on what was kept)."
                if measured
                else " (a rule of thumb for English: this run has no tokenizer)."
            )
        ),
        table(head, body, numbers={1, 2, 3, 5, 6, 7}),
    )


def _row(r: Row, total: int, about: str, ratio: float) -> list[str]:
    reasons = ", ".join(f"{shown(k)} {count(n)}" for k, n in list(r.rules.items())[:3])
    more = len(r.rules) - 3
    if more > 0:
        reasons += f" and {more} more"
    if r.cut_bytes:
        reasons += f"{'; ' if reasons else ''}cut {amount(r.cut_bytes)}"
    said = "".join(f"<small>{t}</small>" for t in (shown(about), reasons) if t)
    came = "" if r.text_in is None else amount(r.text_in)
    if r.payload_in:
        pages = f"{amount(r.payload_in)} HTML"
        came = f"{came}<small>+ {pages}</small>" if r.text_in else pages
    text_out = None if r.text_out == 0 and r.payload_in else r.text_out  # pages go on as they are
    went = "" if text_out is None else amount(text_out)
    tokens = "" if text_out is None else charts.short(text_out / ratio)
    left = bar(r.after, total, f"{r.after} of {total} documents left", gone=r.dropped)
    share = f"<small>{percent(r.after, total)}</small>"
    counts = [count(r.before), count(r.dropped), count(r.after)]
    return [name(r.step) + said, *counts, left + share, came, went, tokens]


def speed(record: dict[str, Any]) -> tuple[str, str, str]:
    """Seconds and megabytes a second of each step."""
    rows = [r for r in funnel.rows(record) if r.seconds]
    if not rows and not record["products"]:
        return section("speed", "Time")
    spent: dict[str, tuple[float, int]] = {}
    for stage in record["stages"]:
        for label, seconds in stage["seconds"].items():
            worked = stage.get("worked", {}).get(label, 0)
            before = spent.get(label, (0.0, 0))
            spent[label] = (before[0] + seconds, before[1] + worked)
    most = max((s for s, _ in spent.values()), default=0.0)
    steps = [r.step for r in rows]
    order = {label: i for i, label in enumerate(["read", *steps])}
    order |= {f"{step}: deciding": order[step] for step in steps}
    known = {"read": "read: opening and parsing the input", "write": "write: parquet files"}
    body = []
    for label, (seconds, worked) in sorted(
        spent.items(), key=lambda item: order.get(item[0], len(order))
    ):
        speed = f"{worked / seconds / 1e6:,.1f}" if worked and seconds > 0.01 else ""
        title = shown(known[label]) if label in known else name(label)
        body.append([title, bar(seconds, most), f"{seconds:,.1f}", speed])
    for product in record["products"]:
        seconds = product.get("seconds", 0.0)
        # Training may take a thousand times as long as the steps: no bar beside theirs.
        body.append([name(product["label"]), "", f"{seconds:,.1f}", ""])
    peak = max((s.get("peak_bytes", 0) for s in record["stages"]), default=0)
    return section(
        "speed",
        "Time",
        lead(
            "Seconds of work, added up over all workers, and how much text (for extraction: page"
            " source) went through in a second. A step's first batch of a new installation holds"
            " the compilation of its code. A dedup stands with what its workers did, and apart from"
            " that with its decisions over the whole corpus."
            + (f" A worker held {amount(peak)} of memory at most." if peak else "")
        ),
        table(["step", "", "seconds", "MB/s"], body, numbers={2, 3}),
    )


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
