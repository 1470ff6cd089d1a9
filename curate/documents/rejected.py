"""What a stage writes about its rows: the edits column, the rejected stream, counts by rule."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.disk.parquet_writer import one_array
from curate.documents.documents import EDIT, NUMBER, PAYLOAD, REASON

if TYPE_CHECKING:
    from curate.documents.documents import Documents, Spans


def _strings(values: tuple[str, ...] | list[str], codes: np.ndarray) -> pa.Array:
    return pa.array(list(values), pa.string()).take(pa.array(codes))


def _span_struct(step: str, spans: Spans) -> pa.StructArray:
    n = len(spans.rows)
    return pa.StructArray.from_arrays(
        [
            pa.repeat(pa.scalar(step, pa.string()), n),
            _strings(spans.rules, spans.rule),
            pa.array(spans.start, pa.int64()),
            pa.array(spans.end, pa.int64()),
            _strings(spans.replacements, spans.replacement),
        ],
        fields=list(EDIT),
    )


def edits_column(docs: Documents) -> pa.ListArray | None:
    """list<EDIT>[rows]: edits of earlier stages, then of this one, in the order of the steps."""
    if not docs.edits:
        return None
    rows = [s.rows for _, s in docs.edits]
    parts = [_span_struct(step, s) for step, s in docs.edits]
    if "edits" in docs.table.column_names:
        before = one_array(docs.table["edits"])
        lengths = pc.fill_null(pc.list_value_length(before), 0).to_numpy(zero_copy_only=False)
        rows.insert(0, np.repeat(np.arange(len(docs)), lengths))
        parts.insert(0, before.flatten())
    all_rows = np.concatenate(rows)
    order = np.argsort(all_rows, kind="stable")
    values = pa.concat_arrays(parts).take(pa.array(order))
    offsets = np.searchsorted(all_rows[order], np.arange(len(docs) + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _reasons(docs: Documents) -> tuple[np.ndarray, pa.StructArray, np.ndarray]:
    """(row: int64[n], reason: REASON[n], which drop: int64[n]), by row, then order of marking."""
    rows = np.concatenate([d.rows for d in docs.drops])
    which = np.repeat(np.arange(len(docs.drops)), [len(d.rows) for d in docs.drops])
    order = np.argsort(rows, kind="stable")
    details: list[str | None] = []
    for d in docs.drops:
        details.extend(d.details if d.details is not None else [None] * len(d.rows))
    thresholds = np.array([d.threshold for d in docs.drops])[which]
    values = np.concatenate([d.values for d in docs.drops])
    struct = pa.StructArray.from_arrays(
        [
            _strings([d.step for d in docs.drops], which),
            _strings([d.rule for d in docs.drops], which),
            pa.array(values, pa.float64(), mask=np.isnan(values)),
            pa.array(thresholds, pa.float64(), mask=np.isnan(thresholds)),
            pa.array(details, pa.string()),
        ],
        fields=list(REASON),
    )
    return rows[order], struct.take(pa.array(order)), which[order]


def rejected_table(docs: Documents, mask: np.ndarray) -> pa.Table:
    """The marked rows: their columns without payload, then primary reason, then all reasons."""
    drop = [n for n, _ in PAYLOAD if n in docs.table.column_names]
    table = docs.table.drop_columns(drop) if drop else docs.table
    marked = np.flatnonzero(mask)
    table = table.take(pa.array(marked))
    if len(marked) == 0:
        empty: dict[str, pa.Array] = {f.name: pa.array([], f.type) for f in REASON}
        empty["reasons"] = pa.array([], pa.list_(REASON))
        for name, array in empty.items():
            table = table.append_column(name, array)
        return table
    rows, reasons, which = _reasons(docs)
    first = np.searchsorted(rows, marked)
    primary = reasons.take(pa.array(first))
    table = table.set_column(
        table.column_names.index("text"), "text", _entry_texts(docs, marked, which[first])
    )
    for i, field in enumerate(REASON):
        table = table.append_column(field.name, primary.field(i))
    offsets = np.append(first, len(rows)).astype(np.int32)
    return table.append_column("reasons", pa.ListArray.from_arrays(pa.array(offsets), reasons))


def _entry_texts(docs: Documents, marked: np.ndarray, drop: np.ndarray) -> pa.Array:
    """The text of each marked row as it entered the step of its primary reason."""
    out = pa.array([None] * len(marked), pa.large_string())
    for index in np.unique(drop):
        mine = drop == index
        texts = docs.drops[int(index)].entry.take(pa.array(marked[mine]))
        out = texts if mine.all() else pc.replace_with_mask(out, pa.array(mine), texts)
    return out


def counts(docs: Documents, rejected: pa.Table) -> dict[str, dict[str, int]]:
    """primary: documents by `step.rule` of their first reason; reasons: by any reason; cut and
    cut_bytes: spans and bytes by rule of the edits that this stage made to kept documents."""
    primary = Counter(
        f"{s}.{r}"
        for s, r in zip(rejected["step"].to_pylist(), rejected["rule"].to_pylist(), strict=True)
    )
    any_reason: Counter[str] = Counter()
    for d in docs.drops:
        any_reason[f"{d.step}.{d.rule}"] += len(d.rows)
    kept = ~docs.marked()
    cut: Counter[str] = Counter()
    cut_bytes: Counter[str] = Counter()
    for step, s in docs.edits:
        mine = kept[s.rows]
        spans = np.bincount(s.rule[mine], minlength=len(s.rules))
        size = np.bincount(s.rule[mine], (s.end - s.start)[mine], minlength=len(s.rules))
        for i, rule in enumerate(s.rules):
            if spans[i]:
                cut[f"{step}.{rule}"] += int(spans[i])
                cut_bytes[f"{step}.{rule}"] += int(size[i])
    return {
        "primary": dict(primary),
        "reasons": dict(any_reason),
        "cut": dict(cut),
        "cut_bytes": dict(cut_bytes),
    }


def strip_number(table: pa.Table) -> pa.Table:
    """The table without the run's internal document number."""
    return table.drop_columns([NUMBER]) if NUMBER in table.column_names else table
