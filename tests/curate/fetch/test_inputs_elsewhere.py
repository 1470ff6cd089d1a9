"""Inputs that are URLs: fetched into a folder by runs and refreshes, known by URL and version."""

from __future__ import annotations

import gzip
import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
import yaml

from curate.formats.fetched import expanded, local_inputs, versions_now
from curate.refresh import run
from curate.refresh.inputs import Remote, find_new
from curate.refresh.outcome import RefreshOptions
from curate.steps.recipe import load
from llmcurate.base.errors import LlmcurateError, RunFailed
from llmcurate.base.messages import json_values
from tests.curate.fetch.web import Web

DAYS = {
    day: "".join(
        json.dumps({"id": f"{day}{i}", "text": f"Text {i if i % 3 else 0} of {day}."}) + "\n"
        for i in range(9)
    ).encode()
    for day in "abc"
}


@pytest.fixture
def site(web: Web, bench: Any, monkeypatch: pytest.MonkeyPatch) -> Web:
    """A server with three files, a recipe that fetches into `got`, quick tries."""
    for day, data in DAYS.items():
        web.put(f"/crawl/{day}.jsonl", data, etag=f'"{day}1"')
    recipe = {"read": {"fetch": "got"}, "steps": [{"dedup_exact": {}}]}
    (bench.folder / "r.yaml").write_text(json.dumps(recipe))
    monkeypatch.setattr("curate.fetch.download.download.__defaults__", _quick())
    return web


def _quick() -> tuple[Any, ...]:
    from curate.fetch.download import download

    assert download.__defaults__ is not None
    values = [2, *download.__defaults__[1:]]  # tries
    values[values.index(0.5)] = 0.001  # the pause between tries
    return tuple(values)


