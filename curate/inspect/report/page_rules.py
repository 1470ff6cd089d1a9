"""The rules: what each dropped, why (values beside the limit), examples, overlap, and cuts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from curate.inspect.report.examples import Example
from curate.inspect.report.figures import Figures
from curate.inspect.report.rules import Rule
from curate.pages import charts
from curate.pages.html import (
    bar,
    count,
    details,
    lead,
    name,
    number,
    quote,
    said,
    section,
    shown,
    table,
)

MOST_CARDS = 40
MOST_ROWS = 100
MATRIX = 12
KEY = (
    "<p class='about key'><i class=stays></i>stays as far as this rule goes"
    "<i class=goes></i>marked by this rule</p>"
)


def chapter(figures: Figures) -> tuple[str, str, str]:
    """A table of all rules, then a card for each with its values and examples."""
    rules = list(figures.rules.rules.values())
    if not rules:
        return section("rules", "Rules")
    most = max(r.marked for r in rules)
    head = ["rule", "marks", "", "dropped first", "only this rule", "drops where"]
    body = [
        [
            name(r.name),
            count(r.marked),
            bar(0, most, gone=r.marked),
            count(r.first),
            count(r.only),
            condition(r),
        ]
        for r in rules[:MOST_ROWS]
    ]
    more = len(rules) - MOST_CARDS
    return section(
        "rules",
        "Rules",
        lead(
            "Every step measures every document of its stage, so a document may be marked by"
            " several rules. <b>Marks</b> counts all of them; <b>dropped first</b> those whose"
            " first reason this is; <b>only this rule</b> those that no other rule marked: they"
            " would stay without it."
        ),
        table(head, body, numbers={1, 3, 4}),
        lead(
            "The charts show how many documents had which value. Heights grow with the square"
            " root of the number, so that a few documents beside many can be seen."
        ),
        KEY,
        f"<div class=cards>{''.join(card(r, figures) for r in rules[:MOST_CARDS])}</div>",
        f"<p class=note>{more} rarer rules have no chart here; run.json has them.</p>"
        if more > 0
        else "",
    )


def condition(rule: Rule) -> str:
    """When the rule drops, as HTML: `words is below 50`."""
    if rule.threshold is None:
        return ""
    what = name(rule.column.partition(".")[2] if rule.column else "its value")
    if rule.above is None:
        return f"{what} is {number(rule.threshold)}"
    side = "above" if rule.above else "below"
    return f"{what} is {side} {number(rule.threshold)}"


def card(rule: Rule, figures: Figures) -> str:
    """One rule: its chart and a few documents that it marked."""
    parts = [f"<h3>{name(rule.name)}</h3>"]
    said = f"{count(rule.marked)} documents"
    if rule.threshold is not None and rule.above is not None:
        said += f"; drops where {condition(rule)}"
    parts.append(f"<p class=about>{said}.</p>")
    if rule.column is None and rule.least is not None and rule.least == rule.most:
        parts.append(f"<p class=about>Its value is always {number(rule.least)}.</p>")
    elif rule.all is not None and rule.own is not None and len(rule.all.counts) > 1:
        parts.append(f"<figure>{_chart(rule)}{_caption(rule, figures)}</figure>")
    found = figures.examples.get(rule.name, [])
    if found:
        inner = "".join(example(e) for e in found)
        parts.append(details(f"{len(found)} of these documents", inner))
    return f"<article class=card>{''.join(parts)}</article>"


def _chart(rule: Rule) -> str:
    assert rule.all is not None and rule.own is not None
    return charts.histogram(
        rule.all.dump(),
        f"documents by {rule.column or 'value of ' + rule.name}",
        marked=rule.own.counts.tolist(),
        threshold=rule.threshold,
        only_marked=rule.column is None,
        above=rule.above,
    )


def _caption(rule: Rule, figures: Figures) -> str:
    if rule.column is None:
        text = "value of the marked documents; the others' is not recorded"
    else:
        known = figures.rules.ranges[rule.column].count
        stays = (known - rule.marked) / max(1, known)
        measured = f"{name(rule.column)} of {count(known)} documents"
        text = f"{measured}, {stays:.1%} on the side that stays"
    return f"<figcaption>{text}</figcaption>"


def example(found: Example) -> str:
    """A document that a rule marked: value beside the limit, other rules, the text's beginning."""
    why = []
    if found.value is not None:
        limit = "" if found.threshold is None else f" (limit {number(found.threshold)})"
        why.append(f"value <b>{number(found.value)}</b>{limit}")
    if found.detail:
        why.append(said(found.detail, 160))
    if found.also:
        others = ", ".join(shown(a) for a in found.also[:4])
        more = len(found.also) - 4
        why.append(f"also marked by {others}" + (f" and {more} more" if more > 0 else ""))
    head = name(found.id) + (f"<br>{name(found.url)}" if found.url else "")
    body = quote(found.text) if found.text.strip() else "<p class=note>(no text)</p>"
    return f"<p class=about>{head}<br>{'; '.join(why)}</p>{body}"


