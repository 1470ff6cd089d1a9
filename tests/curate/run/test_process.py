"""The process of a run: killed, interrupted, locked out, out of disk space."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from curate.inspect.report.store import opened
from curate.run.ledger import Ledger
from llmcurate.base.errors import LockHeld, RunFailed
from tests.curate.capabilities import permissions_count
from tests.curate.file_limit import file_limit

ROOT = Path(__file__).resolve().parents[3]
PLUGINS = Path(__file__).parents[1] / "engines/plugins"


@pytest.fixture
def stopping(bench, monkeypatch):
    """A run whose worker waits for ever at one document, started and at work."""
    monkeypatch.setenv("PYTHONPATH", str(PLUGINS))
    monkeypatch.syspath_prepend(str(PLUGINS))
    recipe = {"steps": ["crash", "dedup_exact"], "read": {"partition_bytes": 2000}}
    (bench.folder / "r.yaml").write_text(json.dumps(recipe))
    rows = [{"id": f"d{i}", "text": f"text {i} " + "x" * 100} for i in range(100)]
    rows[60]["text"] += " STOP"
    bench.jsonl("in.jsonl", rows)
    started = []

    def start(out: str = "out") -> subprocess.Popen[str]:
        process = bench.start("run", "r.yaml", "in.jsonl", "-o", out, "--workers", "2")
        started.append(process)
        deadline = time.monotonic() + 30
        while len(list(bench.folder.glob(f"{out}/stages/00-*/part-*.kept.parquet"))) < 3:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        return process

    yield start
    for process in started:  # its workers end with it
        process.kill()
        process.communicate()


def gone(processes: list[psutil.Process], seconds: float = 3) -> bool:
    return not psutil.wait_procs(processes, timeout=seconds)[1]


def finish(bench, out: str = "out") -> None:
    """The same run with a step that harms nobody."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(PLUGINS))
        patch.setenv("CALM", "1")
        result = bench.command("run", "r.yaml", "in.jsonl", "-o", out, "--workers", "1")
    assert result.returncode == 0, result.stderr


