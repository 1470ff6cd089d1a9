"""Runs from scripts and notebooks: light imports, worker processes, interrupts, error messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from llmcurate import Corpus
from llmcurate.base import terminal
from llmcurate.base.errors import UsageError
from tests.curate.command_line import environment
from tests.curate.conftest import Bench, pages


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A script that comes by standard input, so that it is in no file and guards nothing."""
    return subprocess.run(
        [sys.executable, "-"],
        input=code,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_importing_the_api_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom llmcurate import Corpus, Result, run_recipe\n"
        "heavy = {'torch', 'numba', 'pyarrow', 'pydantic', 'numpy', 'duckdb', 'yaml', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)), Corpus, run_recipe)"
    )
    done = python(code, tmp_path)
    assert done.stdout.startswith("[] <class 'curate.api.corpus.Corpus'>"), done


def test_a_script_without_a_main_guard_runs_on_two_workers(bench: Bench) -> None:
    for name in "ab":
        bench.jsonl(f"in/{name}.jsonl", [{**row, "id": name + row["id"]} for row in pages(30)])
    code = (
        "from llmcurate import Corpus\n"
        "corpus = Corpus.read('in', partition_bytes=1024).filter('document_length', min=5)\n"
        "result = corpus.run('out', workers=2, quiet=True)\n"
        "print(result.record['partitions'] > 1, result.counts['read'])\n"
    )
    done = python(code, bench.folder)
    assert (done.stdout, done.stderr) == ("True 60\n", "")


@pytest.mark.slow  # run/test_process.py interrupts a command
def test_an_interrupt_in_a_notebook_leaves_a_run_that_continues(bench: Bench, monkeypatch) -> None:
    bench.jsonl("in.jsonl", pages(40))
    run = "Corpus.read('in.jsonl', partition_bytes=1024).dedup('exact').run('out', workers=1)\n"
    code = (
        "import os, signal, sys\nsys.ps1 = 'In : '\n"  # as notebooks have it
        "from llmcurate import Corpus\n"
        "from curate.run.ledger import Ledger\n"
        "before = Ledger.commit_part\n"
        "def interrupted(*a, **k):\n"
        "    before(*a, **k)\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "Ledger.commit_part = interrupted\n"
        f"try:\n    {run}"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
        f"Ledger.commit_part = before\nprint(len(({run.strip()}).corpus))\n"
    )
    done = python(code, bench.folder)
    assert done.stdout.split()[0] == "interrupted", done
    assert "stopped; make the same call to resume" in done.stderr
    assert "resuming the unfinished run in out" in done.stderr
    corpus = Corpus.read(bench.folder / "in.jsonl", partition_bytes=1024).dedup("exact")
    corpus.run(bench.folder / "whole", workers=1, quiet=True)
    assert bench.bytes_of("out") == bench.bytes_of("whole")


def test_a_notebook_shows_an_error_as_one_line() -> None:
    assert UsageError("no such thing")._render_traceback_() == ["UsageError: no such thing"]


def test_a_notebook_redraws_one_line(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.setattr(terminal, "NOTEBOOK_SECONDS", 0.0)
    with terminal.Progress("c4", 3) as bar:
        bar.update(1, "12 kept")
        bar.update(2)
    assert capsys.readouterr().err == "\rc4: 1 of 3, 12 kept\rc4: 2 of 3         \n"


def test_the_same_call_again_says_that_all_is_done(bench: Bench, capsys) -> None:
    corpus = Corpus.read(bench.jsonl("in.jsonl", pages(10))).dedup()
    first = corpus.run(bench.folder / "out", workers=1)
    capsys.readouterr()
    assert corpus.run(bench.folder / "out", workers=1).counts == first.counts
    assert "nothing to do in" in capsys.readouterr().err
