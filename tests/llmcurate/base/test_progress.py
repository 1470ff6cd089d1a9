"""The progress bar and its time left."""

from __future__ import annotations

import io
import sys

import pytest
import rich.console

from llmcurate.base.terminal import Progress


@pytest.fixture
def clock(monkeypatch):
    """Seconds that the terminal's clock shows, in a list of one."""
    now = [0.0]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(rich.console, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("done", [0, 4])
def test_the_time_left_ignores_the_time_before_the_first_item(clock, done):
    """As kernels that compile, in a run that begins and in one that resumes."""
    with Progress("stage", 20, done=done) as progress:
        clock[0] = 1000.0
        progress.update()
        for _ in range(3):
            clock[0] += 50.0
            progress.update()
        (bar,) = progress._bar.tasks
    assert bar.completed == done + 4
    assert bar.time_remaining == pytest.approx(50.0 * (20 - done - 4))


def test_a_line_of_a_log_says_what_is_left_where_the_work_knows_it(monkeypatch, capsys):
    monkeypatch.setattr("llmcurate.base.terminal.LOG_SECONDS", 0.0)
    with Progress("pretrain", 400) as progress:
        progress.update(10, "loss 5.123, 9,000 tokens/s", 90.0)
        progress.update(400)
    assert capsys.readouterr().err.splitlines() == [
        "pretrain: 10 of 400, loss 5.123, 9,000 tokens/s, 1.5 min left",
        "pretrain: 400 of 400",
    ]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_bar_keeps_step_time_left_and_rate(clock, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    with Progress("pretrain", 10_000) as progress:
        for step in (100, 200):
            clock[0] += 100.0
            progress.update(step, "loss 7.341, 53,666 tokens/s, 0.0579 TFLOP/s")
        console = rich.console.Console(file=io.StringIO(), width=columns)
        console.print(progress._bar.get_renderable())
    line = console.file.getvalue()
    assert line.startswith("pretrain ") and line.count("\n") == 1
    assert "200/10000" in line and "2:43:20" in line and "loss 7.341, 53,666 tokens/s" in line


def test_a_title_has_the_room_of_the_terminal(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with Progress("url_filter to fineweb_quality", 20) as progress:
        progress.update(3, "9 documents/s")
        (bar,) = progress._bar.tasks
        assert bar.description == "url_filter to fineweb_quality"
        assert bar.fields["note"] == "9 documents/s"
