"""The trace of some steps, on request."""

from __future__ import annotations

import json

import pytest

from train.config import TrainConfig
from train.loop.pretrain import pretrain


def traced(out):
    events = json.loads((out / "profile" / "trace.json").read_text())["traceEvents"]
    marks = {event["name"] for event in events if "ProfilerStep#" in event.get("name", "")}
    return sorted(marks), {event.get("name") for event in events}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (5, ["ProfilerStep#2", "ProfilerStep#3"]),  # after two
        (2, ["ProfilerStep#0", "ProfilerStep#1"]),  # all that there are
    ],
)
def test_the_steps_asked_for_are_traced_and_change_nothing(shard_folder, tmp_path, steps, expected):
    def run(out, **changes):
        train = TrainConfig(
            steps=steps,
            rows=2,
            context=32,
            eval_every=9,
            checkpoint_every=9,
            device="cpu",
            **changes,
        )
        return pretrain(shard_folder, out, train=train)

    summary = run(tmp_path / "traced", profile=2)
    marks, names = traced(tmp_path / "traced")
    assert marks == expected
    assert any("aten::mm" in str(name) for name in names)
    assert summary["last_loss"] == run(tmp_path / "plain")["last_loss"]
    assert not (tmp_path / "plain" / "profile").exists()
