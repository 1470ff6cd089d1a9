"""Loss spikes: the rule, and the three things that can be done."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch
from safetensors.torch import load_file

import train.loop.training_step
import train.objectives.losses
from llmcurate.base.disk.sealed_json import encode_json, seal
from llmcurate.base.errors import LlmcurateError
from tests.train.data.feed_settings import TWO_LAYERS
from train.config import TrainConfig
from train.loop.pretrain import pretrain
from train.loop.training import MAX_SPIKES, Guard, PassedOver
from train.runs.checkpoint import complete

TRAIN = TrainConfig(
    steps=16,
    rows=4,
    context=32,
    warmup=2,
    eval_every=8,
    checkpoint_every=4,
    spike_window=5,
    spike_factor=30.0,
    device="cpu",
)
BAD = (9, 12)  # steps, counted from 0, whose batches are poisoned


@pytest.fixture
def poisoned(monkeypatch):
    """The loss of some batches is twenty times as large."""
    torch.set_num_threads(1)
    stepped, sums = train.loop.training_step.Stepper.step, train.objectives.losses.loss_sums
    now = []

    def noted(self, step, *arguments):
        now[:] = [step]
        return stepped(self, step, *arguments)

    def bad(*arguments, **named):
        loss, nats, squares = sums(*arguments, **named)
        times = 20 if now[0] in BAD else 1
        return loss * times, nats * times, squares

    monkeypatch.setattr(train.loop.training_step.Stepper, "step", noted)
    monkeypatch.setattr(train.objectives.losses, "loss_sums", bad)


def run(shards, out, **changes):
    return pretrain(shards, out, model=TWO_LAYERS, train=dataclasses.replace(TRAIN, **changes))


def lines(out):
    log = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for line in log:
        del line["timing"]
    return log


def weights(out):
    return load_file(complete(out / "checkpoints")[-1] / "model.safetensors")


def same(a, b):
    assert lines(a) == lines(b)
    assert all(torch.equal(value, weights(b)[name]) for name, value in weights(a).items())


def test_a_spike_is_over_the_median_by_so_many_deviations():
    guard = Guard(TrainConfig(spike_window=5, spike_factor=2.0))
    steady = [1.0, 1.2, 1.1, 1.3, 1.0]
    assert [guard.reason(step, loss, 1.0) for step, loss in enumerate(steady)] == [None] * 5
    assert guard.reason(5, 1.3, 1.0) is None  # median 1.1, MAD 0.1; kept: it moves the window on
    assert "median 1.200 + 2 x MAD 0.100" in guard.reason(6, 1.41, 1.0)
    assert guard.reason(7, 1.39, 1.0) is None  # the spike is not in the window
    assert guard.spikes == [6]


def test_a_loss_at_the_bound_is_no_spike_and_steady_losses_have_a_least_deviation():
    """Of numbers that are exact in binary; a MAD of 0 counts as 0.001."""
    guard = Guard(TrainConfig(spike_window=3, spike_factor=2.0))
    assert [guard.reason(step, loss, 1.0) for step, loss in enumerate([1.0, 1.5, 2.0])] == [
        None
    ] * 3
    assert guard.reason(3, 2.5, 1.0) is None  # median 1.5, MAD 0.5: 2.5 is not over it
    assert guard.reason(4, 3.0 + 2**-20, 1.0) is not None  # median 2, MAD 0.5
    steady = Guard(TrainConfig(spike_window=3, spike_factor=2.0))
    assert [steady.reason(step, 1.0, 1.0) for step in range(3)] == [None] * 3
    assert steady.reason(3, 1.0021, 1.0) and not steady.reason(4, 1.0019, 1.0)


def test_a_spike_is_counted_for_as_many_steps_as_the_window_has():
    guard = Guard(TrainConfig(spike_window=3))
    for step in (0, 2, 3, 5):
        guard.reason(step, math.nan, 1.0)
    assert guard.spikes == [3, 5]  # 2 is three steps back


def test_before_the_window_is_full_and_without_a_factor_only_numbers_are_asked_for():
    guard, without = Guard(TrainConfig(spike_factor=2.0)), Guard(TrainConfig())
    assert guard.reason(0, 1.0, 1.0) is None and guard.reason(1, 900.0, 1.0) is None
    assert all(without.reason(step, 10.0**step, 1.0) is None for step in range(100))
    for loss, norm in ((math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan), (1.0, math.inf)):
        assert "not a finite number" in without.reason(200, loss, norm)


def test_the_state_of_a_spike_guard_survives_json():
    guard, other = (Guard(TrainConfig(spike_window=3)) for _ in range(2))
    for step, loss in enumerate([1.1, 1.2, math.nan, 1.3, 0.1 + 0.2]):
        guard.reason(step, loss, 1.0)
    other.load(json.loads(json.dumps(guard.dump())))
    assert other.dump() == guard.dump() == {"losses": [1.2, 1.3, 0.1 + 0.2], "spikes": [2]}
    for wrong in ({}, {"losses": ["x"], "spikes": []}, {"losses": None, "spikes": []}):
        with pytest.raises(ValueError):
            other.load(wrong)


def test_by_default_the_run_stops_and_tells_the_documents(shard_folder, tmp_path, poisoned):
    with pytest.raises(
        LlmcurateError, match=r"step 10: loss .* is over .*documents: doc-\d+"
    ) as caught:
        run(shard_folder, tmp_path)
    assert caught.value.exit_code == 1 and "\n" not in str(caught.value)
    assert [line["step"] for line in lines(tmp_path)][-1] == 9
    assert complete(tmp_path / "checkpoints")[-1].name == "step-0000008"


def test_a_skipped_step_leaves_the_weights_and_tells_the_documents(
    shard_folder, tmp_path, poisoned
):
    summary = run(shard_folder, tmp_path, spike="skip", checkpoint_every=1, keep_checkpoints=99)
    log = lines(tmp_path)
    assert [line["step"] for line in log if "skipped" in line] == [10, 13]
    assert summary["skipped_steps"] == 2
    assert all(name.startswith("doc-") for name in log[9]["documents"])
    before, after, next_ = (
        load_file(tmp_path / "checkpoints" / f"step-{step:07d}" / "model.safetensors")
        for step in (9, 10, 11)
    )
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert not torch.equal(after["stack.norm.weight"], next_["stack.norm.weight"])
    assert log[-1]["loss"] < log[0]["loss"]


def test_a_rollback_passes_over_the_spikes_data(shard_folder, tmp_path, poisoned):
    run(shard_folder, tmp_path, spike="rollback", spike_batches=2)
    log = lines(tmp_path)
    assert [line["step"] for line in log] == list(range(1, 17))
    # Step 12 is in the checkpoint it went back to, and stays done.
    assert [line["step"] for line in log if "skipped" in line] == [9, 10, 13]
    assert log[8]["skipped"].startswith("passed over: step 10: loss")
    spikes = json.loads((tmp_path / "spikes.json").read_bytes())["spikes"]
    assert [(spike["from"], spike["step"]) for spike in spikes] == [(9, 10), (13, 13)]
    assert all(name.startswith("doc-") for name in spikes[0]["documents"])


def test_a_rollback_before_the_first_checkpoint_begins_again(shard_folder, tmp_path, poisoned):
    changes = {"spike": "rollback", "checkpoint_every": 16, "eval_every": 16}
    run(shard_folder, tmp_path / "often", **changes, log_every=1)
    run(shard_folder, tmp_path / "seldom", **changes, log_every=16)
    same(tmp_path / "often", tmp_path / "seldom")
    assert [line["step"] for line in lines(tmp_path / "often") if "skipped" in line] == [10, 13]


@pytest.mark.parametrize("policy", ["skip", "rollback"])
def test_a_run_stopped_after_a_spike_continues_with_the_same_bits(
    shard_folder, tmp_path, poisoned, policy
):
    run(shard_folder, tmp_path / "straight", spike=policy)

    class Stop(Exception):
        pass

    def progress(line):
        if line["step"] == 14:
            raise Stop

    plan = dataclasses.replace(TRAIN, spike=policy)
    with pytest.raises(Stop):
        pretrain(shard_folder, tmp_path / "out", model=TWO_LAYERS, train=plan, on_progress=progress)
    pretrain(shard_folder, tmp_path / "out", model=TWO_LAYERS, train=plan)
    same(tmp_path / "out", tmp_path / "straight")


@pytest.mark.parametrize("policy", ["skip", "rollback"])
def test_spike_after_spike_stops_whatever_the_policy(shard_folder, tmp_path, monkeypatch, policy):
    sums = train.objectives.losses.loss_sums

    def broken(*arguments, **named):
        loss, nats, squares = sums(*arguments, **named)
        return loss * math.nan, nats * math.nan, squares

    monkeypatch.setattr(train.objectives.losses, "loss_sums", broken)
    with pytest.raises(
        LlmcurateError, match=f"{MAX_SPIKES + 1} of the last 16 steps were spikes: lower lr"
    ):
        run(shard_folder, tmp_path, spike=policy, spike_window=16)


def test_another_policy_may_go_on_after_a_stop(shard_folder, tmp_path, poisoned):
    with pytest.raises(LlmcurateError):
        run(shard_folder, tmp_path)
    run(shard_folder, tmp_path, spike="skip")
    assert [line["step"] for line in lines(tmp_path) if "skipped" in line] == [10, 13]


def test_a_damaged_list_of_spikes_is_named(shard_folder, tmp_path):
    (tmp_path / "spikes.json").write_text('{"spikes": [{"step": "x"}]}')
    with pytest.raises(LlmcurateError, match=r"spikes.json: cannot be read .*delete it"):
        run(shard_folder, tmp_path)


def test_a_list_of_spikes_takes_no_memory_for_the_steps_it_claims(tmp_path):
    spike = {"from": 3, "step": 1 << 62, "reason": "loss nan", "documents": []}
    path = tmp_path / "spikes.json"
    path.write_bytes(encode_json(seal({"version": 1, "spikes": [spike]})))
    passed = PassedOver(path)
    assert passed.reason(1) is None
    assert passed.reason(2) == f"passed over: step {1 << 62}: loss nan"
