"""The answer for a terminal, and as whatif.html."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from curate.inspect.whatif.figures import Answer, Language, Point, RuleFigures
from llmcurate.base.disk.units import counted, format_bytes, format_measure, format_short
from llmcurate.base.pages.html import plain, render
from llmcurate.base.terminal import table

MOST_RULES = 40  # in the terminal
PAGE_RULES = 60  # curves on the page
MATRIX = 10
POINTS = 5  # thresholds beside each rule; --json has all
WIDE_POINTS = 14  # of a changed figures, each on its line
NAME = 38


def text(answer: Answer) -> str:
    """What is kept before and now, the rules, their overlap, the languages."""
    changes = ", ".join(
        f"{plain(n)} {_value(a)} -> {_value(b)}" for n, (a, b) in answer.question.changes.items()
    )
    asked = changes or "the settings of the run (--set changes them)"
    lines = [f"{answer.question.out}: {asked}", ""]
    lines += _kept(answer)
    for figures in answer.rules:
        if _is_changed(figures):
            lines += ["", *_changed(figures, answer)]
    lines += ["", *_rules(answer)]
    lines += _matrix(answer)
    lines += _languages(answer)
    lines += [f"\n{note}" for note in answer.notes]
    return "\n".join(lines)


def _value(value: Any) -> str:
    return plain("none" if value is None else str(value), 60)


def _kept(answer: Answer) -> list[str]:
    tokens = "tokens" if answer.measured_ratio else "tokens (estimate)"
    rows = [("kept before", answer.before), ("kept now", answer.after)]
    rows += [("  new among them", answer.gained), ("  no longer kept", answer.lost)]
    if answer.unmeasured.documents:
        rows.append(("and of these up to all", answer.unmeasured))
    least, most = answer.bounds()
    if answer.resolved:
        rows += [("at least, by dedups", least), ("at most, by dedups", most)]
    cells = [
        (
            label,
            f"{amount.documents:,}",
            format_bytes(amount.bytes),
            format_short(amount.bytes / answer.ratio),
        )
        for label, amount in rows
    ]
    return table(("", "documents", "text", tokens), cells)


def _limit(figures: RuleFigures) -> str:
    if figures.rule is None or figures.rule.now.threshold is None:
        return "off" if figures.rule is not None else ""
    now = figures.rule.now
    sign = (">" if now.above else "<") + ("=" if now.closed else "")
    return f"{sign} {format_measure(now.threshold)}" + ("; by profile" if now.by_lang else "")


def _thinned(curve: list[Point], most: int, marked: list[float | None]) -> list[Point]:
    if len(curve) <= most:
        return curve
    at = {round(i * (len(curve) - 1) / (most - 1)) for i in range(most)}
    at |= {i for i, p in enumerate(curve) if p.threshold in marked}
    return [curve[i] for i in sorted(at)]


def _changed(figures: RuleFigures, answer: Answer) -> list[str]:
    assert figures.rule is not None
    was, now = figures.rule.was.threshold, figures.rule.now.threshold
    rows = []
    for p in _thinned(figures.curve, WIDE_POINTS, [was, now]):
        which = "now" if p.threshold == now else "before" if p.threshold == was else ""
        most = p.kept.documents + p.unmeasured.documents
        rows.append(
            (
                format_measure(p.threshold),
                f"{p.kept.documents:,}",
                format_bytes(p.kept.bytes),
                format_short(p.kept.bytes / answer.ratio),
                f"to {most:,}" if p.unmeasured.documents else "",
                which,
            )
        )
    title = f"{figures.rule.setting}: kept at other limits ({plain(figures.rule.column())})"
    return [title, *table((), rows, left=(4, 5), indent=2)]


def _rules(answer: Answer) -> list[str]:
    rows = []
    shown = [r for r in by_effect(answer.rules) if r.marks or _is_changed(r)]
    for figures in shown[:MOST_RULES]:
        drawn = _thinned(figures.curve, POINTS, [])
        points = (f"{format_measure(p.threshold)}: {format_short(p.kept.documents)}" for p in drawn)
        rows.append(
            (
                plain(figures.name, NAME),
                _limit(figures),
                f"{figures.marks:,}",
                f"{figures.alone.documents:,}",
                format_bytes(figures.alone.bytes),
                ", ".join(points),
            )
        )
    head = ("rule", "drops", "marks", "alone", "its text", "kept at other limits")
    lines = table(head, rows, left=(0, 5))
    if len(shown) > MOST_RULES:
        lines.append(f"and {len(shown) - MOST_RULES} more (--json has all)")
    idle = sum(1 for r in answer.rules if r.rule is not None and r not in shown)
    if idle:
        lines.append(f"left out: {counted(idle, 'rule')} that no document fails")
    return lines


def _is_changed(figures: RuleFigures) -> bool:
    return figures.rule is not None and figures.rule.was != figures.rule.now


def by_effect(rules: Iterable[RuleFigures]) -> list[RuleFigures]:
    """Changed rules first, then those that hold back most documents alone, then by all that they
    fail."""
    return sorted(rules, key=lambda r: (not _is_changed(r), -r.alone.documents, -r.marks, r.name))


def touched(answer: Answer) -> dict[str, Language]:
    """The languages of which anything is kept, or may be, before or now."""
    return {
        label: of
        for label, of in answer.languages.items()
        if of.before.documents or of.after.documents or of.unmeasured.documents
    }


def _matrix(answer: Answer) -> list[str]:
    rules = sorted((r for r in answer.rules if r.marks), key=lambda r: (-r.marks, r.name))[:MATRIX]
    if len(rules) < 2 or not answer.overlap:
        return []
    rows = []
    for i, a in enumerate(rules):
        cells = [f"{i + 1:>2} {plain(a.name, NAME)}"]
        for b in rules:
            both = answer.overlap.get((min(a.name, b.name), max(a.name, b.name)), 0)
            cells.append("-" if a is b else f"{100 * both / a.marks:.0f}" if both else "")
        rows.append(cells)
    return [
        "",
        "overlap: of a row's documents, how many % the rule of a column fails too",
        *table(("", *(str(i + 1) for i in range(len(rules)))), rows),
    ]


def _languages(answer: Answer) -> list[str]:
    languages = touched(answer)
    if not languages:
        return []
    rows = [
        (
            plain(name, 12),
            *(f"{n.documents:,}" for n in (of.before, of.after, of.unmeasured)),
            format_bytes(of.after.bytes),
        )
        for name, of in languages.items()
    ]
    return ["", *table(("language", "before", "now", "unmeasured", "text now"), rows)]


def page(answer: Answer) -> str:
    """whatif.html: one self-contained page, in the report's look."""
    curves = [
        figures
        for figures in by_effect(answer.rules)
        if figures.rule is not None
        and len({(p.kept.documents, p.unmeasured.documents) for p in figures.curve}) > 1
    ]
    rules = sorted((r for r in answer.rules if r.marks), key=lambda r: (-r.marks, r.name))
    return render(
        "whatif.html",
        answer=answer,
        totals=_totals(answer),
        curves=[(r, *_curve(r)) for r in curves[:PAGE_RULES]],
        matrix_rules=[(r.name, r.marks) for r in rules],
        rules=[r for r in by_effect(answer.rules) if r.marks],
        languages=touched(answer),
    )