@pytest.mark.slow  # encoding, MinHash and training are killed in every run of the tests
def test_killed_twice_a_run_ends_with_the_same_bytes():
    script = ROOT / "scripts/kill_test.py"
    result = subprocess.run(
        [sys.executable, str(script), "--kills", "2", "--documents", "250"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 kills" in result.stdout


def test_interrupt_ends_the_run_and_its_workers_and_the_run_resumes(bench, stopping):
    process = stopping()
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) == 2
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    error = process.communicate(timeout=10)[1]
    assert process.returncode == 130
    assert time.monotonic() - began < 5
    assert gone(workers)
    assert "Traceback" not in error and len(error.splitlines()) <= 1
    assert not (bench.folder / "out/corpus").exists()
    done = {p: p.stat().st_mtime_ns for p in bench.folder.rglob("part-*.kept.parquet")}
    finish(bench)
    # What a worker had put in place when the interrupt came may be made once more.
    assert sum(p.stat().st_mtime_ns != t for p, t in done.items()) <= 2
    assert len(bench.ids()) == 100


def test_a_second_process_on_the_same_out_gets_75_and_the_holders_name(bench, stopping):
    holder = stopping()
    second = bench.command("run", "r.yaml", "in.jsonl", "-o", "out")  # in this process
    assert second.returncode == 75
    assert re.search(rf"process {holder.pid} on {re.escape(socket.gethostname())}", second.stderr)
    assert re.search(r"started 20\d\d-\d\d-\d\dT", second.stderr)
    assert len(second.stderr.splitlines()) == 1

    # Another OUT is free, and the holder is still at work.
    bench.jsonl("other.jsonl", [{"id": "a", "text": "x"}])
    assert bench.command("run", "r.yaml", "other.jsonl", "-o", "other").returncode == 0
    assert holder.poll() is None

    # A holder that died without a word is replaced.
    workers = psutil.Process(holder.pid).children(recursive=True)
    holder.kill()
    holder.wait()
    assert gone(workers)
    finish(bench)
    assert len(bench.ids()) == 100


def test_a_lock_of_another_process_with_the_same_number_is_taken_over(bench):
    source = bench.jsonl("in.jsonl", [{"id": "a", "text": "x"}])
    bench.run(["dedup_exact"], source)
    db = sqlite3.connect(bench.folder / "out/ledger.db")
    me = os.getppid()
    db.execute(
        "INSERT INTO lock VALUES (1, ?, ?, ?, 'long ago', ?)", (me, 1.0, socket.gethostname(), 1.0)
    )
    db.commit()
    db.close()
    assert bench.run(["dedup_exact"], source).nothing_new


@pytest.mark.parametrize("ahead", [-1000, 0, 100_000], ids=["behind", "same", "ahead"])
def test_a_silent_holder_on_another_host_is_taken_over_whatever_its_clock(tmp_path, ahead, capsys):
    Ledger(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as db:
        beat = time.time() + ahead
        db.execute("INSERT INTO lock VALUES (1, 1, 1.0, 'elsewhere', 'then', ?)", (beat,))
        db.commit()
    Ledger(tmp_path, stale=0.1).close()
    assert "process 1 on elsewhere, started then; watching it" in capsys.readouterr().err


def test_a_holder_on_another_host_that_writes_keeps_its_lock(tmp_path, monkeypatch):
    Ledger(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as db:
        db.execute("INSERT INTO lock VALUES (1, 1, 1.0, 'elsewhere', 'then', 5.0)")
        monkeypatch.setattr(time, "sleep", lambda s: db.execute("UPDATE lock SET beat = beat + 1"))
        with pytest.raises(LockHeld, match="process 1 on elsewhere, started then; wait for it"):
            Ledger(tmp_path)


def test_a_finished_run_for_reading_only_is_read_and_left_alone(bench):
    source = bench.jsonl("in.jsonl", [{"id": "a", "text": "x"}])
    out = bench.run(["dedup_exact"], source).out
    folders = [out, *filter(Path.is_dir, out.rglob("*"))]
    files = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    for path in (*files, *folders):
        path.chmod(0o500 if path in folders else 0o400)
    try:
        with permissions_count():
            assert bench.run(["dedup_exact"], source).nothing_new
            with pytest.raises(RunFailed, match=r"ledger\.db cannot be read or written .*readonly"):
                bench.run(["c4"], source)
            with opened(out, ".spill-browse") as store:
                assert store is not None
        assert files == {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    finally:
        for folder in folders:
            folder.chmod(0o700)


def test_a_damaged_ledger_is_named(bench):
    from llmcurate.base.errors import RunFailed

    source = bench.jsonl("in.jsonl", [{"id": "a", "text": "x"}])
    (bench.folder / "out").mkdir()
    (bench.folder / "out/ledger.db").write_bytes(b"not a database, but long enough " * 40)
    with pytest.raises(RunFailed, match=r"ledger\.db is damaged.*move it away"):
        bench.run(["dedup_exact"], source)


PRODUCTS = """\
steps:
  - dedup_exact
  - tokenizer: {vocab: 300}
  - shards
"""


def half_written(out: Path) -> list[str]:
    return [p.name for p in out.rglob("*") if p.name.startswith(".")]


@pytest.mark.parametrize(
    "limit", [8_000, *(pytest.param(n, marks=pytest.mark.slow) for n in (60_000, 300_000))]
)
def test_a_file_size_limit_is_one_line_and_resumes(bench, limit):
    rows = [{"id": f"d{i}", "text": os.urandom(400).hex()} for i in range(1000)]
    bench.jsonl("in.jsonl", rows)
    (bench.folder / "r.yaml").write_text(PRODUCTS)
    arguments = ("run", "r.yaml", "in.jsonl", "-o", "out", "-q")
    failed = bench.process(*arguments, **file_limit(limit))
    assert failed.returncode == 1
    assert len(failed.stderr.splitlines()) == 1
    assert "space" in failed.stderr and "again" in failed.stderr
    assert half_written(bench.folder / "out") == []
    assert not (bench.folder / "out/corpus").exists()
    if limit > 8_000:
        assert bench.process(*arguments).returncode == 0
        assert len(bench.ids()) == 1000


@pytest.fixture
def disk(bench):
    """A disk of its own that can be made larger; skipped where one cannot be mounted."""
    mount = bench.folder / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(mount)]
    try:
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("a small disk cannot be mounted here")
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def test_a_full_disk_is_one_line_and_resumes(bench, disk):
    rows = [{"id": f"d{i}", "text": os.urandom(400).hex()} for i in range(1000)]
    bench.jsonl("in.jsonl", rows)
    (bench.folder / "r.yaml").write_text(PRODUCTS)
    arguments = ("run", "r.yaml", "in.jsonl", "-o", disk / "out", "-q")
    failed = bench.command(*arguments)
    assert failed.returncode == 1
    assert "disk full" in failed.stderr and len(failed.stderr.splitlines()) == 1
    assert half_written(disk / "out") == []
    subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
    assert bench.command(*arguments).returncode == 0
    assert len(bench.ids("disk/out")) == 1000
