"""The folders of OUT: other libraries read them, so do we, and OUT may lie within IN."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from curate.documents.edits import EDIT
from curate.run import assemble
from curate.run.assemble import swap
from llmcurate.base.disk.files import temporary_name
from tests.curate.capabilities import permissions_count
from tests.curate.durability import deeds

STEPS = [{"c4": {"min_sentences": 2}}, "dedup_exact"]


@pytest.fixture(scope="module")
def finished(shared_bench, make_pages):
    """A finished run of several partitions."""
    source = shared_bench.jsonl("in.jsonl", make_pages(60))
    shared_bench.run(STEPS, source, read={"partition_bytes": 8000})
    return shared_bench


def by_pandas(folder: Path) -> int:
    return len(pytest.importorskip("pandas").read_parquet(folder))


def by_polars(folder: Path) -> int:
    return len(pytest.importorskip("polars").read_parquet(folder))


def by_duckdb(folder: Path) -> int:
    duckdb = pytest.importorskip("duckdb")
    return len(duckdb.sql(f"SELECT id FROM read_parquet('{folder}/*')").fetchall())


def by_datasets(folder: Path) -> int:
    datasets = pytest.importorskip("datasets")
    cache = folder.parent.parent / "cache"
    return len(datasets.load_dataset(str(folder), split="train", cache_dir=str(cache)))


READERS = {
    "pyarrow.parquet": lambda folder: pq.read_table(folder).num_rows,
    "pyarrow.dataset": lambda folder: pa.dataset.dataset(folder).to_table().num_rows,
    # Without names that it passes over: what polars and others see.
    "all files": lambda folder: sum(pq.read_table(p).num_rows for p in folder.iterdir()),
    "pandas": by_pandas,
    "polars": by_polars,
    "duckdb": by_duckdb,
    "datasets": by_datasets,
}


@pytest.mark.parametrize("kind", ["corpus", "rejected"])
@pytest.mark.parametrize("reader", READERS)
def test_other_libraries_read_the_folder(finished, reader, kind):
    rows = finished.rows(kind=kind)
    assert len(rows) > 10
    assert READERS[reader](finished.folder / "out" / kind) == len(rows)


def test_a_run_that_is_killed_before_its_manifests_are_written_is_not_taken_for_finished(finished):
    out = finished.folder / "out"
    before = finished.bytes_of()
    for kind in ("corpus", "rejected"):
        (out / f"{kind}.json").unlink()
        outcome = finished.run(STEPS, finished.folder / "in.jsonl", read={"partition_bytes": 8000})
        assert not outcome.nothing_new and finished.bytes_of() == before


def test_rejected_documents_are_an_input_again_and_again(bench, make_pages):
    rows: list[Any] = [*make_pages(20), {"id": "none", "text": None}]
    bench.run(STEPS, bench.jsonl("in.jsonl", rows), out="0")
    for n in (1, 2):
        source = bench.folder / f"{n - 1}/rejected"
        before = bench.ids(f"{n - 1}", "rejected")
        outcome = bench.run(STEPS, source, out=f"{n}")
        totals = outcome.totals()
        assert totals.read == len(before) == totals.kept + totals.rejected
        assert "none" in bench.ids(f"{n}", "rejected")


def test_edits_of_an_earlier_run_stay_with_documents_that_the_reader_refuses(bench):
    edit = {"step": "c4", "rule": "line", "start": 0, "end": 4, "replacement": ""}
    table = pa.table(
        {
            "id": ["whole", "none"],
            "text": ["Some text here. And more.", None],
            "edits": pa.array([[], [edit]], pa.list_(EDIT)),
        }
    )
    pq.write_table(table, bench.folder / "in.parquet")
    bench.run(["dedup_exact"], bench.folder / "in.parquet")
    (row,) = bench.rows(kind="rejected")
    assert (row["id"], row["rule"], row["edits"]) == ("none", "no_text", [edit])


def test_unreadable_inputs_fail_the_run_or_are_counted(bench, make_pages):
    for name in "ab":
        bench.jsonl(f"in/{name}/x.jsonl", make_pages(3))
    closed = bench.folder / "in/b"
    line = ("filter", "c4", "in", "-o", "out")
    closed.chmod(0)
    try:
        with permissions_count():
            refused = bench.command(*line)
            skipped = bench.command(*line, "--skip-unreadable", "--json")
    finally:
        closed.chmod(0o755)
    assert refused.returncode == 1 and refused.stdout == ""
    (said,) = refused.stderr.splitlines()
    assert f"input {closed} cannot be read (Permission denied)" in said
    assert skipped.returncode == 0, skipped.stderr
    assert f"skipped {closed}: Permission denied" in skipped.stderr
    assert "0 corrupt, 1 unreadable" in skipped.stdout
    assert json.loads(skipped.stdout.splitlines()[-1])["unreadable"] == 1
    record = json.loads((bench.folder / "out/run.json").read_text())
    assert record["totals"]["unreadable"] == 1 and record["totals"]["read"] == 3
    assert "folders that could not be read: 1" in (bench.folder / "out/report.html").read_text()
    done = bench.command(*line)
    assert json.loads((bench.folder / "out/run.json").read_text())["totals"]["read"] == 6
    assert done.returncode == 0 and "unreadable" not in done.stdout


def test_an_out_within_its_input_resumes_and_other_runs_pass_it_over(bench, make_pages):
    bench.jsonl("nest/x.jsonl", make_pages(20))
    line = ("filter", "c4", "nest", "-o", "nest/out")
    first = bench.command(*line)
    assert first.returncode == 0, first.stderr
    before = bench.bytes_of("nest/out")
    again = bench.command(*line)
    assert again.returncode == 0 and "nothing to do in nest/out" in again.stdout, again.stderr
    other = bench.command("filter", "c4", "nest", "-o", "other")
    assert other.returncode == 0 and "read 20 documents" in other.stdout, other.stderr
    for done in (again, other):
        lines = [text for text in done.stderr.splitlines() if "skipped" in text]
        assert lines == [
            f"skipped {bench.folder / 'nest/out'}: a run; pass it as input to read its corpus"
        ]
    assert bench.bytes_of("nest/out") == before


def test_an_unfinished_run_within_its_input_continues(bench, make_pages, monkeypatch):
    source = bench.jsonl("nest/x.jsonl", make_pages(20)).parent

    def stops(new: Path, old: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(assemble, "swap", stops)
        bench.run(STEPS, source, out="nest/out")
    assert bench.run(STEPS, source, out="nest/out").totals().read == 20


def test_half_written_files_of_a_dead_worker_are_not_published(tmp_path):
    new, old = tmp_path / ".rejected-new", tmp_path / "rejected"
    new.mkdir()
    (new / "part-00000.parquet").touch()
    (new / temporary_name("part-00000.parquet")).touch()
    swap(new, old)
    assert [path.name for path in old.iterdir()] == ["part-00000.parquet"]


def test_a_manifest_is_removed_before_its_folder_is_replaced(tmp_path, monkeypatch):
    """And the folder's new name is durable before the old one's content goes."""
    new, old = tmp_path / ".corpus-new", tmp_path / "corpus"
    new.mkdir()
    old.mkdir()
    (tmp_path / "corpus.json").touch()
    done = deeds(monkeypatch)
    monkeypatch.setattr(assemble, "remove", lambda path, inside: done.append(("rm", path.name, 0)))
    swap(new, old)
    assert [deed[:2] for deed in done] == [
        ("remove", "corpus.json"), ("rm", ".corpus-old"), ("rename", ".corpus-old"),
        ("rename", "corpus"), ("sync", tmp_path.name), ("rm", ".corpus-old"),
    ]  # fmt: skip
