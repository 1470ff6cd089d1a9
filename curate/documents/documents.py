"""Documents: an Arrow table with a known schema, changed only by six verbs.

`replace` turns payloads (raw content such as HTML) into text, `annotate` adds a column named
`STEP.NAME`, `state` adds a column named `NAME`, `identify` sets the language, `drop` marks rows
with a reason, and `edit` sets new text and records what was cut. Marked rows stay until the stage
(a pass over the documents) ends, so that every filter measures every row.
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
    ("opt_out_headers", pa.string()),  # one `name: value` per line, of formats.http.OPT_OUT_HEADERS
)
# Number of the document in its partition: its key during a run, never written to a corpus.
NUMBER = "_n"
T = TypeVar("T")


@dataclass(frozen=True)
class Documents:
    """A batch of documents: created by readers, changed by steps, split after a stage."""

    table: pa.Table
    drops: tuple[Drop, ...] = ()  # what rules have marked
    edits: tuple[tuple[str, Spans], ...] = ()  # (step, spans)
    step: str = "read"  # the present step
    entry: pa.LargeStringArray | None = None  # texts before this step
    _cache: dict[str, Any] | None = None

    def __len__(self) -> int:
        return self.table.num_rows

    @property
    def text(self) -> pa.LargeStringArray:
        """The text column as one array; null for rows without text."""
        return as_large_string(self.table["text"])

    def buffers(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (data: uint8[], offsets: int64[rows + 1]) of the text."""
        return text_buffers(self.text)

    def table_of(self, name: str, build: Callable[[], T]) -> T:
        """Return the table `name` of the text (such as its words), kept until the text changes."""
        cache = self._cache if self._cache is not None else {}
        if self._cache is None:
            object.__setattr__(self, "_cache", cache)
        if name not in cache:
            cache[name] = build()
        value: T = cache[name]
        return value

    def within(self, step: str) -> Documents:
        """Return the same rows for a step to change; changes are recorded under the step's name."""
        return replace(self, step=step, entry=self.text)

    def replace(self, text: pa.Array) -> Documents:
        """Replace the payloads by their extracted texts. All payload columns are dropped."""
        table = self._with("text", as_large_string(text))
        table = table.drop_columns([n for n, _ in PAYLOAD if n in table.column_names])
        return replace(self, table=table, _cache=None)

    def annotate(self, name: str, values: pa.Array | np.ndarray) -> Documents:
        """Add a column `STEP.NAME`, for the step that runs now, with one value per row."""
        array = values if isinstance(values, pa.Array) else pa.array(values)
        return replace(self, table=self._with(f"{self.step}.{name}", array))

    def state(self, name: str, values: pa.Array) -> Documents:
        """Add a column that users need often: as `name`, or as `step.name` if `name` exists
        already."""
        if name in self.table.column_names:
            return self.annotate(name, values)
        return replace(self, table=self._with(name, values))

    def identify(self, lang: pa.Array) -> Documents:
        """Set the column `lang` to new languages (string[rows]). The old languages move to the
        column `STEP.declared`, where STEP is the step that is running."""
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
        """Mark the rows where `mask` (bool[rows]) is True as dropped. value: what the rule
        measured, number[rows]; threshold: one number or number[rows]; detail: text[rows]."""
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
        """Set the text of the rows and record the spans cut or replaced. Raise ValueError if a span
        is outside its text or names an unknown rule or replacement."""
        if len(spans.rows) == 0:
            return self
        size = np.diff(self.buffers()[1])[spans.rows]
        ordered = (spans.start >= 0) & (spans.start <= spans.end) & (spans.end <= size)
        listed = spans.rule.max() < len(spans.rules)
        if not (ordered.all() and listed and spans.replacement.max() < len(spans.replacements)):
            raise ValueError("a span is outside its text, or its rule or replacement is unknown")
        table = self._with("text", as_large_string(text))
        return replace(self, table=table, edits=(*self.edits, (self.step, spans)), _cache=None)

    def marked(self) -> np.ndarray:
        """Return bool[rows]: True for rows with at least one reason."""
        return marked_rows(self.drops, len(self))

    def split(self) -> tuple[pa.Table, pa.Table]:
        """Return (kept, rejected). A rejected row gets a list of its reasons, and columns with the
        first reason's fields. Its text is as it was before the step that gave the first reason."""
        table = self.table
        if self.edits:
            table = _set(table, EDITS, edits_column(table, self.edits))
        mask = self.marked()
        kept = table.filter(pa.array(~mask)) if mask.any() else table
        payload = [name for name, _ in PAYLOAD if name in table.column_names]
        table = table.drop_columns(payload) if payload else table
        return kept, rejected_table(table, self.drops)

    def counts(self, rejected: pa.Table) -> dict[str, dict[str, int]]:
        """Return {count: {`step.rule`: number}}. `primary` counts the documents with this rule as
        their first reason, `reasons` those with this rule as any reason. `cut` and `cut_bytes`
        count spans and bytes cut from kept documents. rejected: the second table of `split`."""
        return {
            **reason_counts(self.drops, rejected),
            **edit_counts(self.edits, ~self.marked()),
        }

    def _with(self, name: str, array: pa.Array) -> pa.Table:
        return _set(self.table, name, array)


def _each(threshold: float | np.ndarray | None, rows: np.ndarray) -> np.ndarray:
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
    """Return a batch from Python columns. Missing columns of the schema are null."""
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
