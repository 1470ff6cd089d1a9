"""A run whose OUT is a URL, against a real server's protocol: the bytes of a folder, from wherever
it is continued."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from curate.run.worker import worker
from llmcurate.base.disk import lock
from llmcurate.base.disk import store as store_module
from llmcurate.base.disk.store import Mirror, Store
from llmcurate.base.errors import LockHeld, RunFailed
from tests.curate.conftest import Bench, pages
from tests.s3_server import Server, s3_server

STEPS = ["dedup_exact", {"c4": {"min_sentences": 2}}]
READ = {"partition_bytes": 2048, "batch_rows": 8}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with s3_server() as started:
        yield started


@pytest.fixture
def url(server: Server, request: pytest.FixtureRequest) -> str:
    return f"s3://bucket/{re.sub('[^a-z]', '-', request.node.name)}"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    made.jsonl("in.jsonl", pages(60))
    recipe(made, STEPS)
    return made


def recipe(bench: Bench, steps: list[Any]) -> None:
    (bench.folder / "recipe.yaml").write_text(json.dumps({"steps": steps, "read": READ}))


def run(bench: Bench, out: str, *more: str) -> Any:
    scratch = ("--scratch", "mirror") if "://" in out else ()
    return bench.command("run", "recipe.yaml", "in.jsonl", "-o", out, *scratch, *more)


def seen(url: str) -> dict[str, str]:
    """sha256 by name of what a run promises to repeat, as readers of the store see it."""
    store = Store(Mirror(url, Path("none")))
    names = [n for n in store.listing if re.match("(corpus|rejected)[./]|decisions.parquet", n)]
    return {n: hashlib.sha256(store.load(n)).hexdigest() for n in sorted(names)}


def expected(bench: Bench) -> dict[str, str]:
    shutil.rmtree(bench.folder / "here", ignore_errors=True)
    assert run(bench, "here", "-q").returncode == 0
    return dict(sorted(bench.bytes_of("here").items()))


def test_a_run_is_that_into_a_folder_and_goes_on_without_its_mirror(bench, url, server):
    done = run(bench, url)
    assert done.returncode == 0, done.stderr
    first = expected(bench)
    assert seen(url) == first

    shutil.rmtree(bench.folder / "mirror")
    before = len(server.requests())
    again = run(bench, url)
    fetched = [path for _, path in server.requests()[before:] if "part-" in path]
    assert "nothing to do" in again.stdout and fetched == [], again.stdout + again.stderr

    shutil.rmtree(bench.folder / "mirror")
    recipe(bench, [*STEPS[:-1], {"c4": {"min_sentences": 4}}])
    changed = run(bench, url)
    assert "reused as they are: reading" in changed.stderr, changed.stderr
    second = expected(bench)
    assert seen(url) == second and second != first


def test_a_partition_is_at_most_eight_objects(bench, url, server):
    recipe(bench, [{"c4": {"min_sentences": 2}}, "dedup_exact"])
    before = len(server.requests())
    assert run(bench, url).returncode == 0
    requests = [(m, re.sub(".*/part-([0-9]+).*", r"\1", p)) for m, p in server.requests()[before:]]
    counted = Counter(part for method, part in requests if method == "PUT" and part.isdigit())
    stages = 2
    assert set(counted.values()) == {5 + 3 + 2}  # of the first stage, of the second, of the corpus
    assert max(counted.values()) <= 8 * stages
    gets = [part for method, part in requests if method in ("GET", "HEAD") and part.isdigit()]
    assert gets == []  # this machine has all that it wrote


def test_a_run_that_failed_keeps_in_the_store_what_it_finished(bench, url, monkeypatch, server):
    def failing(task: Any) -> Any:
        if task.part == 2 and "01-" in str(task.spec):
            raise RunFailed("no power")
        return original(task)

    original = worker.run_partition
    monkeypatch.setattr(worker, "run_partition", failing)
    monkeypatch.setattr("curate.engines.local.LocalEngine", InThisProcess)
    stopped = run(bench, url)
    assert stopped.returncode == 1 and "no power" in stopped.stderr
    monkeypatch.undo()
    shutil.rmtree(bench.folder / "mirror")
    before = len(server.requests())
    assert run(bench, url).returncode == 0
    requests = server.requests()[before:]
    assert not [p for m, p in requests if m == "PUT" and re.search("00-.*part-", p)]
    assert seen(url) == expected(bench)


@pytest.mark.slow  # small: fetched files are compared with seals, in base/disk/test_store.py
def test_an_object_that_was_changed_is_named_and_computed_again(bench, url):
    assert run(bench, url).returncode == 0
    store = Store(Mirror(url, Path("none")))
    (name,) = (n for n in store.listing if re.search("00-.*part-00001.kept", n))
    data = bytearray(store.load(name))
    data[len(data) // 2] ^= 1
    store.write(name, bytes(data))
    shutil.rmtree(bench.folder / "mirror")
    recipe(bench, [*STEPS[:-1], {"c4": {"min_sentences": 4}}])
    done = run(bench, url)
    assert done.returncode == 0, done.stderr
    assert f"{name} is not what was written: it is computed again" in done.stderr, done.stderr
    assert seen(url) == expected(bench)


class InThisProcess:
    """An engine that calls the functions itself, with the store of the driver."""

    here = True
    cpu = 0.0

    def __init__(self, *arguments: Any, **options: Any) -> None: ...

    def __enter__(self) -> InThisProcess:
        return self

    def __exit__(self, *error: object) -> None: ...

    def map(self, function: str, tasks: Any, result: Any, on_death: Any = None) -> Any:
        from curate.corpus.sketches import run_here

        return run_here(function, tasks, result)


# The lock.


def stores(url: str, tmp_path: Path) -> tuple[Store, Store]:
    return Store(Mirror(url, tmp_path / "a")), Store(Mirror(url, tmp_path / "b"))


def take(store: Store, stale: float) -> None:
    lock.acquire(store.url, store._holder, store._replace_holder, print, stale)


def test_a_store_has_one_driver_and_each_has_another_number(url, tmp_path, monkeypatch):
    first, second = stores(url, tmp_path)
    with first.driving():
        assert not second._replace_holder(replace(first.driver, pid=1))  # saw no driver
        monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
        sleep = time.sleep

        def beating(seconds: float) -> None:
            sleep(0.01)
            first._replace_holder(replace(first.driver, beat=first.driver.beat + 1))

        with monkeypatch.context() as patch:
            patch.setattr(time, "sleep", beating)
            with pytest.raises(LockHeld, match=f"{url} is in use by process .* on .*; wait for it"):
                take(second, stale=5.0)
    with second.driving():
        assert second.driver.number == 2


def test_a_driver_that_was_silent_loses_its_lock_and_writes_no_more(url, tmp_path, monkeypatch):
    first, second = stores(url, tmp_path)
    monkeypatch.setattr(store_module, "BEAT_SECONDS", 0.1)
    take(first, stale=1.0)
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "elsewhere")
        take(second, stale=0.05)
    assert (first.driver.number, second.driver.number) == (1, 2)
    first._beat(threading.Event())  # ends at once, for the object is no longer its own
    with pytest.raises(LockHeld, match="another driver works in"):
        first.check_lock()
    second.check_lock()


def test_a_store_without_conditional_puts_is_named_and_refused(tmp_path, monkeypatch):
    first, second = stores("memory://locks/out", tmp_path)
    with first.driving():
        monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
        named = "has no conditional puts, .* delete memory://locks/out/driver.json"
        with pytest.raises(LockHeld, match=named), second.driving():
            pass
