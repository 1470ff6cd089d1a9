"""Edits: the spans that steps cut or replaced, as a column, and where bytes stand after them.

The edits of a document are spans of the input of the step that made them, in the order of the steps
(docs/recipes.md), so that a position can be followed from step to step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.disk.parquet_writer import one_array

EDITS = "edits"
EDIT = pa.struct(
    [
        ("step", pa.string()),
        ("rule", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("replacement", pa.string()),
    ]
)

Extent = tuple[int, int]  # first byte, byte behind the last


@dataclass(frozen=True)
class Spans:
    """The spans that an edit cut or replaced, in bytes of each row's text as the step received it.

    rows, start, end: int64[spans], ordered by row, then start; rule: int[spans], an index into
    `rules`; replacement: int[spans], an index into `replacements` (the text put in its place).
    """

    rows: np.ndarray
    start: np.ndarray
    end: np.ndarray
    rule: np.ndarray
    rules: tuple[str, ...]
    replacement: np.ndarray
    replacements: tuple[str, ...] = ("",)


StepEdits = Sequence[tuple[str, Spans]]  # by step, in the order of the steps


def edits_column(table: pa.Table, edits: StepEdits) -> pa.ListArray:
    """list<EDIT>[rows]: the edits that the table has already, then these, by row."""
    rows = [spans.rows for _, spans in edits]
    parts = [_structs(step, spans) for step, spans in edits]
    if EDITS in table.column_names:
        before = one_array(table[EDITS])
        lengths = pc.fill_null(pc.list_value_length(before), 0).to_numpy(zero_copy_only=False)
        rows.insert(0, np.repeat(np.arange(len(table)), lengths))
        parts.insert(0, before.flatten())
    all_rows = np.concatenate(rows)
    order = np.argsort(all_rows, kind="stable")
    values = pa.concat_arrays(parts).take(pa.array(order))
    offsets = np.searchsorted(all_rows[order], np.arange(len(table) + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def edit_counts(edits: StepEdits, kept: np.ndarray) -> dict[str, dict[str, int]]:
    """cut and cut_bytes: spans and bytes by `step.rule` of the edits of rows where kept: bool."""
    cut: Counter[str] = Counter()
    cut_bytes: Counter[str] = Counter()
    for step, spans in edits:
        mask = kept[spans.rows]
        rule, sizes = spans.rule[mask], (spans.end - spans.start)[mask]
        counts = np.bincount(rule, minlength=len(spans.rules))
        totals = np.bincount(rule, sizes, minlength=len(spans.rules))
        for code, name in enumerate(spans.rules):
            if counts[code]:
                cut[f"{step}.{name}"] += int(counts[code])
                cut_bytes[f"{step}.{name}"] += int(totals[code])
    return {"cut": dict(cut), "cut_bytes": dict(cut_bytes)}


def _structs(step: str, spans: Spans) -> pa.StructArray:
    return pa.StructArray.from_arrays(
        [
            pa.repeat(pa.scalar(step, pa.string()), len(spans.rows)),
            pa.array(list(spans.rules), pa.string()).take(pa.array(spans.rule)),
            pa.array(spans.start, pa.int64()),
            pa.array(spans.end, pa.int64()),
            pa.array(list(spans.replacements), pa.string()).take(pa.array(spans.replacement)),
        ],
        fields=list(EDIT),
    )


def remaining(extents: Iterable[Extent], edits: Iterable[Mapping[str, Any]]) -> list[Extent]:
    """The bytes of the extents that the edits left, as extents of the text that the edits made.

    extents: in bytes of the input of the step of the first edit, in order and apart; edits: of one
    document as its column has them. Replaced bytes count as gone.
    """
    rest = [extent for extent in extents if extent[0] < extent[1]]
    for _, group in groupby(edits, key=lambda edit: edit["step"]):
        spans = sorted((e["start"], e["end"], e["replacement"] or "") for e in group)
        rest = _without(rest, spans)
    return rest


def byte_length(extents: Iterable[Extent]) -> int:
    """Bytes of extents that are apart."""
    return sum(end - start for start, end in extents)


def _without(extents: list[Extent], spans: list[tuple[int, int, str]]) -> list[Extent]:
    """The extents without the spans, at their positions after the edit."""
    rest: list[Extent] = []
    shift = 0  # by which bytes behind the spans so far have moved
    first = 0  # span
    for start, end in extents:
        # Spans that end before the extent only move it.
        while first < len(spans) and spans[first][1] <= start:
            shift += _growth(spans[first])
            first += 1
        at, moved, nth = start, shift, first
        while nth < len(spans) and spans[nth][0] < end:
            span = spans[nth]
            if span[0] > at:
                rest.append((at + moved, span[0] + moved))
            at = max(at, span[1])
            moved += _growth(span)
            nth += 1
        if at < end:
            rest.append((at + moved, end + moved))
    return rest


def _growth(span: tuple[int, int, str]) -> int:
    return len(span[2].encode()) - (span[1] - span[0])
