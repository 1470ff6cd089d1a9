"""The layers of a block: norms, dropout, the dense feed-forward, and attention. Dropout depends
only on the row's seed, the token's place and the layer. So it does not change with the size of a
micro-batch, the number of processes, or recomputing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.attention import Mask, Relation, SharedMask, attend
from train.model.cache import LayerCache
from train.model.config import ATTENDS, FEEDS, ModelConfig, Parts, Stack
from train.model.feed_forward_settings import ACTIVATIONS, Experts
from train.model.positions import rotate
from train.model.roles import Role, linear, set_roles

SCALE = Role(part="norms", use="vector", start=1.0)


class RMSNorm(nn.Module):
    """The norm x / rms(x) * weight, computed in float32 or wider (Zhang and Sennrich 2019)."""

    def __init__(self, hidden: int, eps: float, *, split: str = "") -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        set_roles(self, weight=replace(SCALE, split=split))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        y = x if x.dtype == torch.float64 else x.float()
        if torch.compiler.is_compiling() or x.is_cuda:
            y = y * torch.rsqrt(y.square().mean(dim=-1, keepdim=True) + self.eps) * self.weight
        else:
            y = _ScaleByRms.apply(y, self.weight, self.eps)
        return y.to(x.dtype)


class _ScaleByRms(torch.autograd.Function):
    """RMSNorm with its gradient written out, for a CPU. Compared with autograd, it stores one
    tensor instead of two. It takes a third of the time, because fewer operations read and write all
    of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        mean = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
        scale = mean.add_(eps).rsqrt_()
        y = x * scale
        ctx.save_for_backward(y, weight, scale)
        return y * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        y, weight, scale = ctx.saved_tensors
        of_weight = (grad * y).flatten(0, -2).sum(dim=0)
        grad = grad * weight
        along = (grad * y).mean(dim=-1, keepdim=True)
        return torch.addcmul(grad, y, along, value=-1).mul_(scale), of_weight, None


class LayerNorm(nn.Module):
    """The norm (x - mean) / deviation * weight + bias; weight, bias optional (Ba et al. 2016)."""

    def __init__(self, hidden: int, eps: float, *, weight: bool, bias: bool) -> None:
        super().__init__()
        self.hidden, self.eps = hidden, eps
        self.weight = nn.Parameter(torch.ones(hidden)) if weight else None
        self.bias = nn.Parameter(torch.zeros(hidden)) if bias else None
        set_roles(self, weight=SCALE, bias=Role(part="norms", use="vector"))

    def forward(self, x: Tensor) -> Tensor:
        y = x if x.dtype == torch.float64 else x.float()
        weight, bias = (None if v is None else v.to(y.dtype) for v in (self.weight, self.bias))
        return F.layer_norm(y, (self.hidden,), weight, bias, self.eps).to(x.dtype)


def norm(config: Stack, size: int | None = None) -> nn.Module:
    """Build a norm as set in ``config``, over ``size`` dimensions or else the hidden dimensions."""
    own, size = config.norm, size or config.hidden
    if own.kind == "rms":
        return RMSNorm(size, own.eps)
    return LayerNorm(size, own.eps, weight=own.kind != "layer_plain", bias=own.kind == "layer")


def last_norm(config: Stack) -> nn.Module | None:
    """Build the norm after the last block, or return None if the settings have no such norm."""
    return None if config.norm.place in ("post", "none") else norm(config)


_BITS = 24  # of a random number
_STEP = -0x61C8864680B583EB  # between the states of two consecutive numbers


class Dropout(nn.Module):
    """Dropout: in training a ``share`` of the numbers becomes 0, and the others are scaled up so
    that the mean stays. ``site``: the number of this dropout in the model.
    """

    def __init__(self, share: float, site: int) -> None:
        super().__init__()
        self.share = share
        self.key = site_key(site)

    def forward(self, x: Tensor, draws: Tensor | None) -> Tensor:
        """Apply dropout to x [rows, length, hidden]. ``draws``: a seed per token; None: new
        seeds."""
        if not self.share or not self.training:
            return x
        if draws is None:
            draws = torch.randint(2**62, x.shape[:2], device=x.device)
        least = int(self.share * 2**_BITS)
        return x * (random_numbers(draws, self.key, x.shape[-1]) >= least) / (1 - self.share)


