"""The Ray engine on a cluster: the same bytes as one machine, whatever dies, joins or hangs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from curate.corpus.sizes import Sizes
from curate.engines.base import Call
from curate.engines.ray import RayEngine
from curate.run.driver import carry_out
from curate.run.records import Options
from curate.steps.recipe import parse
from llmcurate.base.disk.store import Mirror, Store
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.conftest import Bench, pages
from tests.curate.engines.ray_machines import NODE, agent, hanging, machines
from tests.s3_server import s3_server

pytestmark = pytest.mark.skipif(not find_spec("ray"), reason="the extra `ray` is not installed")

PLUGINS = Path(__file__).parent / "plugins"
SMALL = {"partition_bytes": 2048, "batch_rows": 8}
# So few documents would be decided by the driver; with these sizes they are many.
TASKS = Sizes(task_documents=20, partition_pairs=30, query_documents=0)
STEPS = [{"c4": {"min_sentences": 2}}, "dedup_exact", {"dedup_minhash": {"verify": 0.8}}]


@pytest.fixture(scope="module")
def s3() -> Iterator[None]:
    """A store that the machines of the cluster know, if its server is installed."""
    with s3_server() if find_spec("moto") and find_spec("s3fs") else nullcontext():
        yield


@pytest.fixture(scope="module")
def _cluster(s3):
    """One for all tests: starting it takes seconds. What is connected already stays connected."""
    import ray

    cluster = machines(2)
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def plugins(monkeypatch):
    """Workers find the plug-ins of tests."""
    paths = [str(PLUGINS), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.syspath_prepend(str(PLUGINS))


@pytest.fixture
def cluster(_cluster, plugins):
    """Of one machine with two CPUs, to which this process is connected."""
    return _cluster


@pytest.fixture
def works(tmp_path, monkeypatch):
    """Writes a module whose functions workers find."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    return lambda name, text: (tmp_path / f"{name}.py").write_text(text)


def ours(word: str) -> list[psutil.Process]:
    """Processes that this one has started, directly or through others, with such a word on their
    command lines. Other tests may have theirs."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if any(part.startswith(word) for part in process.cmdline()):
                found.append(process)
    return found


def children() -> list[psutil.Process]:
    """The worker processes that actors keep; those of the local engine are this process's own."""
    local = psutil.Process().children()
    return [worker for worker in ours("curate.engines.worker") if worker not in local]


def soon(condition: Callable[[], bool], seconds: float = 20) -> bool:
    """Whether that holds, after a while."""
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:
        time.sleep(0.1)
    return condition()


def all_ended(seconds: float = 20) -> bool:
    """Whether no worker process is left, after a while."""
    return soon(lambda: not children(), seconds)


def test_a_cluster_gives_the_bytes_of_one_machine(cluster, bench):
    source = bench.jsonl("in.jsonl", pages(60))
    bench.run(STEPS, source, out="here", read=SMALL)
    outcome = bench.run(
        STEPS, source, out="there", workers=2, read=SMALL, engine="ray", sizes=TASKS
    )
    assert len(outcome.plan.inputs.partitions) > 4
    assert bench.bytes_of("there") == bench.bytes_of("here")
    assert all_ended()


def run_into(bench: Bench, url: str, *sources: Path) -> Any:
    recipe = parse(json.dumps({"steps": STEPS, "read": SMALL}), "recipe.yaml")
    options = Options(2, quiet=True, engine="ray", sizes=TASKS)
    inputs = [str(path) for path in sources]
    return carry_out(recipe, inputs, Path(url), options, bench.folder / "mirror")


@pytest.fixture
def bytes_there(bench: Bench) -> Callable[[str], dict[str, str]]:
    """Fetches what readers see at a URL; returns its digests."""
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    pytest.importorskip("s3fs", reason="s3fs is not installed")

    def fetch(url: str) -> dict[str, str]:
        store = Store(Mirror(url, bench.folder / "fetched"))
        for name in store.listed():
            store.read(store.root / name)
        return bench.bytes_of("fetched")

    return fetch


