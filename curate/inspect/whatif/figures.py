"""The answer in figures: kept before and after, each rule's share and curve, overlap, languages.

Bytes are those of stored texts: of a rejected document before it would be cut. Tokens are bytes by
the run's own ratio where it encoded shards, by a rule of thumb elsewhere (`tokens_measured`).

Their stored marks say what they decided over the documents of the run. With other documents they
may drop some that they kept (*displaced*) and keep some that they dropped (*returned*). How many at
most follows from what such a step can do (`CorpusStep.reach`) and from its clusters:

- `one` (exact): one document of each cluster stays. So each document that is new displaces at
  most one, and of each cluster whose kept document goes, one of the others returns, unless a new
  one takes its place.
- `cluster` (MinHash): a new document may join clusters, and displace any number. A cluster of
  which a document goes may fall apart, so that all that are left of it return; of one that lost
  the kept document at least one does.
- `any`: whatever reaches it otherwise may change all it decides.
- `own`: it decides on each document by itself, and nothing changes.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.inspect.report.store import Range, edges_of
from curate.inspect.whatif.question import READER, Question, Rule, ask
from curate.inspect.whatif.scores import THREADS, Decider, Scores, Verdicts, read
from curate.run.homes import Corpus
from curate.steps.contracts import CorpusStep
from llmcurate.base.disk.units import counted


@dataclass(frozen=True)
class Resolved:
    """A step that decides over other documents now. admitted, gone: documents that reach it, or
    do not, unlike before, at most; displaced, returned: (least, most) documents; kept, dropped: by
    it, of those that still reach it. displaced_bytes, returned_bytes: most."""

    JSON = ("step", "admitted", "gone", "kept", "displaced", "dropped", "returned")
    step: str
    admitted: int
    gone: int
    displaced: tuple[int, int]
    returned: tuple[int, int]
    kept: int
    dropped: int
    displaced_bytes: int
    returned_bytes: int


@dataclass
class _Reaching:
    """bool[rows] of documents at one step. admitted: that reach it now and did not; gone: that did
    and do not; passed, marked: that reach it as before, and were kept by it, or dropped; kept: of
    those gone, which it kept."""

    admitted: np.ndarray
    gone: np.ndarray
    passed: np.ndarray
    marked: np.ndarray
    kept: np.ndarray


def resolved(question: Question, decider: Decider, now: Verdicts) -> list[Resolved]:
    """Of each such step behind the first change, in order; what is not certain of one counts for
    the next."""
    changed = [r.at for r in question.rules if r.was != r.now]
    unknown = [at for at, _ in question.again.values()]
    first = min([*changed, *unknown, len(question.steps)])
    results: list[Resolved] = []
    for at, step in enumerate(question.was.document_steps):
        if not isinstance(step, CorpusStep) or at < first or step.reach == "own":
            continue
        reaching = _reaching(question, decider, now, at)
        # Of earlier steps it is not known which documents come or go beside those.
        more = sum(r.returned[1] for r in results)
        fewer = sum(r.displaced[1] for r in results)
        if any(place <= at for place in unknown):
            more = fewer = len(now.scores)
        if reaching.admitted.any() or reaching.gone.any() or more or fewer:
            results.append(_bounds(question.corpus, step, reaching, now, more, fewer))
    return results


def _reaching(question: Question, decider: Decider, now: Verdicts, at: int) -> _Reaching:
    place = decider.first  # of the step that marked it, behind all steps for one that is kept
    before = place >= at
    after = place != READER
    places = {label: i for i, label in enumerate(question.steps)}
    for name, mask in now.fails.items():
        if places.get(name.partition(".")[0], READER) < at:
            after = after & ~mask
    stays, gone, marked = before & after, before & ~after, place == at
    return _Reaching(after & ~before, gone, stays & ~marked, stays & marked, gone & ~marked)


def _bounds(
    corpus: Corpus,
    step: CorpusStep,
    of: _Reaching,
    now: Verdicts,
    more: int,
    fewer: int,
) -> Resolved:
    admitted, gone, passed, marked = (
        int(np.count_nonzero(mask)) for mask in (of.admitted, of.gone, of.passed, of.marked)
    )
    new, lost, reach = admitted + more, gone + fewer, step.reach
    # One that is new takes one place, or it may match any number; none matches without a new one.
    displaced = passed if reach == "any" or new else 0
    if reach == "one":
        displaced = min(new, passed)
    least, returned, rows = 0, marked, np.flatnonzero(of.marked)
    if reach != "any":
        returned = min(marked, lost) if reach == "one" else marked if lost else 0
        clusters = _clusters(corpus, step, of) if gone and not fewer else None
        if clusters is not None:
            least, returned, rows = clusters
    size = now.scores.bytes
    return Resolved(
        step.label,
        admitted,
        gone,
        (0, displaced),
        (0 if new else least, returned),
        passed,
        marked,
        _largest(size[of.passed], displaced),
        _largest(size[rows], returned),
    )


def _largest(sizes: np.ndarray, count: int) -> int:
    if count == 0 or count >= len(sizes):
        return int(sizes.sum()) if count else 0
    return int(np.partition(sizes, len(sizes) - count)[len(sizes) - count :].sum())


def _clusters(
    corpus: Corpus, step: CorpusStep, of: _Reaching
) -> tuple[int, int, np.ndarray] | None:
    """(least, most, rows of those) that return, by the clusters that lose a document; None where
    decisions do not tell."""
    method = getattr(step, "method", None)
    if method is None or len(corpus.decisions) != 1 or corpus.is_home:
        return None
    table = pq.read_table(corpus.decisions[0], columns=["id", "cluster", "method", "span_start"])
    table = table.filter(pc.equal(table["method"], method))
    places = np.flatnonzero(of.gone | of.marked | of.passed)
    files = (pq.read_table(path, columns=["id"])["id"] for path in (*corpus.kept, *corpus.gone))
    ids = pa.chunked_array([chunk for file in files for chunk in file.chunks], pa.string())
    at = pc.index_in(table["id"], value_set=ids.take(pa.array(places)))
    decided = at.is_valid().to_numpy(zero_copy_only=False)
    rows = places[at.filter(pa.array(decided)).to_numpy()]
    cluster = table["cluster"].filter(pa.array(decided)).to_numpy()
    # Two steps by one method number their clusters alike.
    if table["span_start"].null_count < len(table) or len(np.unique(rows)) < len(rows):
        return None
    number = int(cluster.max()) + 1 if len(cluster) else 0

    def count(mask: np.ndarray) -> np.ndarray:
        counts: np.ndarray = np.bincount(cluster[mask[rows]], minlength=number)
        return counts

    loses = count(of.kept if step.reach == "one" else of.gone) > 0
    dropped, passed = count(of.marked), count(of.passed)
    headless = (count(of.kept) > 0) & (passed == 0) & (dropped > 0)
    of_each = np.minimum(dropped, 1) if step.reach == "one" else dropped
    back = rows[of.marked[rows] & loses[cluster]]
    return int(np.count_nonzero(headless)), int(of_each[loses].sum()), back


MOST_LANGS = 20
BLOCK = 1 << 16  # rows


@dataclass(frozen=True)
class Amount:
    """Documents, bytes of their texts and tokens."""

    documents: int
    bytes: int
    tokens: int


@dataclass(frozen=True)
class Amounts:
    """Amounts at a ratio of bytes a token."""

    ratio: float

    def __call__(self, documents: float, size: float) -> Amount:
        return Amount(int(documents), int(size), round(int(size) / self.ratio))


@dataclass(frozen=True)
class Point:
    """What is kept at a threshold, all other rules as asked; unmeasured ones come on top."""

    JSON = (
        "threshold", "kept.documents", "kept.bytes", "kept.tokens",
        "unmeasured=unmeasured.documents",
    )  # fmt: skip
    threshold: float
    kept: Amount
    unmeasured: Amount


@dataclass(frozen=True)
class RuleFigures:
    """alone: what only this rule holds back; marks: documents that it fails. rule: None where no
    stored column and threshold decide it."""

    JSON = (
        "marks", "alone", "rule.setting?rule", "rule.column?rule", "was=rule.was.threshold?rule",
        "now=rule.now.threshold?rule", "rule.now.above?rule", "curve?rule",
    )  # fmt: skip
    name: str
    marks: int
    alone: Amount
    rule: Rule | None
    curve: list[Point] = field(default_factory=list)
    scale: str = "linear"


@dataclass(frozen=True)
class Language:
    """before, after: kept documents; unmeasured: those on top of them."""

    before: Amount
    after: Amount
    unmeasured: Amount


class Bounded(NamedTuple):
    """Documents kept at least, by the stored marks, and at most; those never measured."""

    least: Amount
    by_stored_marks: Amount
    most: Amount
    unmeasured: Amount


class Changed(NamedTuple):
    """A setting of the run, and what it would be."""

    was: Any
    now: Any


@dataclass(frozen=True)
class Answer:
    """Everything that is said; lost, gained: documents kept before or now alone."""

    JSON = (
        "question.out", "changes", "documents", "before", "after=bounded", "gained", "lost",
        "bytes_a_token", "tokens_measured=measured_ratio", "rules=named_rules", "overlap=pairs",
        "languages", "resolved", "measured_again", "notes",
    )  # fmt: skip
    question: Question
    ratio: float
    measured_ratio: bool
    documents: int
    before: Amount
    after: Amount
    unmeasured: Amount
    gained: Amount
    lost: Amount
    rules: list[RuleFigures]
    overlap: dict[tuple[str, str], int]
    languages: dict[str, Language]
    resolved: list[Resolved]
    notes: list[str]

    @property
    def bytes_a_token(self) -> float:
        """The ratio, with four digits."""
        return round(self.ratio, 4)

    def bounds(self) -> tuple[Amount, Amount]:
        """The least and most that a run with these settings keeps, where dedups may decide
        otherwise, and documents were never measured."""
        after, more = self.after, self.unmeasured
        gone = [sum(x) for x in zip(*((r.displaced[1], r.displaced_bytes) for r in self.resolved),
                                    strict=True)] or [0, 0]  # fmt: skip
        back = [sum(x) for x in zip(*((r.returned[1], r.returned_bytes) for r in self.resolved),
                                    strict=True)] or [0, 0]  # fmt: skip
        amount = Amounts(self.ratio)
        least = amount(max(0, after.documents - gone[0]), max(0, after.bytes - gone[1]))
        most = amount(
            after.documents + more.documents + back[0], after.bytes + more.bytes + back[1]
        )
        return least, most

    @property
    def bounded(self) -> Bounded:
        """The documents kept now, between their bounds."""
        least, most = self.bounds()
        return Bounded(least, self.after, most, self.unmeasured)

    @property
    def changes(self) -> dict[str, Changed]:
        """The settings that differ from those of the run."""
        return {name: Changed(*values) for name, values in self.question.changes.items()}

    @property
    def named_rules(self) -> dict[str, RuleFigures]:
        """The rules by name."""
        return {figures.name: figures for figures in self.rules}

    @property
    def pairs(self) -> list[tuple[str, str, int]]:
        """Two rules, and documents that both fail."""
        return [(a, b, n) for (a, b), n in self.overlap.items()]

    @property
    def measured_again(self) -> dict[str, str]:
        """Settings that stored scores do not decide, and why."""
        return {name: why for name, (_, why) in self.question.again.items()}


def answer(out: Path, sets: tuple[str, ...] = ()) -> Answer:
    """What the run in OUT would have kept with these settings. UsageError as in question.py."""
    question = ask(out, sets)
    scores = read(question.corpus, question.columns)
    decider = Decider(question, scores)
    now = decider.decide()
    was = np.arange(len(scores)) < scores.kept
    ratio, measured = question.bytes_a_token
    amount = Amounts(ratio)
    kept, unmeasured = now.kept, now.unmeasured
    others = resolved(question, decider, now)

    def of(mask: np.ndarray) -> Amount:
        return amount(int(np.count_nonzero(mask)), scores.bytes[mask].sum())

    return Answer(
        question,
        ratio,
        measured,
        len(scores),
        of(was),
        of(kept),
        of(unmeasured),
        of(kept & ~was),
        of(was & ~kept),
        _rules(question, decider, now, amount),
        _overlap(now),
        _languages(scores, (was, kept, unmeasured), amount),
        others,
        _notes(question, now, others),
    )


def _rules(
    question: Question, decider: Decider, now: Verdicts, amount: Amounts
) -> list[RuleFigures]:
    limited = {r.name: r for r in question.rules if r.name in decider.trusted}
    names = [*limited, *(n for n in now.fails if n not in limited)]
    with ThreadPoolExecutor(THREADS) as pool:  # numpy works outside of Python's lock
        return list(pool.map(lambda n: _rule(n, limited.get(n), decider, now, amount), names))


def _rule(
    name: str, rule: Rule | None, decider: Decider, now: Verdicts, amount: Amounts
) -> RuleFigures:
    fails = now.fails.get(name)
    curve, scale = _curve(rule, decider, now, amount) if rule else ([], "linear")
    if fails is None:  # off
        return RuleFigures(name, 0, amount(0, 0), rule, curve, scale)
    alone = np.flatnonzero((now.number == 1) & fails)
    share = amount(len(alone), now.scores.bytes[alone].sum())
    return RuleFigures(name, int(np.count_nonzero(fails)), share, rule, curve, scale)


def _curve(rule: Rule, decider: Decider, now: Verdicts, amount: Amounts) -> tuple[list[Point], str]:
    """What is kept at 40 thresholds and at the old and new one, and on which scale they lie."""
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
    """(thresholds, scale) that span a column's values; None where it has none."""
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
    """[documents, bytes, documents unmeasured, bytes unmeasured] that pass at each point, in
    blocks: a million rows at once would be new memory for every step of it."""
    scores, limit = now.scores, rule.now
    column, fails, end = scores.columns[rule.column()], now.fails.get(rule.name), len(points)
    # The first threshold, in the order of points, at which a value is on the other side.
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
        # What the rule never saw, or may not count for, is not its to drop.
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