def token_seeds(draws: Tensor, index: Tensor, hidden: int) -> Tensor:
    """Return a seed per token, int64 [rows, tokens]. ``draws`` [rows]: a seed per row. ``index``
    [1, tokens]: the tokens' places in the row. A row's seed starts a random sequence of ``hidden``
    numbers per token. A token's seed is the generator's state before the token's first number."""
    return draws[:, None] + index * wrap_int64(hidden * _STEP)


def random_numbers(draws: Tensor, key: int, count: int) -> Tensor:
    """Return ``count`` random numbers of 24 bits for each seed: int64 [..., count]. The generator
    is SplitMix64 (Steele et al. 2014), started at the seed plus ``key``.
    """
    index = torch.arange(count, device=draws.device)
    x = (draws + key)[..., None] + index * _STEP
    x = (x ^ _shifted(x, 30)) * -0x40A7B892E31B1A47
    x = (x ^ _shifted(x, 27)) * -0x6B2FB644ECCEEE15
    return _shifted(x ^ _shifted(x, 31), 64 - _BITS)


def site_key(site: int) -> int:
    """Return the key that gives dropout number ``site`` of the model its own random numbers. Call
    this when the layer is built: later, torch.compile would make ``site`` a symbolic integer, and
    its product with a 64-bit constant fails."""
    return wrap_int64(site * 0x632BE59BD9B4E019)


def wrap_int64(x: int) -> int:
    return (x + 2**63) % 2**64 - 2**63


def _shifted(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """The inputs of a block besides the residual stream.

    ``mask``: the mask of self-attention.
    ``parts``: the names of the parts of the block that run.
    ``rotation``: the factors with which ``rotate`` turns queries and keys.
    ``draws``: int64 [batch, length], a seed per token for dropout and routers.
    ``cache``: the layer's keys and values so far.
    ``kept``: indices of the keys that stay in the cache; None: all.
    ``tokens``: int64 [batch, length], the ids.
    ``counted``: bool [batch, length], true for tokens that are not padding; None: all.
    ``cross``: the mask of cross-attention, in the decoder of an encoder-decoder.
    ``encoded``: [batch, source, hidden], the encoder's output; None if a cache has the keys and
        values made from it.
    ``relation``: vectors of the distances between queries and keys, for encodings that use them."""

    mask: Mask | SharedMask
    parts: Parts = ATTENDS + FEEDS
    rotation: Tensor | None = None
    draws: Tensor | None = None
    cache: LayerCache | None = None
    kept: Tensor | None = None
    tokens: Tensor | None = None
    counted: Tensor | None = None
    cross: Mask | None = None
    encoded: Tensor | None = None
    relation: Relation | None = None


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "relu2": lambda x: F.relu(x).square(),
    "elu": F.elu,
    "selu": F.selu,
    "softplus": F.softplus,
}


# Figures that a part reports about a batch, by name.
Notes = dict[str, Tensor]


def note(notes: dict[str, list[Tensor]] | None, part_notes: Notes) -> None:
    """Append the figures that a part reports in training to ``notes``, unless that is None."""
    if notes is None:
        return
    for name, value in part_notes.items():
        notes.setdefault(name, []).append(value)


class FeedForward(nn.Module):
    """The feed-forward down(activation(up(x))), or gated down(activation(gate(x)) * up(x)) (Shazeer
    2020). ``width`` replaces the inner size that is set in the configuration."""

    def __init__(self, config: ModelConfig, width: int | None = None) -> None:
        super().__init__()
        own, hidden = config.feed_forward, config.hidden
        if width is None:
            width = (isinstance(own, Experts) and own.dense_width) or own.width
        name, gated = ACTIVATIONS[own.activation]
        self.activation = FUNCTIONS[name]
        make = partial(linear, part="feed_forward", bias=own.bias, rate=1 / config.width_ratio)
        into = partial(make, shrink=config.inner_scale, split="outputs")
        self.gate = into(hidden, width) if gated else None
        self.up = into(hidden, width)
        self.down = make(width, hidden, shrink=config.residual_scale, split="inputs")

    def forward(self, x: Tensor, view: View | None = None) -> tuple[Tensor, Notes]:
        """Return the output for x [..., hidden], in the same shape, and {} (nothing to report)."""
        if self.gate is None:
            return self.down(self.activation(self.up(x))), {}
        return self.down(self.activation(self.gate(x)) * self.up(x)), {}


