"""What entered a stage in an earlier run: the rows that the stage before it kept, and decisions.

A stage makes of a document what the document and the decisions on it are. So where both are as
they were, what the stage stored of it holds, whatever became of other documents.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.stage_files import part_path, with_ids
from curate.documents.documents import NUMBER
from curate.inspect.whatif.rows import places, same_rows
from curate.steps.contracts import CorpusStep


class Before:
    """Of one partition. reuse: the stage's, as apply.py describes it; changed: settled ids."""

    def __init__(
        self, reuse: dict[str, Any], part: int, step: CorpusStep | None, changed: dict[int, str]
    ) -> None:
        self._step, self._settings = step, reuse["same_settings"]
        self.earlier: list[str] = reuse["earlier"]
        self._own = tuple(f"{label}." for label in self.earlier)
        self._rows: pa.Table | None = None
        self._decisions: pa.Table | None = None
        if reuse["input"]:
            folder = Path(reuse["input"])
            rows = pq.read_table(part_path(folder, part, "kept"))
            keys = pq.read_table(part_path(folder, part, "keys"))
            for name in keys.column_names:
                rows = rows.append_column(name, keys[name])
            self._rows = with_ids(rows, changed)
            self._numbers = self._rows[NUMBER].to_numpy()
        if reuse["decisions"]:
            self._decisions = pq.read_table(reuse["decisions"], filters=[("part", "=", part)])

    def entered(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """(bool[rows]: documents that entered the stage with the same row as they do now, columns
        of earlier steps apart; bool[rows]: those of them of which such a column differs)."""
        numbers = table[NUMBER].to_numpy()
        other = np.zeros(len(numbers), np.bool_)
        if self._rows is None:
            return ~other, other
        at, found = places(self._numbers, numbers)
        rows = np.flatnonzero(found)
        sides = table.take(pa.array(rows)), self._rows.take(pa.array(at[rows]))
        said = [[n for n in s.column_names if n.startswith(self._own)] for s in sides]
        found[rows] = same_rows(*(s.drop_columns(n) for s, n in zip(sides, said, strict=True)))
        if said[0] or said[1]:
            other[rows] = ~same_rows(*(s.select(n) for s, n in zip(sides, said, strict=True)))
        return found, found & other

    def decided(self, numbers: np.ndarray, decisions: pa.Table | None) -> np.ndarray:
        """bool[rows]: documents of which the applied step makes what it made. decisions: those on
        these documents, by number; None in a stage that applies none."""
        if self._step is None or decisions is None:
            return np.ones(len(numbers), np.bool_)
        if not self._settings:
            return np.zeros(len(numbers), np.bool_)
        return self._decided_alike(numbers, decisions)

    def _decided_alike(self, numbers: np.ndarray, decisions: pa.Table) -> np.ndarray:
        """bool[rows]: as many decisions on a document as there were, and each of them alike."""
        assert self._decisions is not None and self._step is not None
        sides = []
        for side in (self._decisions, decisions):
            n = side["n"].to_numpy()
            low, high = (np.searchsorted(n, numbers, side=w) for w in ("left", "right"))
            sides.append((side, low, high - low))
        (old, old_low, old_count), (new, new_low, new_count) = sides
        alike: np.ndarray = old_count == new_count
        docs = np.flatnonzero(alike & (new_count > 0))
        if not len(docs):
            return alike
        owner = np.repeat(docs, new_count[docs])
        within = np.arange(len(owner)) - np.repeat(
            np.cumsum(new_count[docs]) - new_count[docs], new_count[docs]
        )
        tables = [
            self._step.applied(side.take(pa.array(low[owner] + within)))
            for side, low in ((old, old_low), (new, new_low))
        ]
        same = same_rows(tables[0], tables[1])
        alike[np.unique(owner[~same])] = False
        return alike
