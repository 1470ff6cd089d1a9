"""Figures of a run's rules: how many documents match each rule, match it first, match it alone, or
match two rules; and examples.

A step measures every document of its stage, including those that an earlier rule dropped, so the
overlap of rules within a stage is exact. A step's limits name the column that each rule compares
with a threshold. For a step without limits, the column is guessed: it is a numeric column `step.*`
that equals the rule's value in every matching document and is on the other side of the threshold in
every kept document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from curate.documents.limits import Limit
from curate.documents.rejected import (
    REASONS,
    SQL_FIRST_RULE,
    reasons_of,
    rules_of,
    sql_reasons,
    sql_rules,
)
from curate.inspect.report.store import (
    KEY,
    KEY_MOST,
    FilesTask,
    Histogram,
    Range,
    Store,
    edges_of,
    fill,
    of_group,
    ranges,
    read_rows,
)
from llmcurate.base.disk.database import arrow_batches, literal, quoted
from llmcurate.base.messages import Message

REASON_BATCH = 500_000
MOST_SETS = 50_000  # different sets of rules that are counted for overlaps
MOST_PAIRS = 300  # pairs of rules, in run.json


@dataclass
class Rule:
    """Figures of a rule: how many documents it matches, and how their values are distributed."""

    JSON = (
        "marked", "first", "only", "threshold?", "above?threshold", "language?", "least?",
        "most?least", "column?", "histogram?",
    )  # fmt: skip
    name: str
    marked: int  # matching documents
    first: int = 0  # matching documents that no earlier rule matches
    only: int = 0  # matching documents that no other rule matches
    least: float | None = None  # of the values in matching documents
    most: float | None = None  # of the values in matching documents
    threshold: float | None = None
    above: bool | None = None  # True if it matches values over the threshold, if known
    language: str | None = None  # language of the threshold, if thresholds differ
    column: str | None = None  # column whose values the rule compares
    all: Histogram | None = None  # values of all documents
    own: Histogram | None = None  # values of matching documents

    @property
    def step(self) -> str:
        return self.name.partition(".")[0]

    @property
    def histogram(self) -> Histogram | None:
        return self.all.marking(self.own) if self.all is not None and self.own is not None else None


@dataclass
class RuleFigures:
    """Figures of all rules. `pairs` maps two rules to the number of documents that match both."""

    JSON = ("rules", "overlap", "measures=others")
    rules: dict[str, Rule] = field(default_factory=dict)
    pairs: dict[tuple[str, str], int] = field(default_factory=dict)
    others: dict[str, Histogram] = field(default_factory=dict)  # columns without a limit
    ranges: dict[str, Range] = field(default_factory=dict)

    @property
    def overlap(self) -> list[tuple[str, str, int]]:
        """Pairs of rules, and how many documents match both; the most frequent pairs come first."""
        ordered = sorted(self.pairs.items(), key=lambda item: (-item[1], item[0]))
        return [(a, b, n) for (a, b), n in ordered[:MOST_PAIRS]]


def gather(
    store: Store,
    limits: Mapping[str, Limit] = MappingProxyType({}),
    main_language: str | None = None,
) -> RuleFigures:
    """Compute the figures from the reasons of rejected documents and from numeric columns. `limits`
    maps a rule to its limit. If a limit differs by language, that of `main_language` is shown."""
    store.pieces(
        {
            "marks": f"""SELECT name AS rule, count(*) AS n, min(value) AS least,
                max(value) AS most, min(threshold) AS low, max(threshold) AS high
                FROM ({sql_reasons("gone", "id")}) GROUP BY name""",
            "firsts": f"SELECT {SQL_FIRST_RULE} AS first, count(*) AS n FROM gone GROUP BY ALL",
            "sets": f"""SELECT md5_number_lower(array_to_string(rules, ' ')) AS key, * FROM (
                SELECT list_sort(list_distinct({sql_rules()})) AS rules, count(*) AS n
                FROM gone GROUP BY ALL)""",
        },
        {
            "sets": f"""SELECT rules, sum(n)::BIGINT AS documents FROM {{piece}} GROUP BY rules
            ORDER BY documents DESC, rules LIMIT {MOST_SETS}"""
        },
    )
    figures = RuleFigures(_rules(store))
    _overlap(store, figures)
    kept = _ranges(store, figures)
    for name, rule in figures.rules.items():
        if name not in limits:
            continue
        limit = limits[name]
        if limit.column in store.columns:
            rule.column = limit.column
        if limit.by_lang:
            threshold = limit.of(main_language)
            if threshold is not None and np.isfinite(threshold):
                rule.threshold, rule.language = float(threshold), main_language
        if rule.threshold is not None and rule.above is None:
            rule.above = limit.above
    _find_columns(store, figures.rules, kept)
    _histograms(store, figures)
    return figures


def _rules(store: Store) -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    for name, marked, least, most, low, high in store.rows(
        """SELECT rule, sum(n)::BIGINT AS marked, min(least), max(most), min(low), max(high)
        FROM marks GROUP BY rule ORDER BY marked DESC, rule"""
    ):
        rule = Rule(name, marked, least=least, most=most)
        if low is not None and low == high:
            rule.threshold = low
            if least is not None and least >= low and most > low:
                rule.above = True
            elif most is not None and most <= low and least < low:
                rule.above = False
        rules[name] = rule
    for name, first in store.rows(
        "SELECT first, sum(n)::BIGINT FROM firsts GROUP BY first ORDER BY first"
    ):
        rules[name].first = first
    return rules


def _overlap(store: Store, figures: RuleFigures) -> None:
    sets = store.rows(
        f"SELECT rules, documents FROM sets ORDER BY documents DESC, rules LIMIT {MOST_SETS}"
    )
    for rules, n in sets:
        if len(rules) == 1:
            figures.rules[rules[0]].only += n
        for i, a in enumerate(rules):
            for b in rules[i + 1 :]:
                figures.pairs[a, b] = figures.pairs.get((a, b), 0) + n


def _ranges(store: Store, figures: RuleFigures) -> dict[str, Range]:
    kept = {name: Range(integer) for name, integer in store.columns.items()}
    figures.ranges = {name: Range(integer) for name, integer in store.columns.items()}
    tasks = store.tasks(RangesTask, store.columns)
    for _, result in store.map(f"{__name__}:group_ranges", tasks, Spans):
        for kind, spans in (("kept", result.kept), ("gone", result.gone)):
            for name, (count, least, most, total) in spans.items():
                span = Range(store.columns[name], int(count), least, most, total)
                figures.ranges[name].join(span)
                if kind == "kept":
                    kept[name].join(span)
    return kept


@dataclass(frozen=True)
class RangesTask(FilesTask):
    """A task to compute the range of each column over a group of files."""

    columns: dict[str, bool]  # name -> True for whole numbers


@dataclass(frozen=True)
class Spans(Message):
    """Ranges of columns as {column: [count, least, greatest, sum]}, for kept and rejected
    documents."""

    kept: dict[str, list[int | float]]
    gone: dict[str, list[int | float]]


def group_ranges(task: RangesTask) -> Spans:
    """Return the range of each column over a group of files."""

    def of(paths: list[Path]) -> dict[str, list[int | float]]:
        spans = ranges(paths, task.columns, task.threads).items()
        return {n: [s.count, s.least, s.most, s.total] for n, s in spans if s.count}

    return Spans(of(task.kept), of(task.gone))


def _find_columns(store: Store, rules: dict[str, Rule], kept: dict[str, Range]) -> None:
    for step in dict.fromkeys(r.step for r in rules.values()):
        step_columns = [c for c in store.columns if c.startswith(step + ".") and c in store.names]
        sought = (r for r in rules.values() if r.step == step and r.column is None)
        valued = {r.name for r in sought if r.least is not None}
        if not step_columns or not valued:
            continue
        differ = ", ".join(
            f"sum((value IS DISTINCT FROM {quoted(c)}::DOUBLE)::INT)::BIGINT AS n{number}"
            for number, c in enumerate(step_columns)
        )
        columns = ", ".join(quoted(c) for c in step_columns)
        store.pieces(
            {
                "differing": f"""SELECT name, {differ} FROM ({sql_reasons("gone_rows", columns)})
                WHERE step = {literal(step)} AND value IS NOT NULL GROUP BY 1"""
            }
        )
        sums = ", ".join(f"sum(n{number})::BIGINT" for number in range(len(step_columns)))
        for name, *wrong in store.rows(f"SELECT name, {sums} FROM differing GROUP BY name"):
            if name not in valued:
                continue
            rule = rules[name]
            same = [c for c, n in zip(step_columns, wrong, strict=True) if n == 0]
            fitting = [c for c in same if _apart(rule, kept[c])]
            rule.column = max(
                fitting, key=lambda c: (SequenceMatcher(None, name, c).ratio(), c), default=None
            )


def _apart(rule: Rule, kept: Range) -> bool:
    if not kept.count or rule.least is None or rule.most is None:
        return True
    return kept.most <= rule.least or kept.least >= rule.most


def _histograms(store: Store, figures: RuleFigures) -> None:
    for rule in figures.rules.values():
        if rule.least is None or rule.most is None:
            continue
        limits = [] if rule.threshold is None else [rule.threshold]
        if rule.column is not None:
            span = figures.ranges[rule.column]
        else:
            whole = float(rule.least).is_integer() and float(rule.most).is_integer()
            span = Range(whole, rule.marked, rule.least, rule.most)
        rule.all = edges_of(span, limits)
        rule.own = Histogram(rule.all.edges, rule.all.scale)
    drawn: dict[str, list[Histogram]] = {}
    for rule in figures.rules.values():
        if rule.column is not None and rule.all is not None:
            drawn.setdefault(rule.column, []).append(rule.all)
    for name, span in figures.ranges.items():
        if name not in drawn and span.count and span.least < span.most:
            figures.others[name] = edges_of(span)
            drawn[name] = [figures.others[name]]
    _count(store, drawn, figures.rules)
    for rule in figures.rules.values():
        if rule.column is None and rule.own is not None:
            rule.all = rule.own


def _count(store: Store, drawn: dict[str, list[Histogram]], rules: dict[str, Rule]) -> None:
    own_histograms = {name: rule.own for name, rule in rules.items() if rule.own is not None}
    edges = {name: [h.edges.tolist() for h in bins] for name, bins in drawn.items()}
    of_rules = {name: histogram.edges.tolist() for name, histogram in own_histograms.items()}
    tasks = store.tasks(CountsTask, edges, of_rules)
    for _, result in store.map(f"{__name__}:group_counts", tasks, BinCounts):
        for name, counts in result.columns.items():
            for histogram, more in zip(drawn[name], counts, strict=True):
                histogram.counts += np.array(more)
        for name, of_rule in result.rules.items():
            own_histograms[name].counts += np.array(of_rule)


@dataclass(frozen=True)
class CountsTask(FilesTask):
    """A task to count documents in the bins of histograms."""

    edges: dict[str, list[list[float]]]  # column -> bin edges of each of its histograms
    rules: dict[str, list[float]]  # rule -> bin edges


@dataclass(frozen=True)
class BinCounts(Message):
    """The number of documents in each bin of some histograms."""

    columns: dict[str, list[list[int]]]  # column -> counts of all documents, per histogram
    rules: dict[str, list[int]]  # rule -> counts of the documents that it matches


def group_counts(task: CountsTask) -> BinCounts:
    """Count the documents in each bin of the task's histograms, for a group of files."""
    bins = {n: [_bins(edges) for edges in each] for n, each in task.edges.items()}
    fill([*task.kept, *task.gone], bins, task.threads)
    own_histograms = {name: _bins(edges) for name, edges in task.rules.items()}
    with of_group(task) as store:
        _count_marked(store, own_histograms)
    return BinCounts(
        {name: [h.counts.tolist() for h in each] for name, each in bins.items()},
        {name: histogram.counts.tolist() for name, histogram in own_histograms.items()},
    )


