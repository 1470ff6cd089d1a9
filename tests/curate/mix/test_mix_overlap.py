"""Overlaps of sources, counted by exact texts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.mix.make import count_shared


def test_of_equal_texts_the_largest_that_is_taken_counts(tmp_path):
    """Of a three copies and a text of its own, of b one copy; the mix takes two of them."""
    rows = tmp_path / "rows.parquet"
    columns = {"grp": [0, 0, 0, 0, 1], "hash": [1, 1, 1, 4, 1], "size": [4, 8, 2, 16, 32]}
    pq.write_table(pa.table(columns | {"taken": [True, False, False, False, True]}), rows)
    shared = count_shared(rows, ["a", "b"])
    assert shared.documents == [[2, 3], [1, 0]]
    assert shared.size == [[4 + 2, 4 + 8 + 2], [32, 0]]
    assert (shared.unique_documents, shared.unique) == (1, 32)


def test_without_overlap_nothing_is_compared(bench):
    bench.jsonl("a.jsonl", [{"id": "a", "text": "A text."}])
    step = {"sources": {"a": str(bench.folder / "a.jsonl")}, "overlap": "none"}
    assert "overlap" not in bench.run([{"mix": step}]).products[0]["mix"]


def test_texts_are_compared_by_the_keys_of_exact_dedup():
    from curate.dedup.hashes import digests
    from curate.mix.measure import text_hashes

    texts = [b"", b"a", "ไทย".encode(), b"x" * 5000]
    data = np.frombuffer(b"".join(texts), np.uint8)
    offsets = np.cumsum([0, *map(len, texts)])
    assert np.array_equal(text_hashes(data, offsets), digests(data, offsets, "xxh3-128"))
