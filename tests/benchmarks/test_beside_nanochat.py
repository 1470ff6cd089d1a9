"""The comparison with nanochat, whose place a small model with the same interface takes."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import beside_nanochat as beside
from train.loop.training_step import Stepper

SMALL = beside.Job(
    shards="",
    nanochat=str(beside.STAND_IN),
    steps=4,
    rows=2,
    context=32,
    depth=2,
    vocab=257,
    end_of_text=256,
    eval_tokens=2000,
    windows="L",
    lr_scale=None,
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> beside.Job:
    folder = beside.bytes_as_tokens(tmp_path_factory.mktemp("shards"))
    return dataclasses.replace(SMALL, shards=str(folder))


@pytest.fixture
def gpt(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in's module, as `nanochat.gpt`."""
    monkeypatch.syspath_prepend(str(beside.STAND_IN))
    import nanochat.gpt

    yield nanochat.gpt
    for name in [name for name in sys.modules if name.split(".")[0] == "nanochat"]:
        del sys.modules[name]


def test_both_read_the_same_rows_in_the_same_order(
    job: beside.Job, gpt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: dict[str, list[Tensor]] = {"nanochat": [], "llmcurate": []}
    forward, step = gpt.GPT.forward, Stepper.step

    def recorded(self: Any, idx: Tensor, targets: Tensor, **more: Any) -> Tensor:
        if self.training:
            read["nanochat"] += [idx, targets]
        return forward(self, idx, targets, **more)

    def stepped(self: Stepper, number: int, *more: Any) -> Any:
        for example, _ in self.batches(number):
            read["llmcurate"] += [example.inputs, example.targets]
        return step(self, number, *more)

    monkeypatch.setattr(gpt.GPT, "forward", recorded)
    monkeypatch.setattr(Stepper, "step", stepped)
    theirs, ours = beside.theirs(job), beside.ours(job)
    assert len(read["nanochat"]) == 2 * job.steps
    for one, other in zip(read["nanochat"], read["llmcurate"], strict=True):
        assert torch.equal(one, other)
    assert theirs["targets"] == ours["targets"] == job.steps * job.rows * job.context
    assert theirs["scored"] == ours["scored"]
    assert len(theirs["losses"]) == len(ours["losses"]) == job.steps


def test_a_model_that_does_not_learn_has_the_loss_of_chance(job: beside.Job, gpt: Any) -> None:
    figures = beside.theirs(dataclasses.replace(job, lr_scale=0.0))
    assert figures["held_out"] == pytest.approx(math.log(257), rel=1e-6)
    assert beside.theirs(job)["held_out"] < figures["held_out"]


def test_padding_is_not_scored(job: beside.Job, gpt: Any) -> None:
    """Documents are alone in their rows, so rows of 50 and of 32 tokens have different padding."""
    still = dataclasses.replace(job, lr_scale=0.0)
    first, second = beside.theirs(still), beside.theirs(dataclasses.replace(still, context=50))
    assert first["scored"] == second["scored"] <= job.eval_tokens


def test_rates_and_momentum_follow_nanochats_schedule() -> None:
    # 450 steps: a warm-up of 40, and a fall over the last 292.
    shares = [beside.rate_share(step, 450, 40) for step in (0, 19, 39, 40, 158, 304, 449)]
    last = 1 / 292 + 291 / 292 * 0.05
    assert shares == pytest.approx([1 / 40, 0.5, 1.0, 1.0, 1.0, 0.5 + 0.5 * 0.05, last])
    momenta = [beside.muon_momentum(step, 2000) for step in (0, 200, 400, 700, 1350, 2000)]
    assert momenta == pytest.approx([0.85, 0.91, 0.97, 0.97, 0.935, 0.90])


def test_only_groups_of_muon_change_momentum_and_weight_decay(job: beside.Job, gpt: Any) -> None:
    model = beside.their_model(job, 2, 257)
    optimizers = beside.their_optimizers(model, job, 257)
    muon, others = optimizers[0].param_groups
    begin = muon["weight_decay"]
    beside.set_rates(optimizers, step=2, job=job)  # of 4
    assert muon["momentum"] == pytest.approx(0.85 + 0.12 * 2 / 400)
    assert muon["weight_decay"] == pytest.approx(begin / 2)
    assert (others["momentum"], others["weight_decay"]) == (0, 0)
    scale = math.sqrt(2 * 32 / 2**19)
    assert others["initial_lr"] == pytest.approx(0.3 * scale)


def test_weight_decay_falls_with_the_weights_of_blocks_and_head(job: beside.Job, gpt: Any) -> None:
    decays = [
        beside.their_optimizers(beside.their_model(job, depth, 257), job, 257)[0].param_groups[0]
        for depth in (12, 2)
    ]
    weights = [beside.scaling_weights(beside.their_model(job, depth, 257)) for depth in (12, 2)]
    tuned = 0.28 * math.sqrt(2 * 32 / 2**19)
    assert decays[0]["weight_decay"] == pytest.approx(tuned)
    assert decays[1]["weight_decay"] == pytest.approx(tuned * weights[0] / weights[1])


def test_optimizers_of_earlier_versions_are_found(
    job: beside.Job, gpt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up = gpt.GPT.setup_optimizer
    monkeypatch.delattr(gpt.GPT, "setup_optimizer")
    monkeypatch.setattr(gpt.GPT, "setup_optimizers", lambda *a, **b: [set_up(*a, **b)], False)
    model = beside.their_model(job, 2, 257)
    (optimizer,) = beside.their_optimizers(model, dataclasses.replace(job, lr_scale=1.0), 257)
    assert [group["initial_lr"] for group in optimizer.param_groups] != []


def test_a_folder_that_is_not_nanochat_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["beside_nanochat.py", "shards", "--nanochat", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        beside.main()
    assert ended.value.code == 2
    assert f"{tmp_path}: no nanochat/gpt.py; give nanochat's main folder" in capsys.readouterr().err
