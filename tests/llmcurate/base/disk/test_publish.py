"""An OUT that is a URL: what readers see is whole at any moment, and no rename is needed."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from llmcurate.base.disk.files import scratch_of, url_of
from llmcurate.base.disk.publish import LIST, Store, manifests, publish
from llmcurate.base.errors import RunFailed
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


def there(store: Store) -> dict[str, bytes]:
    """All that readers see."""
    return {n: store.fs.cat_file(f"{store.root}/{n}") for n in store.sizes()}


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
    out = folder(tmp_path, **{"corpus/part-00000.parquet": "a", "corpus/part-00001.parquet": "b"})
    store = Store("objects://bucket/out")
    summary = publish(out, store)
    assert summary == {"files": 3, "put": 3, "bytes": summary["bytes"], "removed": 0}
    assert objects.log[-1] == "corpus.json"
    assert set(there(store)) == {*objects.log, LIST}
    objects.log.clear()
    assert publish(out, store)["put"] == 0 and objects.log == []


def test_only_what_changed_is_put_and_what_is_gone_goes(objects, tmp_path):
    store = Store("objects://bucket/out")
    out = folder(tmp_path, **{"corpus/part-00000.parquet": "a", "corpus/part-00001.parquet": "b"})
    publish(out, store)
    objects.log.clear()
    (out / "corpus/part-00001.parquet").unlink()
    (out / "corpus/part-00000.parquet").write_text("other")
    summary = publish(out, store)
    assert (summary["put"], summary["removed"]) == (2, 1)
    assert objects.log == ["corpus/part-00000.parquet", "corpus.json"]
    assert "corpus/part-00001.parquet" not in there(store)


def test_what_the_store_has_in_another_length_than_listed_is_put_again(objects, tmp_path):
    store = Store("objects://bucket/out")
    out = folder(tmp_path, **{"corpus/part-00000.parquet": "a", "corpus/part-00001.parquet": "b"})
    publish(out, store)
    objects.log.clear()
    store.write("corpus/part-00001.parquet", b"cut")
    store.fs.rm_file(f"{store.root}/corpus.json")
    assert publish(out, store)["put"] == 2
    assert objects.log == ["corpus/part-00001.parquet", "corpus.json"]
    assert there(store)["corpus/part-00001.parquet"] == b"b"


def test_manifests_of_inner_folders_are_written_before_outer_ones():
    names = ["manifest.json", "a/manifest.json", "a/b/part", "a/b.json", "c.json", "c/x", "d.json"]
    assert manifests(names) == {
        "a/b.json": "a/b", "a/manifest.json": "a", "c.json": "c", "manifest.json": "",
    }  # fmt: skip
    assert [*manifests(names[::-1])] == ["a/b.json", "a/manifest.json", "c.json", "manifest.json"]


@pytest.mark.parametrize("at", ["part-00000.parquet", "part-00001.parquet", "corpus.json"])
def test_a_reader_sees_no_manifest_beside_files_of_another_run(objects, tmp_path, at):
    store = Store("objects://bucket/out", wait=0.001)
    first = {"corpus/part-00000.parquet": "a", "corpus/part-00001.parquet": "b"}
    publish(folder(tmp_path, **first), store)
    out = folder(tmp_path, **{name: text * 2 for name, text in first.items()})
    objects.fails_at = at
    with pytest.raises(RunFailed, match=r"objects://bucket/out/.* cannot be written \(the store"):
        publish(out, store)
    seen = there(store)
    assert "corpus.json" not in seen and LIST not in seen
    objects.fails_at = None
    publish(out, store)
    assert there(store)["corpus/part-00001.parquet"] == b"bb"


def test_a_run_into_a_store_is_the_run_into_a_folder(objects, bench):
    source = bench.jsonl("in.jsonl", pages(30))
    (bench.folder / "recipe.yaml").write_text(RECIPE)
    line = ("run", "recipe.yaml", source, "--scratch", "scratch", "--json", "-q")
    done = bench.command(*line, "-o", "objects://bucket/out")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["paths"]["corpus"] == "objects://bucket/out/corpus"
    bench.command("run", "recipe.yaml", source, "-o", "here", "-q")
    seen = there(Store("objects://bucket/out"))
    for path in (bench.folder / "here/corpus").iterdir():
        assert seen[f"corpus/{path.name}"] == path.read_bytes()
    assert not [name for name in seen if name.startswith(("stages", "ledger"))]
    again = json.loads(bench.command(*line, "-o", "objects://bucket/out").stdout)
    assert again["published"]["put"] == 0


def test_an_unwritable_store_is_reported_before_the_work(objects, bench, monkeypatch):
    def refuse(self, path, value, **kwargs):
        raise PermissionError("Access Denied")

    monkeypatch.setattr(Objects, "pipe_file", refuse)
    source = bench.jsonl("in.jsonl", pages(3))
    done = bench.command("dedup", source, "-o", "objects://bucket/out", "--scratch", "scratch")
    assert done.returncode == 1 and not (bench.folder / "scratch").exists()
    assert done.stderr.splitlines()[-1] == (
        "llmcurate: objects://bucket/out cannot be written (Access Denied): check that it exists"
        " and that you may write to it"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dedup", "in.jsonl", "-o", "nosuch://x/out"), "OUT nosuch://x/out: Protocol not known"),
        (("dedup", "in.jsonl", "-o", "out", "--scratch", "s"), "--scratch is for an OUT that is"),
        (("mix", "in.jsonl", "--weights", "in=1", "-o", "s3://x/out"), "OUT s3://x/out"),
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
    assert Store("memory://corpus/").url == "memory://corpus"
