"""Edits: the spans that steps cut or replaced, as a column, and where bytes stand after them.

The edits of a document are spans of the input of the step that made them, in the order of the steps
(docs/recipes.md), so that a position can be followed from step to step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from llmcurate.base.disk.parquet_writer import one_array

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


class Edit(NamedTuple):
    """One edit of a document, with the fields of EDIT."""

    step: str
    rule: str
    start: int
    end: int
    replacement: str | None

    @property
    def name(self) -> str:
        """`step.rule`, the name under which reports and counts know it."""
        return f"{self.step}.{self.rule}"

    @property
    def growth(self) -> int:
        """Bytes by which the text became longer; mostly negative."""
        return len((self.replacement or "").encode("utf-8", "replace")) - (self.end - self.start)


def edits_of(row: Mapping[str, Any]) -> list[Edit]:
    """The edits of a document, in their order; row: of the corpus, or a rejected record."""
    return [Edit(**edit) for edit in row.get(EDITS) or ()]


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


def edited(text: bytes, edits: Iterable[Edit]) -> bytes:
    """A step's input after its edits."""
    pieces, at = [], 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        pieces += [text[at : edit.start], (edit.replacement or "").encode("utf-8", "replace")]
        at = max(at, edit.end)
    return b"".join([*pieces, text[at:]])


def remaining(extents: Iterable[Extent], edits: Iterable[Edit]) -> list[Extent]:
    """The bytes of the extents that the edits left, as extents of the text that the edits made.

    extents: in bytes of the input of the step of the first edit, in order and apart; edits: of one
    document. Replaced bytes count as gone.
    """
    rest = [extent for extent in extents if extent[0] < extent[1]]
    for _, group in groupby(edits, key=lambda edit: edit.step):
        rest = _without(rest, sorted(group, key=lambda e: (e.start, e.end, e.replacement or "")))
    return rest


def byte_length(extents: Iterable[Extent]) -> int:
    """Bytes of extents that are apart."""
    return sum(end - start for start, end in extents)


def _without(extents: list[Extent], edits: list[Edit]) -> list[Extent]:
    """The extents without what the edits of one step cut, at their positions after them."""
    rest: list[Extent] = []
    shift = 0  # by which bytes behind the edits so far have moved
    first = 0  # edit
    for start, end in extents:
        # Edits that end before the extent only move it.
        while first < len(edits) and edits[first].end <= start:
            shift += edits[first].growth
            first += 1
        at, moved, nth = start, shift, first
        while nth < len(edits) and edits[nth].start < end:
            edit = edits[nth]
            if edit.start > at:
                rest.append((at + moved, edit.start + moved))
            at = max(at, edit.end)
            moved += edit.growth
            nth += 1
        if at < end:
            rest.append((at + moved, end + moved))
    return rest
