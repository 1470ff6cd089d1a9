"""The store between machines: what is put, kept, freed and refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128_hexdigest

from curate.engines import exchange_engine, exchange_worker
from curate.engines.base import OnDeath, Task
from curate.engines.choose import check_engine
from curate.engines.exchange import (
    FOOTER_BYTES,
    NOTE,
    Exchange,
    check_exchange,
    open_exchange,
    put_elsewhere,
    version_of,
)
from curate.engines.exchange_engine import ExchangeEngine
from llmcurate.base.disk import publish
from llmcurate.base.disk.elsewhere import version_elsewhere
from llmcurate.base.disk.publish import Store
from llmcurate.base.disk.seals import fault, seal, seal_folder
from llmcurate.base.errors import RunFailed, UsageError

HERE = "tests.curate.engines.test_exchange_store"


def double(task: Task) -> dict[str, Any]:
    """Each file's content twice, beside it or where the task says."""
    for source, target in zip(task["reads"], task["writes"], strict=True):
        Path(target).write_bytes(Path(source).read_bytes() * task.get("times", 2))
    if task.get("fails"):
        raise RunFailed(f"{task['writes'][0]} is not liked")
    for more in task.get("more", []):
        Path(more).touch()
    return {"wrote": task["writes"]}


def double_files(task: Task) -> dict[str, list[str]]:
    files = {k: task.get(k, []) for k in ("reads", "writes", "may", "stay")}
    files["parts"] = task.get("parts", {})
    return files | {
        "reads": [name for name in files["reads"] if name not in task.get("hidden", [])]
    }


def nothing(task: Task) -> dict[str, Any]:
    return {}


nothing_files = double_files


class Alone:
    """A worker in this process."""

    cpu = 0.0

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def map(
        self, function: str, tasks: Iterable[Task], on_death: OnDeath | None = None
    ) -> Iterator[tuple[Task, dict[str, Any]]]:
        assert function == exchange_engine.WORK
        for task in tasks:
            yield task, exchange_worker.work(json.loads(json.dumps(task)))


@pytest.fixture
def out(tmp_path, monkeypatch) -> Iterator[Path]:
    monkeypatch.setattr(exchange_worker.tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / "out"
    folder.mkdir()
    yield folder
    if exchange_worker._cache is not None:
        exchange_worker._cache.close()
        exchange_worker._cache = None


@pytest.fixture
def opened(out) -> Exchange:
    opened_exchange = open_exchange(f"file://{out.parent}/store", out, wait=0.001)
    assert opened_exchange is not None
    return opened_exchange


def objects(out: Path) -> dict[str, bytes]:
    """The store's objects by name."""
    return {p.name: p.read_bytes() for p in (out.parent / "store").rglob("*") if p.is_file()}


def task_on(out: Path, *names: str, **more: Any) -> Task:
    """A task on files of OUT."""
    reads = [str(out / name) for name in names]
    return {"part": 0, "reads": reads, "writes": [f"{name}.twice" for name in reads], **more}


def run(engine: ExchangeEngine, *tasks: Task) -> list[dict[str, Any]]:
    return [result for _, result in engine.map(f"{HERE}:double", tasks)]


def test_a_task_is_told_paths_of_its_own_and_its_answer_has_the_drivers(out, opened):
    (out / "a").write_bytes(b"one")
    with ExchangeEngine(Alone(), opened) as engine:
        assert run(engine, task_on(out, "a")) == [{"wrote": [str(out / "a.twice")]}]
        assert (out / "a.twice").read_bytes() == b"oneone"
        assert {*objects(out).values()} == {b"one", b"oneone"}
        assert {*objects(out)} == {version_of(out / name) for name in ("a", "a.twice")}
    assert objects(out) == {} and not (out / NOTE).exists()


@given(st.lists(st.binary(max_size=3), min_size=1, max_size=5))
@settings(max_examples=12, deadline=None)
def test_whatever_is_the_same_is_in_the_store_once(tmp_path_factory, contents):
    home = tmp_path_factory.mktemp("drawn")
    out = home / "out"
    out.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange_worker.tempfile, "tempdir", str(home))
        exchange = open_exchange(f"file://{home}/store", out)
        assert exchange is not None
        with ExchangeEngine(Alone(), exchange) as engine:
            for number, content in enumerate(contents):
                (out / str(number)).write_bytes(content)
            run(engine, *(task_on(out, str(n)) for n in range(len(contents))))
            want = {content * times for content in contents for times in (1, 2)}
            assert sorted(objects(out).values()) == sorted(want)
            for number, content in enumerate(contents):
                assert (out / f"{number}.twice").read_bytes() == content * 2


