"""The layers of a block: norms, dropout, the dense feed-forward, and attention.

Dropout follows from a row's seed, the token and the place in the model, so that neither the number
of rows or tokens computed at once, nor of processes, nor computing again changes what is dropped.
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
from train.model.roles import Role, give, linear

SCALE = Role(part="norms", use="vector", start=1.0)


class RMSNorm(nn.Module):
    """x / rms(x) * weight, computed in float32 or wider (Zhang and Sennrich 2019)."""

    def __init__(self, hidden: int, eps: float, *, split: str = "") -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        give(self, weight=replace(SCALE, split=split))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        y = x if x.dtype == torch.float64 else x.float()
        if torch.compiler.is_compiling() or x.is_cuda:
            y = y * torch.rsqrt(y.square().mean(dim=-1, keepdim=True) + self.eps) * self.weight
        else:
            y = _ScaleByRms.apply(y, self.weight, self.eps)
        return y.to(x.dtype)


class _ScaleByRms(torch.autograd.Function):
    """The same with its gradient written out: a third of the time on a CPU, where each small
    operation reads and writes all of x, and one tensor kept instead of two.
    """

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
    """(x - mean) / deviation * weight + bias (Ba et al. 2016); without one or both by option."""

    def __init__(self, hidden: int, eps: float, *, weight: bool, bias: bool) -> None:
        super().__init__()
        self.hidden, self.eps = hidden, eps
        self.weight = nn.Parameter(torch.ones(hidden)) if weight else None
        self.bias = nn.Parameter(torch.zeros(hidden)) if bias else None
        give(self, weight=SCALE, bias=Role(part="norms", use="vector"))

    def forward(self, x: Tensor) -> Tensor:
        y = x if x.dtype == torch.float64 else x.float()
        weight, bias = (None if v is None else v.to(y.dtype) for v in (self.weight, self.bias))
        return F.layer_norm(y, (self.hidden,), weight, bias, self.eps).to(x.dtype)


def norm(config: Stack, size: int | None = None) -> nn.Module:
    """The norm of a stack, over its hidden dimensions or ``size`` others."""
    own, size = config.norm, size or config.hidden
    if own.kind == "rms":
        return RMSNorm(size, own.eps)
    return LayerNorm(size, own.eps, weight=own.kind != "layer_plain", bias=own.kind == "layer")


def last_norm(config: Stack) -> nn.Module | None:
    """The norm behind the last block; None where blocks end with one, or have none."""
    return None if config.norm.place in ("post", "none") else norm(config)


_BITS = 24  # of a number drawn
_STEP = -0x61C8864680B583EB  # from the state of one number to that of the next


class Dropout(nn.Module):
    """``share``: of the numbers that are dropped in training; the others grow to make up for them.
    ``site``: which dropout of the model this is.
    """

    def __init__(self, share: float, site: int) -> None:
        super().__init__()
        self.share = share
        self.key = key_of(site)

    def forward(self, x: Tensor, draws: Tensor | None) -> Tensor:
        """x [rows, length, hidden]; ``draws``: int64 [rows, length], as ``of_tokens`` gives them,
        or None for any.
        """
        if not self.share or not self.training:
            return x
        if draws is None:
            draws = torch.randint(2**62, x.shape[:2], device=x.device)
        least = int(self.share * 2**_BITS)
        return x * (drawn(draws, self.key, x.shape[-1]) >= least) / (1 - self.share)


def of_tokens(draws: Tensor, index: Tensor, hidden: int) -> Tensor:
    """A seed a token, int64 [rows, tokens], of a seed a row, [rows]. ``index``: [1, tokens], which
    they are in the row. Token after token draws ``hidden`` numbers of what its row draws.
    """
    return draws[:, None] + index * wrapped(hidden * _STEP)


def drawn(draws: Tensor, key: int, count: int) -> Tensor:
    """``count`` numbers of 24 bits for each seed: int64 [..., count], of SplitMix64's kind (Steele
    et al. 2014), which begins at the seed + ``key``.
    """
    index = torch.arange(count, device=draws.device)
    x = (draws + key)[..., None] + index * _STEP
    x = (x ^ _shifted(x, 30)) * -0x40A7B892E31B1A47
    x = (x ^ _shifted(x, 27)) * -0x6B2FB644ECCEEE15
    return _shifted(x ^ _shifted(x, 31), 64 - _BITS)


def key_of(site: int) -> int:
    """What tells the numbers of a place from those of others. Made with the module: torch.compile,
    for which ``site`` is a symbol, cannot compute it in 64 bits.
    """
    return wrapped(site * 0x632BE59BD9B4E019)


def wrapped(x: int) -> int:
    """As 64 bits with a sign have it."""
    return (x + 2**63) % 2**64 - 2**63


def _shifted(x: Tensor, bits: int) -> Tensor:
    """To the right, with zeros from the left."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """What a block sees of a batch beside the stream. ``rotation``: of queries and keys; ``draws``:
    a seed a token, for dropout and routers; ``cache``: the layer's keys and values so far, of which
    those at ``kept`` stay, or all. ``tokens`` int64 [batch, length]; ``counted``: bool [batch,
    length], those that are no padding, or None for all. In the decoder of an encoder-decoder
    ``cross`` is the mask of cross-attention, and ``encoded`` [batch, source, hidden] what the
    encoder made of the source; None where a cache holds its keys and values. ``relation``: vectors
    of the distances between queries and keys, where positions are such.
    """

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


def _relu2(x: Tensor) -> Tensor:
    return F.relu(x).square()


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "relu2": _relu2,
    "elu": F.elu,
    "selu": F.selu,
    "softplus": F.softplus,
}


# What a part says of a batch beside its output, by name.
Notes = dict[str, Tensor]


def note(notes: dict[str, list[Tensor]] | None, part_notes: Notes) -> None:
    """Add what a part says to those of the parts before it, where they are wanted."""
    if notes is None:
        return
    for name, value in part_notes.items():
        notes.setdefault(name, []).append(value)


class FeedForward(nn.Module):
    """down(activation(up(x))), or gated, down(activation(gate(x)) * up(x)) (Shazeer 2020).
    ``width``: where it is another than the configuration's.
    """

    def __init__(self, config: ModelConfig, width: int | None = None) -> None:
        super().__init__()
        own, hidden = config.feed_forward, config.hidden
        if width is None:
            width = (isinstance(own, Experts) and own.dense_width) or own.width
        name, gated = ACTIVATIONS[own.activation]
        self.activation = FUNCTIONS[name]
        make = partial(linear, part="feed_forward", bias=own.bias, rate=1 / config.wider)
        into = partial(make, shrink=config.gain, split="outputs")
        self.gate = into(hidden, width) if gated else None
        self.up = into(hidden, width)
        self.down = make(width, hidden, shrink=config.shrink, split="inputs")

    def forward(self, x: Tensor, view: View | None = None) -> tuple[Tensor, Notes]:
        """x [..., hidden] to the same; it has nothing to say."""
        if self.gate is None:
            return self.down(self.activation(self.up(x))), {}
        return self.down(self.activation(self.gate(x)) * self.up(x)), {}


class SelfAttention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023); MHA and MQA are its ends."""

    def __init__(self, config: ModelConfig, backend: str) -> None:
        super().__init__()
        own, hidden = config.attention, config.hidden
        self.head_dim, self.backend = own.head_dim, backend
        qkv, out = own.bias != "none", own.bias in ("all", "but_keys")
        self.key_bias = qkv and own.bias != "but_keys"
        width, kv_width = own.heads * own.head_dim, own.kv_heads * own.head_dim
        make = partial(linear, part="attention", rate=1 / config.wider)
        self.query = make(hidden, width, bias=qkv, split="outputs")
        self.key = make(hidden, kv_width, bias=self.key_bias, split="outputs")
        self.value = make(hidden, kv_width, bias=qkv, shrink=config.gain, split="outputs")
        self.out = make(width, hidden, bias=out, shrink=config.shrink, split="inputs")
        of_head = partial(RMSNorm, own.head_dim, config.norm.eps, split="heads")
        self.query_norm = of_head() if own.qk_norm else None
        self.key_norm = of_head() if own.qk_norm else None

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[batch, length, hidden] to the same, by the heads that this process has."""
        q = self.queries(x, view.rotation)
        return self.mixed(q, *self.met(x, view), view.mask)

    def met(self, x: Tensor, view: View) -> tuple[Tensor, Tensor]:
        """Keys and values that queries may meet: those of a cache and of these tokens. Where the
        mask has a memory, these tokens' come twice, first as the memory, which changes nothing but
        the matrices.
        """
        k, v = self.keys_and_values(x, view.rotation)
        if isinstance(view.mask, Mask) and view.mask.memory:
            memory = self.keys_and_values(x.detach(), view.rotation)
            k, v = torch.cat((memory[0], k), dim=2), torch.cat((memory[1], v), dim=2)
        return (k, v) if view.cache is None else view.cache.append(k, v, view.kept)

    def queries(self, x: Tensor, rotation: Tensor | None) -> Tensor:
        """[batch, heads, length, head_dim]."""
        q = self.query(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        q = q if self.query_norm is None else self.query_norm(q)
        return q if rotation is None else rotate(q, rotation)

    def keys_and_values(self, x: Tensor, rotation: Tensor | None) -> tuple[Tensor, Tensor]:
        """[batch, kv_heads, length, head_dim] each."""
        k = self.key(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        v = self.value(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        k = k if self.key_norm is None else self.key_norm(k)
        return (k if rotation is None else rotate(k, rotation)), v

    def mixed(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | SharedMask, added: Tensor | None = None
    ) -> Tensor:
        """What queries gather of the keys and values they see, by scores with ``added``: [batch,
        length, hidden].
        """
        summed = attend(q, k, v, mask, self.backend, added)
        return self.out(summed.transpose(1, 2).flatten(-2))


class CrossAttention(SelfAttention):
    """Tokens look at what an encoder made of a source (Vaswani et al. 2017, section 3.2.3), without
    positions. A cache keeps its keys and values, which are made once.
    """

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[batch, length, hidden] to the same."""
        assert view.cross is not None
        pair = None if view.cache is None else view.cache.cross
        if pair is None:
            assert view.encoded is not None
            pair = self.keys_and_values(view.encoded, None)
            if view.cache is not None:
                view.cache.cross = pair
        return self.mixed(self.queries(x, None), *pair, view.cross)