def _bins(edges: list[float]) -> Histogram:
    return Histogram(np.array(edges, np.float64), "linear")  # the scale matters only for drawing


def _count_marked(store: Store, own_histograms: dict[str, Histogram]) -> None:
    codes = {name: code for code, name in enumerate(own_histograms)}
    store.db.execute("CREATE OR REPLACE TEMP TABLE codes (name VARCHAR, code INTEGER)")
    for name, code in codes.items():
        store.db.execute("INSERT INTO codes VALUES (?, ?)", [name, code])
    histograms = [*own_histograms.values()]
    marked = store.db.sql(
        f"""SELECT code, value FROM ({sql_reasons("gone", "id")}) JOIN codes USING (name)
        WHERE value IS NOT NULL AND isfinite(value)"""
    )
    for batch in arrow_batches(marked, REASON_BATCH):
        code, values = batch["code"].to_numpy(), batch["value"].to_numpy()
        order = np.argsort(code, kind="stable")
        code, values = code[order], values[order]
        for number in np.unique(code).tolist():
            low, high = np.searchsorted(code, [number, number + 1])
            histograms[number].add(values[low:high])


EXAMPLES = 5  # of each rule
EXCERPT = 420  # characters
MOST_RULES = 60  # with examples
# Documents considered for each rule. The chance that fewer than EXAMPLES are found is 4e-9.
CANDIDATES = 30


