"""Documents: an Arrow table with a known schema, changed only by six verbs.

`replace` turns a payload into text, `annotate` adds a typed column `step.name`, `state` one that
users look for first under its name alone, `identify` says which language each text is in, `drop`
marks rows with a reason, `edit` gives new text together with what was cut. Marked rows stay in the
batch until the stage ends (`split`), so every filter of a stage measures every row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from curate.documents.edits import EDITS, Spans, edit_counts, edits_column
from curate.documents.rejected import Drop, marked_rows, reason_counts, rejected_table
from curate.text.buffers import as_large_string, text_buffers
from llmcurate.base.disk.units import counted

DATE = pa.timestamp("us", tz="UTC")
CORE: tuple[tuple[str, pa.DataType], ...] = (
    ("id", pa.string()),
    ("text", pa.large_string()),
    ("url", pa.string()),
    ("date", DATE),
    ("source", pa.string()),
    ("lang", pa.string()),
)
PAYLOAD: tuple[tuple[str, pa.DataType], ...] = (
    ("payload", pa.large_binary()),
    ("mime", pa.string()),
    ("charset", pa.string()),
    ("opt_out_headers", pa.string()),  # `name: value` a line, of formats.http.OPT_OUT_HEADERS
)
# Number of the document in its partition: its key within a run, never written to a corpus.
NUMBER = "_n"
T = TypeVar("T")


@dataclass(frozen=True)
class Documents:
    """A batch. Made by readers, changed by steps, split at the stage's end."""

    table: pa.Table
    drops: tuple[Drop, ...] = ()
    edits: tuple[tuple[str, Spans], ...] = ()
    step: str = "read"
    entry: pa.LargeStringArray | None = None
    _cache: dict[str, Any] | None = None

    def __len__(self) -> int:
        return self.table.num_rows

    @property
    def text(self) -> pa.LargeStringArray:
        """The text column as one array; null where a row has no text yet."""
        return as_large_string(self.table["text"])

    def buffers(self) -> tuple[np.ndarray, np.ndarray]:
        """(data: uint8[], offsets: int64[rows + 1]) of the text."""
        return text_buffers(self.text)

    def table_of(self, name: str, build: Callable[[], T]) -> T:
        """A segmentation of the current text by name, built once while the text is unchanged."""
        cache = self._cache if self._cache is not None else {}
        if self._cache is None:
            object.__setattr__(self, "_cache", cache)
        if name not in cache:
            cache[name] = build()
        value: T = cache[name]
        return value

    def within(self, step: str) -> Documents:
        """The same rows entering a step; what the step does is recorded under its name."""
        return replace(self, step=step, entry=self.text)

    def replace(self, text: pa.Array) -> Documents:
        """New text from the payload, which is gone afterwards, and what was said of it too."""
        table = self._with("text", as_large_string(text))
        table = table.drop_columns([n for n, _ in PAYLOAD if n in table.column_names])
        return replace(self, table=table, _cache=None)

    def annotate(self, name: str, values: pa.Array | np.ndarray) -> Documents:
        """A typed column `step.name`, one value a row."""
        array = values if isinstance(values, pa.Array) else pa.array(values)
        return replace(self, table=self._with(f"{self.step}.{name}", array))

    def state(self, name: str, values: pa.Array) -> Documents:
        """A column `name` for what users look for first; `step.name` where the input has one."""
        if name in self.table.column_names:
            return self.annotate(name, values)
        return replace(self, table=self._with(name, values))

    def identify(self, lang: pa.Array) -> Documents:
        """The core column `lang`: string[rows]; what stood there moves to `step.declared`."""
        before = self.table["lang"]
        declared = replace(self, table=self._with(f"{self.step}.declared", before))
        return replace(self, table=declared._with("lang", lang.cast(pa.string())))

    def drop(
        self,
        mask: np.ndarray,
        rule: str,
        value: np.ndarray | None = None,
        threshold: float | np.ndarray | None = None,
        detail: Sequence[str | None] | None = None,
    ) -> Documents:
        """Marks the rows where mask: bool[rows]; value: number[rows]; threshold: of all, or
        number[rows]; detail: text[rows]."""
        rows = np.flatnonzero(mask)
        if len(rows) == 0:
            return self
        values = np.full(len(rows), np.nan) if value is None else value[rows].astype(np.float64)
        mark = Drop(
            self.step,
            rule,
            rows,
            values,
            _each(threshold, rows),
            None if detail is None else tuple(detail[int(r)] for r in rows),
            self.entry if self.entry is not None else self.text,
        )
        return replace(self, drops=(*self.drops, mark))

    def edit(self, text: pa.Array, spans: Spans) -> Documents:
        """New text for the rows, and what was cut or replaced to get it."""
        if len(spans.rows) == 0:
            return self
        size = np.diff(self.buffers()[1])[spans.rows]
        ordered = (spans.start >= 0) & (spans.start <= spans.end) & (spans.end <= size)
        listed = spans.rule.max() < len(spans.rules)
        if not (ordered.all() and listed and spans.replacement.max() < len(spans.replacements)):
            raise ValueError("a span lies beyond its text, or names no rule or replacement")
        table = self._with("text", as_large_string(text))
        return replace(self, table=table, edits=(*self.edits, (self.step, spans)), _cache=None)

    def marked(self) -> np.ndarray:
        """bool[rows]: rows with at least one reason."""
        return marked_rows(self.drops, len(self))

    def split(self) -> tuple[pa.Table, pa.Table]:
        """(kept, rejected): kept as it stands, rejected with all reasons, the first as primary,
        and with the text as it entered the step of the first reason."""
        table = self.table
        if self.edits:
            table = _set(table, EDITS, edits_column(table, self.edits))
        mask = self.marked()
        kept = table.filter(pa.array(~mask)) if mask.any() else table
        payload = [name for name, _ in PAYLOAD if name in table.column_names]
        table = table.drop_columns(payload) if payload else table
        return kept, rejected_table(table, self.drops)

    def counts(self, rejected: pa.Table) -> dict[str, dict[str, int]]:
        """By `step.rule`: primary, reasons (documents), cut, cut_bytes (of kept documents).
        rejected: the second table of `split`."""
        return {
            **reason_counts(self.drops, rejected),
            **edit_counts(self.edits, ~self.marked()),
        }

    def _with(self, name: str, array: pa.Array) -> pa.Table:
        return _set(self.table, name, array)


def _each(threshold: float | np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    """float64[rows]: the threshold of each of the rows; NaN for none."""
    if isinstance(threshold, np.ndarray) and threshold.ndim:
        return threshold[rows].astype(np.float64)
    return np.full(len(rows), np.nan if threshold is None else float(threshold))


def _set(table: pa.Table, name: str, array: pa.Array) -> pa.Table:
    if len(array) != table.num_rows:
        raise ValueError(f"column {name}: {len(array)} values for {counted(table.num_rows, 'row')}")
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, array)
    return table.append_column(name, array)


def documents(
    columns: Mapping[str, Sequence[object]], schema: Sequence[tuple[str, pa.DataType]] = CORE
) -> Documents:
    """A batch from plain Python columns; columns of the schema that are absent are null.

    For tests and for callers that hold documents in memory.
    """
    rows = max((len(v) for v in columns.values()), default=0)
    data = {}
    for name, kind in schema:
        data[name] = pa.array(columns.get(name, [None] * rows), kind)
    for name, values in columns.items():
        if name not in data:
            data[name] = values if isinstance(values, pa.Array) else pa.array(values)
    if NUMBER not in data:
        data[NUMBER] = pa.array(np.arange(rows, dtype=np.int64))
    return Documents(pa.table(data))