def test_what_is_removed_or_renamed_in_out_is_freed_or_not_put_again(out, opened, monkeypatch):
    for name in ("kept", "freed"):
        (out / name).write_text(name)
    with ExchangeEngine(Alone(), opened) as engine:
        run(engine, task_on(out, "kept", "freed"))
        (out / "freed").unlink()
        (out / "freed.twice").unlink()
        (out / "kept").rename(out / "renamed")
        monkeypatch.setattr(exchange_engine, "version_of", None)  # renamed files are not read again
        monkeypatch.setattr(Exchange, "put", None)
        run(engine, task_on(out, "renamed", times=1))
        assert {*objects(out).values()} == {b"kept", b"keptkept"}
        assert (out / "renamed.twice").read_text() == "kept"


def test_a_path_that_gets_other_bytes_is_read_anew(out, opened):
    with ExchangeEngine(Alone(), opened) as engine:
        for content in (b"first", b"other"):
            (out / "a").write_bytes(content)
            run(engine, task_on(out, "a"))
            assert (out / "a.twice").read_bytes() == content * 2


def test_of_a_file_that_is_read_in_parts_these_alone_are_fetched(out, opened):
    (out / "a").write_bytes(b"0123456789")
    task = task_on(out, "a", times=1, parts={str(out / "a"): [[2, 4], [9, 10]]})
    with ExchangeEngine(Alone(), opened) as engine:
        run(engine, task)
        assert (out / "a.twice").read_bytes() == b"\0\00023\0\0\0\0\0" + b"9"
        run(engine, task_on(out, "a", times=1))
        assert (out / "a.twice").read_bytes() == b"0123456789"
        run(engine, task)  # now that it is at hand
        assert (out / "a.twice").read_bytes() == b"0123456789"


def test_files_outside_of_out_may_be_read(out, opened, monkeypatch):
    earlier = out.parent / "earlier" / "index"
    earlier.mkdir(parents=True)
    (earlier / "a").write_bytes(b"x")
    monkeypatch.chdir(out)
    for name in (str(earlier / "a"), "../earlier/index/a"):
        with ExchangeEngine(Alone(), opened) as engine:
            run(engine, {"part": 0, "reads": [name], "writes": [str(out / "b")]})
        assert (out / "b").read_bytes() == b"xx"
    assert sorted(p.name for p in earlier.iterdir()) == ["a"]


def test_a_file_that_a_task_does_not_name_or_write_is_named(out, opened):
    (out / "a").write_bytes(b"x")
    with ExchangeEngine(Alone(), opened) as engine:
        with pytest.raises(RunFailed, match=rf"wrote {out}/b, which .*double_files does not name"):
            run(engine, task_on(out, "a", more=[str(out / "b")]))
        assert run(engine, task_on(out, "a", more=[str(out / "b")], may=[str(out / "b")]))
        assert (out / "b").exists()
        assert run(engine, task_on(out, "a", may=[str(out / "c")]))
        assert not (out / "c").exists()


def test_a_file_that_a_task_does_not_name_is_not_there(out, opened):
    """nor one that it names as written, where it writes none."""
    for name in ("a", "b"):
        (out / name).write_bytes(b"x")
    both = task_on(out, "a", "b")
    with (
        pytest.raises(FileNotFoundError, match=r"files.*/out/b'"),
        ExchangeEngine(Alone(), opened) as engine,
    ):
        run(engine, {**both, "hidden": both["reads"][1:]})
    nothing = {"part": 0, "reads": [], "writes": [str(out / "c")]}
    with (
        pytest.raises(RunFailed, match=f"did not write {out}/c, which .*nothing_files names"),
        ExchangeEngine(Alone(), opened) as engine,
    ):
        list(engine.map(f"{HERE}:nothing", [nothing]))


def test_an_error_has_the_drivers_paths(out, opened):
    (out / "a").write_bytes(b"x")
    with (
        pytest.raises(RunFailed, match=f"^{out}/a.twice is not liked$"),
        ExchangeEngine(Alone(), opened) as engine,
    ):
        run(engine, task_on(out, "a", fails=True))
    assert (out / NOTE).exists()  # the next run goes on with what is there


class Failing:
    """A store's method that fails some times before it works."""

    def __init__(self, times: int, real: Any) -> None:
        self.left, self.real = times, real

    def __get__(self, store: Any, _: type) -> Any:
        def method(*args: Any) -> Any:
            self.left -= 1
            if self.left >= 0:
                raise store._failed("/x", OSError("away"), what="reached")
            return self.real(store, *args)

        return method


