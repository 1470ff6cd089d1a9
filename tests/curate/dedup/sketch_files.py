"""Files of sketches for the tests of resolves, and the survivor policies that they try."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.sketches import MARK, SketchFile

POLICIES = ["longest", "newest", "c4", "first", "best:x", "prefer-source:b,a'b"]


def write(folder: Path, tables: list[pa.Table], earlier: int = 0) -> tuple[SketchFile, ...]:
    """A file a table; the first `earlier` are an earlier corpus; some ids were settled."""
    files = []
    ids = folder / "ids.parquet"
    changed = {"part": [0] * 2, "_n": [100, 102], "id": ["settled", f"{MARK}odd"]}
    types = {"part": pa.int32(), "_n": pa.int64(), "id": pa.string()}
    pq.write_table(pa.table({k: pa.array(v, types[k]) for k, v in changed.items()}), ids)
    for stored, table in enumerate(tables):
        path = folder / f"part-{stored}.parquet"
        number = pa.array(np.full(len(table), stored), pa.int32())
        pq.write_table(table.append_column("part", number), path)
        corpus = "old" if stored < earlier else ""
        files.append(SketchFile(stored - earlier, path, stored, ids, corpus))
    return tuple(files)
