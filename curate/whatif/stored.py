"""A stage's stored rows decided anew: what its first run measured, under other limits.

Used by a worker in the place of measuring. A document whose marks do not change stays as it is;
one whose marks change gets other reasons, and, where a step at or behind the changed one may edit
or cut texts, is left to be measured again. What comes out is what the stage's steps would have
written.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.documents import NUMBER, REASON, REASON_COLUMNS, Documents
from curate.limits import Limit, marks
from curate.stage_files import part_path
from curate.steps import CorpusStep, Step
from curate.text.buffers import one_array

OUTSIDE = ("read", "engine")  # what marks before any step: those rows are not the stage's


@dataclass
class Redecided:
    """Of one batch. again: bool[rows], to be measured; kept, rejected: of the others, by number."""

    again: np.ndarray
    kept: pa.Table
    rejected: pa.Table


class Stored:
    """One partition of a finished stage, whose steps had other thresholds (`was`)."""

    def __init__(
        self, folder: Path, part: int, was: list[Step], now: list[Step], apply: CorpusStep | None
    ) -> None:
        kept = pq.read_table(part_path(folder, part, "kept"))
        keys = pq.read_table(part_path(folder, part, "keys"))
        for name in keys.column_names:
            kept = kept.append_column(name, keys[name])
        gone = pq.read_table(part_path(folder, part, "rejected"))
        outside = np.isin(np.array(gone["step"].to_pylist(), object), OUTSIDE)
        self.kept, self.gone = _by_number(kept), _by_number(gone.filter(pa.array(~outside)))
        self.now = now
        labels = [apply.label] if apply is not None else []
        self._place = {n: i for i, n in enumerate([*labels, *(s.label for s in now)])}
        self._limits = {s.label: s.limits() for s in now}
        self._changed = [
            (old, new)
            for old, new in zip(was, now, strict=True)
            if old.identity() != new.identity()
        ]
        first = min(self._place[new.label] for _, new in self._changed)
        self._edits = any(not s.only_measures for s in now if self._place[s.label] >= first)
        # Of each table: the number, whether it must be measured again, other reasons by row.
        self._of = [self._judge(self.kept, False), self._judge(self.gone, True)]

    def _judge(self, table: pa.Table, gone: bool) -> _Judged:
        rows = table.num_rows
        flips, marked = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
        found: dict[str, dict[str, np.ndarray]] = {}
        columns: dict[str, np.ndarray] = {}
        for old, new in self._changed:

            def column(name: str, label: str = new.label) -> np.ndarray:
                full = f"{label}.{name}"
                if full not in columns:
                    columns[full] = table[full].to_numpy().astype(np.float64, copy=False)
                return columns[full]

            before, after = marks(old.limits(), column), marks(new.limits(), column)
            none = np.zeros(rows, np.bool_)
            for rule in before.keys() | after.keys():
                flips |= before.get(rule, none) != after.get(rule, none)
                marked |= after.get(rule, none)
            found[new.label] = after
        again = flips & self._edits
        # Reasons name their thresholds, so those of every marked document are written anew.
        touched = np.flatnonzero((flips | (marked & gone)) & ~again)
        reasons = table["reasons"].take(pa.array(touched)).to_pylist() if gone else []
        other: dict[int, list[dict[str, Any]]] = {}
        for nth, row in enumerate(touched.tolist()):
            stored = reasons[nth] if gone else []
            other[row] = self._reasons(stored, row, found, columns)
        return _Judged(table[NUMBER].to_numpy(), again, other)

    def _reasons(
        self,
        stored: list[dict[str, Any]],
        row: int,
        found: dict[str, dict[str, np.ndarray]],
        columns: dict[str, np.ndarray],
    ) -> list[dict[str, Any]]:
        """A document's reasons in the order of marking: by step, limits behind other rules."""
        by_step: dict[str, list[dict[str, Any]]] = {}
        for reason in stored:
            by_step.setdefault(reason["step"], []).append(reason)
        for label, after in found.items():
            limits = {x.rule: x for x in self._limits[label]}
            own = [r for r in by_step.get(label, []) if r["rule"] not in limits]
            for rule, mask in after.items():
                if mask[row]:
                    limit = limits[rule]
                    own.append(_reason(label, limit, columns[f"{label}.{limit.column}"][row]))
            by_step[label] = own
        ordered = sorted(by_step, key=lambda label: self._place.get(label, -1))
        return [r for label in ordered for r in by_step[label]]

    def decide(self, docs: Documents) -> Redecided:
        """The batch's documents, found by their numbers."""
        numbers = docs.table[NUMBER].to_numpy()
        again = np.ones(len(docs), np.bool_)
        kept: list[pa.Table] = []
        gone: list[pa.Table] = []
        for table, judged, was_gone in zip(
            (self.kept, self.gone), self._of, (False, True), strict=True
        ):
            at = np.searchsorted(judged.numbers, numbers)
            at[at == len(judged.numbers)] = 0
            known = np.zeros(len(docs), np.bool_)
            if len(judged.numbers):
                known = (judged.numbers[at] == numbers) & ~judged.again[at]
            again &= ~known
            rows = at[known]
            other = [(r, judged.other[r]) for r in rows.tolist() if r in judged.other]
            changed = np.array([r for r, _ in other], np.int64)
            same = rows[~np.isin(rows, changed)]
            (gone if was_gone else kept).append(table.take(pa.array(same)))
            held = [(r, why) for r, why in other if why]
            if held:
                gone.append(_with_reasons(table.take(pa.array([r for r, _ in held])), held))
            freed = np.array([r for r, why in other if not why], np.int64)
            if len(freed):
                kept.append(table.take(pa.array(freed)))
        return Redecided(again, merged(self.kept.schema, kept), merged(self.gone.schema, gone))


