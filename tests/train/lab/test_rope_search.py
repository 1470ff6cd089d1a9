"""LongRoPE's search: factors within the paper's bounds, no worse than PI, NTK and YaRN."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from curate.cli.app import invoke
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import from_dict
from train.config import Stage, TrainConfig
from train.evaluate.judge import open_model
from train.lab.rope_search import evolve, older_scalings, rope_search, with_context
from train.loop.pretrain import pretrain
from train.model.attention_settings import Grouped
from train.model.config import ModelConfig
from train.model.encodings.alibi import Alibi
from train.model.feed_forward_settings import Dense
from train.model.position_settings import Rope, RopeScaling
from train.model.positions import rope_frequencies
from train.runs.checkpoint import complete, model_of

SHORT, LONG = 16, 64  # contexts
SMALL = ModelConfig(
    vocab=300,
    layers=2,
    hidden=32,
    context=SHORT,
    position=Rope(theta=500.0),
    attention=Grouped(heads=2, kv_heads=2, head_dim=16),
    feed_forward=Dense(width=64),
)


@pytest.fixture(scope="module")
def run(shard_folder, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    train = TrainConfig(steps=60, rows=8, context=SHORT, lr=0.01, warmup=5, device="cpu")
    pretrain(shard_folder, folder, model=SMALL, train=train)
    return folder


def search(run, shard_folder, **other):
    given = {"context": LONG, "evaluations": 100, "rows": 4, **other}
    return rope_search(open_model(run, device="cpu"), shard_folder, **given)


def test_what_is_found_is_better_than_the_older_scalings_where_it_was_searched(run, shard_folder):
    least: list[float] = []
    found = search(run, shard_folder, on_scored=least.append)
    scores = {name: score["search"] for name, score in found.scores.items()}
    assert scores["longrope"] < min(scores[name] for name in ("linear", "ntk", "yarn"))
    assert list(scores) == ["none", "linear", "ntk", "yarn", "longrope"]
    assert all(score["held_out"] > 0 for score in found.scores.values())
    assert found.evaluations == len(least) == 100
    assert least == sorted(least, reverse=True)
    assert least[-1] == pytest.approx(scores["longrope"], rel=1e-9)


def test_the_same_seed_finds_the_same_factors(run, shard_folder):
    one, again, other = (
        search(run, shard_folder, evaluations=70, seed=seed).scaling for seed in (3, 3, 4)
    )
    assert one == again != other


def test_the_factors_written_are_a_setting_of_a_model(run, shard_folder, tmp_path):
    found = search(run, shard_folder, evaluations=5, rows=2)
    factors = tmp_path / "factors.json"
    command = (
        f"model rope-search {run} --on {shard_folder} --context {LONG} --rows 2 --evaluations 5"
    )
    assert invoke([*command.split(), "-o", str(factors), "--device", "cpu", "-q"]) == 0
    written = factors.read_text()
    assert json.loads(written) == found.scaling
    out = tmp_path / "out"
    arguments = ["pretrain", shard_folder, "-o", out, "--model", run, "--context", LONG]
    arguments += ["--steps", 1, "--rows", 2, "--set", f"model.position.scaling={written}"]
    assert invoke([*map(str, arguments), "--device", "cpu", "-q"]) == 0
    config = model_of(complete(out / "checkpoints")[-1])
    assert config.context == LONG
    assert config.position.scaling.long == tuple(found.scaling["long"])
    stage = from_dict(Stage, {"steps": 1, "scaling": json.loads(written)}, "stage")
    assert stage.scaling == config.position.scaling


def test_every_scaling_tried_rises_within_the_papers_bounds_and_the_best_nears_the_least():
    start = older_scalings(replace(SMALL, context=64), 256).values()
    wanted = np.linspace(1.2, 4.8, 8)

    def score(scaling: RopeScaling) -> float:
        return float(np.square(np.array(scaling.long) - wanted).sum())

    tried = evolve(start, score, evaluations=1344, seed=0)
    assert len(tried) == 1344
    for scaling in tried:
        assert list(scaling.long) == sorted(scaling.long)
        assert scaling.long[0] >= 1 and scaling.long[-1] <= 1.25 * 4
    assert min(tried.values()) < 0.05 * min(map(score, start))


def test_a_loss_that_is_no_number_is_the_worst_and_few_scalings_end_the_search():
    start = older_scalings(replace(SMALL, attention=replace(SMALL.attention, head_dim=4)), 17)
    tried = evolve(start.values(), lambda scaling: float("nan"), evaluations=10**9, seed=0)
    assert set(tried.values()) == {float("inf")}


def test_the_older_scalings_have_the_frequencies_of_their_own_kinds():
    for kind, scaling in older_scalings(SMALL, LONG).items():
        own = RopeScaling(kind=kind, factor=LONG / SHORT, original_context=SHORT)
        expected, factor = rope_frequencies(with_context(SMALL, own, LONG))
        frequencies, same = rope_frequencies(with_context(SMALL, scaling, LONG))
        torch.testing.assert_close(frequencies, expected, rtol=1e-5, atol=0)
        assert same == factor


def test_models_and_contexts_that_cannot_be_searched_are_refused(run, shard_folder):
    with pytest.raises(LlmcurateError, match="context is 16, the model's is 16: give a longer one"):
        search(run, shard_folder, context=SHORT)
    with pytest.raises(LlmcurateError, match="0 texts of at least 9,999 tokens"):
        search(run, shard_folder, context=9999)
    scaled = Rope(scaling=RopeScaling(kind="linear", factor=2.0))
    for position in (Alibi(), scaled):
        with pytest.raises(LlmcurateError, match="not rope, or is already scaled"):
            older_scalings(replace(SMALL, position=position), LONG)
