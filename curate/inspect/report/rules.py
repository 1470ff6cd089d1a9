"""The rules of a run: documents that each marked, first or alone, with which others; examples.

A step measures every document of its stage, also one that an earlier rule marked already; so the
overlap between rules of one stage is known exactly. A step's limits name the annotation that a rule
looked at; of a rule without one it is the numeric column `step.*` that holds the rule's value in
every document it marked, with all kept documents on the other side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from types import MappingProxyType
from typing import Any

import numpy as np

from curate.documents.rejected import REASONS, SQL_FIRST_RULE, rules_of, sql_reasons, sql_rules
from curate.inspect.report.bins import Histogram, Range, edges_of, fill, ranges
from curate.inspect.report.store import KEY, KEY_MOST, Store, find_rows, read_rows

REASON_BATCH = 500_000
MOST_SETS = 50_000  # different sets of rules that are looked at for overlaps
MOST_PAIRS = 300  # of an overlap, in run.json


@dataclass
class Rule:
    """One rule's figures. above: it marks values over its threshold (None: not known)."""

    name: str
    marked: int
    first: int = 0
    only: int = 0
    least: float | None = None
    most: float | None = None
    threshold: float | None = None
    above: bool | None = None
    column: str | None = None
    all: Histogram | None = None
    own: Histogram | None = None

    @property
    def step(self) -> str:
        """The step it is of."""
        return self.name.partition(".")[0]

    def dump(self) -> dict[str, Any]:
        """As JSON values; `histogram` counts all measured documents, `marked` this rule's."""
        values: dict[str, Any] = {"marked": self.marked, "first": self.first, "only": self.only}
        if self.threshold is not None:
            values |= {"threshold": self.threshold, "above": self.above}
        if self.least is not None:
            values |= {"least": self.least, "most": self.most}
        if self.column is not None:
            values["column"] = self.column
        if self.all is not None and self.own is not None:
            values["histogram"] = self.all.dump() | {"marked": self.own.counts.tolist()}
        return values


@dataclass
class RuleFigures:
    """Of all rules; pairs: how many documents two rules mark together."""

    rules: dict[str, Rule] = field(default_factory=dict)
    pairs: dict[tuple[str, str], int] = field(default_factory=dict)
    others: dict[str, Histogram] = field(default_factory=dict)  # measured, but by no rule's limit
    ranges: dict[str, Range] = field(default_factory=dict)

    def dump(self) -> dict[str, Any]:
        """As JSON values, the most frequent first."""
        ordered = sorted(self.pairs.items(), key=lambda item: (-item[1], item[0]))
        return {
            "rules": {n: r.dump() for n, r in self.rules.items()},
            "overlap": [[a, b, n] for (a, b), n in ordered[:MOST_PAIRS]],
            "measures": {n: h.dump() for n, h in self.others.items()},
        }


def gather(store: Store, declared: Mapping[str, str] = MappingProxyType({})) -> RuleFigures:
    """Reads the rejected documents' reasons and the numeric columns of all documents.

    declared: rule to the column that it looks at, where that is known.
    """
    store.db.execute(
        f"""CREATE OR REPLACE TEMP TABLE marks AS
        SELECT name AS rule, value, threshold FROM ({sql_reasons("gone", "id")})"""
    )
    figures = RuleFigures(_rules(store))
    _overlap(store, figures)
    kept = ranges(store.kept, store.columns, store.threads)
    gone = ranges(store.gone, store.columns, store.threads)
    for name, integer in store.columns.items():
        figures.ranges[name] = Range(integer)
        figures.ranges[name].join(kept[name])
        figures.ranges[name].join(gone[name])
    for name, rule in figures.rules.items():
        if declared.get(name) in store.columns:
            rule.column = declared[name]
    _find_columns(store, figures.rules, kept)
    _histograms(store, figures)
    return figures


def _rules(store: Store) -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    for name, marked, least, most, low, high in store.rows(
        """SELECT rule, count(*), min(value), max(value), min(threshold), max(threshold)
        FROM marks GROUP BY rule ORDER BY count(*) DESC, rule"""
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
        f"SELECT {SQL_FIRST_RULE}, count(*) FROM gone GROUP BY ALL ORDER BY 1"
    ):
        rules[name].first = first
    return rules


def _overlap(store: Store, figures: RuleFigures) -> None:
    """Counts documents by the set of their rules; sets beyond the most frequent are left out."""
    sets = store.rows(
        f"""SELECT rules, count(*) AS n FROM (
          SELECT list_sort(list_distinct({sql_rules()})) AS rules
          FROM gone) GROUP BY rules ORDER BY n DESC, rules LIMIT {MOST_SETS}"""
    )
    for rules, n in sets:
        if len(rules) == 1:
            figures.rules[rules[0]].only += n
        for i, a in enumerate(rules):
            for b in rules[i + 1 :]:
                figures.pairs[a, b] = figures.pairs.get((a, b), 0) + n


