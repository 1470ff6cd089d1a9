"""What a refresh tells cron, systemd, logs, hooks and metrics; and the schedules that ship."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.curate.command_line import ROOT, environment
from tests.curate.refresh.growing import Home

SCHEDULE = ROOT / "pipelines" / "schedule"
RECIPE = "steps:\n  - dedup_exact\n"


@pytest.fixture
def place(bench):
    """A working folder as the schedules want one: a recipe, inputs, and the command on PATH."""
    (bench.folder / "fineweb").write_text(RECIPE)
    bench.jsonl("incoming/a.jsonl", [{"text": "One."}, {"text": "Two."}, {"text": "One."}])
    shim = bench.folder / "bin" / "llmcurate"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m curate.cli.app "$@"\n')
    shim.chmod(0o755)
    return bench


def scheduled(bench, line: str, path: str) -> subprocess.CompletedProcess[str]:
    """Runs a line by sh as cron does, in the test's folder instead of /srv/llmcurate."""
    line = line.replace("/srv/llmcurate", shlex.quote(str(bench.folder)))
    env = {**environment(), "PATH": f"{bench.folder / 'bin'}:{path}"}
    run = ["sh", "-c", line]
    return subprocess.run(run, env=env, cwd=bench.folder, capture_output=True, text=True)


@pytest.mark.slow  # the unit below runs the same command
def test_the_crontabs_line_refreshes_and_is_silent_when_nothing_is_new(place):
    lines = [s for s in (SCHEDULE / "crontab").read_text().splitlines() if s and s[0] != "#"]
    path = next(s for s in lines if s.startswith("PATH=")).removeprefix("PATH=")
    (entry,) = [s for s in lines if not s.startswith("PATH=")]
    command = entry.split(None, 5)[5]
    assert "%" not in command  # which cron makes a new line
    done = scheduled(place, command, path)
    assert done.returncode == 0, done.stderr
    assert "3 documents read, 2 kept; corpus 2 documents" in done.stdout
    assert done.stdout.count("\n") == 1 and done.stderr == ""
    again = scheduled(place, command, path)
    assert (again.returncode, again.stdout, again.stderr) == (3, "", "")
    assert "llmcurate_refresh_corpus_documents" in (place.folder / "home.prom").read_text()


def unit(name: str) -> dict[str, str]:
    lines = (SCHEDULE / name).read_text().splitlines()
    return dict(s.split("=", 1) for s in lines if "=" in s and not s.startswith("#"))


def test_the_units_command_runs_and_its_exit_codes_are_no_failures(place):
    service = unit("llmcurate-refresh.service")
    assert service["SuccessExitStatus"].split() == ["3", "75", "143"]
    assert service["WorkingDirectory"] == "/srv/llmcurate"
    done = scheduled(place, f"exec {service['ExecStart']}", os.defpath)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert lines[-1]["kept"] == 2 and lines[-1]["level"] == "info"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_finds_the_units_in_order(tmp_path):
    for name in ("llmcurate-refresh.service", "llmcurate-refresh.timer"):
        shutil.copy(SCHEDULE / name, tmp_path)
    paths = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True
    )
    complaints = [s for s in done.stderr.splitlines() if "llmcurate" in s]
    assert done.returncode == 0 and complaints == [], done.stderr


def test_a_failure_calls_the_command_and_keeps_the_last_success(bench):
    home = Home(bench, [{"dedup_exact": {}}])
    (bench.folder / "r.yaml").write_text(RECIPE)
    source = bench.jsonl("a.jsonl", [{"text": "One."}])
    prom = bench.folder / "x.prom"
    first = bench.command(
        "refresh", "r.yaml", source, "-o", home.path, "--metrics", prom, "--json", "-q"
    )
    assert first.returncode == 0 and json.loads(first.stdout)["corpus_documents"] == 1
    before = dict(s.rsplit(" ", 1) for s in prom.read_text().splitlines() if s[0] != "#")
    source.unlink()
    options = ["--on-failure", 'echo "$LLMCURATE_EXIT_CODE $LLMCURATE_ERROR" > told; exit 4']
    done = bench.command("refresh", "r.yaml", source, "-o", home.path, "--metrics", prom, *options)
    assert done.returncode == 2 and "a.jsonl does not exist" in done.stderr
    assert "--on-failure: the command ended with exit code 4" in done.stderr
    assert (bench.folder / "told").read_text().startswith("2 input")
    after = dict(s.rsplit(" ", 1) for s in prom.read_text().splitlines() if s[0] != "#")
    name = f'llmcurate_refresh_%s{{home="{home.path}"}}'
    assert float(after[name % "exit_code"]) == 2
    for kept in ("last_success_timestamp_seconds", "corpus_documents", "documents_kept"):
        assert after[name % kept] == before[name % kept]
    assert list(bench.folder.glob("x.prom*")) == [prom]


def test_logs_as_jsonl_include_the_error(bench):
    (bench.folder / "r.yaml").write_text(RECIPE)
    done = bench.command("refresh", "r.yaml", "none.jsonl", "-o", "home", "--logs", "json")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 2 and [s["level"] for s in lines] == ["error"]
    assert "none.jsonl does not exist" in lines[0]["message"] and lines[0]["exit_code"] == 2
    assert not Path(bench.folder, "home/corpus").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "home"), "give a recipe"),
        (("c4", "a.jsonl", "-o", "home", "--changed", "maybe"), "choose one of leave, new, skip"),
        (("c4", "a.jsonl", "-o", "home", "--logs", "xml"), "choose one of text, json"),
        (("-o", "home", "--rollback", "parent"), "is no folder of `llmcurate refresh`"),
        (("c4", "-o", "home"), "name inputs"),
        (("c4", "a.paths.gz", "-o", "home"), "a.paths.gz"),
    ],
    ids=lambda value: "-".join(value[-2:]) if isinstance(value, tuple) else "",
)
def test_wrong_use_is_a_one_line_error(bench, arguments, message):
    (bench.folder / "c4").write_text(RECIPE)
    (bench.folder / "a.paths.gz").write_bytes(b"\x1f\x8b\x08damaged")
    done = bench.command("refresh", *arguments)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1
