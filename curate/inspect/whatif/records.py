"""What a stage writes of a batch that was decided anew: its edits column and its counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.disk.parquet_writer import one_array
from curate.documents.documents import NUMBER, Documents


def with_batch_edits(
    docs: Documents, kept: pa.Table, rejected: pa.Table
) -> tuple[pa.Table, pa.Table]:
    """Both tables with the edits column as the batch has it: where the stage edits any of its
    documents, the others have an empty list; else all have what they came with."""
    numbers = docs.table[NUMBER].to_numpy()
    came = one_array(docs.table["edits"])
    at = [np.searchsorted(numbers, t[NUMBER].to_numpy()) for t in (kept, rejected)]
    edited = any(
        (_lengths(one_array(table["edits"])) > _lengths(came)[rows]).any()
        for table, rows in zip((kept, rejected), at, strict=True)
    )
    found = []
    for table, rows in zip((kept, rejected), at, strict=True):
        if edited:
            edits = one_array(table["edits"])
            edits = pc.fill_null(edits, pa.scalar([], edits.type))
        else:
            edits = came.take(pa.array(rows))
        place = table.column_names.index("edits")
        found.append(table.set_column(place, "edits", edits))
    return found[0], found[1]


def _lengths(lists: pa.Array) -> np.ndarray:
    count = pc.fill_null(pc.list_value_length(lists), 0)
    found: np.ndarray = count.to_numpy(zero_copy_only=False)
    return found


def stored_counts(
    kept: pa.Table, rejected: pa.Table, labels: list[str]
) -> dict[str, dict[str, int]]:
    """What verdicts.counts says of a batch, from its two tables. labels: of the stage's steps."""
    primary = Counter(
        f"{s}.{r}"
        for s, r in zip(rejected["step"].to_pylist(), rejected["rule"].to_pylist(), strict=True)
    )
    every = one_array(rejected["reasons"]).flatten()
    reasons = Counter(
        f"{s}.{r}"
        for s, r in zip(
            every.field("step").to_pylist(), every.field("rule").to_pylist(), strict=True
        )
    )
    cut: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for edit in one_array(kept["edits"]).flatten().to_pylist():
        if edit["step"] in labels:
            cut[f"{edit['step']}.{edit['rule']}"] += 1
            size[f"{edit['step']}.{edit['rule']}"] += edit["end"] - edit["start"]
    return {
        "primary": dict(primary),
        "reasons": dict(reasons),
        "cut": dict(cut),
        "cut_bytes": dict(size),
    }