def _totals(answer: Answer) -> list[tuple[str, str]]:
    tokens = format_short(answer.after.bytes / answer.ratio)
    totals = [
        (f"{answer.before.documents:,}", "kept before"),
        (f"{answer.after.documents:,}", "kept now"),
        (f"{answer.gained.documents:,}", "new among them"),
        (f"{answer.lost.documents:,}", "no longer kept"),
        (
            format_bytes(answer.after.bytes),
            f"of text, {'' if answer.measured_ratio else 'about '}{tokens} tokens",
        ),
    ]
    if answer.unmeasured.documents:
        more = (f"{answer.unmeasured.documents:,}", "more at most, not measured yet")
        totals.insert(4, more)
    if answer.resolved:
        least, most = answer.bounds()
        between = f"{least.documents:,} to {most.documents:,}"
        totals.insert(2, (between, "kept, as dedups may decide otherwise"))
    return totals


def _curve(
    figures: RuleFigures,
) -> tuple[list[tuple[float, float, float]], list[tuple[float, str]]]:
    assert figures.rule is not None
    was, now = figures.rule.was.threshold, figures.rule.now.threshold
    marks = [] if now is None else [(now, f"limit {format_short(now)}")]
    if was is not None and was != now:
        marks.append((was, f"was {format_short(was)}"))
    # A limit that no value comes near (100,000 words) would squeeze the others.
    before, last = figures.curve[-2:]
    near = figures.curve[:-1] if last.threshold > 5 * before.threshold > 0 else figures.curve
    points = [
        (p.threshold, float(p.kept.documents), float(p.kept.documents + p.unmeasured.documents))
        for p in near
    ]
    return points, marks