def overlap(figures: Figures) -> tuple[str, str, str]:
    """How many documents each pair of rules marks together."""
    return overlap_matrix(
        [(r.name, r.marked) for r in figures.rules.rules.values() if r.marked],
        figures.rules.pairs,
        "marks",
        "Of the documents that the rule of a row marks, how many percent the rule of a column"
        " marks too. Two rules that both say 100 could do without each other; rules of"
        " different stages never meet, since a stage sees only what the one before it kept.",
    )


def overlap_matrix(
    rules: Sequence[tuple[str, int]], pairs: Mapping[tuple[str, str], int], does: str, text: str
) -> tuple[str, str, str]:
    """The chapter of it, of the first rules.

    rules: names, and of how many documents; pairs: names in order to how many have both; does: what
    rules do to a document, as the head of the column has it.
    """
    shown_rules = rules[:MATRIX]
    if len(shown_rules) < 2 or not pairs:
        return section("overlap", "Overlap")

    def cell(one: str, many: int, other: str) -> str:
        both = pairs.get((min(one, other), max(one, other)), 0)
        if one == other or not both:
            return "<td>-</td>" if one == other else "<td></td>"
        share = both / many
        colour = f"background:color-mix(in srgb,var(--accent) {55 * share:.0f}%,transparent)"
        return f'<td style="{colour}" title="{both} of {many}">{100 * share:.0f}</td>'

    head = "".join(f"<th>{i + 1}</th>" for i in range(len(shown_rules)))
    rows = "".join(
        f"<tr><td>{i + 1}&ensp;{name(one)}</td><td>{count(many)}</td>"
        + "".join(cell(one, many, other) for other, _ in shown_rules)
        + "</tr>"
        for i, (one, many) in enumerate(shown_rules)
    )
    return section(
        "overlap",
        "Overlap",
        lead(text),
        f"<div class=wide tabindex=0><table class=matrix><thead><tr><th>rule</th><th>{does}</th>"
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div>",
    )


def cuts(record: dict[str, Any]) -> tuple[str, str, str]:
    """What steps cut out of documents that stayed."""
    rows, cards = [], []
    for stage in record["stages"]:
        for rule, spans in sorted(stage["cut"].items(), key=lambda i: (-i[1], i[0])):
            size = stage["cut_bytes"].get(rule, 0)
            rows.append([name(rule), count(spans), count(size)])
        for rule, found in stage.get("cut_examples", {}).items():
            pieces = "".join(_cut(e) for e in found)
            cards.append(f"<article class=card><h3>{name(rule)}</h3>{pieces}</article>")
    if not rows:
        return section("cuts", "Cuts")
    return section(
        "cuts",
        "Cuts",
        lead(
            "Some steps clean a document instead of dropping it. Counted here are the pieces cut"
            " out of (or replaced in) documents that were kept; each is recorded by position in"
            " the column <code>edits</code>."
        ),
        table(["rule", "pieces", "bytes"], rows, numbers={1, 2}),
        f"<div class=cards>{''.join(cards)}</div>" if cards else "",
    )


def _cut(found: dict[str, Any]) -> str:
    rest = found["bytes"] - len(found["cut"].encode("utf-8", "replace"))
    more = f" [and {count(rest)} more bytes]" if rest > 8 else ""
    put = f"<span class=put>{shown(found['put'], 80)}</span>" if found["put"].strip() else ""
    return (
        f"<pre dir=auto>{shown(found['before'], 90)}<span class=cut>{shown(found['cut'], 240)}"
        f"</span>{more}{put}{shown(found['after'], 90)}</pre>"
    )
