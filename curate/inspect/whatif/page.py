"""whatif.html: the answer as one self-contained page, in the report's look."""

from __future__ import annotations

from curate.disk.units import format_bytes
from curate.inspect.whatif.figures import Answer, RuleFigures
from curate.pages.charts import short
from curate.pages.templates import render as render_template

MOST_RULES = 60


def render(answer: Answer) -> str:
    """The page."""
    curves = [r for r in answer.rules if r.rule is not None and _bends(r)]
    curves.sort(key=lambda r: r.rule is None or r.rule.was == r.rule.now)  # changed ones first
    rules = sorted((r for r in answer.rules if r.marks), key=lambda r: (-r.marks, r.name))
    return render_template(
        "whatif.html",
        answer=answer,
        totals=_totals(answer),
        curves=[(r, *_curve(r)) for r in curves[:MOST_RULES]],
        matrix_rules=[(r.name, r.marks) for r in rules],
    )


def _totals(answer: Answer) -> list[tuple[str, str]]:
    tokens = short(answer.after.bytes / answer.ratio)
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


def _bends(figures: RuleFigures) -> bool:
    """Whether some limit keeps other documents than the next one."""
    return len({(p.kept.documents, p.unmeasured.documents) for p in figures.curve}) > 1


def _curve(
    figures: RuleFigures,
) -> tuple[list[tuple[float, float, float]], list[tuple[float, str]]]:
    """(limit, kept for certain, kept at most) of each point, and the limits before and now."""
    assert figures.rule is not None
    was, now = figures.rule.was.threshold, figures.rule.now.threshold
    marks = [] if now is None else [(now, f"limit {short(now)}")]
    if was is not None and was != now:
        marks.append((was, f"was {short(was)}"))
    # A limit that no value comes near (100,000 words) would squeeze the others.
    before, last = figures.curve[-2:]
    near = figures.curve[:-1] if last.threshold > 5 * before.threshold > 0 else figures.curve
    points = [
        (p.threshold, float(p.kept.documents), float(p.kept.documents + p.unmeasured.documents))
        for p in near
    ]
    return points, marks
