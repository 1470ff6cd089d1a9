"""Inputs of the Hugging Face hub: read at a commit, known by content."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.fetch.hub import with_commits, without_commits
from curate.formats.inputs import plan_inputs
from llmcurate.base.errors import UsageError
from tests.curate.conftest import pages
from tests.curate.lab.hub.hub_server import Hub

STEPS = [{"c4": {"min_sentences": 2}}, "dedup_exact"]
ROWS = pages(30)


def parquet(rows: list[dict[str, Any]]) -> bytes:
    """Rows as a parquet file."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    """Rows as packed JSON lines."""
    return gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())


@pytest.fixture
def crawl(hub: Hub) -> Hub:
    """A data set of three files beside a card."""
    files = {
        "README.md": b"---\nlicense: mit\n---\nA card, which is no document.\n",
        "data/a.parquet": parquet(ROWS[:10]),
        "data/b.parquet": parquet(ROWS[10:20]),
        "more/c.jsonl.gz": jsonl(ROWS[20:]),
    }
    hub.put("org/crawl", files)
    return hub


def local(hub: Hub, folder: Path) -> Path:
    """The same files in a folder."""
    for name, data in hub.files("org/crawl").items():
        path = folder / "local" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "local/README.md").unlink()
    return folder / "local"


def documents(bench: Any, out: str) -> dict[str, str]:
    """Digests of what was kept and rejected. Manifests name the stage, and so the input's files."""
    return {k: v for k, v in bench.bytes_of(out).items() if not k.endswith(".json")}


def test_a_data_set_gives_what_its_files_give_on_disk(crawl, bench):
    here = bench.run(STEPS, local(crawl, bench.folder), out="here")
    there = bench.run(STEPS, "hf://datasets/org/crawl", out="there")
    assert documents(bench, "there") == documents(bench, "here")
    assert here.totals().kept == there.totals().kept > 0


@pytest.mark.parametrize(
    ("path", "files"),
    [
        ("/data", ["a.parquet", "b.parquet"]),
        ("/data/*.parquet", ["a.parquet", "b.parquet"]),
        ("/**/*.jsonl.gz", ["c.jsonl.gz"]),
        ("/more/c.jsonl.gz", ["c.jsonl.gz"]),
        ("@main/data/b.parquet", ["b.parquet"]),
    ],
)
def test_hub_folders_patterns_and_files_work_as_local_ones(crawl, path, files):
    commit = crawl.repositories["dataset", "org/crawl"].head
    plan = plan_inputs([f"hf://datasets/org/crawl{path}"])
    assert [Path(file.rel).name for file in plan.files] == files
    assert all(file.path.startswith(f"hf://datasets/org/crawl@{commit}/") for file in plan.files)
    assert plan.notices == (f"hf://datasets/org/crawl@main is commit {commit}",)


def test_a_commit_that_is_named_stays_what_it_was(crawl):
    first = crawl.repositories["dataset", "org/crawl"].head
    before = plan_inputs([f"hf://datasets/org/crawl@{first}"])
    crawl.put("org/crawl", {"data/a.parquet": parquet(ROWS[5:10])})
    after = plan_inputs([f"hf://datasets/org/crawl@{first}"])
    assert after == before and after.notices == ()
    now = plan_inputs(["hf://datasets/org/crawl"])
    assert now.fingerprint() != before.fingerprint()


@pytest.mark.slow
def test_a_commit_that_changes_no_document_computes_nothing_again(crawl, bench):
    bench.run(STEPS, "hf://datasets/org/crawl")
    before = documents(bench, "out")
    crawl.put("org/crawl", {"README.md": b"Another card."})
    assert bench.run(STEPS, "hf://datasets/org/crawl").nothing_new
    crawl.put("org/crawl", {"data/d.parquet": parquet(pages(9, seed=4))})
    assert not bench.run(STEPS, "hf://datasets/org/crawl").nothing_new
    assert documents(bench, "out") != before


def test_the_commit_is_on_record(crawl, bench):
    commit = crawl.repositories["dataset", "org/crawl"].head
    bench.run(STEPS, "hf://datasets/org/crawl/data")
    record = json.loads((bench.folder / "out/run.json").read_text())
    path = f"hf://datasets/org/crawl@{commit}/data/a.parquet"
    assert record["inputs"][0]["path"] == path
    assert f"hf://datasets/org/crawl@main is commit {commit}" in record["notices"]


def test_fetched_files_lie_below_their_commit(crawl, bench):
    commit = crawl.repositories["dataset", "org/crawl"].head
    got = bench.folder / "got"
    bench.run(STEPS, "hf://datasets/org/crawl/data", read={"fetch": str(got)})
    names = [p.relative_to(got).as_posix() for p in sorted(got.rglob("*.parquet"))]
    assert names == [f"datasets/org/crawl@{commit}/data/{name}.parquet" for name in "ab"]
    bench.run(STEPS, local(crawl, bench.folder) / "data", out="here")
    assert documents(bench, "out") == documents(bench, "here")


def test_a_refresh_takes_in_what_a_new_commit_brings(crawl, bench):
    line = ("refresh", "r.yaml", "hf://datasets/org/crawl", "-o", "home", "-q", "--json")
    (bench.folder / "r.yaml").write_text(json.dumps({"steps": ["dedup_exact"]}))
    first = json.loads(bench.command(*line).stdout)
    crawl.put("org/crawl", {"data/d.parquet": parquet(pages(9, seed=4)), "README.md": b"New."})
    second = json.loads(bench.command(*line).stdout)
    assert (first["inputs"], second["inputs"], second["known_inputs"]) == (3, 1, 3)
    assert bench.command(*line).returncode == 3


@pytest.mark.parametrize(
    ("url", "code", "message"),
    [
        ("hf://datasets/org/none", 2, "no such repository, or you have no access: `hf auth"),
        ("hf://datasets/org/crawl@v9", 2, "the repository has no such revision"),
        ("hf://datasets/org/crawl/none", 2, "does not exist"),
        ("hf://datasets/org", 2, "write hf://datasets/ORG/NAME[@REVISION]/PATH"),
    ],
)
def test_what_is_not_there_is_a_one_line_error(crawl, bench, url, code, message):
    done = bench.command("filter", "c4", url, "-o", "out")
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert (
        url.rpartition("/")[0] in done.stderr
        and message in done.stderr
        and "secret" not in done.stderr
    )


def test_without_a_network_one_line_says_so(hub, bench, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:1")
    done = bench.command("filter", "c4", "hf://datasets/org/crawl", "-o", "out")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no connection to http://127.0.0.1:1" in done.stderr


def test_offline_nothing_is_asked(crawl, bench, monkeypatch):
    monkeypatch.setenv("LLMCURATE_OFFLINE", "1")
    done = bench.command("filter", "c4", "hf://datasets/org/crawl", "-o", "out")
    assert done.returncode == 2 and "LLMCURATE_OFFLINE is set" in done.stderr and not crawl.asked


def test_without_the_package_one_line_says_how_to_get_it(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delenv("LLMCURATE_OFFLINE")
    with pytest.raises(UsageError, match=r"pip install 'llmcurate\[hf\]'"):
        with_commits(["hf://datasets/org/crawl"])


def test_a_url_without_its_commit_is_the_same_for_all_commits():
    commit = "0123456789" * 4
    url = "hf://datasets/org/crawl/data/a.parquet"
    assert without_commits(f"hf://datasets/org/crawl@{commit}/data/a.parquet") == url
    assert (
        without_commits(url) == url and without_commits("s3://bucket/a@b/c") == "s3://bucket/a@b/c"
    )