def test_machines_that_see_nothing_but_a_store_give_the_same_bytes(
    cluster, bench, bytes_there, monkeypatch
):
    source = bench.jsonl("in.jsonl", pages(60))
    bench.run(STEPS, source, out="here", read=SMALL)
    texts: list[str] = []
    given = RayEngine._hand_out

    def noted(engine: RayEngine, worker: Any, call: Call, task: Any) -> None:
        texts.append(call.task)
        given(engine, worker, call, task)

    monkeypatch.setattr(RayEngine, "_hand_out", noted)
    run_into(bench, "s3://bucket/apart", source)
    assert bytes_there("s3://bucket/apart") == bench.bytes_of("here")
    assert all(any(name in text for text in texts) for name in ("store/stages/", "store/corpus"))
    assert not [text for text in texts if f"{bench.folder}/mirror" in text]
    assert not list((bench.folder / "mirror/stages").glob("*/part-*.kept.parquet"))
    assert soon(lambda: not list(Path(tempfile.gettempdir()).glob(".part-*-store")))


@pytest.mark.slow
def test_whatever_is_killed_a_store_has_what_was_finished(cluster, bench, bytes_there):
    """A worker, then the driver, whose mirror is removed."""
    rows = [{"id": f"d{i}", "text": f"document number {i} SLEEP:0.05"} for i in range(400)]
    source = bench.jsonl("in.jsonl", rows)
    recipe = bench.folder / "recipe.yaml"
    recipe.write_text(json.dumps({"steps": ["crash", "dedup_exact"], "read": SMALL}))
    url = "s3://bucket/killed"
    line = ("run", recipe, source, "-o", url, "--scratch", "mirror", "--engine", "ray")
    line = (*line, "--address", cluster.address, "--workers", "2")
    driver = bench.start(*line)

    def parts() -> int:
        store = Store(Mirror(url, bench.folder / "none"))
        return sum(name.endswith(".kept.parquet") for name in store.listing)

    assert soon(lambda: parts() >= 2, 60)
    local = psutil.Process(driver.pid).children(recursive=True)
    next(worker for worker in children() if worker not in local).kill()
    assert soon(
        lambda: any(n.startswith("ledger/") for n in Store(Mirror(url, source)).listing), 60
    )
    driver.kill()
    driver.wait()
    finished = parts()
    shutil.rmtree(bench.folder / "mirror")
    done = bench.process(*line)
    assert done.returncode == 0, done.stderr
    assert finished < len(list((bench.folder / "mirror/corpus").glob("part-*"))), finished
    assert "resuming the unfinished run" in done.stderr
    bench.run(recipe.read_text(), source, out="here")
    assert bytes_there(url) == bench.bytes_of("here")


@pytest.mark.slow
def test_a_document_that_kills_its_worker_is_blamed_as_on_one_machine(cluster, bench):
    rows = [{"id": f"d{i}", "text": f"document number {i}"} for i in range(12)]
    rows[7]["text"] += " KILL-WITH:11"
    source = bench.jsonl("in.jsonl", rows)
    bench.run(["crash"], source, out="here", read=SMALL)
    bench.run(["crash"], source, out="there", workers=2, read=SMALL, engine="ray")
    (held,) = bench.rows("there", "rejected")
    assert (held["id"], held["step"], held["rule"]) == ("d7", "engine", "quarantine")
    assert bench.bytes_of("there") == bench.bytes_of("here")


def test_a_task_whose_worker_is_lost_is_given_to_another(cluster, works, tmp_path):
    works(
        "slow_work",
        "import os, time\n"
        "def work(payload):\n"
        "    mark = payload['mark'] + str(payload['part'])\n"
        "    first = not os.path.exists(mark)\n"
        "    open(mark, 'w').close()\n"
        "    time.sleep(30 if first and payload['part'] == 1 else 0)\n"
        "    return {'part': payload['part']}\n",
    )
    mark = str(tmp_path / "mark-")
    tasks = [{"part": i, "mark": mark} for i in range(4)]

    def kill() -> None:
        while not Path(mark + "1").exists():
            time.sleep(0.05)
        time.sleep(0.5)  # the others are done: one actor is left that works
        for process in ours("ray::RayHost.run"):
            process.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    with RayEngine(2) as engine:
        done = {task["part"]: result for task, result in engine.map("slow_work:work", tasks, dict)}
    thread.join()
    assert done == {i: {"part": i} for i in range(4)}


