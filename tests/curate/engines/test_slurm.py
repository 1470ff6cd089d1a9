"""The Slurm engine: the same bytes as one machine, in jobs that may be lost, wait or never start.

Jobs are processes of this machine, through submitit's local executor; what sbatch is given, and
what follows from its answers, is tried with commands of the same names.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from curate.corpus.sizes import Sizes
from curate.engines.base import Jobs
from curate.engines.slurm import SlurmEngine
from curate.run.records import Options
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.command_line import environment
from tests.curate.conftest import pages
from tests.curate.engines import fake_slurm

submitit = pytest.importorskip("submitit", reason="the extra `slurm` is not installed")

PLUGINS = Path(__file__).parent / "plugins"
SMALL = {"partition_bytes": 2048, "batch_rows": 8}
# So few documents would be decided by the driver; with these sizes they are many.
TASKS = Sizes(task_documents=20, partition_pairs=30, query_documents=0)
STEPS = [{"c4": {"min_sentences": 2}}, "dedup_exact", {"dedup_minhash": {"verify": 0.8}}]
HERE = ("cluster=local",)
WORK = "tests.curate.engines.slurm_work:work"


@pytest.fixture(autouse=True)
def _paths(monkeypatch):
    path = os.pathsep.join([str(PLUGINS), environment()["PYTHONPATH"]])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.syspath_prepend(str(PLUGINS))


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Starts a cluster of so many slots, which is a folder."""

    def start(slots: int) -> Path:
        for name, value in fake_slurm.install(tmp_path / "cluster", slots).items():
            monkeypatch.setenv(name, value)
        return tmp_path / "cluster"

    return start


def job_processes(folder: Path) -> list[int]:
    """Processes of jobs of the run in this folder."""
    import psutil

    lines = {p.pid: p.info["cmdline"] or [] for p in psutil.process_iter(["cmdline"])}
    return [pid for pid, line in lines.items() if str(folder / ".slurm") in line]


def until(condition: Callable[[], object], seconds: float = 60) -> bool:
    """Whether it holds, after a while."""
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:
        time.sleep(0.05)
    return bool(condition())


def engine_here(folder: Path, workers: int = 2, **options) -> SlurmEngine:
    return SlurmEngine(workers, None, Jobs(HERE, folder, quiet=True), **options)


def tasks_of(folder: Path, count: int, **options) -> list[dict[str, object]]:
    (folder / "notes").mkdir(exist_ok=True)
    return [{"part": i, "notes": str(folder / "notes"), **options} for i in range(count)]


def notes(folder: Path, part: int) -> list[int]:
    """The jobs that have worked on a part."""
    return [int(p.name.partition("-")[2]) for p in (folder / "notes").glob(f"{part}-*")]


def test_jobs_give_the_bytes_of_one_machine_and_end_with_the_run(bench):
    source = bench.jsonl("in.jsonl", pages(60))
    bench.run(STEPS, source, out="here", read=SMALL)
    bench.run(
        STEPS, source, out="there", workers=2, read=SMALL, engine="slurm", slurm=HERE, sizes=TASKS
    )
    assert bench.bytes_of("there") == bench.bytes_of("here")
    assert until(lambda: not job_processes(bench.folder / "there"), 20)


@pytest.mark.slow
def test_a_worker_and_a_job_that_die_change_no_byte(bench):
    rows = pages(60)
    rows[50]["text"] += f" ONCE:9:{bench.folder / 'mark'}"
    source = bench.jsonl("in.jsonl", rows)
    (bench.folder / "mark").touch()
    bench.run(["crash", *STEPS], source, out="here", read=SMALL)
    (bench.folder / "mark").unlink()

    def kill_a_job() -> None:
        until(lambda: list((bench.folder / "there").rglob("part-*.kept.parquet")))
        os.kill(max(job_processes(bench.folder / "there")), signal.SIGKILL)

    thread = threading.Thread(target=kill_a_job)
    thread.start()
    bench.run(
        ["crash", *STEPS], source, out="there", workers=2, read=SMALL,
        engine="slurm", slurm=HERE, sizes=TASKS,
    )  # fmt: skip
    thread.join()
    assert (bench.folder / "mark").exists()
    assert bench.bytes_of("there") == bench.bytes_of("here")