@dataclass(frozen=True)
class Example:
    """A rejected document as an example of a rule. `also` are other rules that it matches."""

    id: str
    url: str | None
    text: str
    value: float | None
    threshold: float | None
    detail: str | None
    also: tuple[str, ...]


def gather_examples(store: Store, rules: dict[str, Rule]) -> dict[str, list[Example]]:
    """Return {rule: examples}, preferably documents that this rule was the first to match."""
    shown = list(rules.values())[:MOST_RULES]
    if not shown:
        return {}
    most = [
        min(KEY_MOST - 1, KEY_MOST * CANDIDATES // max(1, rule.first or rule.marked))
        for rule in shown
    ]
    values = ", ".join(
        f"({literal(rule.name)}, {rule.first > 0}, {key}::UBIGINT)"
        for rule, key in zip(shown, most, strict=True)
    )
    marked = sql_reasons(
        f"gone WHERE {KEY} <= {max(most)}::UBIGINT",
        f"{KEY} AS key, id, {SQL_FIRST_RULE} AS primary_rule",
    )
    of_each = f"QUALIFY row_number() OVER (PARTITION BY rule ORDER BY key, id) <= {EXAMPLES}"
    store.pieces(
        {
            "examples": f"""SELECT wanted AS rule, key, id, m.value AS value,
            m.threshold AS threshold, m.detail AS detail
            FROM ({marked}) m JOIN (VALUES {values}) w(wanted, first, most) ON m.name = wanted
            WHERE m.key <= w.most AND (NOT w.first OR primary_rule = wanted)
            {of_each.replace("rule", "wanted")}"""
        }
    )
    chosen: dict[str, list[tuple[str, Any]]] = {}
    for name, document, value, threshold, detail in store.rows(
        f"""SELECT rule, id, value, threshold, detail FROM examples {of_each}
        ORDER BY rule, key, id"""
    ):
        chosen.setdefault(name, []).append((document, (value, threshold, detail)))
    where = store.find((i for documents in chosen.values() for i, _ in documents), gone=True)
    rows = read_rows(where.values(), ["id", "url", "text", REASONS], EXCERPT + 1)
    examples: dict[str, list[Example]] = {}
    for name, documents in chosen.items():
        for document, why in documents:
            row = rows[where[document]]
            also = tuple(other for other in rules_of(reasons_of(row)) if other != name)
            text = row.get("text") or ""
            value, threshold, detail = why
            example = Example(row["id"] or "", row.get("url"), text, value, threshold, detail, also)
            examples.setdefault(name, []).append(example)
    return examples