def _overlap(now: Verdicts) -> dict[tuple[str, str], int]:
    # Bits instead of bytes: a pair of a million documents is then 125 kB.
    packed = {n: np.packbits(m) for n, m in now.fails.items() if m.any()}
    names = sorted(packed)
    pairs = {}
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            both = int(_ONES[packed[a] & packed[b]].sum())
            if both:
                pairs[a, b] = both
    return dict(sorted(pairs.items(), key=lambda item: (-item[1], item[0])))


_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1).astype(np.uint8)


def _languages(
    scores: Scores, masks: tuple[np.ndarray, np.ndarray, np.ndarray], amount: Amounts
) -> dict[str, Language]:
    """The most frequent labels; nothing where no document has one. masks: of documents that were
    kept, that are, and that would be measured."""
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


def _notes(question: Question, now: Verdicts, others: list[Resolved]) -> list[str]:
    notes = []
    for setting, (at, why) in question.again.items():
        reach = int(np.count_nonzero(_reaches(question, now, at)))
        notes.append(
            f"{setting}: {why}, so stored scores do not decide it; it may keep or drop each of the"
            f" {counted(reach, 'document')} that reach {question.steps[at]}; --apply runs it again"
        )
    for step in others:
        notes.append(
            f"{step.step} decides over other documents now: {step.admitted:,} more may reach it,"
            f" {step.gone:,} no longer do. Its marks are taken as they were; of the {step.kept:,}"
            f" others that it kept {_range(step.displaced)} may go, of the {step.dropped:,} that it"
            f" dropped {_range(step.returned)} come back; --apply resolves it again"
        )
    notes += question.corpus.notes
    if now.scores.forgotten:
        gone = counted(now.scores.forgotten, "rejected document")
        notes.append(f"not counted: {gone} forgotten since")
    rows = int(np.count_nonzero(now.unmeasured))
    if rows:
        notes.append(
            f"these rules let {counted(rows, 'document')} pass, but steps behind an edit, a cut"
            " or a dedup never"
            " measured them: between none and all of them are kept; --apply measures them"
        )
    return notes


def _range(bounds: tuple[int, int]) -> str:
    least, most = bounds
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def _reaches(question: Question, now: Verdicts, at: int) -> np.ndarray:
    """bool[rows]: no step before that place fails it."""
    stays = np.ones(len(now.scores), np.bool_)
    places = {label: i for i, label in enumerate(question.steps)}
    for name, mask in now.fails.items():
        if places.get(name.partition(".")[0], -1) < at:
            stays &= ~mask
    return stays
