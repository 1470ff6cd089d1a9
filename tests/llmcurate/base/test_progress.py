"""The bar of a long work, and the time that it says is left."""

from __future__ import annotations

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
def test_what_comes_before_the_first_is_in_no_forecast_of_the_others(clock, done):
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
