"""Runs of models with experts: what they report, how they go on, and how they begin from a dense
model."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.parameters import mostly_slow
from tests.train.loop.experts_settings import DENSE, MODEL, TRAIN
from tests.train.loop.small_runs import build, trained
from tests.train.loop.weights import weights
from train.lab.model.heads import mtp_features
from train.loop.distributed import check_split
from train.loop.pretrain import pretrain
from train.loop.start import load_start_weights, make_plan
from train.measure.accounting import active_parameters
from train.model.decoder import Decoder
from train.runs.checkpoint import complete, load_plan


def lines_of(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_a_run_reports_its_losses_and_the_loads_of_its_experts(shard_folder, tmp_path):
    summary = pretrain(shard_folder, tmp_path, model=MODEL, train=TRAIN)
    lines = lines_of(tmp_path)
    for line in lines:
        assert 0.9 < line["balance"] < 4 and line["router_z"] > 0 and 1 <= line["load"] <= 2
    assert ["loads" in line for line in lines] == [False, False, True] * 2
    shares = torch.tensor(lines[-1]["loads"])
    assert shares.shape == (2, 4)
    assert torch.allclose(shares.sum(-1), torch.ones(2))
    assert float(shares.max()) * 4 == pytest.approx(lines[-1]["load"])
    assert summary["loads"] == lines[-1]["loads"] and summary["load"] == lines[-1]["load"]
    assert summary["active_parameters"] == active_parameters(MODEL) < summary["parameters"]


@pytest.mark.parametrize(
    "changes",
    mostly_slow(
        [
            {"jitter": 0.1, "noisy": True, "capacity": 1.0, "random_second": True},
            {"bias_rate": 0.01, "scores": "sigmoid"},
            {},
        ],
        2,
    ),
)
def test_micro_batches_and_a_stop_change_nothing(changes, shard_folder, tmp_path):
    class Stop(Exception):
        pass

    def stop(line):
        if line["step"] == 5:
            raise Stop

    config = change(MODEL, {f"feed_forward.{n}": value for n, value in changes.items()}, "model")
    train = dataclasses.replace(TRAIN, log_every=1, ema=0.9)
    pretrain(shard_folder, tmp_path / "whole", model=config, train=train)
    with pytest.raises(Stop):
        pretrain(shard_folder, tmp_path / "out", model=config, train=train, on_progress=stop)
    pretrain(shard_folder, tmp_path / "out", model=config, train=train)
    for name, value in weights(tmp_path / "whole").items():
        assert torch.equal(value, weights(tmp_path / "out")[name]), name
    if "bias_rate" in changes:
        assert weights(tmp_path / "out")["stack.blocks.0.feed_forward.router.bias"].any()

    pretrain(
        shard_folder,
        tmp_path / "parts",
        model=config,
        train=dataclasses.replace(train, accumulate=2),
    )
    for one, other in zip(lines_of(tmp_path / "whole"), lines_of(tmp_path / "parts"), strict=True):
        for name in ("loss", "balance", "router_z"):
            assert one[name] == pytest.approx(other[name], rel=1e-4)


@pytest.fixture(scope="module")
def dense(shard_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dense") / "run"
    return trained(folder, build(DENSE), shard_folder / "tokenizer.json")


@pytest.mark.parametrize(
    "changes",
    [{}, {"top_k": 3, "scores": "sigmoid"}, {"every": 2}, {"routing": "hash", "top_k": 1}],
)
def test_copies_of_a_dense_feed_forward_compute_what_it_did(changes, dense, shard_folder):
    given = {"feed_forward": "experts", "feed_forward.count": 4}
    given |= {f"feed_forward.{name}": value for name, value in changes.items()}
    plan, _ = make_plan(shard_folder, str(dense), TRAIN, given)
    model, before = Decoder(plan.model), build(DENSE)
    model.initialise(0)
    load_start_weights(plan.start, model)
    tokens = torch.randint(300, (2, 32), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(model.eval()(tokens), before(tokens), atol=1e-5)
    assert len(plan.model.sparse) == (1 if "every" in changes else 2)


def test_modules_for_later_tokens_are_copied_too(shard_folder, tmp_path):
    config = change(DENSE, {"head.mtp": 1}, "model")
    run = trained(tmp_path / "run", before := build(config), shard_folder / "tokenizer.json")
    given = {"feed_forward": "experts", "feed_forward.count": 4}
    plan, _ = make_plan(shard_folder, str(run), TRAIN, given)
    model = Decoder(plan.model)
    model.initialise(0)
    load_start_weights(plan.start, model)
    assert model.mtp[0].block.feed_forward.up.shape == (4, 48, 32)
    tokens = torch.randint(300, (2, 32), generator=torch.Generator().manual_seed(0))
    (ours,), (theirs,) = (
        list(mtp_features(m, m.features(tokens), tokens)) for m in (model.eval(), before)
    )
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_upcycling_is_one_command_and_begins_with_the_dense_loss(dense, shard_folder, tmp_path):
    still = dataclasses.replace(TRAIN, steps=1, lr=1e-12)
    before = pretrain(shard_folder, tmp_path / "dense", model=str(dense), train=still)
    more = {"feed_forward": "experts", "feed_forward.count": 4}
    out = tmp_path / "experts"
    after = pretrain(shard_folder, out, model=str(dense), train=still, changes=more)
    assert after["first_loss"] == pytest.approx(before["first_loss"], rel=1e-6)
    scored = [lines_of(tmp_path / n)[-1]["held_out"]["loss"] for n in ("dense", "experts")]
    assert scored[1] == pytest.approx(scored[0], rel=1e-6)
    assert load_plan(complete(out / "checkpoints")[-1]).model.feed_forward.count == 4
    assert weights(out)["stack.blocks.0.feed_forward.router.weight"].any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward.width": 24}, "feed_forward.width is 24: .* need 48"),
        ({"feed_forward.normalise": False}, "feed_forward.normalise is False"),
        ({"feed_forward.shared_width": 8}, "feed_forward.shared_width is 8"),
        ({"layers": 3}, "its weights do not fit a model with other"),
    ],
)
def test_upcycling_that_would_change_the_output_is_refused(changes, message, dense, shard_folder):
    with pytest.raises(LlmcurateError, match=message) as caught:
        make_plan(shard_folder, str(dense), TRAIN, {"feed_forward": "experts"} | changes)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("setting", ["tensor", "context_parallel"])
def test_experts_are_not_shared_by_processes_that_read_the_same_rows(setting):
    with pytest.raises(LlmcurateError, match=f"^{setting} 2 with feed_forward experts: ") as caught:
        check_split(MODEL, dataclasses.replace(TRAIN, **{setting: 2}))
    assert caught.value.exit_code == 2
    check_split(MODEL, dataclasses.replace(TRAIN, parallel="fsdp"))


@pytest.mark.parametrize(
    ("changes", "other"),
    [
        ({}, "parallel ddp"),
        ({"parallel": "fsdp", "compile": True}, "compile"),
        ({"parallel": "fsdp", "replicas": 2}, "replicas 2"),
        ({"parallel": "fsdp", "offload": True}, "offload"),
    ],
)
def test_expert_parallel_is_of_fsdp_and_of_models_with_experts(changes, other):
    with pytest.raises(LlmcurateError, match=f"^expert_parallel with {other}: ") as caught:
        dataclasses.replace(TRAIN, expert_parallel=True, **changes)
    assert caught.value.exit_code == 2
    shared = dataclasses.replace(TRAIN, parallel="fsdp", expert_parallel=True)
    check_split(MODEL, shared)
    with pytest.raises(LlmcurateError, match=r"^expert_parallel: the model has no experts"):
        check_split(DENSE, shared)


def test_hashed_experts_train_without_a_router(shard_folder, tmp_path):
    given = {"feed_forward.routing": "hash", "feed_forward.top_k": 1, "feed_forward.router_z": 0.0}
    pretrain(shard_folder, tmp_path, model=change(MODEL, given, "model"), train=TRAIN)
    lines = lines_of(tmp_path)
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert lines[-1]["load"] >= 1 and "balance" not in lines[-1]


def test_experts_that_choose_train_an_encoder(shard_folder, tmp_path):
    given = {"causal": False, "vocab": 310, "feed_forward.routing": "expert_choice"}
    pretrain(shard_folder, tmp_path, model=change(MODEL, given, "model"), train=TRAIN)
    line = lines_of(tmp_path)[-1]
    assert line["router_z"] > 0 and "load" not in line
