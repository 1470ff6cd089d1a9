"""A part of the input: the same documents for any number of workers; the others are counted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.formats.inputs import plan_inputs
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import PartitionReader, plan_reading
from curate.refresh.incremental import check
from curate.steps.recipe import parse
from llmcurate.base.errors import UsageError

SMALL = {"partition_bytes": 2048}  # bytes: the files below have several partitions
STEPS = [{"document_length": {"unit": "chars", "min": 1}}]


def read_all(inputs: list[str], read: ReadSettings) -> list[str]:
    """Return the ids of the documents read, in order; made ids count from their slice."""
    plan = plan_reading(inputs, read)
    readers = [PartitionReader(plan, part, read) for part in range(len(plan.partitions))]
    return [i for r in readers for batch in r for i in batch.docs.table["id"].to_pylist()]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Write JSONL with ids and without, gzip, and parquet: 400 documents in all."""
    folder = tmp_path_factory.mktemp("part")
    rows = [{"id": f"d{i}", "text": f"A text of document {i}. " * 3} for i in range(200)]
    lines = [json.dumps(row) for row in rows]
    (folder / "a.jsonl").write_text("\n".join(lines[:100]) + "\n", encoding="utf-8")
    bare = [json.dumps({"text": row["text"] + "bare"}) for row in rows[:100]]
    (folder / "b.jsonl").write_text("\n".join(bare) + "\n", encoding="utf-8")
    with gzip.open(folder / "c.jsonl.gz", "wt") as packed:
        packed.write("\n".join(lines[100:]) + "\n")
    texts = [row["text"] + "parquet" for row in rows[:100]]
    pq.write_table(pa.table({"text": texts}), folder / "d.parquet", row_group_size=30)
    return [str(folder / name) for name in ("a.jsonl", "b.jsonl", "c.jsonl.gz", "d.parquet")]


@given(st.integers(1, 450))
@settings(max_examples=25, deadline=None)
def test_the_first_documents_are_those_of_the_input_in_order(files: list[str], limit: int) -> None:
    whole = read_all(files, ReadSettings(**SMALL))
    assert read_all(files, ReadSettings(limit=limit, **SMALL)) == whole[:limit]


def test_files_and_partitions_past_the_limit_are_not_opened(files: list[str]) -> None:
    plan = plan_reading(files, ReadSettings(limit=3, **SMALL))
    whole = plan_inputs(files, SMALL["partition_bytes"])
    assert len(plan.partitions) == 1 and [f.rel for f in plan.files] == ["a.jsonl"]
    first = sum(batch.ids.num_rows for batch in PartitionReader(whole, 0, ReadSettings(**SMALL)))
    for limit, partitions in ((first - 1, 1), (first, 1), (first + 1, 2)):
        cut = plan_reading(files, ReadSettings(limit=limit, **SMALL))
        assert len(cut.partitions) == partitions
    assert f"{len(whole.partitions) - 1} of {len(whole.partitions)} partitions" in plan.notices[-1]


def test_a_limit_larger_than_the_input_gives_no_notice(files: list[str]) -> None:
    plan = plan_reading(files, ReadSettings(limit=400, **SMALL))
    assert plan.fingerprint() != "" and len(plan.files) == 4
    assert plan_reading(files, ReadSettings(limit=401, **SMALL)).notices == ()


def test_a_share_of_a_share_is_in_it_and_about_as_large(files: list[str]) -> None:
    half = read_all(files, ReadSettings(share=0.5, **SMALL))
    tenth = read_all(files, ReadSettings(share=0.1, **SMALL))
    other = read_all(files, ReadSettings(share=0.5, seed=1, **SMALL))
    assert 150 < len(half) < 250 and set(tenth) < set(half) != set(other)
    assert read_all(files, ReadSettings(share=1.0, **SMALL)) == read_all(
        files, ReadSettings(**SMALL)
    )