@pytest.mark.parametrize("method", ["put", "get", "sizes", "remove_all"])
def test_a_store_that_is_away_for_a_moment_is_asked_again(out, opened, monkeypatch, method):
    (out / "a").write_bytes(b"x")
    store = type(opened.store)
    real = getattr(store, method)
    monkeypatch.setattr(store, method, Failing(publish.TRIES - 1, real))
    with ExchangeEngine(Alone(), opened) as engine:
        run(engine, task_on(out, "a"))
    monkeypatch.setattr(store, method, Failing(100, real))
    with (
        pytest.raises(RunFailed, match=r"/x cannot be reached \(away\): run again, it goes on$"),
        ExchangeEngine(Alone(), opened) as engine,
    ):
        (out / "a").write_bytes(b"other")
        run(engine, task_on(out, "a"))


def test_what_is_damaged_is_noticed_and_what_is_cut_short_is_put_again(out, opened):
    (out / "a").write_bytes(b"whole")
    version = version_of(out / "a")
    opened.put(out / "a", version)
    (at,) = (out.parent / "store").rglob(version)
    at.write_bytes(b"wrong")
    with pytest.raises(RunFailed, match="was damaged and is taken away"):
        opened.get(version, out / "b")
    assert not at.exists()
    at.write_bytes(b"who")  # as a machine leaves it that is lost while it puts
    with ExchangeEngine(Alone(), opened) as engine:
        run(engine, task_on(out, "a"))
    assert (out / "a.twice").read_bytes() == b"wholewhole"


def test_a_workers_folder_holds_no_more_than_it_may(out, opened):
    names = [str(n) for n in range(6)]
    for name in names:
        (out / name).write_bytes(name.encode() * 100)
    with ExchangeEngine(Alone(), opened, kept_bytes=500) as engine:
        for name in names:
            run(engine, task_on(out, name))
            cache = exchange_worker._cache
            assert cache is not None
            held = [p.stat().st_size for p in (cache.folder / "objects").iterdir()]
            assert 300 <= sum(held) <= 500 and not Path(cache.root).exists()


def test_folders_of_processes_that_are_gone_are_removed_by_the_next(out, opened):
    (out / "a").write_bytes(b"x")
    code = (
        "import sys, tempfile; from curate.engines.exchange_worker import Cache\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "cache = Cache(('file:///nowhere', 'llmcurate-' + '0' * 16, 0.5))\n"
        "print('made', flush=True); sys.stdin.read()"
    )
    line = [sys.executable, "-c", code, str(out.parent)]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, env=os.environ) as process:
        assert process.stdout is not None and process.stdout.readline() == "made\n"
        exchange_worker.sweep()
        assert len([*out.parent.glob(f"{exchange_worker.PREFIX}*")]) == 1
        process.kill()
    with ExchangeEngine(Alone(), opened) as engine:
        run(engine, task_on(out, "a"))
    assert exchange_worker._cache is not None
    assert [*out.parent.glob(f"{exchange_worker.PREFIX}*")] == [exchange_worker._cache.folder]


def test_what_a_killed_run_left_is_taken_up_at_the_same_url_and_named_otherwise(
    out, opened, capsys
):
    (out / "a").write_bytes(b"x")
    opened.put(out / "a", version_of(out / "a"))
    again = open_exchange(opened.url + "/", out)
    assert again is not None and again.stored == {version_of(out / "a")}
    assert capsys.readouterr().err == ""
    assert open_exchange(None, out) is None
    other = open_exchange(f"file://{out.parent}/elsewhere", out)
    assert other is not None and other.stored == set() and len(objects(out)) == 1
    notice = f"files of {out} lie in {opened.url}/{opened.run} and are computed anew where"
    assert [line[: len(notice)] for line in capsys.readouterr().err.splitlines()] == [
        notice,
        notice,
    ]


@pytest.mark.parametrize("url", [None, "file://{victims}"])
@pytest.mark.parametrize(
    "note",
    [
        {"url": "file://{victims}", "run": "folder"},
        {"url": "file://{victims}", "run": "../victims/folder"},
        {"url": "file://{victims}/folder", "run": ""},
        {"url": ["file://{victims}"], "run": "llmcurate-0123456789abcdef"},
        "file://{victims}/folder",
        7,
    ],
)
def test_a_note_in_out_removes_and_reads_nothing_elsewhere(out, capsys, note, url):
    victims = out.parent / "victims"
    (victims / "folder").mkdir(parents=True)
    (victims / "folder/file").touch()
    text = json.dumps(note).replace("{victims}", str(victims))
    (out / NOTE).write_text(text)
    exchange = open_exchange(url and url.format(victims=victims), out)
    if exchange is not None:
        exchange.end()
    assert (victims / "folder/file").exists()
    assert capsys.readouterr().err == (
        f"{out / NOTE} names no folder of an exchange and is passed over: remove it\n"
    )