def _find_columns(store: Store, rules: dict[str, Rule], kept: dict[str, Range]) -> None:
    for step in dict.fromkeys(r.step for r in rules.values()):
        step_columns = [c for c in store.columns if c.startswith(step + ".") and c in store.names]
        sought = (r for r in rules.values() if r.step == step and r.column is None)
        valued = {r.name for r in sought if r.least is not None}
        if not step_columns or not valued:
            continue
        differ = ", ".join(
            f"sum((value IS DISTINCT FROM {_quoted(c)}::DOUBLE)::INT)" for c in step_columns
        )
        columns = ", ".join(_quoted(c) for c in step_columns)
        for name, *wrong in store.rows(
            f"""SELECT name, {differ} FROM ({sql_reasons("gone_rows", columns)})
            WHERE step = ? AND value IS NOT NULL GROUP BY 1""",
            [step],
        ):
            if name not in valued:
                continue
            rule = rules[name]
            same = [c for c, n in zip(step_columns, wrong, strict=True) if n == 0]
            fitting = [c for c in same if _apart(rule, kept[c])]
            rule.column = _nearest(name, fitting)


def _apart(rule: Rule, kept: Range) -> bool:
    """Whether the kept documents' values lie beside those that the rule marked."""
    if not kept.count or rule.least is None or rule.most is None:
        return True
    return kept.most <= rule.least or kept.least >= rule.most


def _nearest(rule: str, columns: list[str]) -> str | None:
    return max(columns, key=lambda c: (SequenceMatcher(None, rule, c).ratio(), c), default=None)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _histograms(store: Store, figures: RuleFigures) -> None:
    """Fills each rule's histograms: of all documents its step measured, and of those marked."""
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
    fill(store.paths, drawn, store.threads)
    _count_marked(store, figures.rules)
    for rule in figures.rules.values():
        if rule.column is None and rule.own is not None:
            rule.all = rule.own


def _count_marked(store: Store, rules: dict[str, Rule]) -> None:
    names = [n for n, r in rules.items() if r.own is not None]
    store.db.execute("CREATE OR REPLACE TEMP TABLE codes (rule VARCHAR, code INTEGER)")
    for code, name in enumerate(names):
        store.db.execute("INSERT INTO codes VALUES (?, ?)", [name, code])
    ((rows,),) = store.rows("SELECT count(*) FROM marks")
    for start in range(0, rows, REASON_BATCH):
        batch = store.db.execute(
            "SELECT code, value FROM (SELECT * FROM marks WHERE rowid >= ? AND rowid < ?)"
            " JOIN codes USING (rule) WHERE value IS NOT NULL AND isfinite(value)",
            [start, start + REASON_BATCH],
        ).fetchnumpy()
        order = np.argsort(batch["code"], kind="stable")
        codes, values = np.asarray(batch["code"])[order], np.asarray(batch["value"])[order]
        for code in np.unique(codes):
            low, high = np.searchsorted(codes, [code, code + 1])
            own = rules[names[int(code)]].own
            assert own is not None
            own.add(values[low:high])


EXAMPLES = 2  # of each rule
EXCERPT = 420  # characters
MOST_RULES = 60  # with examples
# So many are looked at for the few wanted: with a chance of e^-25, fewer are found.
CANDIDATES = 30


@dataclass(frozen=True)
class Example:
    """A rejected document beside the rule that marked it. also: its other rules."""

    id: str
    url: str | None
    text: str
    value: float | None
    threshold: float | None
    detail: str | None
    also: tuple[str, ...]


def gather_examples(store: Store, rules: dict[str, Rule]) -> dict[str, list[Example]]:
    """Examples by rule: documents that the rule was the first to mark, where there are any."""
    wanted = list(rules.values())[:MOST_RULES]
    store.db.execute("CREATE OR REPLACE TEMP TABLE wanted (rule VARCHAR, first BOOL, most UBIGINT)")
    for rule in wanted:
        pool = rule.first or rule.marked
        most = min(KEY_MOST - 1, KEY_MOST * CANDIDATES // max(1, pool))
        store.db.execute("INSERT INTO wanted VALUES (?, ?, ?)", [rule.name, rule.first > 0, most])
    chosen: dict[str, list[tuple[str, Any]]] = {}
    for name, document, value, threshold, detail in store.rows(
        f"""WITH marked AS ({
            sql_reasons(
                f"gone WHERE {KEY} <= (SELECT max(most) FROM wanted)",
                f"{KEY} AS key, id, {SQL_FIRST_RULE} AS primary_rule",
            )
        })
        SELECT w.rule, id, m.value, m.threshold, m.detail
        FROM marked m JOIN wanted w ON m.name = w.rule
        WHERE m.key <= w.most AND (NOT w.first OR primary_rule = w.rule)
        QUALIFY row_number() OVER (PARTITION BY w.rule ORDER BY m.key, id) <= {EXAMPLES}
        ORDER BY w.rule, m.key, id"""
    ):
        chosen.setdefault(name, []).append((document, (value, threshold, detail)))
    where = find_rows(
        store.gone, [i for documents in chosen.values() for i, _ in documents], store.threads
    )
    rows = read_rows(where.values(), ["id", "url", "text", REASONS], EXCERPT + 1)
    return {
        name: [_example(name, rows[where[i]], *why) for i, why in documents]
        for name, documents in chosen.items()
    }


def _example(
    name: str,
    row: dict[str, Any],
    value: float | None,
    threshold: float | None,
    detail: str | None,
) -> Example:
    others = rules_of(row)
    also = tuple(o for o in others if o != name)
    return Example(
        row["id"] or "", row.get("url"), row.get("text") or "", value, threshold, detail, also
    )