@pytest.mark.parametrize(
    "part",
    [
        pytest.param({"limit": 150}, marks=pytest.mark.slow),
        pytest.param({"share": 0.3}, marks=pytest.mark.slow),
        {"share": 0.5, "limit": 90},
    ],
)
def test_a_run_over_a_part_does_not_depend_on_workers(
    bench: Any, files: list[str], part: dict[str, Any]
) -> None:
    for workers in (1, 2):
        bench.run(STEPS, *files, out=f"out{workers}", workers=workers, read={**SMALL, **part})
    assert bench.bytes_of("out1") == bench.bytes_of("out2")


def test_ids_of_a_part_are_those_of_the_whole_input(bench: Any, files: list[str]) -> None:
    bench.run(STEPS, *files, out="whole", read=SMALL)
    outcome = bench.run(STEPS, *files, out="part", read={**SMALL, "share": 0.4})
    texts = {row["id"]: row["text"] for row in bench.rows("whole")}
    assert all(texts[row["id"]] == row["text"] for row in bench.rows("part"))
    totals = outcome.totals()
    assert totals.read + totals.passed_over == 400


def test_documents_passed_over_are_counted_in_the_record_and_on_the_page(
    bench: Any, files: list[str]
) -> None:
    result = bench.command("filter", "document_length", *files, "-o", "o", "--share", "0.4", "-q")
    assert "documents passed over (read.share)" in result.stdout
    record = json.loads((bench.folder / "o/run.json").read_text())
    left = record["totals"]["passed_over"]
    assert left == 400 - record["totals"]["read"]
    assert f"<code>read.share</code>: {left}" in (bench.folder / "o/report.html").read_text()
    assert "share: 0.4" in (bench.folder / "o/recipe.yaml").read_text()


def test_the_plan_names_the_part(bench: Any, files: list[str]) -> None:
    line = ("filter", "document_length", files[0], "-o", "o", "--limit", "20", "--dry-run")
    assert "the first 20 documents" in bench.command(*line).stdout
    assert "a share of 0.5" in bench.command(*line, "--share", "0.5").stdout


def test_another_share_or_limit_changes_the_stage_key_and_a_seed_alone_does_not(
    bench: Any, files: list[str]
) -> None:
    def key(read: dict[str, Any]) -> str:
        stage = bench.run(STEPS, files[0], out="keys", read=read).plan.stages[0]
        return str(stage.key)

    keys = [key({}), key({"share": 0.5}), key({"share": 0.5, "seed": 1}), key({"limit": 5})]
    assert len(set(keys)) == 4
    assert key({"seed": 5}) == keys[0]
    assert "seed" not in ReadSettings(seed=5).identity()


def test_statistics_and_forecasts_know_the_part(bench: Any, files: list[str]) -> None:
    result = bench.command("stats", *files, "--limit", "10", "--json")
    assert json.loads(result.stdout)["documents"] == 10
    bench.run(STEPS, *files, out="sample", read={"share": 0.5})
    line = ("run", "recipe.yaml", *files, "-o", "all", "--dry-run", "--json", "-q")
    recipe = {"steps": STEPS}
    Path(bench.folder / "recipe.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    forecast = json.loads(bench.command(*line, "--sample", "sample").stdout)["forecast"]
    assert round(forecast["documents"]) == 400
    bench.run(STEPS, *files, out="first", read={"limit": 5})
    assert "make a sample with --share" in bench.command(*line, "--sample", "first").stderr


def test_a_refresh_takes_a_share_and_no_limit() -> None:
    share = parse('{"steps": ["c4"], "read": {"share": 0.5}}', "recipe.yaml")
    first = parse('{"steps": ["c4"], "read": {"limit": 5}}', "recipe.yaml")
    assert check(share) is None
    with pytest.raises(UsageError, match=r"remove `read.limit`"):
        check(first)


def test_a_share_of_nothing_is_a_one_line_error(bench: Any, files: list[str]) -> None:
    result = bench.command("filter", "c4", files[0], "-o", "o", "--share", "0")
    assert result.returncode == 2 and "--share 0.0: read.share" in result.stderr
