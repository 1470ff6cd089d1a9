"""A block: attention and feed-forward on the residual stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from train.model import layers
from train.model.attention_settings import Grouped
from train.model.config import DeepNorm, ModelConfig, Parallel, ReZero, Serial
from train.model.feed_forward_settings import Dense
from train.model.plugin_settings import Plugin
from train.model.plugins import chosen
from train.model.positions import ENCODINGS, Positions
from train.model.roles import Role, set_roles

ATTENTIONS: dict[type, Callable[..., nn.Module]] = {Grouped: layers.SelfAttention}
FEED_FORWARDS: dict[type, Callable[[ModelConfig, int], nn.Module]] = {
    Dense: lambda config, layer: layers.FeedForward(config)
}


def attention(config: ModelConfig, backend: str) -> nn.Module:
    """Build the attention of a block. Some position encodings have an attention of their own."""
    encoding = ENCODINGS.get(type(config.position), Positions)
    make = encoding.attention or chosen(config.attention, ATTENTIONS)
    part: nn.Module = make(config, backend)
    return part


def feed_forward(config: ModelConfig, layer: int) -> nn.Module:
    """Build the feed-forward of a layer: dense, experts, or a class from a user's file."""
    make = chosen(config.feed_forward, FEED_FORWARDS)
    own = isinstance(config.feed_forward, Plugin)
    part: nn.Module = make(config) if own else make(config, layer)
    return part


class Join:
    """The sum x + change, or with DeepNorm alpha * x + change (Wang et al. 2022, section 3)."""

    def __init__(self, config: ModelConfig) -> None:
        self.alpha = None if config.deepnorm_scales is None else config.deepnorm_scales[0]

    def __call__(self, x: Tensor, change: Tensor) -> Tensor:
        return x + change if self.alpha is None else self.alpha * x + change


class ReZeroJoin(nn.Module):
    """The sum x + weight * change, where weight is learned and starts at 0, so that a block starts
    as the identity (Bachlechner et al. 2020, arXiv 2003.04887, equation 4).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        set_roles(self, weight=Role(part="other", use="vector"))

    def forward(self, x: Tensor, change: Tensor) -> Tensor:
        return x + self.weight.to(x.dtype) * change


def join(config: ModelConfig) -> Join | ReZeroJoin:
    return (ReZeroJoin if isinstance(config.residual, ReZero) else Join)(config)


def split_notes(out: Tensor | tuple[Tensor, layers.Notes]) -> tuple[Tensor, layers.Notes]:
    """Split the output of attention or feed-forward into (tensor, notes). Notes are figures that
    the layer reports in training; most layers have none."""
    return out if isinstance(out, tuple) else (out, {})


class SerialBlock(nn.Module):
    """A block that runs attention, then feed-forward. Its input and output are x [batch, length,
    hidden]. It also returns what the feed-forward reports in training. In the decoder of an
    encoder-decoder, cross-attention (``cross``) runs between the two.

    pre       x = x + attention(norm(x));  x = x + feed_forward(norm(x))   (Radford et al. 2019)
    post      x = norm(x + attention(x));  x = norm(x + feed_forward(x))   (Vaswani et al. 2017)
    out       x = x + norm(attention(x));  x = x + norm(feed_forward(x))   (Team OLMo 2024)
    sandwich  x = x + norm(attention(norm(x))), the same for feed_forward  (Ding et al. 2021)

    ``attention_norm`` and ``feed_forward_norm`` are the inner norms, or in post the outer ones. The
    ``_out_norm`` modules are the outer norms of out and sandwich. ``join`` computes the sums."""

    def __init__(self, config: ModelConfig, layer: int, backend: str) -> None:
        super().__init__()
        place = config.norm.place
        self.post = place == "post"
        make, make_out = (
            partial(layers.norm if place in places else nn.Identity, config)
            for places in (("pre", "post", "sandwich"), ("out", "sandwich"))
        )
        self.join = join(config)
        self.attention_norm = make() if layer or config.norm.first else nn.Identity()
        self.attention = attention(config, backend)
        self.attention_out_norm = make_out()
        self.attention_drop = layers.Dropout(config.dropout, 2 * layer + 1)
        if config.encoder is not None:
            self.cross_norm = make()
            self.cross = layers.CrossAttention(config, backend)
            self.cross_out_norm = make_out()
            self.cross_drop = layers.Dropout(config.dropout, -1 - layer)
        self.feed_forward_norm = make()
        self.feed_forward = feed_forward(config, layer)
        self.feed_forward_out_norm = make_out()
        self.feed_forward_drop = layers.Dropout(config.dropout, 2 * layer + 2)

    def forward(self, x: Tensor, view: layers.View) -> tuple[Tensor, layers.Notes]:
        notes: layers.Notes = {}
        for name in view.parts:
            if name != "cross" or view.cross is not None:
                x, part_notes = self._part(name, x, view)
                notes |= part_notes
        return x, notes

    def _part(self, name: str, x: Tensor, view: layers.View) -> tuple[Tensor, layers.Notes]:
        part, normed = getattr(self, name), getattr(self, f"{name}_norm")
        again, drop = getattr(self, f"{name}_out_norm"), getattr(self, f"{name}_drop")
        out, notes = split_notes(part(x if self.post else normed(x), view))
        x = self.join(x, drop(again(out), view.draws))
        return (normed(x) if self.post else x), notes


class ParallelBlock(nn.Module):
    """A block that computes x + attention(norm(x)) + feed_forward(norm(x)), with one norm for both
    (Wang and Komatsuzaki 2021) or one for each (Black et al. 2022).
    """

    def __init__(self, config: ModelConfig, layer: int, backend: str) -> None:
        super().__init__()
        assert isinstance(config.residual, Parallel)
        self.attention_norm = layers.norm(config)
        self.attention = attention(config, backend)
        self.feed_forward_norm = layers.norm(config) if config.residual.norms == 2 else None
        self.feed_forward = feed_forward(config, layer)
        self.drop = layers.Dropout(config.dropout, 2 * layer + 1)

    def forward(self, x: Tensor, view: layers.View) -> tuple[Tensor, layers.Notes]:
        read = self.attention_norm(x)
        fed = read if self.feed_forward_norm is None else self.feed_forward_norm(x)
        mixed = self.attention(read, view)
        changed, notes = split_notes(self.feed_forward(fed, view))
        return x + self.drop(mixed + changed, view.draws), notes


BLOCKS: dict[type, type[nn.Module]] = {
    Serial: SerialBlock,
    ReZero: SerialBlock,
    DeepNorm: SerialBlock,
    Parallel: ParallelBlock,
}


def block(config: ModelConfig, layer: int, backend: str) -> nn.Module:
    each: nn.Module = chosen(config.residual, BLOCKS)(config, layer, backend)
    return each