def test_a_task_whose_job_is_killed_is_given_to_another_job(tmp_path):
    tasks = tasks_of(tmp_path, 3)
    tasks[1]["first"] = 60

    def kill() -> None:
        until(lambda: notes(tmp_path, 1))
        os.kill(notes(tmp_path, 1)[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with engine_here(tmp_path) as engine:
        done = {task["part"]: result["job"] for task, result in engine.map(WORK, tasks, dict)}
    thread.join()
    assert sorted(done) == [0, 1, 2]
    assert len(notes(tmp_path, 1)) == 2


@pytest.mark.parametrize(
    "number", [signal.SIGUSR2, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_job_whose_time_is_over_finishes_its_task_and_another_job_continues(tmp_path, number):
    """Slurm gives the signal to all processes of the job, the worker's too."""
    import psutil

    tasks = tasks_of(tmp_path, 2, seconds=1)

    def end_time() -> None:
        until(lambda: notes(tmp_path, 0))
        job = psutil.Process(notes(tmp_path, 0)[0])
        for process in (*job.children(), job):
            process.send_signal(number)

    thread = threading.Thread(target=end_time)
    thread.start()
    with engine_here(tmp_path, workers=1) as engine:
        done = {task["part"]: result["job"] for task, result in engine.map(WORK, tasks, dict)}
    thread.join()
    assert notes(tmp_path, 0) == [done[0]] and notes(tmp_path, 1) == [done[1]]
    assert done[0] != done[1] and not engine._lost


@pytest.mark.slow
def test_a_driver_that_is_killed_ends_its_jobs_and_continues_from_the_ledger(bench):
    source = bench.jsonl("in.jsonl", pages(2000))
    recipe = bench.folder / "recipe.yaml"
    recipe.write_text(json.dumps({"steps": STEPS, "read": SMALL | {"partition_bytes": 65536}}))
    bench.run(recipe.read_text(), source, out="here")
    line = ["run", recipe, source, "-o", "there", "--engine", "slurm", "--workers", "2", "-q"]
    line += ["--slurm", *HERE]
    driver = bench.start(*line)
    out = bench.folder / "there"
    assert until(lambda: len(list(out.rglob("part-*.kept.parquet"))) >= 2)
    assert driver.poll() is None and job_processes(out)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    assert until(lambda: not job_processes(out), 20)
    assert not (out / "corpus").exists()
    again = bench.process(*line)
    assert again.returncode == 0, again.stderr
    assert bench.bytes_of("there") == bench.bytes_of("here")


@pytest.mark.slow  # engines/test_deaths.py has it of one machine
def test_an_error_of_a_step_is_the_line_that_it_is_on_one_machine(bench):
    recipe = bench.folder / "recipe.yaml"
    recipe.write_text(json.dumps({"steps": ["crash"]}))
    source = bench.jsonl("in.jsonl", [{"id": "d0", "text": "ERROR"}])
    line = ("run", recipe, source, "--workers", 1, "-q", "-o")
    here = bench.command(*line, "here")
    there = bench.command(*line, "there", "--engine", "slurm", "--slurm", "cluster=local")
    assert here.returncode == there.returncode == 1
    assert there.stderr == here.stderr != ""


def test_a_job_that_does_not_see_out_ends_the_run_at_once_in_one_line(cluster, bench, apart):
    cluster(1)
    source = bench.jsonl("in.jsonl", pages(3))
    line = ("dedup", source, "-o", "out", "--engine", "slurm", "--workers", 1, "-q")
    done = bench.command(*line, "--address", "127.0.0.1")
    assert done.returncode == 2 and done.stderr == (
        f"llmcurate: {socket.gethostname()} of the Slurm cluster does not see {bench.folder}/out:"
        " choose a folder that all machines share as OUT (as --scratch, if OUT is a URL)\n"
    )
    assert not list((bench.folder / "out").rglob("part-*"))
    assert until(lambda: not job_processes(bench.folder / "out"), 20)


def test_a_file_that_a_node_does_not_see_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"Slurm cluster does not see /nowhere/at/all: use a fold"):
        list(engine_here(tmp_path, 1, shared=["/nowhere/at/all"]).map(WORK, [{"part": 0}], dict))


def test_a_connection_without_the_key_is_refused_and_delays_no_worker(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    strangers = []

    def call() -> None:
        for words in (b"", b"GET / HTTP/1.0\r\n\r\n", b"\0\0\0\4#WHA"):
            stranger = socket.socket()
            while stranger.connect_ex(("127.0.0.1", port)):
                time.sleep(0.01)
            stranger.sendall(words)
            strangers.append(stranger)

    thread = threading.Thread(target=call)
    thread.start()
    with engine_here(tmp_path, 1, address=f"127.0.0.1:{port}") as engine:
        done = [task["part"] for task, _ in engine.map(WORK, tasks_of(tmp_path, 2), dict)]
    thread.join()
    assert done == [0, 1] and len(strangers) == 3
    for stranger in strangers:
        stranger.close()


def test_jobs_that_reach_no_driver_end_the_run_in_one_line(tmp_path):
    reason = r"^4 jobs ended before they connected \(\S+ cannot reach .* at port .*--address HOST"
    engine = engine_here(tmp_path, 1, address="127.0.0.2")
    with pytest.raises(RunFailed, match=reason) as caught:
        list(engine.map(WORK, tasks_of(tmp_path, 1), dict))
    assert "\n" not in str(caught.value)


def test_sbatch_is_given_the_options_by_its_own_names_and_no_key(cluster, tmp_path, capsys):
    """Two of three jobs start; the third is taken out of the queue at the end, as is what an
    earlier driver left there."""
    home = cluster(2)
    (tmp_path / ".slurm").mkdir()
    (tmp_path / ".slurm" / "77_submission.sh").touch()
    options = ("partition=cpu", "cpus-per-task=1", "time=2:00:00", "exclusive", "constraint=a&b")
    jobs = Jobs(options, tmp_path)
    with SlurmEngine(3, None, jobs, address="127.0.0.1") as engine:
        tasks = tasks_of(tmp_path, 6, seconds=0.2)
        done = {task["part"] for task, _ in engine.map(WORK, tasks, dict)}
        key = engine._key
    assert done == set(range(6))
    script = (home / "100.sh").read_text()
    lines = {line.removeprefix("#SBATCH --") for line in script.splitlines() if "#SBATCH" in line}
    asked = {"partition=cpu", "cpus-per-task=1", "time=2:00:00", "exclusive", "constraint='a&b'"}
    assert asked | {"array=0-2%3", "job-name=llmcurate", "no-requeue"} <= lines
    assert key.hex() not in script
    assert (tmp_path / ".slurm").stat().st_mode & 0o077 == 0
    assert (home / "cancelled").read_text() == "--name=llmcurate 77\n100_2\n"
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "slurm: asked for 3 jobs (100); work begins with the first that starts"
    assert said[1] in ("slurm: 1 of 3 jobs have started", "slurm: 2 of 3 jobs have started")


def test_what_sbatch_refuses_is_one_line_with_its_reason(cluster, bench):
    cluster(1)
    source = bench.jsonl("in.jsonl", pages(3))
    done = bench.command(
        "dedup", source, "-o", "out", "--engine", "slurm", "--workers", 2, "-q",
        "--slurm", "partition=nope",
    )  # fmt: skip
    reason = "invalid partition specified: nope; Batch job submission failed: Invalid partition"
    assert done.returncode == 1
    assert done.stderr == f"llmcurate: sbatch rejected the jobs: {reason} name specified\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--slurm", "time=5"], "--slurm needs --engine slurm: give it as well"),
        (["--engine", "slurm"], "--engine slurm needs --workers N, the number of jobs"),
        (
            ["--engine", "slurm", "--slurm", "time="],
            "--slurm 'time=': give KEY=VALUE, such as partition=cpu or time=120",
        ),
        (
            ["--engine", "slurm", "--slurm", "time=5\n#SBATCH --uid=0"],
            "--slurm 'time=5\\n#SBATCH --uid=0': give KEY=VALUE, such as partition=cpu or time=120",
        ),
        (
            ["--engine", "slurm", "--slurm", "array=0-9"],
            "--slurm array=0-9: array is set by llmcurate; --workers sets the number of jobs",
        ),
    ],
)
def test_wrong_options_are_a_one_line_error(bench, arguments, message):
    source = bench.jsonl("in.jsonl", pages(3))
    done = bench.command("dedup", source, "-o", "out", *arguments)
    assert done.returncode == 2 and done.stderr.splitlines()[-1] == f"llmcurate: {message}"


def test_without_submitit_or_sbatch_the_line_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = SlurmEngine(1, None, Jobs((), tmp_path))
    with pytest.raises(UsageError, match=r"sbatch is missing here: .* --slurm cluster=local"):
        list(engine.map(WORK, [{"part": 0}], dict))
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UsageError, match=r"needs submitit: pip install"):
        list(engine.map(WORK, [{"part": 0}], dict))


def test_jobs_of_a_cluster_are_no_processes_of_the_drivers_machine():
    """Products are made on the driver's machine, with as many processes as that has cores."""
    assert Options(10_000, engine="slurm").count() == Options().count()
    assert Options(10_000).count() == 10_000