def test_where_this_machines_agent_is_lost_the_engine_connects_again(
    cluster, works, tmp_path, monkeypatch, capsys
):
    """Ray does not tell; here its list of nodes does, once."""
    import ray

    works(
        "waiting_work",
        "import os, time\n"
        "def work(payload):\n"
        "    first = not os.path.exists(payload['mark'])\n"
        "    open(payload['mark'], 'w').close()\n"
        "    time.sleep(60 if first else 0)\n"
        "    return {}\n",
    )
    mark = tmp_path / "mark"
    nodes = ray.nodes()
    gone = iter([[node | {"Alive": False} for node in nodes]])
    monkeypatch.setattr(ray, "nodes", lambda: next(gone, nodes) if mark.exists() else nodes)
    monkeypatch.setattr("curate.engines.ray.LOOK_SECONDS", 0.0)
    with RayEngine(2) as engine:
        done = list(engine.map("waiting_work:work", [{"mark": str(mark)}], dict))
    assert len(done) == 1
    assert capsys.readouterr().err == "ray: lost the agent of this machine; connecting again\n"


@pytest.mark.slow  # small ones: the worker and the agent lost above, machines lost in test_hosts.py
def test_machines_that_join_are_used_and_lost_ones_are_reported_once(cluster, monkeypatch, capsys):
    """Two join; then the agent of one is killed, and all of the other hangs."""
    import ray

    monkeypatch.setattr("curate.engines.ray.LOOK_SECONDS", 0.5)
    joined, agents, hosts, done = [], [], set(), []
    with RayEngine() as engine, hanging() as hang:

        def tasks() -> Iterator[dict[str, int]]:
            """Until the engine has noticed what is done to the machines; and some more."""
            after = 0
            for part in range(3000):
                after += sum(map(engine._gone, engine._nodes)) == 2
                if after <= 8:
                    yield {"part": part}

        for task, result in engine.map("tests.curate.engines.host_work:quick", tasks(), dict):
            done.append(task["part"])
            hosts.add(result["host"])
            if not joined:
                joined = [cluster.add_node(wait=False, **NODE) for _ in range(2)]
                agents = [agent(node) for node in joined]
            if agents and all(hosts & {p.pid for p in a.children()} for a in agents):
                hang(joined[1])
                agents.pop(0).kill()
                agents.clear()
    lines = capsys.readouterr().err.splitlines()
    host = ray.nodes()[0]["NodeManagerHostname"]
    assert sorted(done) == list(range(len(done)))
    assert sum(map(len, engine._lost.values())) <= 2  # tasks that ran there, each with its machine
    assert sum("joined; now" in line for line in lines) in (1, 2)
    lost = [line for line in lines if "joined" not in line]
    assert [line.split(";")[0] for line in lost] == 2 * [f"ray: lost {host}"]
    assert lines[-1].endswith("; now 1 machine with 2 CPUs")


