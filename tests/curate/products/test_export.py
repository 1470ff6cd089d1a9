"""Export: a corpus as JSON lines that reads back as the same documents."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from curate.run.driver import carry_out
from curate.run.records import Options
from curate.steps.recipe import compose


@pytest.mark.parametrize("compression", ["zst", "gz", "none"])
def test_what_is_exported_reads_back_as_the_same_documents(
    tmp_path: Path, compression: str
) -> None:
    rows = [
        {
            "id": f"d{i}",
            "text": f"text {i} ไทย \u0000",
            "score": i / 2,
            "date": "2024-05-01T10:00:00Z",
        }
        for i in range(30)
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(json.dumps(r) for r in rows))
    settings = {"compression": compression, "part_bytes": 500}
    recipe = compose("export", [("export", settings)], ())
    outcome = carry_out(recipe, [str(source)], tmp_path / "out", Options(1, True))
    record = outcome.products[0]
    assert record["documents"] == 30 and len(record["files"]) > 1
    again = compose("dedup", [("dedup_exact", {})], ())
    carry_out(again, [str(tmp_path / "out" / "jsonl")], tmp_path / "again", Options(1, True))
    parts = sorted((tmp_path / "again" / "corpus").glob("*.parquet"))
    table = pq.ParquetDataset(parts).read()
    assert table["id"].to_pylist() == [r["id"] for r in rows]
    assert table["text"].to_pylist() == [r["text"] for r in rows]
    assert table["score"].to_pylist() == [r["score"] for r in rows]
    assert table["date"][0].as_py().isoformat() == "2024-05-01T10:00:00+00:00"


def test_unreadable_places_are_reported_if_a_product_reads_the_input(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": \n')
    recipe = compose("export", [("export", {})], ())
    carry_out(recipe, [str(tmp_path / "in.jsonl")], tmp_path / "out", Options(1, True))
    record = json.loads((tmp_path / "out" / ".run" / "run.json").read_text())
    assert "1 place of the input not read: see corrupt.jsonl" in record["notices"]
