"""How much goes over epsilon, from the highest similarities that a run has stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.errors import UsageError

SIMILARITY = "similarity.parquet"
EPSILONS = np.round(np.geomspace(0.001, 0.5, 55), 5)


def removed(similarity: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
    """int64[epsilons]: documents whose highest similarity, float64[documents], is above
    1 - epsilon."""
    ordered = np.sort(similarity)
    least = np.round(1.0 - epsilons, 12)
    found: np.ndarray = len(ordered) - np.searchsorted(ordered, least, side="right")
    return found


def curve(folder: Path | str, epsilons: np.ndarray = EPSILONS) -> pa.Table:
    """The removal curve of a finished run: columns epsilon, removed (documents), share.

    folder: the step's index, OUT/index/dedup_semantic, or any folder above similarity.parquet.
    UsageError where there is none.
    """
    paths = sorted(Path(folder).rglob(SIMILARITY))
    if not paths:
        raise UsageError(
            f"no {SIMILARITY} under {folder}; name the index folder of a dedup_semantic run"
        )
    rows = pq.read_table(paths[0], columns=["part", "similarity"])
    rows = rows.filter(pc.greater_equal(rows["part"], 0))
    counts = removed(rows["similarity"].fill_null(0.0).to_numpy(), epsilons)
    return pa.table(
        {"epsilon": epsilons, "removed": counts, "share": counts / max(1, rows.num_rows)}
    )
