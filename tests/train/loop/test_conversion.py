"""Runs that begin with a converted model say its held-out loss before and right after."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from train.config import TrainConfig
from train.loop.pretrain import pretrain
from train.objective_settings import Auto, Causal, Masked, Prefix
from train.runs.metrics import read_lines

TRAIN = TrainConfig(
    steps=2, rows=2, context=32, warmup=0, eval_every=2, eval_tokens=512, checkpoint_every=1,
    log_every=1, device="cpu", objective=Causal(),
)  # fmt: skip
SMALL = {"layers": 2, "hidden": 32, "attention.heads": 4, "attention.kv_heads": 4}
SMALL |= {"attention.head_dim": 8, "feed_forward.width": 48}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, shard_folder):
    """A decoder and an encoder of two layers, trained for a few steps."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs")
    few = dataclasses.replace(TRAIN, steps=20)
    pretrain(shard_folder, folder / "decoder", changes=SMALL, train=few)
    masked = dataclasses.replace(few, objective=Masked())
    encoder = SMALL | {"head.pair": "none"}
    pretrain(shard_folder, folder / "encoder", model="bert-tiny", changes=encoder, train=masked)
    return folder


def held_out(folder):
    return json.loads((folder / "train.json").read_text())["held_out_loss"]


@pytest.mark.lab
def test_fewer_keys_say_their_loss_in_the_log_the_summary_and_a_line(runs, shard_folder, tmp_path):
    said = []
    summary = pretrain(
        shard_folder, tmp_path, model=str(runs / "decoder"), train=TRAIN, on_notice=said.append,
        changes={"attention.kv_heads": 2},
    )  # fmt: skip
    converted = summary["converted"]
    assert converted["steps"] == ["4 key and value heads to 2"]
    assert converted["before"]["loss"] == pytest.approx(held_out(runs / "decoder"), abs=1e-5)
    assert converted["after"]["loss"] > converted["before"]["loss"]
    first, second = read_lines(tmp_path / "metrics.jsonl")
    assert first["converted"] == converted and "converted" not in second
    line = next(line for line in said if line.startswith("converted (4 key and value heads to 2)"))
    assert f"{converted['before']['loss']:.4f} before (causal)" in line
    again = pretrain(
        shard_folder, tmp_path, model=str(runs / "decoder"), train=TRAIN,
        changes={"attention.kv_heads": 2},
    )  # fmt: skip
    assert again["converted"] == converted


@pytest.mark.lab
@pytest.mark.parametrize(
    ("start", "changes", "objective", "steps", "before", "after"),
    [
        ("decoder", {}, Prefix(), ["objective causal to prefix"], "causal", "prefix"),
        (
            "decoder",
            {"causal": False},
            Masked(),
            [
                "vocabulary of 300 to 301",
                "a decoder to an encoder",
                "objective causal to masked",
            ],
            *("causal", "masked"),
        ),
        (
            "encoder",
            {"causal": True},
            Causal(),
            ["an encoder to a decoder", "objective masked to causal"],
            *("masked", "causal"),
        ),
        (
            "encoder",
            {"causal": True, "encoder.layers": 2},
            None,
            ["one stack to an encoder and a decoder"],
            *("masked", "spans"),
        ),
    ],
)
def test_training_continues_with_a_converted_model(
    start, changes, objective, steps, before, after, runs, shard_folder, tmp_path
):
    train = dataclasses.replace(TRAIN, objective=objective or Auto())
    summary = pretrain(
        shard_folder, tmp_path, model=str(runs / start), changes=changes, train=train
    )
    converted = summary["converted"]
    assert [step for step in steps if step in converted["steps"]] == steps
    assert converted["before"]["objective"] == before
    assert converted["before"]["loss"] == pytest.approx(held_out(runs / start), abs=1e-5)
    assert converted["after"]["loss"] > 0 and converted["after"]["objective"] == after


@pytest.mark.lab
def test_a_resumed_run_is_not_converted(runs, shard_folder, tmp_path):
    summary = pretrain(shard_folder, tmp_path, model=str(runs / "decoder"), train=TRAIN)
    assert "converted" not in summary


@pytest.mark.lab
def test_weights_that_do_not_fit_the_new_model_are_refused_before_writing(
    runs, shard_folder, tmp_path
):
    changes = {"causal": True, "encoder.layers": 3}
    train = dataclasses.replace(TRAIN, objective=Auto())
    with pytest.raises(LlmcurateError, match="do not fit a model with other"):
        pretrain(
            shard_folder,
            tmp_path / "out",
            model=str(runs / "encoder"),
            changes=changes,
            train=train,
        )
    assert not (tmp_path / "out").exists()
