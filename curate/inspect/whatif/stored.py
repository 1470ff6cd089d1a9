"""A stage's stored rows decided anew: what its first run measured, under other limits.

Used by a worker in the place of measuring. A document that enters the stage as it did before keeps
what was measured of it: where its marks do not change it stays as it is, else it gets other
reasons. So does one on which there are other decisions, unless they cut its text otherwise
(reapplied.py). Only where a step that may edit or cut texts stands between its old first mark and
its new one, it is left to be measured again, like those that are new or enter otherwise. What comes
out is what the stage's steps would have written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.stage_files import part_path, written_schema
from curate.disk.parquet_writer import one_array
from curate.documents.documents import NUMBER, REASON, REASON_COLUMNS, Documents
from curate.documents.limits import Limit, marks
from curate.inspect.whatif.before import Before
from curate.inspect.whatif.reapplied import Lists, Reapplied, of_step
from curate.inspect.whatif.rows import by_number, places
from curate.steps.contracts import REGISTRY, CorpusStep, Step

OUTSIDE = ("read", "engine")  # what marks before any step: those rows are not the stage's
NEVER = 1 << 30  # the place of a step behind all steps


@dataclass
class Redecided:
    """Of one batch. again: bool[rows], to be measured; kept, rejected: of the others, in pieces;
    sketched: sketches of some of those kept; unsketched: the others of them."""

    again: np.ndarray
    kept: list[pa.Table] = field(default_factory=list)
    rejected: list[pa.Table] = field(default_factory=list)
    sketched: list[pa.Table] = field(default_factory=list)
    unsketched: list[pa.Table] = field(default_factory=list)


@dataclass
class Judged:
    """Of a table of stored rows. numbers: int64[rows]; again: bool[rows], to be measured; entry:
    the place of the first step that marked it, or does now; other: row -> its reasons, where they
    change."""

    numbers: np.ndarray
    again: np.ndarray
    entry: np.ndarray
    other: dict[int, list[dict[str, Any]]]


class Stored:
    """One partition of a finished stage, whose steps had other thresholds (`was`).

    pages_until: the place of the last step that reads pages as they came, NEVER where a later
    stage has one: a rejected document's page is not stored, so one that is no longer rejected
    before that step is measured again. sketch: the file of the old sketches.
    """

    def __init__(
        self,
        folder: Path,
        part: int,
        was: list[Step],
        now: list[Step],
        apply: CorpusStep | None = None,
        before: Before | None = None,
        pages_until: int = -1,
        sketch: Path | None = None,
    ) -> None:
        kept = pq.read_table(part_path(folder, part, "kept"))
        keys = pq.read_table(part_path(folder, part, "keys"))
        for name in keys.column_names:
            kept = kept.append_column(name, keys[name])
        gone = pq.read_table(part_path(folder, part, "rejected"))
        fields = [f for k in ("kept", "keys") for f in written_schema(part_path(folder, part, k))]
        rejected = written_schema(part_path(folder, part, "rejected"))
        self.schemas = pa.schema(fields), rejected
        outside = pc.is_in(gone["step"], value_set=pa.array(OUTSIDE))
        self.outside = gone.filter(outside)
        self.kept, self.gone = by_number(kept), by_number(gone.filter(pc.invert(outside)))
        self.before, self.pages_until = before, pages_until
        self._sketches = None if sketch is None else _by_n(pq.read_table(sketch))
        self.chain: list[CorpusStep | Step] = [*([apply] if apply is not None else []), *now]
        self.place = {s.label: i for i, s in enumerate(self.chain)}
        self._limits = {s.label: s.limits() for s in now}
        self._changed = [
            (old, new)
            for old, new in zip(was, now, strict=True)
            if old.identity() != new.identity()
        ]
        # What is applied is applied again where it may differ (reapplied.py), so it stands apart.
        self.apply = apply
        edits = [i for i, s in enumerate(self.chain) if s is not apply and not s.only_measures]
        # Of each place and the one behind all, the next step from there on that may edit.
        ends = np.array([*edits, NEVER])
        self._next_edit = ends[np.searchsorted(edits, np.arange(len(self.chain) + 1))]
        self.of = (self._judge(self.kept, False), self._judge(self.gone, True))

    def _judge(self, table: pa.Table, gone: bool, applied: Lists | None = None) -> Judged:
        """applied: row -> reasons of the applied step as they are now; None: as they were."""
        rows = table.num_rows
        flips, renamed = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
        first = np.full(rows, NEVER)
        if gone:
            first = np.array([self.place[s] for s in table["step"].to_pylist()], np.int64)
        anew = applied is not None
        then = self._left(table, anew) if gone and (self._changed or anew) else first.copy()
        found: dict[str, dict[str, np.ndarray]] = {}
        columns: dict[str, np.ndarray] = {}
        for old, new in self._changed:

            def column(name: str, label: str = new.label) -> np.ndarray:
                full = f"{label}.{name}"
                if full not in columns:
                    columns[full] = table[full].to_numpy().astype(np.float64, copy=False)
                return columns[full]

            before, after = marks(old.limits(), column), marks(new.limits(), column)
            other = {x.rule for x in set(new.limits()) - set(old.limits())}
            none = np.zeros(rows, np.bool_)
            for rule in before.keys() | after.keys():
                flips |= before.get(rule, none) != after.get(rule, none)
                if rule in other:  # reasons name their thresholds
                    renamed |= after.get(rule, none)
            for mask in after.values():
                then = np.where(mask, np.minimum(then, self.place[new.label]), then)
            found[new.label] = after
        if applied is not None:
            assert self.apply is not None
            then[list(applied)] = 0
            own = of_step(one_array(table["reasons"]), self.apply.label) if gone else {}
            for row in own.keys() | applied.keys():
                flips[row] |= own.get(row) != applied.get(row)
        entry = np.minimum(first, then)
        until = np.maximum(first, then)
        ends = np.minimum(entry, len(self.chain))
        again = self._next_edit[ends] < until
        if gone:  # its page, which a step or a later stage reads, is not stored
            again |= (then == NEVER) & (entry <= self.pages_until)
        touched = np.flatnonzero((flips | renamed) & ~again)
        reasons = table["reasons"].take(pa.array(touched)).to_pylist() if gone else []
        others: dict[int, list[dict[str, Any]]] = {}
        for nth, row in enumerate(touched.tolist()):
            others[row] = self._reasons(reasons[nth] if gone else [], row, found, columns, applied)
        return Judged(table[NUMBER].to_numpy(), again, entry, others)

    def _left(self, table: pa.Table, anew: bool) -> np.ndarray:
        """int64[rows]: the place of the first reason that other limits cannot take away, nor the
        applied step where it is applied anew."""
        limited = {f"{n.label}.{x.rule}" for _, n in self._changed for x in n.limits()}
        lists = one_array(table["reasons"])
        rows = np.repeat(np.arange(len(lists)), pc.list_value_length(lists))
        every = lists.flatten()
        then = np.full(table.num_rows, NEVER)
        pairs = zip(every.field("step").to_pylist(), every.field("rule").to_pylist(), strict=True)
        apart = self.apply.label if anew and self.apply is not None else None
        at = [
            NEVER if s == apart or f"{s}.{r}" in limited else self.place.get(s, -1)
            for s, r in pairs
        ]
        np.minimum.at(then, rows, np.array(at, np.int64))
        return then

    def _reasons(
        self,
        stored: list[dict[str, Any]],
        row: int,
        found: dict[str, dict[str, np.ndarray]],
        columns: dict[str, np.ndarray],
        applied: Lists | None,
    ) -> list[dict[str, Any]]:
        """A document's reasons in the order of marking: by step, limits behind other rules."""
        by_step: dict[str, list[dict[str, Any]]] = {}
        for reason in stored:
            by_step.setdefault(reason["step"], []).append(reason)
        if applied is not None and self.apply is not None:
            by_step[self.apply.label] = applied.get(row, [])
        for label, after in found.items():
            limits = {x.rule: x for x in self._limits[label]}
            own = [r for r in by_step.get(label, []) if r["rule"] not in limits]
            for rule, mask in after.items():
                if mask[row]:
                    limit = limits[rule]
                    own.append(_reason(label, limit, columns[f"{label}.{limit.column}"][row]))
            by_step[label] = own
        ordered = sorted(by_step, key=lambda label: self.place.get(label, -1))
        return [r for label in ordered for r in by_step[label]]

    def decide(self, docs: Documents, decisions: pa.Table | None = None) -> Redecided:
        """The batch's documents, found by their numbers. decisions: those on them."""
        numbers = docs.table[NUMBER].to_numpy()
        result = Redecided(np.ones(len(docs), np.bool_))
        same, anew = np.ones(len(docs), np.bool_), np.zeros(len(docs), np.bool_)
        fresh = None
        if self.before is not None:
            entered, other = self.before.entered(docs.table)
            same = entered & ~other & self.before.decided(numbers, decisions)
            anew = entered & ~same
            if anew.any():
                mine = Documents(docs.table.filter(pa.array(anew)).combine_chunks())
                earlier = self.before.earlier
                fresh = Reapplied(self.apply, mine, decisions, earlier, other[anew])
        for table, judged, was_gone in zip((self.kept, self.gone), self.of, (False, True),
                                           strict=True):  # fmt: skip
            at, known = places(judged.numbers, numbers)
            if len(judged.numbers):
                known &= same & ~judged.again[at]
            result.again &= ~known
            self._give(table, judged, at[known], was_gone, result)
            if fresh is not None:
                self._give_anew(table, judged.numbers, was_gone, fresh, result, anew)
        return result

    def _give(
        self,
        table: pa.Table,
        judged: Judged,
        rows: np.ndarray,
        was_gone: bool,
        result: Redecided,
        sketched: bool = True,
    ) -> None:
        """Puts stored rows into the result. sketched: whether their old sketches hold."""
        other = [(r, judged.other[r]) for r in rows.tolist() if r in judged.other]
        changed = np.array([r for r, _ in other], np.int64)
        same = table.take(pa.array(rows[~np.isin(rows, changed)]))
        (result.rejected if was_gone else result.kept).append(same)
        if not was_gone:
            self._sketch(same, result, sketched)
        held = [(r, why) for r, why in other if why]
        if held:
            rejected = _with_reasons(table.take(pa.array([r for r, _ in held])), held)
            result.rejected.append(rejected)
        freed = [r for r, why in other if not why]
        if freed:
            result.kept.append(table.take(pa.array(freed)))
            result.unsketched.append(result.kept[-1])

    def _give_anew(
        self,
        table: pa.Table,
        known: np.ndarray,
        was_gone: bool,
        fresh: Reapplied,
        result: Redecided,
        anew: np.ndarray,
    ) -> None:
        """The stored rows of documents that have other decisions or columns (anew: bool[rows of
        the batch]). known: int64[], numbers of the stored rows."""
        at, found = places(known, fresh.numbers)
        mine = np.flatnonzero(found)
        table, cut, other = fresh.onto(table.take(pa.array(at[found])), mine)
        applied = {i: fresh.reasons[r] for i, r in enumerate(mine.tolist()) if r in fresh.reasons}
        judged = self._judge(table, was_gone, None if self.apply is None else applied)
        again = judged.again | cut
        if any(s.name not in REGISTRY for s in self.chain):  # may read others' columns
            again |= other
        now, then = np.isin(np.arange(len(mine)), list(applied)), np.zeros(len(mine), np.bool_)
        if was_gone:
            then = np.array([s == fresh.label for s in table["step"].to_pylist()], np.bool_)
        table = fresh.texts(table, mine, now, then & ~now)
        result.again[np.flatnonzero(anew)[mine[~again]]] = False
        for differs in (False, True):
            rows = np.flatnonzero(~again & (other == differs))
            self._give(table, judged, rows, was_gone, result, not differs)

    def no_sketch(self) -> list[pa.Table]:
        """No sketch, in the columns of the old ones, where there are any."""
        return [] if self._sketches is None else [self._sketches.schema.empty_table()]

    def _sketch(self, kept: pa.Table, result: Redecided, hold: bool) -> None:
        """Old sketches of rows that are kept as they were, where they hold."""
        if self._sketches is None or not hold:
            result.unsketched.append(kept)
            return
        at, found = places(self._sketches["n"].to_numpy(), kept[NUMBER].to_numpy())
        result.sketched.append(self._sketches.take(pa.array(at[found])))
        if not found.all():
            result.unsketched.append(kept.filter(pa.array(~found)))


def _by_n(sketches: pa.Table) -> pa.Table:
    """Sketches in the order of the documents' numbers."""
    order = np.argsort(sketches["n"].to_numpy(), kind="stable")
    return sketches.take(pa.array(order)).combine_chunks()


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
    for i, part in enumerate(REASON):
        table = table.append_column(part.name, first.field(i))
    return table.append_column("reasons", reasons)
