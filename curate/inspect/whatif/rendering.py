"""Print the answer for a terminal, and render whatif.html."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from curate.inspect.whatif.figures import Answer, Language, Point, RuleFigures
from llmcurate.base.disk.units import counted, format_bytes, format_measure, format_short
from llmcurate.base.pages.html import plain, render
from llmcurate.base.terminal import table

MOST_RULES = 20  # in the terminal
PAGE_RULES = 60  # curves on the page
POINTS = 8  # limits of a changed rule in the terminal; --json has all
NAME = 36


def text(answer: Answer) -> str:
    """Return the answer as lines for the terminal."""
    changes = ", ".join(
        f"{plain(n)} {_value(a)} -> {_value(b)}" for n, (a, b) in answer.question.changes.items()
    )
    asked = changes or "the settings of the run"
    lines = [f"{answer.question.out}: {asked}", "", *_kept(answer), "", *meaning(answer)]
    for figures in answer.rules.values():
        if _is_changed(figures) and figures.curve:
            lines += ["", *_changed(figures, answer)]
    lines += ["", *_rules(answer)]
    if answer.notes:
        lines += ["", *(f"note: {note}" for note in answer.notes)]
    return "\n".join(lines)


def _value(value: Any) -> str:
    return plain("none" if value is None else str(value), 60)


def estimate(answer: Answer) -> str:
    """Return the documents kept now as text: `984 (970 to 995)`, or one number if it is exact."""
    now = answer.after
    low, high = now.low.documents, now.high.documents
    whole = f"{now.estimate.documents:,}"
    return whole if low == high else f"{whole} ({low:,} to {high:,})"


def meaning(answer: Answer) -> list[str]:
    """Return one or two sentences that explain the figures."""
    now, before = answer.after, answer.before.documents
    if not answer.question.changes:
        return ["These are the figures of the run; --set tries another value of a setting."]
    if not now.exact and not now.measured:
        return ["What a run would keep is not known until it is made (--apply); the notes say why."]
    change, more = "As many as before.", now.estimate.documents - before
    if more:
        share = f" ({100 * more / before:+.1f} %)" if before else ""
        kind = "more" if more > 0 else "fewer"
        change = f"{counted(abs(more), 'document')} {kind} than before{share}."
    if not now.measured_of and now.exact:
        known = "Exact: nothing had to be measured."
    elif now.exact:
        known = f"Exact: all {counted(now.measured_of, 'document')} in question were measured."
    elif now.measured < now.measured_of:
        known = (
            f"An estimate with a 95 % interval: {now.measured:,} of"
            f" {counted(now.measured_of, 'document')} in question were measured."
        )
    else:
        known = "The interval counts undecided documents as kept and as dropped (see the notes)."
    return [change, known]


def _kept(answer: Answer) -> list[str]:
    tokens = "tokens" if answer.measured_ratio else "tokens (estimate)"
    rows = [
        (label, documents, format_bytes(amount.bytes), format_short(amount.bytes / answer.ratio))
        for label, documents, amount in (
            ("kept before", f"{answer.before.documents:,}", answer.before),
            ("kept now", estimate(answer), answer.after.estimate),
        )
    ]
    return table(("", "documents", "text", tokens), rows)


def limit(figures: RuleFigures) -> str:
    """Return the new limit of a rule as text, such as `> 0.3`."""
    if figures.rule is None or figures.rule.now.threshold is None:
        return "off" if figures.rule is not None else ""
    now = figures.rule.now
    sign = (">" if now.above else "<") + ("=" if now.closed else "")
    return f"{sign} {format_measure(now.threshold)}" + ("; by profile" if now.by_lang else "")


def _changed(figures: RuleFigures, answer: Answer) -> list[str]:
    assert figures.rule is not None
    was, now = figures.rule.was.threshold, figures.rule.now.threshold
    curve, last = figures.curve, len(figures.curve) - 1
    at = {round(i * last / (POINTS - 1)) for i in range(POINTS)}
    at |= {i for i, p in enumerate(curve) if p.threshold in (was, now)}
    rows = [
        (
            format_measure(p.threshold),
            estimate(answer) if p.threshold == now else f"{p.kept.documents:,}" + _up_to(p),
            format_bytes(p.kept.bytes),
            "now" if p.threshold == now else "before" if p.threshold == was else "",
        )
        for p in (curve[i] for i in sorted(at))
    ]
    title = f"{figures.rule.setting}: kept at other limits"
    return [title, *table(("limit", "kept", "text", ""), rows, left=(3,), indent=2)]


def _up_to(point: Point) -> str:
    most = point.kept.documents + point.unmeasured.documents
    return f" to {most:,}" if point.unmeasured.documents else ""


def _rules(answer: Answer) -> list[str]:
    shown = [r for r in by_effect(answer.rules.values()) if r.marks or _is_changed(r)]
    rows = [
        (
            plain(figures.name, NAME),
            limit(figures).replace("; by profile", " *"),
            f"{figures.marks:,}",
            f"{figures.alone.documents:,}",
            format_bytes(figures.alone.bytes),
        )
        for figures in shown[:MOST_RULES]
    ]
    lines = table(("rule", "drops", "fails", "only this", "text"), rows, left=(0, 1))
    if any(limit.endswith("*") for _, limit, *_ in rows):
        lines.append("* by the profile of each language")
    if len(shown) > MOST_RULES:
        lines.append(f"and {len(shown) - MOST_RULES} more (-o PAGE.html and --json have all)")
    idle = sum(1 for r in answer.rules.values() if r.rule is not None and r not in shown)
    if idle:
        lines.append(f"left out: {counted(idle, 'rule')} that no document fails")
    return lines


def _is_changed(figures: RuleFigures) -> bool:
    return figures.rule is not None and figures.rule.was != figures.rule.now


def by_effect(rules: Iterable[RuleFigures]) -> list[RuleFigures]:
    """Sort rules: first those that the new settings change; then by the number of documents that
    fail only this rule; then by the number of all documents that fail it."""
    return sorted(rules, key=lambda r: (not _is_changed(r), -r.alone.documents, -r.marks, r.name))


def touched(answer: Answer) -> dict[str, Language]:
    """Return the languages with any document that was kept before, is kept now or may be kept."""
    return {
        label: of
        for label, of in answer.languages.items()
        if of.before.documents or of.after.documents or of.unmeasured.documents
    }


def page(answer: Answer) -> str:
    effect = [r for r in by_effect(answer.rules.values()) if r.marks or _is_changed(r)]
    drawn = {r.name: _curve(r) for r in effect[:PAGE_RULES] if not _is_flat(r)}
    return render(
        "whatif.html",
        answer=answer,
        estimate=estimate(answer),
        meaning=meaning(answer),
        changed=[r for r in effect if _is_changed(r) and r.name in drawn],
        rules=effect,
        drawn=drawn,
        limit=limit,
        languages=touched(answer),
    )


def _is_flat(figures: RuleFigures) -> bool:
    heights = [p.kept.documents + p.unmeasured.documents for p in figures.curve] or [0]
    return max(heights) - min(heights) <= max(heights) / 1000


def _curve(
    figures: RuleFigures,
) -> tuple[list[tuple[float, float, float]], list[tuple[float, str]]]:
    assert figures.rule is not None
    was, now = figures.rule.was.threshold, figures.rule.now.threshold
    marks = [] if now is None else [(now, f"limit {format_short(now)}")]
    if was is not None and was != now:
        marks.append((was, f"was {format_short(was)}"))
    # A limit far above all values (100,000 words) would squeeze the others.
    before, last = figures.curve[-2:]
    near = figures.curve[:-1] if last.threshold > 5 * before.threshold > 0 else figures.curve
    points = [
        (p.threshold, float(p.kept.documents), float(p.kept.documents + p.unmeasured.documents))
        for p in near
    ]
    return points, marks
