"""A small search index."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from curate.dedup.suffix_array.search_index import IndexWriter, SearchIndex


def index_of(
    folder: Path, texts: list[str], sort_bytes: int = 1 << 20, batch: int = 2, **most: int
) -> SearchIndex:
    writer = IndexWriter(folder, sort_bytes, **most)
    for a in range(0, len(texts), batch):
        ids = pa.array([f"d{i}" for i in range(a, min(a + batch, len(texts)))], pa.string())
        writer.add(ids, pa.array(texts[a : a + batch], pa.large_string()))
    writer.close()
    return SearchIndex(folder)
