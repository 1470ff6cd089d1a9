"""The time that a run says is left."""

from __future__ import annotations

import pytest

from train.config import Stage, TrainConfig
from train.loop import training
from train.loop.pretrain import pretrain
from train.measure.accounting import flops_per_token
from train.model.presets import preset

MODEL = preset("tiny", vocab=300, context=64)


@pytest.fixture
def clock(monkeypatch):
    """Seconds that the run's clock shows, in a list of one."""
    now = [0.0]
    monkeypatch.setattr(training.time, "perf_counter", lambda: now[0])
    return now


def test_the_time_left_follows_the_pace_after_the_first_figures(clock):
    left = training.Pace(MODEL, TrainConfig(steps=100, context=64), 20)
    clock[0] = 70.0  # as with kernels that compile
    assert left.left(30) == pytest.approx(70 * 7)
    clock[0] += 20.0
    assert left.left(40) == pytest.approx(2.0 * 60)
    clock[0] += 60.0
    assert left.left(60) == pytest.approx(80 / 30 * 40)
    assert left.left(100) == 0.0


def test_steps_of_a_later_stage_count_by_their_operations(clock):
    stages = (Stage(steps=20, context=16, rows=1), Stage(steps=10, context=64, rows=2))
    train = TrainConfig(steps=30, context=64, stages=stages)
    left = training.Pace(MODEL, train, 0)
    clock[0] = 10.0
    later = 10 * 128 * flops_per_token(MODEL, 64) / (10 * 16 * flops_per_token(MODEL, 16))
    assert left.left(10) == pytest.approx(10.0 + 10.0 * later)


def test_the_time_of_a_step_that_compiles_is_no_pace(clock):
    left = training.Pace(MODEL, TrainConfig(steps=100, context=64, compile=True), 20)
    clock[0] = 70.0
    assert left.left(21) is None
    clock[0] += 20.0
    assert left.left(41) == pytest.approx(59.0)


def test_a_long_compilation_says_so_again_and_again_and_a_short_one_says_nothing():
    lines = []
    with training.compiling(lines.append, first=0.02):
        while len(lines) < 3:
            pass
    assert [line.partition(",")[0] for line in lines[:3]] == ["compiling the model"] * 3
    assert lines[-1].startswith("compiled in ") and "cache" in lines[-1]
    before = [*lines]
    with training.compiling(lines.append, 3600.0):
        pass
    assert lines == before


def test_every_line_of_progress_has_speed_and_time_left(shard_folder, tmp_path, capsys):
    from train.__main__ import _say

    train = TrainConfig(
        steps=4, rows=2, context=32, log_every=1, eval_every=4, checkpoint_every=4, device="cpu"
    )
    lines = []
    pretrain(shard_folder, tmp_path, train=train, on_progress=lines.append)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    left = [line["seconds_left"] for line in lines]
    assert all(seconds > 0 for seconds in left[:-1]) and left[-1] == 0
    _say(lines[0] | {"seconds_left": 3725.4})
    assert capsys.readouterr().err.endswith(" tokens/s, 1:02:05 left\n")
    of_text = pretrain(shard_folder, tmp_path, train=train)["epochs"]
    assert [line["epochs"] for line in lines] == pytest.approx(
        [of_text * n / 4 for n in (1, 2, 3, 4)]
    )
    assert all(line["timing"]["memory"] > 1 << 20 for line in lines)
    _say(lines[0] | {"seconds_left": None})
    assert capsys.readouterr().err.endswith(" tokens/s\n")
    assert "seconds_left" not in (tmp_path / "metrics.jsonl").read_text()
