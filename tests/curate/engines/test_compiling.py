"""While workers compile kernels one more process may help, and the user is told."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from curate.engines import worker
from curate.engines.local import LocalEngine
from llmcurate.base.terminal import Progress, show_note


def compile_with_help(payload: dict) -> dict:
    """Says that it compiles, and waits until somebody has helped, if that is expected."""
    folder = Path(payload["folder"])
    worker.offer_help(f"{__name__}:{payload['help']}", payload)
    for _ in range(3):
        worker._compiling()
    worker.ready("c4", 2)
    deadline = time.monotonic() + 60
    while payload["helped"] and not list(folder.glob("helped-*")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return {"pid": os.getpid(), "helpers": [p.name for p in folder.glob("helped-*")]}


def help_with_kernels(payload: dict) -> None:
    Path(payload["folder"], f"helped-{os.getpid()}").touch()


def help_and_die(payload: dict) -> None:
    help_with_kernels(payload)
    os.abort()


def result_of(folder: Path, helper: bool, help_by: str = "help_with_kernels") -> dict:
    payload = {"folder": str(folder), "help": help_by, "helped": helper}
    with LocalEngine(1, helper=helper) as engine:
        ((_, result),) = engine.map(f"{__name__}:compile_with_help", [payload], dict)
        assert engine.kernels == 3
        ((_, again),) = engine.map(f"{__name__}:compile_with_help", [payload], dict)
        assert again["pid"] == result["pid"], "the helper takes no tasks"
        assert engine.kernels == 6
    return result


def test_one_other_process_helps_to_compile(tmp_path):
    result = result_of(tmp_path, helper=True)
    (helper,) = result["helpers"]
    assert helper != f"helped-{result['pid']}"
    assert len(list(tmp_path.iterdir())) == 1


def test_no_more_processes_work_than_were_asked_for(tmp_path):
    assert result_of(tmp_path, helper=False)["helpers"] == []


def test_a_dying_compile_helper_does_not_affect_the_task(tmp_path):
    assert len(result_of(tmp_path, helper=True, help_by="help_and_die")["helpers"]) == 1


def test_a_line_says_how_far_the_kernels_are(tmp_path, capsys):
    with Progress("00-c4", 7):
        result_of(tmp_path, helper=False)
    line = capsys.readouterr().err.splitlines()[0]
    assert line == "00-c4: 0 of 7, compiling kernels once, 1 so far, kept for later runs"


@pytest.mark.parametrize("quiet", [False, True])
def test_a_note_is_printed_where_progress_is_shown(capsys, quiet):
    show_note("nobody looks")
    with Progress("outer", 2, quiet=True), Progress("inner", 3, quiet) as progress:
        progress.update()
        show_note("waiting")
        show_note("within ten seconds of the last line")
    assert capsys.readouterr().err == ("" if quiet else "inner: 1 of 3, waiting\n")
