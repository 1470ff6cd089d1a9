"""The Ray engine on clusters whose machines join and leave, and on an autoscaling one."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from curate.engines.ray import RayEngine
from llmcurate.base.errors import RunFailed
from tests.curate.conftest import Bench
from tests.curate.engines.host_work import Fatal
from tests.curate.engines.ray_machines import NODE, agent, autoscaling, hanging, machines

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not find_spec("ray"), reason="the extra `ray` is not installed"),
]

PLUGINS = Path(__file__).parent / "plugins"
STEPS = ["crash", {"dedup_minhash": {"verify": 0.8}}]


@pytest.fixture
def start(bench, monkeypatch):
    """Starts a run of 400 documents, each of which takes its time, on a cluster, and waits until
    some of its partitions are done."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PLUGINS), os.environ["PYTHONPATH"]]))
    monkeypatch.syspath_prepend(str(PLUGINS))
    rows = [{"id": f"d{i}", "text": f"document number {i // 2} SLEEP:0.2"} for i in range(400)]
    source = bench.jsonl("in.jsonl", rows)
    recipe = bench.folder / "recipe.yaml"
    recipe.write_text(
        json.dumps({"steps": STEPS, "read": {"partition_bytes": 1024, "batch_rows": 8}})
    )

    def start(address: str):
        line = ("run", recipe, source, "-o", "there", "--engine", "ray", "--address", address)
        driver = bench.start(*line, stdout=subprocess.PIPE)
        wait_for(bench, driver, 3)
        return driver

    yield start


def wait_for(bench: Bench, driver, count: int) -> None:
    """Until so many partitions are done."""
    done = bench.folder / "there/stages"
    while len(list(done.rglob("part-*.kept.parquet"))) < count and driver.poll() is None:
        time.sleep(0.05)
    assert driver.poll() is None, driver.communicate()[1]


def bytes_are_those_of_one_machine(bench: Bench, monkeypatch) -> bool:
    monkeypatch.setenv("CALM", "1")
    bench.run((bench.folder / "recipe.yaml").read_text(), bench.folder / "in.jsonl", out="here")
    return bench.bytes_of("there") == bench.bytes_of("here")


def test_half_of_eight_machines_are_lost_others_join_leave_and_hang(bench, monkeypatch, start):
    cluster = machines(0)
    try:
        others = [cluster.add_node(**NODE) for _ in range(8)]
        driver = start(cluster.address)
        with hanging() as hang:
            hang(others[4])
            for node in others[:4]:
                agent(node).kill()
            for _ in range(2):
                cluster.add_node(**NODE)
            agent(others[5]).terminate()
            output, messages = driver.communicate(timeout=300)
    finally:
        cluster.shutdown()
    assert driver.returncode == 0, messages
    assert messages.count("ray: lost ") == 5 and messages.count(" has left; now ") == 1
    assert "joined; now " in messages
    assert "raylet" not in output + messages  # whose last words Ray would print
    assert bytes_are_those_of_one_machine(bench, monkeypatch)


def test_machines_that_are_lost_while_nothing_is_done_count_for_no_task(monkeypatch):
    """Five of six, between two kinds of tasks."""
    import ray

    monkeypatch.setattr("curate.engines.ray.LOOK_SECONDS", 0.5)
    cluster = machines(0)
    try:
        others = [cluster.add_node(**NODE) for _ in range(6)]
        with RayEngine(6, address=cluster.address) as engine:
            tasks = [{"part": i} for i in range(60)]
            while len(engine._idle) < 6:
                list(engine.map("tests.curate.engines.host_work:quick", tasks, dict))
            for node in others[1:]:
                agent(node).kill()
            while sum(node["Alive"] for node in ray.nodes()) > 2:
                time.sleep(0.2)
            assert (
                len(list(engine.map("tests.curate.engines.host_work:quick", tasks[:1], dict))) == 1
            )
            assert not engine._lost
    finally:
        cluster.shutdown()


def test_a_task_that_takes_its_machines_with_it_ends_the_run_in_one_line():
    cluster = machines(0)
    try:
        for _ in range(6):
            cluster.add_node(**NODE)
        tasks = [Fatal(i, i == 3) for i in range(9)]
        line = r"lost the worker of .*:fatal 3 4 times \(see Ray's logs\); run again, it resumes"
        with RayEngine(6, address=cluster.address) as engine, pytest.raises(RunFailed, match=line):
            list(engine.map("tests.curate.engines.host_work:fatal", tasks, dict))
    finally:
        cluster.shutdown()


def test_a_cluster_without_a_cpu_is_scaled_to_the_workers_that_are_asked_for(capsys):
    with autoscaling(most=2) as address:

        def tasks() -> Iterator[dict[str, int]]:
            part = 0
            while len(hosts) < 3 and part < 3000:
                part += 1
                yield {"part": part}

        hosts: set[int] = set()
        with RayEngine(3, address=address) as engine:
            for _, result in engine.map("tests.curate.engines.host_work:quick", tasks(), dict):
                hosts.add(result["host"])
    assert len(hosts) == 3
    assert "; now 3 machines with 4 CPUs" in capsys.readouterr().err
