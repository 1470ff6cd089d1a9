"""What the documents are like: copies, languages, and measures that no rule limits."""

from __future__ import annotations

from curate.report import charts
from curate.report.diff import word_diff
from curate.report.duplicates import SIZES, Method, Pair
from curate.report.figures import Figures
from curate.report.html import (
    bar,
    count,
    details,
    lead,
    name,
    percent,
    quote,
    section,
    shown,
    table,
)

MOST_MEASURES = 24


def duplicates(figures: Figures) -> tuple[str, str, str]:
    """Clusters of copies by method, and pairs side by side."""
    if not any(m.members for m in figures.duplicates):
        return section("duplicates", "Duplicates")
    return section(
        "duplicates",
        "Duplicates",
        lead(
            "Documents, or passages of them, that are copies of each other form a cluster; one of"
            " them stays."
            " <b>Similarity</b> is the share of short runs of words (shingles) that two texts have"
            " in common: 1 means all of them. <code>decisions.parquet</code> lists every member."
        ),
        "".join(_method(m) for m in figures.duplicates if m.members),
    )


def _unlinked(method: Method) -> str:
    """A method that knows what was seen before, but not where."""
    documents, passages = method.unlinked or (0, 0)
    said = (
        f"{count(documents)} documents dropped and {count(passages)} passages cut because most of"
        " them was seen before. A Bloom filter does not know where: there are no pairs to show."
    )
    return f"<p class=about>{said}</p>"


def _method(method: Method) -> str:
    if method.unlinked is not None:
        chart = _similarity(method, "share of each that was seen before")
        head = f"<h3>{shown(method.name)}</h3>"
        return f"<article class=card>{head}{_unlinked(method)}{chart}</article><br>"
    most = max(method.sizes.values())
    body = [
        [_size(bound), count(n), bar(n, most, f"{n} clusters")]
        for bound, n in sorted(method.sizes.items())
    ]
    dropped = method.members - method.clusters
    copies = "copy" if dropped == 1 else "copies"
    of, gone = ("passages", "cut") if method.passages else ("documents", "dropped")
    left = table([f"{of} in a cluster", "clusters", ""], body, numbers={1})
    largest = ", ".join(f"{count(n)} ({name(kept)})" for n, kept in method.largest[:3])
    parts = [
        f"<h3>{shown(method.name)}</h3><p class=about>{count(method.clusters)} clusters with"
        f" {count(method.members)} {of}; {count(dropped)} {copies} {gone}. The largest, with"
        f" the document that keeps a copy: {largest}.</p>{left}"
    ]
    parts.append(_similarity(method, "similarity of the copies to their partner"))
    pairs = "".join(_pair(p, i == 0) for i, p in enumerate(method.pairs))
    return f"<article class=card>{''.join(parts)}{pairs}</article><br>"


def _similarity(method: Method, caption: str) -> str:
    if method.similarity is None:
        return ""
    chart = charts.histogram(method.similarity.dump(), "copies by similarity", only_marked=True)
    return f"<figure>{chart}<figcaption>{caption}</figcaption></figure>"


def _size(bound: int) -> str:
    above = [s for s in SIZES if s > bound]
    if not above:
        return f"{count(bound)} and more"
    return str(bound) if above[0] == bound + 1 else f"{count(bound)} to {count(above[0] - 1)}"


def _pair(pair: Pair, opened: bool) -> str:
    left, right, same = word_diff(pair.text, pair.other)
    said = f"similarity {pair.similarity:.3f}: {name(pair.id)} and {name(pair.partner)}"
    if same:
        return details(f"{said}: the same words", quote(pair.text))
    inner = (
        "<div class=sides>"
        f"<div><p class=about>dropped: {name(pair.id)}</p><pre dir=auto>{left}</pre></div>"
        f"<div><p class=about>partner: {name(pair.partner)}</p><pre dir=auto>{right}</pre></div>"
        "</div><p class=about>From the first difference. <del>Only in the dropped one</del>,"
        " <ins>only in its partner</ins>.</p>"
    )
    return details(said, inner, opened)


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
