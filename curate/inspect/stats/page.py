"""stats.html: the statistics of a corpus as a page, with the report's charts and look."""

from __future__ import annotations

from typing import Any

from curate.inspect.report.page import frame
from curate.pages import charts
from curate.pages.html import bar, count, lead, name, number, percent, section, shown, table
from curate.run.funnel import amount

TITLES = {
    "languages": ("Languages", "By the column <code>lang</code>."),
    "domains": (
        "Domains",
        "Registered domains of the URLs: the last two parts of the host, three where the second is"
        " a common one of a country (<code>bbc.co.uk</code>).",
    ),
    "sources": ("Sources", "By the column <code>source</code>: the file or the collection."),
    "dates": ("Dates", "By the column <code>date</code>."),
}
QUANTILES = {"least": "least", "p10": "10 %", "p50": "median", "p90": "90 %", "most": "most"}
MOST_COLUMNS = 60


def render(found: dict[str, Any], inputs: list[str]) -> str:
    """The page for the statistics of the inputs."""
    tiles = [
        (count(found["documents"]), "documents with text"),
        (amount(found["text_bytes"]), "of text"),
        (count(found["lengths"]["words"]["mean"]), "words in a document on average"),
        (count(found["without_text"]), "documents without text"),
        (count(sum(found["skipped"].values())), "other records"),
        (count(found["corrupt"]), "corrupt stretches"),
    ]
    cells = "".join(f"<div class=tile><b>{a}</b><span>{b}</span></div>" for a, b in tiles)
    names = ", ".join(name(i) for i in inputs[:8]) + (" \u2026" if len(inputs) > 8 else "")
    head = f"<h1>Corpus statistics</h1><p class=lead>{names}</p><div class=tiles>{cells}</div>"
    chapters = [
        section(
            "lengths",
            "Lengths",
            lead(
                "How long documents are. Half of them are shorter than the median; words are what"
                " stands between white space. Heights grow with the square root of the number."
            ),
            _numbers(found["lengths"]),
        ),
        _columns(found["columns"]),
        *(_labels(key, found[key], found["documents"]) for key in TITLES),
        section(
            "notices",
            "Notices",
            "<ul>" + "".join(f"<li>{shown(n)}</li>" for n in found["notices"][:50]) + "</ul>"
            if found["notices"]
            else "",
        ),
    ]
    return frame("Corpus statistics: llmcurate", head, chapters)


def _columns(columns: dict[str, Any]) -> tuple[str, str, str]:
    if not columns:
        return section("columns", "Measures")
    shown_ = dict(list(columns.items())[:MOST_COLUMNS])
    more = len(columns) - len(shown_)
    return section(
        "columns",
        "Measures",
        lead("Numeric columns: what steps measured (<code>step.name</code>), or the input's own."),
        _numbers(shown_),
        f"<p class=note>and {more} more columns in stats.json</p>" if more else "",
    )


def _numbers(values: dict[str, Any]) -> str:
    rows = [
        [name(n), *(number(v[k]) for k in QUANTILES), number(v["mean"]), count(v["count"])]
        for n, v in values.items()
    ]
    head = ["", *QUANTILES.values(), "mean", "documents"]
    cards = "".join(
        f"<article class=card><h3>{name(n)}</h3><figure>"
        f"{charts.histogram(v['histogram'], f'documents by {n}')}</figure></article>"
        for n, v in values.items()
        if len(v["histogram"]["counts"]) > 1
    )
    return table(head, rows, range(1, len(head))) + f"<div class=cards>{cards}</div>"


def _labels(key: str, group: dict[str, Any], documents: int) -> tuple[str, str, str]:
    title, about = TITLES[key]
    if not group["top"]:
        return section(key, title)
    most = max(n for _, n, _ in group["top"])
    rows = [
        [name(label), bar(n, most), count(n), percent(n, documents), amount(size)]
        for label, n, size in group["top"]
    ]
    more = group["distinct"] - len(rows)
    rest = f" {count(group['distinct'])} in all; the first {len(rows)}." if more > 0 else ""
    without = documents - group["documents"]
    rest += f" {count(without)} documents have none." if without else ""
    head = ["", "", "documents", "share", "text"]
    return section(key, title, lead(about + rest), table(head, rows, {2, 3, 4}))
