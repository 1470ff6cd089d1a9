"""What a CorpusStep makes now of documents whose stored rows were made with other decisions, or
with other settings of the step.

Its decisions are applied again, which costs little beside what is measured. Where it leaves a text
as it left it before, what the steps behind it measured holds: its marks and its columns are put in
the place of those that are stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.disk.parquet_writer import one_array
from curate.documents.documents import NUMBER, Documents
from curate.documents.rejected import edits_column
from curate.inspect.whatif.rows import same_rows
from curate.steps.contracts import CorpusStep

Lists = dict[int, list[dict[str, Any]]]


class Reapplied:
    """Of documents that entered the stage with the same row as before, but for columns of earlier
    steps (other: bool[rows], where these differ).

    step: None in a stage that applies none; earlier: labels of the steps before the stage. text: as
    the step leaves it; reasons: row -> why it drops that document; entry: as they came.
    """

    def __init__(
        self,
        step: CorpusStep | None,
        docs: Documents,
        decisions: pa.Table | None,
        earlier: list[str],
        other: np.ndarray,
    ) -> None:
        self.label = "" if step is None else step.label
        self.numbers = docs.table[NUMBER].to_numpy()
        self._earlier, self._other = tuple(f"{label}." for label in earlier), other
        self._came = docs.table
        made = docs
        if step is not None and decisions is not None:
            on_them = np.isin(decisions["n"].to_numpy(), self.numbers)
            made = step.apply(docs.within(step.label), decisions.filter(pa.array(on_them)))
        self.entry, self.text = docs.text, made.text
        self.reasons: Lists = {}
        if made.drops:
            rejected = made.split()[1]
            rows = np.searchsorted(self.numbers, rejected[NUMBER].to_numpy())
            reasons = rejected["reasons"].to_pylist()
            self.reasons = dict(zip(rows.tolist(), reasons, strict=True))
        self._own = made.table.select(own_columns(made.table.schema, self.label))
        came = edits_column(made)
        self._edits = {} if came is None else of_step(came, self.label)

    def onto(self, table: pa.Table, rows: np.ndarray) -> tuple[pa.Table, np.ndarray, np.ndarray]:
        """(the stored rows of the documents `rows` with columns of the step and of earlier ones as
        they are now; bool[]: whether texts leave the step otherwise than before; bool[]: whether
        those columns differ)."""
        names = own_columns(table.schema, self.label)
        new = self._own.take(pa.array(rows))
        other = np.full(len(rows), set(names) != set(new.column_names))
        if names and not other.all():
            other = ~same_rows(table.select(names), new)
        cut = np.zeros(len(rows), np.bool_)
        if f"{self.label}.declared" in (*names, *new.column_names):  # another language, for once
            cut[:] = True
        then = of_step(one_array(table["edits"]), self.label)
        if then or self._edits:
            now = (self._edits.get(r) for r in rows.tolist())
            cut |= np.array([then.get(i) != edits for i, edits in enumerate(now)], np.bool_)
        table = table.drop_columns(names) if names else table
        for name in new.column_names:
            table = table.append_column(name, new[name])
        return self._with_earlier(table, rows), cut, other | self._other[rows]

    def _with_earlier(self, table: pa.Table, rows: np.ndarray) -> pa.Table:
        if not self._other[rows].any():
            return table
        gone = [n for n in table.column_names if n.startswith(self._earlier)]
        table = table.drop_columns(gone) if gone else table
        for name in self._came.column_names:
            if name.startswith(self._earlier):
                table = table.append_column(name, self._came[name].take(pa.array(rows)))
        return table

    def texts(self, table: pa.Table, rows: np.ndarray, entry: np.ndarray, left: np.ndarray) -> Any:
        """The rows with the texts of these documents as they came (entry: bool[]), or as the step
        leaves them (left: bool[]); the others as they are stored."""
        text = one_array(table["text"])
        for mask, texts in ((entry, self.entry), (left, self.text)):
            if mask.any():
                text = pc.if_else(pa.array(mask), texts.take(pa.array(rows)), text)
        return table.set_column(table.column_names.index("text"), "text", text)


def own_columns(schema: pa.Schema, label: str) -> list[str]:
    """The names of a step's columns; none of no step's."""
    return [n for n in schema.names if label and n.startswith(f"{label}.")]


def of_step(lists: pa.Array, label: str) -> Lists:
    """row -> the edits, or reasons, that are of this step; rows without any are absent."""
    every = lists.flatten()
    mine = pc.equal(every.field("step"), label)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(lists)), lengths)[mine.to_numpy(zero_copy_only=False)]
    found: Lists = {}
    for row, one in zip(rows.tolist(), every.filter(mine).to_pylist(), strict=True):
        found.setdefault(row, []).append(one)
    return found


def with_columns(schema: pa.Schema, entering: pa.Schema, made: pa.Schema, label: str) -> pa.Schema:
    """A stage's schema with the columns that the step behind `label` makes now: where they stood,
    or behind what entered the stage. made: the schema of a batch after the step."""
    old = [schema.field(n) for n in own_columns(schema, label)]
    new = [made.field(n) for n in own_columns(made, label)]
    if old == new:
        return schema
    fields = [f for f in schema if f not in old]
    at = next((i for i, f in enumerate(fields) if f.name not in entering.names), len(fields))
    return pa.schema([*fields[:at], *new, *fields[at:]])


def with_entering(schema: pa.Schema, old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """A stage's schema where what enters has the columns `new` in the place of `old`."""
    if [(f.name, f.type) for f in old] == [(f.name, f.type) for f in new]:
        return schema
    first = [
        schema.field(f.name) if f.name in schema.names else f
        for f in new
        if f.name in schema.names or f.name not in old.names
    ]
    return pa.schema([*first, *(f for f in schema if f.name not in old.names)])