def test_a_note_of_another_store_is_named_and_left(out, capsys):
    run = "llmcurate-0123456789abcdef"
    victim = out.parent / "victims" / run
    victim.mkdir(parents=True)
    (out / NOTE).write_text(json.dumps({"url": f"file://{victim.parent}", "run": run}))
    assert open_exchange(None, out) is None and victim.exists()
    assert capsys.readouterr().err.startswith(f"files of {out} lie in file://{victim} ")
    with pytest.raises(RunFailed, match="is no folder of an exchange"):
        Exchange("file:///some", out, "folder")


class Lying(Alone):
    """A worker that answers what it likes."""

    def __init__(self, **wrote: str) -> None:
        self.wrote = wrote

    def map(
        self, function: str, tasks: Iterable[Task], on_death: OnDeath | None = None
    ) -> Iterator[tuple[Task, dict[str, Any]]]:
        for task, answer in super().map(function, tasks, on_death):
            yield task, {**answer, "wrote": {**answer["wrote"], **self.wrote}}


def test_a_worker_writes_nothing_but_what_its_task_names(out, opened):
    (out / "a").write_bytes(b"x")
    (out.parent / "victim").write_text("mine")
    version = version_of(out / "a")
    for name in (str(out.parent / "victim"), str(out / "../victim"), str(out / "ledger.db")):
        with (
            pytest.raises(RunFailed, match=r"says that it wrote .*, which it was not asked for"),
            ExchangeEngine(Lying(**{name: version}), opened) as engine,
        ):
            run(engine, task_on(out, "a"))
    assert (out.parent / "victim").read_text() == "mine" and not (out / "ledger.db").exists()
    with (
        pytest.raises(RunFailed, match="which is no file's version"),
        ExchangeEngine(Lying(**{str(out / "a.twice"): "../../victim"}), opened) as engine,
    ):
        run(engine, task_on(out, "a"))


@pytest.mark.parametrize(
    ("engine", "url", "message"),
    [
        ("local", "s3://b/tmp", "--exchange is between machines: give --engine ray as well"),
        ("ray", "/tmp/x", "--exchange /tmp/x: give a URL that all machines reach"),
        ("ray", "memory://x", "--exchange memory://x: give a URL that all machines reach"),
    ],
)
def test_a_wrong_exchange_is_one_line(engine, url, message):
    with pytest.raises(UsageError, match=message):
        check_engine(engine, None, url)


def test_a_store_that_cannot_be_written_is_named_before_the_work(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunFailed, match=r"file/x cannot be written .*: see that it is there"):
        check_exchange(f"file://{tmp_path}/file/x")
    with pytest.raises(UsageError, match=r"^--exchange nosuch://x: "):
        check_exchange("nosuch://x")


def test_a_footer_is_read_without_what_stands_before_it(out, opened):
    """A short one with the last bytes, a long one with a second read."""
    for name, columns in (("short", 2), ("long", 400)):
        path = out / name
        pq.write_table(pa.table({f"a{i}": [i] * 5 for i in range(columns)}), path)
        opened.put(path, version_of(path))
        want = pq.read_metadata(path)
        put_elsewhere(path, version_of(path))
        assert (want.serialized_size > FOOTER_BYTES) == (name == "long")
        (footer,) = opened.footers([path])
        assert footer.num_rows == 5 and footer.schema.equals(want.schema)
        assert not path.exists() and opened.has(path)


def test_content_elsewhere_is_lent_fetched_and_sealed_by_its_name(out, opened):
    path = out / "a"
    path.write_bytes(b"content")
    sealed, version = seal(path), version_of(path)
    opened.put(path, version)
    put_elsewhere(path, version)
    assert seal(path) == sealed and fault(path, sealed) is None
    assert seal_folder(out) == {NOTE: seal(out / NOTE), "a": sealed}
    assert fault(path, [7, "0" * 32]) == "is not what was written"
    with opened.lent([path, out / NOTE]):
        assert path.read_bytes() == b"content"
    assert version_elsewhere(path) == version and not path.exists()
    (out / "b").symlink_to("a")  # any other link is none of ours
    assert version_elsewhere(out / "b") is None and not opened.has(out / "b")
    opened.fetch([path, out / NOTE])
    assert path.read_bytes() == b"content" and not path.is_symlink()
    opened.end()
    assert objects(out) == {} and not (out / NOTE).exists()


