"""Coordinate check of muP (Yang et al. 2022, appendix D.1): if the change of a model's outputs over
some steps depends on its width, so does the best learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from llmcurate.base.errors import UsageError
from llmcurate.base.settings import change
from train.config import TrainConfig
from train.model.attention_settings import Grouped
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.feed_forward_settings import Experts
from train.objectives.example import Example
from train.objectives.losses import Losses
from train.optim.optimizers import optimizers

ROWS, LENGTH = 4, 64  # of the random training tokens


def at_width(config: ModelConfig, width: int, base: int | None) -> ModelConfig:
    """Return the model settings with hidden size ``width`` and unchanged head_dim; heads and
    feed-forward change in proportion. Raises ``LlmcurateError`` if the heads do not scale."""
    attention = config.attention
    if not isinstance(attention, Grouped):
        line = f"attention {attention.kind}: only grouped attention can be widened"
        raise UsageError(line)
    heads, rest = divmod(attention.heads * width, config.hidden)
    kv_heads, more = divmod(attention.kv_heads * width, config.hidden)
    if rest or more or not kv_heads:
        raise UsageError(
            f"width {width}: {attention.heads} heads and {attention.kv_heads} key heads at "
            f"{config.hidden} do not scale to whole numbers; choose another width"
        )
    between = max(1, config.feed_forward.width * width // config.hidden)
    changes = {
        "hidden": width,
        "mup_base": base,
        "dropout": 0.0,
        "attention": {"heads": heads, "kv_heads": kv_heads},
        "feed_forward.width": between,
        **_beside(config, width),
    }
    return change(config, changes, "model")


def _beside(config: ModelConfig, width: int) -> dict[str, int]:
    own = config.feed_forward
    if not isinstance(own, Experts):
        return {}
    widths = {"shared_width": own.shared_width, "dense_width": own.dense_width}
    return {
        f"feed_forward.{name}": max(1, value * width // config.hidden)
        for name, value in widths.items()
        if value
    }


def sizes(config: ModelConfig, train: TrainConfig) -> dict[str, float]:
    """Train on fixed random tokens for ``train.steps`` steps at learning rate ``train.lr``. Return
    the mean absolute change of the outputs of the first block, the last block and the head."""
    draw = torch.Generator().manual_seed(train.seed)
    tokens = torch.randint(config.vocab, (ROWS, LENGTH + 1), generator=draw)
    example = Example(inputs=tokens[:, :-1], targets=tokens[:, 1:], documents=None)
    model = Decoder(config)
    model.initialise(train.seed)
    before = _outputs(model, example.inputs)
    losses, optimizer = Losses(model, train), optimizers(model, train)
    optimizer.rate(train.lr)
    for _ in range(train.steps):
        optimizer.zero_grad()
        (losses(example)["objective"].sum / example.tokens).backward()
        optimizer.step()
    after = _outputs(model, example.inputs)
    return {name: float((after[name] - before[name]).abs().mean()) for name in before}


@torch.no_grad()
def _outputs(model: Decoder, tokens: Tensor) -> dict[str, Tensor]:
    outputs: dict[str, Tensor] = {}
    ends = {"first block": model.stack.blocks[0], "last block": model.stack.blocks[-1]}
    hooks = [
        block.register_forward_hook(
            lambda _module, _inputs, out, name=name: outputs.__setitem__(name, out[0].clone())
        )
        for name, block in ends.items()
    ]
    outputs["logits"] = model(tokens)
    for hook in hooks:
        hook.remove()
    return outputs


@dataclass(frozen=True)
class Growth:
    """The change of one output by training. ``sizes``: its mean absolute value at each width.
    ``slope``: the exponent s for which width^s fits these values best."""

    sizes: list[float]
    slope: float


def coordinates(
    config: ModelConfig, widths: list[int], train: TrainConfig
) -> dict[str, dict[str, Growth]]:
    """Return {parametrisation: {output: growth}}: how each output's change in training grows with
    the width, for "muP", whose base is the smallest width, and for "standard"."""
    table: dict[str, dict[str, Growth]] = {}
    for kind, base in (("muP", min(widths)), ("standard", None)):
        rows = [sizes(at_width(config, width, base), train) for width in widths]
        table[kind] = {
            name: Growth([row[name] for row in rows], _slope(widths, rows, name))
            for name in rows[0]
        }
    return table


def _slope(widths: list[int], rows: list[dict[str, float]], name: str) -> float:
    x = [math.log(width) for width in widths]
    y = [math.log(max(row[name], 1e-30)) for row in rows]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mx) ** 2 for a in x)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / spread
