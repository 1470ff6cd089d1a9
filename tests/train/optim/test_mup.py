"""muP: its rates, and no effect at the base width."""

from __future__ import annotations

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from train.config import TrainConfig
from train.hf.families import family_of
from train.loop.start import make_plan
from train.model.decoder import Decoder
from train.model.presets import preset
from train.optim.optimizers import optimizers

SMALL = change(
    preset("tiny", vocab=64, context=64),
    {
        "hidden": 32,
        "layers": 2,
        "attention": {"heads": 2, "kv_heads": 1, "head_dim": 16},
        "feed_forward.width": 80,
    },
    "model",
)


def test_at_its_base_width_mup_changes_nothing():
    models = [Decoder(change(SMALL, {"mup_base": base}, "model")) for base in (None, 32)]
    tokens = torch.arange(20)[None]
    for model in models:
        model.initialise(0)
        optimizer = optimizers(model, TrainConfig())
        model(tokens).square().mean().backward()
        optimizer.rate(0.01)
        optimizer.step()
    assert torch.equal(*(model(tokens) for model in models))


@pytest.mark.parametrize("optimizer", ["adamw", "lion"])
def test_matrices_have_their_rate_and_every_decay_is_that_of_the_run(optimizer):
    wide = {"hidden": 128, "attention": {"heads": 8, "kv_heads": 4}, "feed_forward.width": 320}
    model = Decoder(change(SMALL, {**wide, "mup_base": 32, "head.tied": False}, "model"))
    parts = optimizers(model, TrainConfig(optimizer=optimizer, weight_decay=0.2))
    parts.rate(0.01)
    rates = {
        id(weight): (group["lr"], group["lr"] * group["weight_decay"])
        for part in parts.parts
        for group in part.param_groups
        for weight in group["params"]
    }
    assert rates[id(model.stack.blocks[0].attention.out.weight)] == pytest.approx((0.0025, 0.002))
    assert rates[id(model.head.weight)] == pytest.approx((0.01, 0.002))
    assert rates[id(model.embedding.weight)] == (0.01, 0.0)


def test_mup_refuses_optimizers_and_exports_it_does_not_support(shard_folder):
    config = change(SMALL, {"vocab": 300, "mup_base": 16}, "model")
    with pytest.raises(LlmcurateError, match="muP's rates are those of adamw and lion"):
        make_plan(shard_folder, config, TrainConfig(context=32, optimizer="muon"))
    with pytest.raises(LlmcurateError, match=r"llama, but for mup_base 16 \(expected None\)"):
        family_of(config)
    assert family_of(change(config, {"mup_base": 32}, "model")).name == "llama"
