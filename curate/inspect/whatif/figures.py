"""The answer of `whatif`: what is kept with old and new settings, by rule, threshold and language.

Bytes are those of the stored texts. Later steps might shorten the text of a dropped document, so
its bytes are an upper bound. Tokens are estimated from bytes, with the run's own ratio if the run
encoded token shards.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from curate.inspect.report.store import Range, edges_of
from curate.inspect.whatif.question import Question, Rule, ask
from curate.inspect.whatif.sample import DedupChange, Measured, measure
from curate.inspect.whatif.scores import THREADS, Decider, Scores, Verdicts, read
from llmcurate.base.disk.units import counted

MOST_LANGS = 20
BLOCK = 1 << 16  # rows at a time: more would allocate memory at every step


@dataclass(frozen=True)
class Amount:
    documents: int
    bytes: int
    tokens: int


Amounts = Callable[[float, float], Amount]  # (documents, bytes) -> amount


@dataclass(frozen=True)
class Point:
    """The documents kept if one rule has this threshold and all other rules their new settings."""

    JSON = (
        "threshold", "kept.documents", "kept.bytes", "kept.tokens",
        "unmeasured=unmeasured.documents",
    )  # fmt: skip
    threshold: float
    kept: Amount
    unmeasured: Amount  # pass all known rules, but other rules are not known


@dataclass(frozen=True)
class RuleFigures:
    """Figures of a rule, with the new settings."""

    JSON = (
        "marks", "alone", "rule.setting?rule", "rule.column?rule", "was=rule.was.threshold?rule",
        "now=rule.now.threshold?rule", "rule.now.above?rule", "curve?rule",
    )  # fmt: skip
    name: str
    marks: int  # number of documents that fail the rule
    alone: Amount  # documents that fail only this rule
    rule: Rule | None  # None if stored scores do not decide it
    curve: list[Point] = field(default_factory=list)  # what other thresholds would keep
    scale: str = "linear"  # of the thresholds: linear or log


@dataclass(frozen=True)
class Language:
    """Amounts of documents of one language: kept with old settings, with new, and undecided."""

    before: Amount  # kept with the old settings
    after: Amount  # kept with the new settings
    unmeasured: Amount  # not decided with the new settings


class Estimate(NamedTuple):
    """The documents kept with the new settings, with a 95 % interval."""

    estimate: Amount
    low: Amount  # lower end of the interval
    high: Amount  # upper end of the interval
    exact: bool
    measured: int  # number of documents that were run again
    measured_of: int  # number of documents whose outcome the run did not store
    unmeasured: Amount  # pass the known rules; others are not known without a run


class Changed(NamedTuple):
    was: Any
    now: Any


@dataclass(frozen=True)
class Answer:
    """The documents that a run would have kept with other settings, and why."""

    JSON = (
        "question.out", "changes", "documents", "before", "after", "gained", "lost",
        "bytes_a_token", "tokens_measured=measured_ratio", "rules", "languages", "resolved",
        "measured_again", "notes",
    )  # fmt: skip
    question: Question
    ratio: float  # bytes per token
    measured_ratio: bool  # True if the run encoded its text
    documents: int  # number of all documents
    before: Amount  # kept with the old settings
    after: Estimate  # kept with the new settings
    gained: Amount  # kept only with the new settings
    lost: Amount  # kept only with the old settings
    rules: dict[str, RuleFigures]
    languages: dict[str, Language]
    resolved: list[DedupChange]  # changes at each dedup step
    notes: list[str]

    @property
    def bytes_a_token(self) -> float:
        return round(self.ratio, 4)

    @property
    def changes(self) -> dict[str, Changed]:
        return {name: Changed(*values) for name, values in self.question.changes.items()}

    @property
    def measured_again(self) -> dict[str, str]:
        return {name: why for name, (_, why) in self.question.undecidable.items()}


def answer(out: Path, sets: tuple[str, ...] = (), most: int = 0, quiet: bool = False) -> Answer:
    """Return what the run in OUT would have kept with the settings `sets`. At most `most` documents
    are run again to find out; 0 means as many as the time allows."""
    question = ask(out, sets)
    scores = read(question.corpus, question.columns)
    size = scores.bytes.copy()  # of the stored texts, before `measure` changes it
    decider = Decider(question, scores)
    now = decider.decide()
    measured = measure(question, decider, now, most, quiet)
    was = np.arange(len(scores)) < scores.kept
    ratio, by_tokens = question.bytes_a_token
    kept = now.kept

    def amount(documents: float, size: float) -> Amount:
        return Amount(int(documents), int(size), round(int(size) / ratio))

    def of(mask: np.ndarray, size: np.ndarray = scores.bytes) -> Amount:
        return amount(int(np.count_nonzero(mask)), size[mask].sum())

    spread = zip(*measured.interval(kept, scores.bytes), strict=True)
    middle, low, high = (amount(round(documents), b) for documents, b in spread)
    left = of(now.unmeasured)
    after = Estimate(middle, low, high, measured.exact, measured.documents, measured.of, left)
    return Answer(
        question,
        ratio,
        by_tokens,
        len(scores),
        of(was, size),
        after,
        of(kept & ~was),
        of(was & ~kept, size),
        _rules(question, decider, now, amount),
        _languages(scores, (was, kept, now.unmeasured), amount),
        measured.dedup_changes,
        _notes(question, now, measured),
    )


def _rules(
    question: Question, decider: Decider, now: Verdicts, amount: Amounts
) -> dict[str, RuleFigures]:
    limited = {r.name: r for r in question.rules if r.name in decider.trusted}
    names = [*limited, *(n for n in now.fails if n not in limited)]
    with ThreadPoolExecutor(THREADS) as pool:  # numpy releases the interpreter lock
        each = pool.map(lambda n: _rule(n, limited.get(n), decider, now, amount), names)
        return dict(zip(names, each, strict=True))


def _rule(
    name: str, rule: Rule | None, decider: Decider, now: Verdicts, amount: Amounts
) -> RuleFigures:
    fails = now.fails.get(name)
    curve, scale = _curve(rule, decider, now, amount) if rule else ([], "linear")
    if fails is None:  # the rule is switched off
        return RuleFigures(name, 0, amount(0, 0), rule, curve, scale)
    alone = np.flatnonzero((now.number == 1) & fails)
    share = amount(len(alone), now.scores.bytes[alone].sum())
    return RuleFigures(name, int(np.count_nonzero(fails)), share, rule, curve, scale)


def _curve(rule: Rule, decider: Decider, now: Verdicts, amount: Amounts) -> tuple[list[Point], str]:
    limit, column = rule.now, now.scores.columns[rule.column()]
    if not limit.setting:
        return [], "linear"
    limits = [t for t in (rule.was.threshold, limit.threshold) if t is not None]
    spread = _thresholds(column, limits, rule.column() in now.scores.integers)
    if spread is None:
        return [], "linear"
    points, scale = spread
    counted = _passing(rule, decider, now, points)
    table = [
        Point(float(t), amount(a, b), amount(c, d))
        for t, a, b, c, d in zip(points, *counted, strict=True)
    ]
    return table, scale


def _thresholds(
    column: np.ndarray, limits: list[float], integer: bool
) -> tuple[np.ndarray, str] | None:
    values = column[np.isfinite(column)]
    if not len(values):
        return None
    ends = np.array([values.min(), values.max()], np.float64)
    shape = Range(integer)
    shape.add(ends)
    bins = edges_of(shape, limits)
    edges = bins.edges + 0.5 if bins.edges[0] % 1 == 0.5 else bins.edges
    points = np.unique(np.concatenate([np.round(edges, 6), limits]))
    return (points[points >= 0] if min(*limits, *ends) >= 0 else points), bins.scale


def _passing(rule: Rule, decider: Decider, now: Verdicts, points: np.ndarray) -> list[np.ndarray]:
    """Count documents as if each value in `points` were the rule's threshold. Return four arrays
    with one value per threshold: number and bytes of the documents that pass all rules, then number
    and bytes of those that some rules have not judged and that pass all others."""
    scores, limit = now.scores, rule.now
    column, fails, end = scores.columns[rule.column()], now.fails.get(rule.name), len(points)
    # searchsorted then gives the first threshold at which a value is on the other side.
    side: Literal["left", "right"] = "right" if limit.above == limit.closed else "left"
    rules = decider.question.rules
    after = [r for r in rules if r.step == rule.step and r.now.unless == rule.now.rule]
    only = None if limit.only is None else scores.columns[rule.column(limit.only)]
    documents = np.zeros(2 * (end + 1), np.int64)
    size = np.zeros(2 * (end + 1), np.float64)
    for start in range(0, len(scores), BLOCK):
        block = slice(start, start + BLOCK)
        number = now.number[block]
        passes = number == 0 if fails is None else number == fails[block]
        for other in after:
            judged = scores.columns[other.column()][block]
            passes &= ~other.now.over(judged, other.now.thresholds(decider.langs[block]))
        rows = np.flatnonzero(passes)
        values = column[block][rows]
        at = np.searchsorted(points, values, side)
        free = np.isnan(values)
        if only is not None:
            free |= ~(only[block][rows] > 0)
        # A document that the rule did not see, or does not apply to, passes it.
        free |= decider.until[block][rows] < rule.at
        at[free] = 0 if limit.above else end
        at += (end + 1) * ~now.whole[block][rows]
        documents += np.bincount(at, minlength=2 * (end + 1))
        size += np.bincount(at, scores.bytes[block][rows], minlength=2 * (end + 1))
    counted = []
    for heights in (documents[: end + 1], size[: end + 1], documents[end + 1 :], size[end + 1 :]):
        below = np.cumsum(heights)[:end]
        counted.append(below if limit.above else heights.sum() - below)
    return counted


def _languages(
    scores: Scores, masks: tuple[np.ndarray, np.ndarray, np.ndarray], amount: Amounts
) -> dict[str, Language]:
    if not scores.langs:
        return {}
    names = ["(none)", *scores.langs]
    counted = []
    for mask in masks:
        at = scores.lang[mask] + 1
        documents = np.bincount(at, minlength=len(names))
        size = np.bincount(at, scores.bytes[mask], minlength=len(names)).astype(np.int64)
        counted.append((documents, size))
    count = np.bincount(scores.lang + 1, minlength=len(names))
    order = sorted(range(len(names)), key=lambda i: (-int(count[i]), names[i]))
    return {
        names[i]: Language(*(amount(d[i], b[i]) for d, b in counted))
        for i in order[:MOST_LANGS]
        if count[i]
    }


def _notes(question: Question, now: Verdicts, measured: Measured) -> list[str]:
    notes = []
    if measured.strata:
        notes.append(
            f"{measured.documents:,} of {counted(measured.of, 'document')} were measured, drawn at"
            " random with a fixed seed; --apply measures all of them"
        )
    for step in measured.dedup_changes:
        effects = [
            f"drops {step.dropped:,} of {counted(step.admitted, 'new document')}"
            if step.dropped else "",
            f"drops {step.displaced:,} that it kept before" if step.displaced else "",
            f"keeps {step.returned:,} that it dropped before" if step.returned else "",
        ]  # fmt: skip
        if any(effects):
            notes.append(f"{step.step}: {', '.join(filter(None, effects))}")
    notes += [*measured.notes, *question.corpus.notes]
    if now.scores.forgotten:
        gone = counted(now.scores.forgotten, "rejected document")
        notes.append(f"not counted: {gone} forgotten since the run")
    return notes
