"""The evaluation of extractors for readers: text for a terminal, and extract-eval.html."""

from __future__ import annotations

from typing import Any

from curate.inspect.evaluate.extractors import RATIOS, VERDICTS, Evaluation
from curate.inspect.evaluate.extractors_gold import FIELDS
from llmcurate.base.disk.units import counted, format_count, format_percent
from llmcurate.base.pages import templates
from llmcurate.base.terminal.tables import table

WORST_SITES = 30


def kinds_of(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """(measure, its title) of the F1s that the gold allows: of words, of snippets."""
    kinds = [("texts", "words", "F1 of words"), ("snippets", "snippets", "F1 of snippets")]
    return [(f"{name}.f1", title) for key, name, title in kinds if figures["all"][key]]


def text_of(figures: dict[str, Any]) -> str:
    """The figures for a terminal."""
    everything = figures["all"]
    shown = [f"{counted(everything['pages'], 'page')} of {everything['sites']:,} sites"]
    shown += notes(figures["counts"])
    for measure, title in kinds_of(figures):
        family = measure.partition(".")[0]
        head = (title, "precision", "recall", "F1", "95 % interval")
        rows = []
        for label, values in everything["extractors"].items():
            ratios = [_number(values[f"{family}.{name}"][0]) for name in RATIOS]
            rows.append((label, *ratios, span(values[measure])))
        for label, values in figures["differences"].items():
            ratios = [_signed(values[f"{family}.{name}"][0]) for name in RATIOS]
            named = f"{label} less {figures['extractors'][0]}"
            rows.append((named, *ratios, span(values[measure], signed=True)))
        shown += ["", *table(head, rows)]
    groups = figures["page_types"]
    if len(groups) > 1:
        for measure, title in kinds_of(figures):
            head = (title, "pages", *figures["extractors"])
            cells = [
                (
                    str(group["name"] or "(not stated)"),
                    format_count(group["pages"]),
                    *(_number(v[measure][0]) for v in group["extractors"].values()),
                )
                for group in groups
            ]
            shown += ["", *table(head, cells)]
    shown += _metadata(everything)
    return "\n".join(shown)


def _metadata(everything: dict[str, Any]) -> list[str]:
    rows = []
    for label, values in everything["extractors"].items():
        if any(values[f"{name}.missing"][0] not in (None, 1.0) for name in FIELDS):
            for name in FIELDS:
                shares = [format_percent(values[f"{name}.{v}"][0]) for v in VERDICTS]
                stated = format_count(everything["stated"][name])
                rows.append((f"{name} by {label}", stated, *shares))
    return ["", *table(("metadata", "stated", *VERDICTS), rows)] if rows else []


def notes(counts: dict[str, int]) -> list[str]:
    """What was not scored, one sentence each."""
    facts = [
        (counts["gold_without_page"], "gold rows have no page in the input"),
        (counts["gold_with_refused_page"], "of them have one that cannot be read whole"),
        (counts["gold_repeated"], "gold rows name a page that an earlier row names"),
        (counts["pages_without_gold"], "pages have no gold"),
        (counts["pages_repeated"], "pages repeat one that is scored"),
    ]
    return [f"{number:,} {what}" for number, what in facts if number]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"


def span(figure: list[float | None], signed: bool = False) -> str:
    """The interval of a figure: `0.812 to 0.834`."""
    ends = [_signed(v) if signed else _number(v) for v in figure[1:]]
    return "" if "-" in ends else " to ".join(ends)


def render(evaluation: Evaluation, figures: dict[str, Any]) -> str:
    """extract-eval.html."""
    worst, empty = evaluation.worst()
    return templates.render(
        "evaluate/extractors.html",
        evaluation=figures,
        kinds=kinds_of(figures),
        notes=notes(figures["counts"]),
        worst=worst,
        empty=empty,
        sites=figures["sites"][:WORST_SITES],
        span=span,
        fields=FIELDS,
    )
