"""What the documents are like: languages, and measures that no rule limits."""

from __future__ import annotations

from curate.inspect.report.figures import Figures
from curate.inspect.report.unsure import LEAST
from curate.pages import charts
from curate.pages.html import (
    bar,
    count,
    details,
    lead,
    name,
    number,
    percent,
    quote,
    section,
    shown,
    table,
)

MOST_MEASURES = 24


def languages(figures: Figures) -> tuple[str, str, str]:
    """Documents by the label in the column lang, and how many of them stay."""
    if not figures.languages:
        return section("languages", "Languages")
    body = [
        [
            shown(lang, 40),
            count(kept + gone),
            count(kept),
            bar(kept, kept + gone, f"{kept} of {kept + gone} kept"),
            percent(kept, kept + gone),
        ]
        for lang, (kept, gone) in figures.languages.items()
    ]
    return section(
        "languages",
        "Languages",
        lead("By the column <code>lang</code>: the most frequent labels, and what stays of them."),
        table(["language", "documents", "kept", "share kept", ""], body, numbers={1, 2, 4}),
    )


def unsure(figures: Figures) -> tuple[str, str, str]:
    """What went for a score in the middle: by label, and some texts that would stay otherwise."""
    if not figures.unsure:
        return section("unsure", "Unsure languages")
    body = [[shown(row.lang, 40), count(row.dropped), count(row.alone)] for row in figures.unsure]
    texts = "".join(
        details(
            f"{shown(row.lang, 40)}: {len(row.examples)} of {count(row.alone)}",
            "".join(
                f"<p class=about>{name(id_)}; score <b>{number(score)}</b></p>{quote(text)}"
                for id_, score, text in row.examples
            ),
        )
        for row in figures.unsure
        if row.examples
    )
    return section(
        "unsure",
        "Unsure languages",
        lead(
            f"Dropped by <code>language_score</code> with a score from {number(LEAST)} up to the"
            " threshold. Dialects, short informal texts and those that switch between languages"
            " have such scores; read some before you trust the threshold. <b>Only for that</b>:"
            " documents that no other rule marked; a lower threshold would keep them."
        ),
        table(["taken for", "documents", "only for that"], body, numbers={1, 2}),
        texts,
    )


def measures(figures: Figures) -> tuple[str, str, str]:
    """Numbers that steps or the input gave and no rule has a limit on."""
    if not figures.rules.others:
        return section("measures", "Other measures")
    cards = []
    for column, histogram in list(figures.rules.others.items())[:MOST_MEASURES]:
        known = figures.rules.ranges[column]
        chart = charts.histogram(histogram.dump(), f"documents by {column}")
        mean = f"mean {known.total / known.count:.4g}" if known.count else ""
        cards.append(
            f"<article class=card><h3>{name(column)}</h3><figure>{chart}<figcaption>"
            f"{count(known.count)} documents, kept and rejected; {mean}</figcaption></figure>"
            "</article>"
        )
    more = len(figures.rules.others) - MOST_MEASURES
    rest = f"<p class=note>and {more} more columns</p>" if more > 0 else ""
    return section(
        "measures",
        "Other measures",
        lead("Measured, but no rule of this run has a limit on it."),
        f"<div class=cards>{''.join(cards)}</div>{rest}",
    )