def test_workers_that_have_nothing_to_do_for_long_give_their_cpu_back(
    cluster, monkeypatch, tmp_path
):
    """While another one works, until this has been seen."""
    import ray

    monkeypatch.setattr("curate.engines.ray.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("curate.engines.ray.IDLE_LOOKS", 2)
    seen = tmp_path / "seen"

    def look() -> None:
        if len(engine._busy) == 1 and not engine._idle and ray.available_resources().get("CPU"):
            seen.touch()

    tasks = [{"until": str(tmp_path)}, {"until": str(seen)}]
    with RayEngine(2, tick=look) as engine:
        assert len(list(engine.map("tests.curate.engines.host_work:wait", tasks, dict))) == 2
    assert seen.exists()


@pytest.mark.slow
def test_where_the_agent_beside_the_driver_is_killed_no_byte_changes(bench, plugins, monkeypatch):
    """Two others are there."""
    rows = [{"id": f"d{i}", "text": f"document number {i} SLEEP:0.1"} for i in range(600)]
    source = bench.jsonl("in.jsonl", rows)
    recipe = bench.folder / "recipe.yaml"
    recipe.write_text(json.dumps({"steps": ["crash"], "read": SMALL}))
    cluster = machines(1)
    try:
        for _ in range(2):
            cluster.add_node(**NODE)
        driver = bench.start(
            "run", recipe, source, "-o", "there", "--engine", "ray", "--address", cluster.address
        )
        done = bench.folder / "there/stages"
        while len(list(done.rglob("part-*.kept.parquet"))) < 3 and driver.poll() is None:
            time.sleep(0.05)
        agent(cluster.head_node).kill()
        messages = driver.communicate(timeout=240)[1]
        assert driver.returncode == 0, messages
        assert messages.count("ray: lost ") == 1
    finally:
        cluster.shutdown()
    monkeypatch.setenv("CALM", "1")
    bench.run(recipe.read_text(), source, out="here")
    assert bench.bytes_of("there") == bench.bytes_of("here")


@pytest.mark.slow
def test_a_worker_that_is_always_lost_fails_the_run_in_one_line(cluster, works):
    works(
        "fatal_work",
        "import os, signal\n"
        "def work(payload):\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    import time; time.sleep(30)\n",
    )
    with RayEngine(1) as engine, pytest.raises(RunFailed, match=r"lost the worker of .* 4 times"):
        list(engine.map("fatal_work:work", [{"part": 0}], dict))


def test_a_worker_that_does_not_see_out_ends_the_run_at_once_in_one_line(cluster, bench, apart):
    import ray

    source = bench.jsonl("in.jsonl", pages(3))
    done = bench.command("dedup", source, "-o", "out", "--engine", "ray", "-q")
    host = ray.nodes()[0]["NodeManagerHostname"]
    assert done.returncode == 2 and done.stderr == (
        f"llmcurate: {host} of the Ray cluster does not see {bench.folder}/out: choose a folder"
        " that all machines share as OUT (as --scratch, if OUT is a URL)\n"
    )
    assert not list((bench.folder / "out").rglob("part-*")) and all_ended()


def test_a_file_that_a_machine_does_not_see_is_named(cluster):
    engine = RayEngine(1, shared=["/nowhere/at/all"])
    with pytest.raises(UsageError, match=r"does not see /nowhere/at/all: use a folder that all"):
        list(engine.map("curate.run.worker.worker:run_partition", [{"part": 0}], dict))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "spark"], "--engine spark: choose local, ray or slurm"),
        (["--address", "auto"], "--address needs a cluster: give --engine ray or slurm as well"),
    ],
)
def test_a_wrong_engine_is_a_one_line_error(bench, arguments, message):
    source = bench.jsonl("in.jsonl", pages(3))
    done = bench.command("dedup", source, "-o", "out", *arguments)
    assert done.returncode == 2 and done.stderr.splitlines()[-1] == f"llmcurate: {message}"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere"])
def test_a_cluster_that_is_not_there_is_one_line_at_once(address):
    began = time.monotonic()
    with pytest.raises(UsageError, match=f"no Ray cluster at {address} "):
        list(RayEngine(1, address=address).map("x:y", [{"part": 0}], dict))
    assert time.monotonic() - began < 9


def test_without_ray_the_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"needs Ray: pip install"):
        list(RayEngine(1).map("x:y", [{"part": 0}], dict))


@pytest.mark.slow
def test_a_driver_that_is_killed_continues_from_the_ledger_and_leaves_nobody_behind(bench):
    source = bench.jsonl("in.jsonl", pages(2000))
    recipe = bench.folder / "recipe.yaml"
    recipe.write_text(json.dumps({"steps": STEPS, "read": SMALL | {"partition_bytes": 65536}}))
    bench.run(recipe.read_text(), source, out="here")
    line = ("run", recipe, source, "-o", "there", "--engine", "ray", "--workers", "2", "-q")
    driver = bench.start(*line)
    done = bench.folder / "there/stages"
    while len(list(done.rglob("part-*.kept.parquet"))) < 2 and driver.poll() is None:
        time.sleep(0.02)
    assert driver.poll() is None
    started = psutil.Process(driver.pid).children(recursive=True)
    started = [process for process in started if not process.name().endswith("Agent")]  # Ray's own
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    assert not psutil.wait_procs(started, 60)[1]
    assert not (bench.folder / "there/corpus").exists()
    again = bench.process(*line)
    assert again.returncode == 0, again.stderr
    assert bench.bytes_of("there") == bench.bytes_of("here")


@pytest.mark.slow  # the local engine inside it is tested alone
def test_no_task_counts_the_seconds_that_it_compiles(cluster):
    """By the plug-in's clock, a thousand seconds."""
    with RayEngine(1, 1) as engine:
        list(engine.map("compiling:work", [{}], dict))
        assert 0 <= engine.cpu < 500
    assert all_ended()
