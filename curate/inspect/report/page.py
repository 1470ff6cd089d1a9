"""report.html: the run as one self-contained page. Text from documents is shown as text.

Nothing is fetched and nothing runs: the page's policy forbids both to the browser.
"""

from __future__ import annotations

from typing import Any

from curate.inspect.report import (
    page_corpus,
    page_dedup,
    page_end,
    page_funnel,
    page_mix,
    page_perplexity,
    page_rules,
)
from curate.inspect.report.figures import Figures
from curate.pages.html import shown
from curate.pages.style import STYLE

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
Chapter = tuple[str, str, str]


def frame(title: str, head: str, chapters: list[Chapter], foot: str = "") -> str:
    """A page of the chapters that hold anything, with a table of contents."""
    filled = [c for c in chapters if c[2]]
    links = "".join(f'<li><a href="#{a}">{t}</a></li>' for a, t, _ in filled)
    body = "".join(f'<section id="{a}"><h2>{t}</h2>{inner}</section>' for a, t, inner in filled)
    page = (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        '<meta name=referrer content="no-referrer">'
        f"<title>{shown(title)}</title><style>{STYLE}</style></head><body><div class=page>"
        f"<header>{head}</header><nav aria-label=Contents><ol>{links}</ol></nav>"
        f"<main>{body}</main><footer>{foot}</footer></div></body></html>\n"
    )
    return page.encode("utf-8", "replace").decode("utf-8")


def render(record: dict[str, Any], figures: Figures) -> str:
    """The page for a run's record and the figures read from its files."""
    title = f"{record['recipe']}: llmcurate report"
    about = f"<p class=lead>{shown(record['description'])}</p>" if record["description"] else ""
    head = (
        f"<h1>{shown(record['recipe'])}</h1>{about}"
        f"{page_funnel.tiles(record)}{page_funnel.words(record)}"
    )
    chapters = [
        page_funnel.chapter(record),
        page_end.notices(record),
        page_rules.chapter(figures),
        page_rules.overlap(figures),
        page_rules.cuts(record),
        page_dedup.chapter(record, figures),
        page_dedup.ages(figures),
        page_perplexity.chapter(record),
        page_corpus.languages(figures),
        page_corpus.unsure(figures),
        page_corpus.measures(figures),
        page_mix.chapter(record),
        page_end.products(record),
        page_funnel.speed(record),
        page_end.corrupt(record),
        page_end.inputs(record),
        page_end.settings(record),
        page_end.terms(),
    ]
    foot = (
        "Why one document went: <code>llmcurate explain ID --in OUT</code>. Every rejected document"
        " is in <code>rejected/</code> with all its reasons; these figures for programs:"
        " <code>run.json</code>."
    )
    return frame(title, head, chapters, foot)


def failed(record: dict[str, Any]) -> str:
    """What stands in for a report that could not be made."""
    notices = "".join(f"<p>{shown(n)}</p>" for n in record["notices"])
    return frame(
        f"{record['recipe']}: llmcurate report",
        f"<h1>{shown(record['recipe'])}</h1><p>The run is complete and its figures are in"
        f" <code>run.json</code>, but this page could not be made.</p>{notices}",
        [],
    )
