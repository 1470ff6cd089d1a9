"""muP: outputs change by the same amount at every width, and not at all at the base width."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from train.config import TrainConfig
from train.hf.families import family_of
from train.loop.start import make_plan
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.presets import preset
from train.objectives.example import Example
from train.objectives.losses import Losses
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


WIDTHS = (32, 64, 128, 256)


def at_width(config: ModelConfig, width: int, base: int | None) -> ModelConfig:
    times = width // config.hidden
    sizes = {"heads": 2 * times, "kv_heads": times}
    changes = {"hidden": width, "mup_base": base, "attention": sizes}
    return change(config, changes | {"feed_forward.width": 80 * times}, "model")


def outputs(model: Decoder, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    seen = {}
    named = {"first block": model.stack.blocks[0], "last block": model.stack.blocks[-1]}
    hooks = [
        block.register_forward_hook(lambda _, __, out, name=name: seen.update({name: out[0]}))
        for name, block in named.items()
    ]
    with torch.no_grad():
        seen["logits"] = model(tokens)
    for hook in hooks:
        hook.remove()
    return seen


def slopes(config: ModelConfig, base: int | None) -> dict[str, float]:
    """The coordinate check (Yang et al. 2022, appendix D.1): the exponent s for which the change of
    an output by four steps on random tokens grows as width^s."""
    train = TrainConfig(steps=4, lr=0.01)
    tokens = torch.randint(config.vocab, (4, 65), generator=torch.Generator().manual_seed(0))
    example = Example(inputs=tokens[:, :-1], targets=tokens[:, 1:], documents=None)
    changes: dict[str, list[float]] = {}
    for width in WIDTHS:
        model = Decoder(at_width(config, width, base))
        model.initialise(0)
        before = outputs(model, example.inputs)
        losses, optimizer = Losses(model, train), optimizers(model, train)
        optimizer.rate(train.lr)
        for _ in range(train.steps):
            optimizer.zero_grad()
            (losses(example)["objective"].sum / example.tokens).backward()
            optimizer.step()
        for name, after in outputs(model, example.inputs).items():
            changes.setdefault(name, []).append(float((after - before[name]).abs().mean()))
    return {
        name: float(np.polyfit(np.log(WIDTHS), np.log(sizes), 1)[0])
        for name, sizes in changes.items()
    }


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_outputs_move_alike_at_every_width_under_mup_and_ever_more_without(tied):
    torch.set_num_threads(1)
    config = change(SMALL, {"head.tied": tied}, "model")
    assert all(abs(slope) < 0.4 for slope in slopes(config, min(WIDTHS)).values())
    assert slopes(config, None)["last block"] > 0.6


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
    model = Decoder(change(at_width(SMALL, 128, 32), {"head.tied": False}, "model"))
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
