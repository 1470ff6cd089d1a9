"""A first stage decided anew without reading its input again.

What its first run stored has all its documents, and its record how many were in each batch, which
decides a few bytes (row groups, empty lists of edits). A document that must be measured again can
be where its text as it entered the step in question is known: that of a rejected document is
stored so, and that of another where no step from there on edited it. One whose text is not known,
or a document in quarantine, and the partition is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.stage_files import part_path
from curate.disk.parquet_writer import one_array
from curate.documents.documents import EDIT, NUMBER, REASON_COLUMNS, Documents
from curate.formats.columns import EDITS
from curate.inspect.whatif.rows import places
from curate.inspect.whatif.stored import Judged, Stored
from curate.steps.contracts import REGISTRY

# What the record of a partition says of its input.
ACCOUNT = ("bytes_in", "skipped", "corrupt", "corrupt_examples", "batches")


class Unread:
    """One partition in the place of its reader. account: what the first run recorded."""

    def __init__(self, stored: Stored, folder: Path, part: int, account: dict[str, Any]) -> None:
        self.stored, self.account = stored, account
        self._folder, self._part = folder, part
        self._numbers = stored.outside[NUMBER].to_numpy()

    @classmethod
    def of(
        cls, stored: Stored, folder: Path, part: int, was: dict[str, Any] | None, columns: Any
    ) -> Unread | None:
        """None where the input must be read. columns: what the input has beside what all have."""
        if was is None or not all(name in was for name in ACCOUNT) or EDITS in columns:
            return None
        # A column of that name that the input brought is not the step's to make again.
        if any(name.startswith(f"{s.label}.") for name in columns for s in stored.chain):
            return None
        if "engine" in stored.outside["step"].unique().to_pylist():
            return None
        found = cls(stored, folder, part, was)
        for table, judged, gone in zip((stored.kept, stored.gone), stored.of, (False, True),
                                       strict=True):  # fmt: skip
            if not found._known(table, judged, gone).all():
                return None
        return found

    def ids(self) -> pa.Table:
        """What the first run wrote for the settlement of ids."""
        return pq.read_table(part_path(self._folder, self._part, "ids"))

    def said(self) -> dict[str, Any]:
        """What the first run recorded of its input."""
        return {name: self.account[name] for name in ACCOUNT}

    def corrupt(self) -> Path:
        """The list of what could not be read, where there is one."""
        return part_path(self._folder, self._part, "corrupt")

    def batches(self) -> Iterator[tuple[Documents, pa.Table]]:
        """(the batch's documents by number, without texts; those that the reader refused)."""
        start = 0
        for count in self.account["batches"]:
            inside = (self._numbers >= start) & (self._numbers < start + count)
            numbers = np.setdiff1d(np.arange(start, start + count), self._numbers[inside])
            edits = pa.nulls(len(numbers), pa.list_(EDIT))
            docs = Documents(pa.table({NUMBER: pa.array(numbers, pa.int64()), EDITS: edits}))
            yield docs, self.stored.outside.filter(pa.array(inside))
            start += count

    def entering(self, docs: Documents) -> Iterator[tuple[int, pa.Table]]:
        """(place, documents as they entered the step of that place) of those to be measured."""
        numbers = docs.table[NUMBER].to_numpy()
        for table, judged in zip((self.stored.kept, self.stored.gone), self.stored.of, strict=True):
            at, known = places(judged.numbers, numbers)
            rows = at[known]
            for place in np.unique(judged.entry[rows]).tolist():
                mine = rows[judged.entry[rows] == place]
                yield place, self._entering(table.take(pa.array(mine)), place)

    def _known(self, table: pa.Table, judged: Judged, gone: bool) -> np.ndarray:
        """bool[documents to be measured again]: whether their texts at their entry are stored."""
        rows = np.flatnonzero(judged.again)
        entry = judged.entry[rows]
        # Documents that are kept have their pages, if any, but what a step made of them already.
        known: np.ndarray = entry > self.stored.pages_until
        if not gone and self.stored.pages_until < 0:
            known[:] = True
        edits = one_array(table[EDITS].take(pa.array(rows)))
        count = pc.fill_null(pc.list_value_length(edits), 0).to_numpy(zero_copy_only=False)
        owner = np.repeat(np.arange(len(rows)), count)
        steps = edits.flatten().field("step").to_pylist()
        at = np.array([self.stored.place.get(s, -1) for s in steps], np.int64)
        known[owner[at >= entry[owner]]] = False
        for place, step in enumerate(self.stored.chain):
            # A column of that name is `identify`'s in the steps that are known here.
            if step.name not in REGISTRY and _declared(step.label) in table.column_names:
                known &= entry > place
        return known

    def _entering(self, table: pa.Table, place: int) -> pa.Table:
        """Without what steps from that place on said of the documents."""
        table = table.drop_columns([n for n in REASON_COLUMNS if n in table.column_names])
        for step in reversed(self.stored.chain[place:]):
            if _declared(step.label) in table.column_names:
                at = table.column_names.index("lang")
                table = table.set_column(at, "lang", table[_declared(step.label)])
            own = [n for n in table.column_names if n.startswith(f"{step.label}.")]
            table = table.drop_columns(own)
        return table.combine_chunks()


def _declared(label: str) -> str:
    return f"{label}.declared"
