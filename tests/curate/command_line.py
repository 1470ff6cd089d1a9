"""Run the command line in this process or in a new one.

A new process loads libraries and kernels again, which takes longer than most commands.
"""

from __future__ import annotations

import functools
import io
import os
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import typer

from curate.cli import app as cli
from curate.engines import idle_workers
from tests.curate import forked_workers

idle_workers.spawn = forked_workers.spawn
ROOT = Path(__file__).resolve().parents[2]
_build = typer.main.get_command


@functools.cache
def app_command() -> Any:
    """The command line's parser, which takes a while to build; each call sets it up anew."""
    return _build(cli.whole_app())


def build_once(patch: pytest.MonkeyPatch) -> None:
    """Calls of the command line share their parser."""

    def build(of: typer.Typer) -> Any:
        return app_command() if of is cli.app else _build(of)

    patch.setattr(typer.main, "get_command", build)


def run_here(*arguments: Any, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The result of a command line in the folder cwd, called in this process.

    Its workers are processes that end with it; those that wait for other tests' runs stay alone.
    """
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2)]
    line = [str(a) for a in arguments if a != "--debug"]
    before = Path.cwd()
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(streams[0]),
        redirect_stderr(streams[1]),
    ):
        patch.setattr(idle_workers, "_waiting", [])
        patch.setattr(idle_workers, "_kept", 0)
        os.chdir(cwd or before)
        try:
            code = cli.invoke(line, debug="--debug" in arguments)
        except SystemExit as end:  # completion ends so
            code = int(end.code or 0)
        finally:
            os.chdir(before)
    out, err = (stream.detach().getvalue().decode() for stream in streams)
    return subprocess.CompletedProcess(line, code, out, err)


def completed_here(*words: str, cwd: Path | None = None) -> list[str]:
    """What bash is offered for the last word, asked in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["llmcurate"])
        patch.setenv("_LLMCURATE_COMPLETE", "complete_bash")
        patch.setenv("COMP_WORDS", " ".join(["llmcurate", *words]))
        patch.setenv("COMP_CWORD", str(len(words)))
        return run_here(cwd=cwd).stdout.split()


def printed_here(command: str, folder: Path, variables: dict[str, str]) -> list[str]:
    """The lines that a command of a page prints, called in this process; it must succeed. It
    sees the variables but for paths, which are those of programs."""
    name, *arguments = shlex.split(command)
    assert name == "llmcurate", command
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in variables.items():
            if variable not in ("PATH", "PYTHONPATH"):
                patch.setenv(variable, value)
        done = run_here(*arguments, cwd=folder)
    assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stderr}"
    return [line.rstrip() for line in done.stdout.rstrip().splitlines()]


def command_line(*arguments: Any) -> list[str]:
    """The command line as a process is started with it."""
    return [sys.executable, "-m", "curate.cli.app", *map(str, arguments)]


def environment() -> dict[str, str]:
    """The environment in which processes find this code."""
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