def test_an_object_in_a_folder_is_whole_while_it_is_put_again(out, opened, monkeypatch):
    """By another worker, which wrote the same: a reader may be at it."""
    (out / "a").write_bytes(b"content")
    version = version_of(out / "a")
    opened.put(out / "a", version)

    def reads_meanwhile(source: Path, target: Path) -> None:
        Path(target).write_bytes(b"")
        opened.get(version, out / "b")

    monkeypatch.setattr(publish.shutil, "copyfile", reads_meanwhile)

    def get_file(_: Any, source: str, target: str) -> None:
        Path(target).write_bytes(Path(source).read_bytes())

    monkeypatch.setattr(type(opened.store.fs), "get_file", get_file)
    opened.put(out / "a", version)
    assert (out / "b").read_bytes() == b"content"


def test_an_object_is_published_into_a_store_of_any_file_system(out, opened):
    path = out / "a"
    path.write_bytes(b"content")
    opened.put(path, version_of(path))
    here = Store(f"file://{out.parent}/published")
    for store in (here, Store("memory://published")):
        opened.publish(version_of(path), store, "corpus/a")
        assert store.sizes() == {"corpus/a": 7} and store.read("corpus/a", 0, 7) == b"content"


@pytest.mark.parametrize("short", [b"012", b""])
def test_a_range_that_comes_short_is_asked_for_again_and_never_taken(
    out, opened, monkeypatch, short
):
    (out / "a").write_bytes(b"0123456789")
    version = version_of(out / "a")
    opened.put(out / "a", version)
    whole, answers = Store.read, [short]

    def read(store: Store, name: str, first: int, end: int) -> bytes:
        return answers.pop() if answers else whole(store, name, first, end)

    monkeypatch.setattr(Store, "read", read)
    opened.get_parts(version, [[0, 4]], out / "b")
    assert (out / "b").read_bytes() == b"0123" + bytes(6)
    answers += [short] * publish.TRIES
    with pytest.raises(RunFailed, match=f"{version} is cut short: run again, it goes on"):
        opened.get_parts(version, [[0, 4]], out / "b")


@pytest.mark.parametrize("times", [1, 2])
def test_an_object_that_came_damaged_is_asked_for_once_more_and_then_taken_away(
    out, opened, monkeypatch, times
):
    (out / "a").write_bytes(b"content")
    version = version_of(out / "a")
    opened.put(out / "a", version)
    whole, damages = Store.get, [b"contend"] * times

    def get(store: Store, name: str, path: Path) -> None:
        whole(store, name, path)
        if damages:
            path.write_bytes(damages.pop())

    monkeypatch.setattr(Store, "get", get)
    expected = (
        pytest.raises(RunFailed, match="was damaged and is taken away") if times > 1 else None
    )
    with expected or nullcontext():
        opened.get(version, out / "b")
        assert (out / "b").read_bytes() == b"content"
    assert (version in objects(out)) == (times == 1)


def test_what_stays_is_given_to_the_next_tasks_without_being_fetched(out, opened):
    (out / "a").write_bytes(b"x")
    first, twice = task_on(out, "a", stay=[f"{out}/a.twice"]), task_on(out, "a.twice")
    with ExchangeEngine(Alone(), opened) as engine:
        run(engine, first)
        assert version_elsewhere(out / "a.twice") == version_of_bytes(b"xx")
        assert opened.fetched == 0
        (out / "a.twice").rename(out / "b")  # with its folder, as a phase's files are
        run(engine, {**twice, "reads": [str(out / "b")]})
        assert (out / "a.twice.twice").read_bytes() == b"xxxx" and opened.fetched == 4
    assert {*objects(out).values()} == {b"xx"}
    (out.parent / "store" / opened.run / version_of_bytes(b"xx")).unlink()
    again = Exchange(opened.url, out, opened.run)
    assert not again.has(out / "b")
    with (
        pytest.raises(RunFailed, match=f"lacks {out}/b: run again, it goes on"),
        ExchangeEngine(Alone(), again) as engine,
    ):
        run(engine, {**twice, "reads": [str(out / "b")]})


def version_of_bytes(content: bytes) -> str:
    return f"{xxh3_128_hexdigest(content)}-{len(content)}"
