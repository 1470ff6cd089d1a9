"""The answer as one self-contained page, in the report's look."""

from __future__ import annotations

from curate.inspect.report.page import frame
from curate.inspect.report.page_rules import overlap_matrix
from curate.inspect.whatif.figures import Amount, Answer, RuleFigures
from curate.pages import charts
from curate.pages.html import bar, count, lead, name, number, percent, section, shown, table
from curate.run.funnel import amount

MOST_RULES = 60
Chapter = tuple[str, str, str]


def render(answer: Answer) -> str:
    """The page."""
    title = f"{answer.question.record['recipe']}: what if"
    changes = "".join(
        f"<li>{name(n)}: {shown(a, 80)} becomes <b>{shown(b, 80)}</b></li>"
        for n, (a, b) in answer.question.changes.items()
    )
    asked = f"<ul>{changes}</ul>" if changes else "<p class=lead>The settings of the run.</p>"
    head = f"<h1>{shown(title)}</h1>{asked}{_tiles(answer)}"
    chapters = [
        _notes(answer),
        _curves(answer),
        _shares(answer),
        _matrix(answer),
        _languages(answer),
    ]
    foot = "Counted from the scores that the run stored; no text was measured again."
    return frame(f"{title}: llmcurate", head, chapters, foot)


def _tiles(answer: Answer) -> str:
    about = "" if answer.measured_ratio else "about "
    tiles = [
        (count(answer.before.documents), "kept before"),
        (count(answer.after.documents), "kept now"),
        (count(answer.gained.documents), "new among them"),
        (count(answer.lost.documents), "no longer kept"),
        (
            amount(answer.after.bytes),
            f"of text, {about}{charts.short(answer.after.bytes / answer.ratio)} tokens",
        ),
    ]
    if answer.unmeasured.documents:
        tiles.insert(4, (count(answer.unmeasured.documents), "more at most, not measured yet"))
    if answer.resolved:
        least, most = answer.bounds()
        both = f"{count(least.documents)} to {count(most.documents)}"
        tiles.insert(2, (both, "kept, as dedups may decide otherwise"))
    inner = "".join(f"<div class=tile><b>{a}</b><span>{b}</span></div>" for a, b in tiles)
    return f"<div class=tiles>{inner}</div>"


def _notes(answer: Answer) -> Chapter:
    items = "".join(f"<li>{shown(n, 600)}</li>" for n in answer.notes)
    return section("notes", "What this cannot say", f"<ul>{items}</ul>" if items else "")


def _curves(answer: Answer) -> Chapter:
    """Changed rules first."""
    drawn = [r for r in answer.rules if r.rule is not None and _bends(r)]
    drawn.sort(key=lambda r: r.rule is None or r.rule.was == r.rule.now)
    cards = "".join(_card(r, answer) for r in drawn[:MOST_RULES])
    return section(
        "curves",
        "Yield",
        lead(
            "Documents that are kept at other limits of one rule, all others as asked. The line is"
            " what is certain; the grey above it are documents that later steps have not measured."
        )
        if cards
        else "",
        f"<div class=cards>{cards}</div>" if cards else "",
    )


def _bends(figures: RuleFigures) -> bool:
    """Whether some limit keeps other documents than the next figures."""
    return len({(p.kept.documents, p.unmeasured.documents) for p in figures.curve}) > 1


def _card(figures: RuleFigures, answer: Answer) -> str:
    assert figures.rule is not None
    was, now = figures.rule.was.threshold, figures.rule.now.threshold
    marks = [] if now is None else [(now, f"limit {charts.short(now)}")]
    if was is not None and was != now:
        marks.append((was, f"was {charts.short(was)}"))
    # A limit that no value comes near (100,000 words) would squeeze the others.
    before, last = figures.curve[-2:]
    near = figures.curve[:-1] if last.threshold > 5 * before.threshold > 0 else figures.curve
    points = [
        (p.threshold, float(p.kept.documents), float(p.kept.documents + p.unmeasured.documents))
        for p in near
    ]
    chart = charts.yields(points, figures.scale, f"documents kept by {figures.rule.setting}", marks)
    rows = [
        [number(p.threshold), count(p.kept.documents), amount(p.kept.bytes),
         charts.short(p.kept.bytes / answer.ratio), count(p.unmeasured.documents)]
        for p in figures.curve
    ]  # fmt: skip
    head = ["limit", "kept", "text", "tokens", "unmeasured"]
    inner = table(head, rows, range(5))
    return (
        f"<article class=card><h3>{name(figures.rule.setting)}</h3>"
        f"<p class=about>{name(figures.rule.column())}; drops what is"
        f" {'above' if figures.rule.now.above else 'below'}</p><figure>{chart}</figure>"
        f"<details><summary>all {len(rows)} limits</summary>{inner}</details></article>"
    )


def _shares(answer: Answer) -> Chapter:
    rules = [r for r in answer.rules if r.marks]
    most = max((r.marks for r in rules), default=0)
    rows = [
        [name(r.name), bar(0, most, gone=r.marks), count(r.marks), *_amount(r.alone, answer)]
        for r in rules[:MOST_RULES]
    ]
    return section(
        "shares",
        "Own share",
        lead(
            "How many documents a rule fails, and how many it alone holds back: without it they"
            " would pass every rule that measured them."
        )
        if rows
        else "",
        table(["rule", "", "fails", "alone", "their text", "tokens"], rows, {2, 3, 4, 5})
        if rows
        else "",
    )


def _amount(of: Amount, answer: Answer) -> list[str]:
    return [count(of.documents), amount(of.bytes), charts.short(of.bytes / answer.ratio)]


def _matrix(answer: Answer) -> Chapter:
    rules = sorted((r for r in answer.rules if r.marks), key=lambda r: (-r.marks, r.name))
    return overlap_matrix(
        [(r.name, r.marks) for r in rules],
        answer.overlap,
        "fails",
        "Of the documents that a row's rule fails, how many percent a column's fails too.",
    )


def _languages(answer: Answer) -> Chapter:
    rows = [
        [
            name(label),
            count(x.before.documents),
            count(x.after.documents),
            count(x.unmeasured.documents),
            percent(x.after.documents, x.before.documents),
            amount(x.after.bytes),
        ]
        for label, x in answer.languages.items()
    ]
    head = ["language", "kept before", "kept now", "unmeasured", "now of before", "text now"]
    return section("languages", "Languages", table(head, rows, range(1, 6)) if rows else "")
