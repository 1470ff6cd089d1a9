"""An OUT that is a URL: what readers see is whole at any moment, and no rename is needed."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from llmcurate.base.disk.files import scratch_of, url_of
from llmcurate.base.disk.seals import seal
from llmcurate.base.disk.store import (
    LIST,
    LOCAL,
    Mirror,
    Store,
    current,
    manifests,
    publish,
    using,
    verify,
)
from llmcurate.base.errors import Damaged, RunFailed
from tests.curate.conftest import Bench, pages

RECIPE = "steps:\n  - c4: {min_sentences: 2}\n  - dedup_exact\n"


class Objects(MemoryFileSystem):
    """A store that knows neither rename nor folders, counts puts and fails when it is told to."""

    protocol = "objects"
    store: dict = {}
    pseudo_dirs = [""]
    log: list[str] = []
    fails_at: str | None = None

    def mv(self, *args, **kwargs):
        raise NotImplementedError("no rename")

    rename = move = copy = cp_file = mv

    def put_file(self, lpath, rpath, **kwargs):
        if self.fails_at and rpath.endswith(self.fails_at):
            raise OSError("the store is away")
        self.log.append(rpath.rpartition("/out/")[2])
        with self.open(rpath, "wb") as f:
            f.write(Path(lpath).read_bytes())


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def objects():
    fsspec.register_implementation("objects", Objects, clobber=True)
    Objects.store.clear()
    Objects.log.clear()
    Objects.fails_at = None
    return Objects


def folder(tmp_path, **texts: str):
    """OUT with a corpus of parts and its manifest, and what stays."""
    out = tmp_path / "out"
    for name, text in {"corpus.json": str(texts), "stages/x/part": "-", **texts}.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)
    return out


def store_of(url: str, out: Path = Path("out"), wait: float = 0.001) -> Store:
    return Store(Mirror(url, out), wait)


def upload(store: Store) -> dict[str, int]:
    """Publishes as a run does: with the list that the last one left."""
    store.relist()
    return publish(store, store.listed())


def there(store: Store) -> dict[str, bytes]:
    """All that readers see."""
    store.relist()
    return {n: store.load(n) for n in store.listing}


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("s3:/bucket/out", "s3://bucket/out"),
        ("s3://bucket/a b", "s3://bucket/a b"),
        ("memory://out", "memory://out"),
        ("out", None),
        ("/data/out", None),
        ("c:/x", None),
    ],
)
def test_a_url_is_known_even_where_a_path_took_one_of_its_slashes(path, url):
    assert url_of(Path(path)) == url


def test_scratch_folders_of_two_urls_are_two():
    names = {scratch_of(u, None) for u in ("s3://a/out", "s3://b/out", "gs://a/out")}
    assert len(names) == 3
    assert scratch_of("s3://a/out", Path("here")) == Path("here")


def test_manifests_come_after_their_files_and_the_list_last(objects, tmp_path):
    folder(tmp_path, **{"corpus/part-00000.parquet": "a", "corpus/part-00001.parquet": "b"})
    store = store_of("objects://bucket/out", tmp_path / "out")
    summary = upload(store)
    assert summary == {"files": 3, "put": 3, "bytes": summary["bytes"], "removed": 0}
    assert objects.log[-1] == "corpus.json"
    assert set(there(store)) == {*objects.log, LIST}
    objects.log.clear()
    assert upload(store)["put"] == 0 and objects.log == []


def test_only_what_changed_is_put_and_what_is_gone_goes(objects, tmp_path):
    store = store_of("objects://bucket/out", tmp_path / "out")
    folder(tmp_path, **{"corpus/part-00000.parquet": "a", "corpus/part-00001.parquet": "b"})
    upload(store)
    objects.log.clear()
    out = tmp_path / "out"
    (out / "corpus/part-00001.parquet").unlink()
    (out / "corpus/part-00000.parquet").write_text("other")
    summary = upload(store)
    assert (summary["put"], summary["removed"]) == (2, 1)
    assert objects.log == ["corpus/part-00000.parquet", "corpus.json"]
    assert "corpus/part-00001.parquet" not in there(store)


def test_what_the_store_has_in_another_length_than_listed_is_put_again(objects, tmp_path):
    store = store_of("objects://bucket/out", tmp_path / "out")
    folder(tmp_path, **{"corpus/part-00000.parquet": "a", "corpus/part-00001.parquet": "b"})
    upload(store)
    objects.log.clear()
    store.write("corpus/part-00001.parquet", b"cut")
    store.delete(["corpus.json"])
    assert upload(store)["put"] == 2
    assert objects.log == ["corpus/part-00001.parquet", "corpus.json"]
    assert there(store)["corpus/part-00001.parquet"] == b"b"


@pytest.mark.parametrize("failures", [3, 99])
def test_a_request_is_repeated_while_a_store_is_away(tmp_path, monkeypatch, failures):
    """A cut connection or a 503 for a while; for long it is one line."""
    tried, waited = [], []
    monkeypatch.setattr("time.sleep", waited.append)
    store = store_of("memory://away/out", tmp_path, wait=0.25)
    (tmp_path / "file").write_text("a")
    original = MemoryFileSystem.put_file

    def put_file(self, lpath, rpath, **kwargs):
        tried.append(rpath)
        if len(tried) <= failures:
            raise ConnectionError("503 Slow Down")
        original(self, lpath, rpath, **kwargs)

    monkeypatch.setattr(MemoryFileSystem, "put_file", put_file)
    if failures == 3:
        store.put(tmp_path / "file")
        assert store.load("file") == b"a" and waited == [0.25, 0.5, 1.0]
    else:
        line = r"memory://away/out/file cannot be written \(503 Slow Down\): run the same command"
        with pytest.raises(RunFailed, match=line):
            store.put(tmp_path / "file")
        assert 10 < sum(waited) < 60  # as long as a server needs to start again


@pytest.mark.parametrize("error", [PermissionError("The token has expired"), FileNotFoundError()])
def test_what_another_try_would_not_mend_is_said_at_once_by_the_worker(
    tmp_path, monkeypatch, error
):
    def refuse(self, lpath, rpath, **kwargs):
        raise error

    monkeypatch.setattr(MemoryFileSystem, "put_file", refuse)
    (tmp_path / "file").touch()
    store = Store(Mirror("memory://expired/out", tmp_path, temporary=True))
    monkeypatch.setattr("socket.gethostname", lambda: "node-3")
    with pytest.raises(RunFailed, match="expired/out/file cannot be written by node-3 "):
        store.put(tmp_path / "file")


def test_a_fetched_file_is_compared_with_its_seal_and_kept_for_all_tasks_alone(tmp_path):
    driver = store_of("memory://fetched/out", tmp_path / "driver")
    worker = Store(Mirror("memory://fetched/out", tmp_path / "worker", temporary=True))
    for name in ("own", "shared", "wrong"):
        path = driver.root / "stages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        driver.put(path)
    own, shared, wrong, absent = (
        [str(worker.root / "stages" / name), seal(driver.root / "stages" / of)]
        for name, of in (("own",) * 2, ("shared",) * 2, ("wrong", "own"), ("absent", "own"))
    )
    with using(worker):
        verify([own], [shared])
        assert Path(own[0]).read_text() == "own"
        for file, fault in ((wrong, "has 5 bytes and was written with 3"), (absent, "is missing")):
            with pytest.raises(Damaged, match=f"memory://fetched/out/stages/.* {fault}"):
                verify([file])
    worker.release()
    assert [path.name for path in worker.root.rglob("*") if path.is_file()] == ["shared"]


def test_a_task_waits_for_its_store_twice(tmp_path, monkeypatch):
    """Once for all that it reads, and once for all that it writes: the requests are under way at
    the same time, or a barrier breaks."""
    together = threading.Barrier(3, timeout=20)
    driver = store_of("memory://together/out", tmp_path / "driver")
    worker = store_of("memory://together/out", tmp_path / "worker")
    driver.root.mkdir()
    paths = [driver.root / name for name in "abc"]
    for path in paths:
        path.write_text(path.name)
    for verb in ("put_file", "get_file"):
        original = getattr(MemoryFileSystem, verb)

        def waiting(self, *arguments, original=original, **options):
            together.wait()
            return original(self, *arguments, **options)

        monkeypatch.setattr(MemoryFileSystem, verb, waiting)
    driver.put(*paths)
    with using(worker):
        own = [[str(worker.root / path.name), seal(path)] for path in paths]
        verify(own[:2], own[2:])
    assert [path.read_text() for path in sorted(worker.root.iterdir())] == [*"abc"]


@pytest.mark.parametrize(
    "value", ["OUT", "OUT/a b", {"OUT/k": ["OUT/ü", 1.5, None]}, "OUTSIDE/a", "in OUT/a"]
)
def test_paths_travel_as_names_and_nothing_else_does(value, tmp_path):
    sender, receiver = store_of("memory://x", Path("/there/out")), store_of("memory://x", tmp_path)
    text = json.dumps(value).replace("OUT", "/there/out").replace("/there/outSIDE", "/there/outer")
    name = sender.names(text)
    assert sender.places(name) == json.dumps(json.loads(text))
    moved = not text.startswith(('"/there/outer', '"in'))
    assert ("/there" not in receiver.places(name)) == moved


def test_a_folder_is_a_store_that_costs_nothing(tmp_path):
    """No copy, no second look: the same paths, the same text."""
    path = tmp_path / "file"
    assert LOCAL.read(path) is path and LOCAL.names("{}") == LOCAL.places("{}") == "{}"
    LOCAL.put(path)
    assert not LOCAL.covers(path) and not LOCAL.lacks(path) and current() is LOCAL


def test_the_files_of_a_run_are_reached_through_the_store():
    """Modules that read or write files of a stage or a corpus in tasks name the store, and none of
    the project opens a URL of OUT besides."""
    root = Path(__file__).parents[4]
    for name in ("worker/worker.py", "assemble.py", "stages.py", "driver.py", "intact.py"):
        source = (root / "curate/run" / name).read_text("utf-8")
        assert "llmcurate.base.disk.store import" in source, name
    for path in [*(root / "curate/run").rglob("*.py"), *(root / "curate/engines").rglob("*.py")]:
        assert "fsspec" not in path.read_text("utf-8"), path


def test_manifests_of_inner_folders_are_written_before_outer_ones():
    names = ["manifest.json", "a/manifest.json", "a/b/part", "a/b.json", "c.json", "c/x", "d.json"]
    assert manifests(names) == {
        "a/b.json": "a/b", "a/manifest.json": "a", "c.json": "c", "manifest.json": "",
    }  # fmt: skip
    assert [*manifests(names[::-1])] == ["a/b.json", "a/manifest.json", "c.json", "manifest.json"]


@pytest.mark.parametrize("at", ["part-00000.parquet", "part-00001.parquet", "corpus.json"])
def test_a_reader_sees_no_manifest_beside_files_of_another_run(objects, tmp_path, at):
    store = store_of("objects://bucket/out", tmp_path / "out")
    first = {"corpus/part-00000.parquet": "a", "corpus/part-00001.parquet": "b"}
    folder(tmp_path, **first)
    upload(store)
    folder(tmp_path, **{name: text * 2 for name, text in first.items()})
    objects.fails_at = at
    with pytest.raises(RunFailed, match=r"objects://bucket/out/.* cannot be written \(the store"):
        upload(store)
    seen = there(store)
    assert "corpus.json" not in seen and LIST not in seen
    objects.fails_at = None
    upload(store)
    assert there(store)["corpus/part-00001.parquet"] == b"bb"


def test_a_run_into_a_store_is_the_run_into_a_folder(bench):
    source = bench.jsonl("in.jsonl", pages(30))
    (bench.folder / "recipe.yaml").write_text(RECIPE)
    line = ("run", "recipe.yaml", source, "--scratch", "scratch", "--json", "-q")
    url = "memory://bucket/out"
    done = bench.command(*line, "-o", url)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["paths"]["corpus"] == f"{url}/corpus"
    bench.command("run", "recipe.yaml", source, "-o", "here", "-q")
    seen = there(store_of(url))
    for path in (bench.folder / "here/corpus").iterdir():
        assert seen[f"corpus/{path.name}"] == path.read_bytes()
    assert not [n for n in json.loads(seen[LIST])["files"] if n.startswith(("stages", "ledger"))]
    again = json.loads(bench.command(*line, "-o", url).stdout)
    assert again["published"]["put"] == 0


def test_an_unwritable_store_is_reported_before_the_work(objects, bench, monkeypatch):
    def refuse(self, path, value, **kwargs):
        raise PermissionError("Access Denied")

    monkeypatch.setattr(Objects, "pipe_file", refuse)
    source = bench.jsonl("in.jsonl", pages(3))
    done = bench.command("dedup", source, "-o", "objects://bucket/out", "--scratch", "scratch")
    assert done.returncode == 1 and not (bench.folder / "scratch").exists()
    assert done.stderr.splitlines()[-1] == (
        "llmcurate: objects://bucket/out/driver.json cannot be written (Access Denied): check that"
        " the bucket exists and that you may write to it"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dedup", "in.jsonl", "-o", "nosuch://x/out"), "OUT nosuch://x/out: Protocol not known"),
        (("dedup", "in.jsonl", "-o", "out", "--scratch", "s"), "--scratch is for an OUT that is"),
        (("mix", "in.jsonl", "--weights", "in=1", "-o", "no://x/out"), "OUT no://x/out"),
        (("dedup", "in.jsonl", "-o", "file:///nowhere/out"), "on this machine: give its path /now"),
    ],
    ids=["unknown", "folder", "mix", "file"],
)
def test_wrong_use_is_a_one_line_error(bench, arguments, message):
    bench.jsonl("in.jsonl", pages(3))
    done = bench.command(*arguments)
    assert done.returncode == 2 and message in done.stderr.splitlines()[-1]
    assert not (bench.folder / "s3:").exists()


def test_a_url_loses_the_slash_at_its_end_and_no_other() -> None:
    assert store_of("memory://corpus/").url == "memory://corpus"