class SelfAttention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023), also multi-head and multi-query attention."""

    def __init__(self, config: ModelConfig, backend: str) -> None:
        super().__init__()
        own, hidden = config.attention, config.hidden
        self.head_dim, self.backend = own.head_dim, backend
        self.scale = (own.head_dim / (own.score_dim or own.head_dim)) ** 0.5
        qkv, out = own.bias not in ("none", "out"), own.bias in ("all", "but_keys", "out")
        self.key_bias = qkv and own.bias != "but_keys"
        width, kv_width = own.heads * own.head_dim, own.kv_heads * own.head_dim
        make = partial(linear, part="attention", rate=1 / config.width_ratio)
        self.query = make(hidden, width, bias=qkv, split="outputs")
        self.key = make(hidden, kv_width, bias=self.key_bias, split="outputs")
        self.value = make(hidden, kv_width, bias=qkv, shrink=config.inner_scale, split="outputs")
        self.out = make(width, hidden, bias=out, shrink=config.residual_scale, split="inputs")
        self.clip, self.norms_whole = own.clip, own.qk_norm_whole
        sizes = (width, kv_width) if own.qk_norm_whole else (own.head_dim, own.head_dim)
        self.query_norm, self.key_norm = (
            RMSNorm(size, config.norm.eps, split="heads") if own.qk_norm else None for size in sizes
        )

    def forward(self, x: Tensor, view: View) -> Tensor:
        """Return the output for x [batch, length, hidden], by the heads of this process alone."""
        q = self.queries(x, view.rotation)
        return self.attend_and_project(q, *self.keys_values_in_view(x, view), view.mask)

    def keys_values_in_view(self, x: Tensor, view: View) -> tuple[Tensor, Tensor]:
        """Return the keys and values that x's queries may see: those in the cache, then those of x.
        If the mask has ``memory``, those of x come twice. From the first copy (for queries of the
        next segment), gradients reach the weights of keys and values, but not x."""
        k, v = self.keys_and_values(x, view.rotation)
        if isinstance(view.mask, Mask) and view.mask.memory:
            memory = self.keys_and_values(x.detach(), view.rotation)
            k, v = torch.cat((memory[0], k), dim=2), torch.cat((memory[1], v), dim=2)
        return (k, v) if view.cache is None else view.cache.append(k, v, view.kept)

    def _in_heads(self, x: Tensor, norm: nn.Module | None) -> Tensor:
        """Split x [batch, length, heads * head_dim] into heads [batch, heads, length, head_dim],
        clipped and normalised."""
        x = x if self.clip is None else x.clamp(-self.clip, self.clip)
        if norm is not None and self.norms_whole:
            x, norm = norm(x), None
        x = x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        return x if norm is None else norm(x)

    def queries(self, x: Tensor, rotation: Tensor | None) -> Tensor:
        """Return the queries of x, [batch, heads, length, head_dim]."""
        q = self._in_heads(self.query(x), self.query_norm)
        q = q if self.scale == 1 else q * self.scale
        return q if rotation is None else rotate(q, rotation)

    def keys_and_values(self, x: Tensor, rotation: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the keys and values of x, [batch, kv_heads, length, head_dim] each."""
        k, v = self._in_heads(self.key(x), self.key_norm), self._in_heads(self.value(x), None)
        return (k if rotation is None else rotate(k, rotation)), v

    def attend_and_project(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | SharedMask, added: Tensor | None = None
    ) -> Tensor:
        """Return attention's output, [batch, length, hidden]. ``added`` is added to the scores."""
        summed = attend(q, k, v, mask, self.backend, added)
        return self.out(summed.transpose(1, 2).flatten(-2))


class CrossAttention(SelfAttention):
    """Attention to an encoder's output (Vaswani et al. 2017, section 3.2.3), without positions.
    Keys and values are computed once if there is a cache.
    """

    def forward(self, x: Tensor, view: View) -> Tensor:
        assert view.cross is not None
        pair = None if view.cache is None else view.cache.cross
        if pair is None:
            assert view.encoded is not None
            pair = self.keys_and_values(view.encoded, None)
            if view.cache is not None:
                view.cache.cross = pair
        return self.attend_and_project(self.queries(x, None), *pair, view.cross)
