"""Edits: the spans that steps cut or replaced, stored as a column. Each span has byte positions in
the input of its step. Edits are in the order of the steps (docs/recipes.md), so a position can be
followed from step to step."""

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

Extent = tuple[int, int]  # first byte, last byte + 1


class Edit(NamedTuple):
    """One edit of a document, with the fields of the Arrow type EDIT."""

    step: str
    rule: str
    start: int
    end: int
    replacement: str | None

    @property
    def name(self) -> str:
        return f"{self.step}.{self.rule}"

    @property
    def growth(self) -> int:
        """The number of bytes that the edit adds to the text; usually negative."""
        return len((self.replacement or "").encode("utf-8", "replace")) - (self.end - self.start)


def edits_of(row: Mapping[str, Any]) -> list[Edit]:
    """Return the edits of a document in order. `row` is from the corpus or a rejected record."""
    return [Edit(**edit) for edit in row.get(EDITS) or ()]


@dataclass(frozen=True)
class Spans:
    """The spans that one step cut or replaced, ordered by row and start. Positions are bytes of the
    text before the step."""

    rows: np.ndarray  # int64[spans]
    start: np.ndarray  # int64[spans]
    end: np.ndarray  # int64[spans], exclusive
    rule: np.ndarray  # int[spans], index into `rules`
    rules: tuple[str, ...]
    replacement: np.ndarray  # int[spans], index into `replacements`
    replacements: tuple[str, ...] = ("",)


StepEdits = Sequence[tuple[str, Spans]]  # by step, in the order of the steps


def edits_column(table: pa.Table, edits: StepEdits) -> pa.ListArray:
    """Return list<EDIT>[rows]: for each row the edits in `table`, then those in `edits`."""
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
    """Return {`cut`: {rule: spans}, `cut_bytes`: {rule: bytes}} with rules as `step.rule`, counted
    in the rows where `kept` (bool[rows]) is True."""
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
    """Return the text after the edits of one step."""
    pieces, at = [], 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        pieces += [text[at : edit.start], (edit.replacement or "").encode("utf-8", "replace")]
        at = max(at, edit.end)
    return b"".join([*pieces, text[at:]])


def remaining(extents: Iterable[Extent], edits: Iterable[Edit]) -> list[Extent]:
    """Follow byte ranges of a text through edits. Return the ranges that remain, as positions in
    the edited text. `extents` are the ranges before the first edit's step, in order and disjoint.
    Replaced bytes count as removed."""
    kept = [extent for extent in extents if extent[0] < extent[1]]
    for _, group in groupby(edits, key=lambda edit: edit.step):
        kept = _without(kept, sorted(group, key=lambda e: (e.start, e.end, e.replacement or "")))
    return kept


def byte_length(extents: Iterable[Extent]) -> int:
    return sum(end - start for start, end in extents)


def _without(extents: list[Extent], edits: list[Edit]) -> list[Extent]:
    kept: list[Extent] = []
    shift = 0  # bytes by which the earlier edits moved the text after them
    first = 0  # index of the first edit that ends after `start`
    for start, end in extents:
        # Edits that end before the extent only move it.
        while first < len(edits) and edits[first].end <= start:
            shift += edits[first].growth
            first += 1
        at, moved, nth = start, shift, first
        while nth < len(edits) and edits[nth].start < end:
            edit = edits[nth]
            if edit.start > at:
                kept.append((at + moved, edit.start + moved))
            at = max(at, edit.end)
            moved += edit.growth
            nth += 1
        if at < end:
            kept.append((at + moved, end + moved))
    return kept