def refresh(bench: Any, *sources: str, code: int = 0, home: str = "home", **how: Any) -> Any:
    """A refresh in this process, as JSON, or the line of an error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(bench.folder)
        try:
            options = RefreshOptions(workers=1, quiet=True, **how)
            done = run.refresh(load("r.yaml"), expanded(sources), Path(home), options)
        except (LlmcurateError, RuntimeError) as error:
            assert getattr(error, "exit_code", 1) == code, error
            return str(error)
    assert code == (0 if done.new else 3)
    return json_values(done)


def corpus(bench: Any, home: str = "home/current") -> list[tuple[str, str, str]]:
    """(id, source, text) of what it holds."""
    paths = sorted((bench.folder / home).glob("part-*.parquet"))
    rows = [row for p in paths for row in pq.ParquetFile(p).read().to_pylist()]
    return [(r["id"], r["source"], r["text"]) for r in rows]


def local_files(bench: Any) -> list[Path]:
    """The same files in a folder."""
    for day, data in DAYS.items():
        (bench.folder / f"{day}.jsonl").write_bytes(data)
    return [bench.folder / f"{day}.jsonl" for day in DAYS]


def test_a_run_reads_what_it_fetched_as_if_it_had_lain_there(site, bench):
    urls = [f"{site.url}/crawl/{day}.jsonl" for day in DAYS]
    steps, read = [{"dedup_exact": {}}], {"fetch": str(bench.folder / "got")}
    bench.run(steps, *urls, read=read)
    bench.run(steps, *local_files(bench), out="local")
    assert corpus(bench, "out/corpus") == corpus(bench, "local/corpus") != []
    assert yaml.safe_load((bench.folder / "out/recipe.yaml").read_text())["read"]["fetch"]
    asked = len(site.asked)
    assert bench.run(steps, *urls, read=read).nothing_new
    assert len(site.asked) == asked, "what is there is not fetched again"


def test_a_run_verifies_the_checksums_of_a_list(site, bench, monkeypatch):
    monkeypatch.chdir(bench.folder)
    source = f"{site.url}/all.sha256"
    sums = [f"{sha256(data).hexdigest()}  crawl/{day}.jsonl" for day, data in DAYS.items()]
    site.put("/all.sha256", "\n".join(sums).encode())
    paths = local_inputs([source], "got", quiet=True, dry=False)
    assert [Path(p).read_bytes() for p in paths] == list(DAYS.values())
    site.put("/all.sha256", f"{'0' * 64}  crawl/a.jsonl".encode())
    with pytest.raises(RunFailed, match=r"has sha256 .* run the same command to continue"):
        local_inputs([source], "got", quiet=True, dry=False)


def test_a_plan_fetches_nothing(site, bench):
    url = f"{site.url}/crawl/a.jsonl"
    done = bench.command("run", "r.yaml", url, "-o", "out", "--dry-run")
    assert done.returncode == 2 and f"(first: {url})" in done.stderr
    planned = bench.command("refresh", "r.yaml", url, "-o", "home", "--dry-run")
    assert planned.returncode == 0 and url in planned.stdout and site.asked == []


def test_without_a_folder_to_fetch_to_one_line_says_how(site, bench, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    done = bench.command("run", "c4", f"{site.url}/crawl/a.jsonl", "-o", "out")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--set read.fetch=DIR" in done.stderr


def test_a_refresh_by_a_list_takes_in_what_the_list_has_got(site, bench):
    site.put("/day.paths.gz", gzip.compress(b"crawl/a.jsonl\ncrawl/b.jsonl\n"))
    sources = (f"{site.url}/day.paths.gz",)
    first = refresh(bench, *sources)
    assert first["inputs"] == 2
    shutil.rmtree(bench.folder / "got")  # what is taken in may go
    site.put("/day.paths.gz", gzip.compress(b"crawl/a.jsonl\ncrawl/b.jsonl\ncrawl/c.jsonl\n"))
    second = refresh(bench, *sources)
    assert (second["inputs"], second["known_inputs"]) == (1, 2)
    assert sorted(site.heads) == ["/crawl/a.jsonl", "/crawl/b.jsonl"], (
        "known files are asked about alone"
    )
    assert refresh(bench, *sources, code=3)["inputs"] == 0
    bench.run([{"dedup_exact": {"survivor": "first"}}], *local_files(bench), out="local")
    assert corpus(bench) == corpus(bench, "local/corpus")


def test_a_file_that_changed_on_its_server_is_named(site, bench):
    urls = [f"{site.url}/crawl/{day}.jsonl" for day in "ab"]
    refresh(bench, *urls)
    more = DAYS["b"] + b'{"id": "new", "text": "A new line."}\n'
    site.put("/crawl/b.jsonl", more, etag='"b2"')
    assert refresh(bench, *urls, code=3)["changed"] == [urls[1]]
    assert refresh(bench, *urls, changed="skip", code=3)["inputs"] == 0
    taken = refresh(bench, *urls, changed="new")
    assert taken["inputs"] == 1 and "new" in [row[0] for row in corpus(bench)]
    assert refresh(bench, *urls, code=3)["known_inputs"] == 2


def test_a_file_that_is_cut_short_on_its_server_is_fetched_again_once_it_is_whole(site, bench):
    whole = gzip.compress(DAYS["b"])
    site.put("/crawl/b.jsonl.gz", whole[:-9], etag='"cut"')
    urls = (f"{site.url}/crawl/a.jsonl", f"{site.url}/crawl/b.jsonl.gz")
    first = refresh(bench, *urls)
    assert first["inputs"] == 1 and list(first["damaged"]) == [urls[1]]
    for how in ({}, {"changed": "skip"}):
        assert list(refresh(bench, *urls, code=3, **how)["damaged"]) == [urls[1]]
    site.put("/crawl/b.jsonl.gz", whole, etag='"whole"')
    second = refresh(bench, *urls)
    assert (second["inputs"], second["damaged"]) == (1, {})
    assert {text for _, _, text in corpus(bench)} == {
        json.loads(line)["text"] for day in "ab" for line in DAYS[day].splitlines()
    }


def test_a_version_is_what_the_server_says_of_size_and_tag(site):
    a, b, none = (f"{site.url}/crawl/{name}.jsonl" for name in ("a", "b", "none"))
    site.pages["/crawl/b.jsonl"].etag = None
    size = len(DAYS["b"])
    now = versions_now({a: '1@"old"', b: f'{size - 1}@"kept"', none: "1@"})
    assert now == {a: f'{len(DAYS["a"])}@"a1"', b: f'{size}@"kept"', none: None}


@pytest.mark.parametrize("status", [403, 503])
def test_a_server_that_does_not_say_leaves_files_as_known(site, bench, status):
    url = f"{site.url}/crawl/a.jsonl"
    site.head_status = status
    news = find_new([url], {url: ("9@", "")}, remote=Remote(bench.folder / "got"))
    assert news.notices == ["1 known inputs: their server does not report whether they changed"]


def test_a_refresh_continues_after_a_server_that_failed_midway(site, bench):
    urls = [f"{site.url}/crawl/{day}.jsonl" for day in "abc"]
    whole = _whole(bench, urls)
    site.pages["/crawl/b.jsonl"].plan = ["cut 100", "503"]
    error = refresh(bench, *urls, code=1)
    assert f"input {urls[1]}: the server answers 503" in error
    assert not (bench.folder / "home/current").exists()
    site.asked.clear()
    assert refresh(bench, *urls)["inputs"] == 3
    assert [(path, part) for path, part, _ in site.asked] == [("/crawl/b.jsonl", "bytes=100-")]
    assert corpus(bench) == whole


def _whole(bench: Any, urls: list[str]) -> list[tuple[str, str, str]]:
    refresh(bench, *urls, home="other")
    shutil.rmtree(bench.folder / "got")
    return corpus(bench, "other/current")


def test_a_killed_refresh_continues_though_its_files_are_gone(site, bench, monkeypatch):
    urls = [f"{site.url}/crawl/{day}.jsonl" for day in "ab"]
    whole = _whole(bench, urls)

    def stop(*values: Any) -> None:
        raise RuntimeError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr("curate.refresh.run.run_planned", stop)
        assert "stopped" in refresh(bench, *urls, code=1)
    shutil.rmtree(bench.folder / "got")
    assert refresh(bench, *urls)["inputs"] == 2 and corpus(bench) == whole


def test_a_store_is_looked_through_by_pattern_and_folder(bench):
    store = fsspec.filesystem("memory")
    recipe = {"read": {"fetch": "got"}, "steps": [{"dedup_exact": {}}]}
    (bench.folder / "r.yaml").write_text(json.dumps(recipe))
    try:
        for day in "ab":
            store.pipe(f"/crawl/{day}.jsonl", DAYS[day])
        store.pipe("/crawl/_notes.txt", b"no document")
        store.pipe("/crawl/picture.png", b"no document")
        assert refresh(bench, "memory://crawl/*.jsonl")["inputs"] == 2
        store.pipe("/crawl/deep/c.jsonl", DAYS["c"])
        second = refresh(bench, "memory://crawl")
        assert (second["inputs"], second["known_inputs"]) == (1, 2)
        assert refresh(bench, "memory://crawl", code=3)["known_inputs"] == 3
        assert "matches no file" in refresh(bench, "memory://crawl/*.zip", code=2)
    finally:
        store.rm("/crawl", recursive=True)
    bench.run([{"dedup_exact": {"survivor": "first"}}], *local_files(bench), out="local")
    assert corpus(bench) == corpus(bench, "local/corpus")


def test_s3_is_read_as_any_store(bench, monkeypatch):
    pytest.importorskip("s3fs", reason="s3fs is not installed: pip install 'llmcurate[s3]'")
    server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    store = server.ThreadedMotoServer(port=0)
    store.start()
    host, port = store.get_host_and_port()
    for name, value in (
        ("AWS_ENDPOINT_URL", f"http://{host}:{port}"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    try:
        s3 = fsspec.filesystem("s3", skip_instance_cache=True)
        s3.mkdir("bucket")
        for day in "ab":
            s3.pipe(f"bucket/crawl/{day}.jsonl", DAYS[day])
        recipe = {"read": {"fetch": "got"}, "steps": [{"dedup_exact": {}}]}
        (bench.folder / "r.yaml").write_text(json.dumps(recipe))
        assert refresh(bench, "s3://bucket/crawl")["inputs"] == 2
        s3.pipe("bucket/crawl/a.jsonl", DAYS["c"])
        left = refresh(bench, "s3://bucket/crawl", code=3)
        assert left["changed"] == ["s3://bucket/crawl/a.jsonl"]
        assert refresh(bench, "s3://bucket/crawl", changed="new")["inputs"] == 1
    finally:
        store.stop()