@dataclass
class _Judged:
    numbers: np.ndarray
    again: np.ndarray
    other: dict[int, list[dict[str, Any]]]


def _reason(label: str, limit: Limit, value: float) -> dict[str, Any]:
    threshold = None if limit.threshold is None else float(limit.threshold)
    return {
        "step": label,
        "rule": limit.rule,
        "value": float(value),
        "threshold": threshold,
        "detail": limit.detail,
    }


def _with_reasons(table: pa.Table, rows: list[tuple[int, list[dict[str, Any]]]]) -> pa.Table:
    """The rows with these reasons, the first as primary."""
    have = [n for n in REASON_COLUMNS if n in table.column_names]
    table = table.drop_columns(have) if have else table
    reasons = pa.array([why for _, why in rows], pa.list_(REASON))
    first = pa.array([why[0] for _, why in rows], REASON)
    for i, field in enumerate(REASON):
        table = table.append_column(field.name, first.field(i))
    return table.append_column("reasons", reasons)


def merged(schema: pa.Schema, tables: list[pa.Table]) -> pa.Table:
    """All rows in one schema, in the order of their numbers."""
    from curate.table_writer import conform

    found = pa.concat_tables([schema.empty_table(), *(conform(t, schema) for t in tables)])
    return _by_number(found.combine_chunks())


def _by_number(table: pa.Table) -> pa.Table:
    numbers = table[NUMBER].to_numpy()
    if len(numbers) and (np.diff(numbers) > 0).all():
        return table
    return table.take(pa.array(np.argsort(numbers, kind="stable")))


def with_batch_edits(
    docs: Documents, kept: pa.Table, rejected: pa.Table, labels: list[str]
) -> tuple[pa.Table, pa.Table]:
    """Both tables with the edits column as the batch has it: where the stage edits any of its
    documents, the others have an empty list; else all have what they came with."""
    edited = any(
        label in labels
        for table in (kept, rejected)
        for label in one_array(table["edits"]).flatten().field("step").unique().to_pylist()
    )
    numbers = docs.table[NUMBER].to_numpy()
    found = []
    for table in (kept, rejected):
        if edited:
            edits = one_array(table["edits"])
            edits = pc.fill_null(edits, pa.scalar([], edits.type))
        else:
            at = np.searchsorted(numbers, table[NUMBER].to_numpy())
            edits = one_array(docs.table["edits"].take(pa.array(at)))
        place = table.column_names.index("edits")
        found.append(table.set_column(place, "edits", edits))
    return found[0], found[1]


def stored_counts(
    kept: pa.Table, rejected: pa.Table, labels: list[str]
) -> dict[str, dict[str, int]]:
    """What verdicts.counts says of a batch, from its two tables. labels: of the stage's steps."""
    primary = Counter(
        f"{s}.{r}"
        for s, r in zip(rejected["step"].to_pylist(), rejected["rule"].to_pylist(), strict=True)
    )
    every = one_array(rejected["reasons"]).flatten()
    reasons = Counter(
        f"{s}.{r}"
        for s, r in zip(
            every.field("step").to_pylist(), every.field("rule").to_pylist(), strict=True
        )
    )
    cut: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for edit in one_array(kept["edits"]).flatten().to_pylist():
        if edit["step"] in labels:
            cut[f"{edit['step']}.{edit['rule']}"] += 1
            size[f"{edit['step']}.{edit['rule']}"] += edit["end"] - edit["start"]
    return {
        "primary": dict(primary),
        "reasons": dict(reasons),
        "cut": dict(cut),
        "cut_bytes": dict(size),
    }
