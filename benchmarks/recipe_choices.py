"""Choices for the default recipe that the product does not have, as patches of it.

bench_recipe.py trains with them. Each is a context manager, by name in ``PATCHES``. They follow
nanochat's code (Karpathy, 92d63d4), which names the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from train.model import block, decoder, layers, roles
from train.model.roles import Role
from train.optim import optimizers

# Amsel et al. 2025 (Polar Express, arXiv 2505.16932), for five iterations.
POLAR = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)


def by_polar_express(matrices: Tensor) -> Tensor:
    """Return U V^T as ``optimizers.orthogonal``, with other coefficients in each iteration."""
    x = matrices.flatten(0, -3)
    tall = x.shape[-2] > x.shape[-1]
    x = x.transpose(-2, -1) if tall else x
    x = x / (1.01 * torch.linalg.matrix_norm(x, keepdim=True) + 1e-6)
    for a, b, c in POLAR:
        square = x @ x.transpose(-2, -1)
        x = a * x + (b * square + c * square @ square) @ x
    x = x.transpose(-2, -1) if tall else x
    return x.reshape(matrices.shape)


@contextmanager
def polar_express() -> Iterator[None]:
    with patch.object(optimizers, "orthogonal", by_polar_express):
        yield


@contextmanager
def updates(change: Callable[[optimizers.Muon, Tensor, Tensor, float], Tensor]) -> Iterator[None]:
    """Let Muon change a weight by ``change(muon, weight, update, decay)`` times the rate."""

    def update(self: optimizers.Muon, weights: list[Tensor], group: dict[str, Any]) -> None:
        scale = 0.2 * max(weights[0].shape[-2:]) ** 0.5
        momenta = self._nesterov(weights, group["momentum"])
        made = optimizers.mapped(optimizers.orthogonal, momenta)
        for weight, each in zip(weights, made, strict=True):
            changed = change(self, weight, each * scale, group["weight_decay"])
            weight.sub_(changed, alpha=group["lr"])

    with patch.object(optimizers.Muon, "_update", update):
        yield


def cautious(_: optimizers.Muon, weight: Tensor, update: Tensor, decay: float) -> Tensor:
    """Let a weight decay only where the update does not move it away from 0."""
    return update + decay * weight * (update * weight >= 0)


def even(muon: optimizers.Muon, weight: Tensor, update: Tensor, decay: float) -> Tensor:
    """Divide rows of an update by the root of a running mean of their squares, and scale the update
    back to its norm (NorMuon: Li et al. 2025, arXiv 2510.05491, algorithm 1)."""
    mean = muon.state[weight].setdefault("square", torch.zeros(update.shape[:-1]))
    mean.lerp_(update.square().mean(-1), 1 - 0.95)
    balanced = update / (mean.sqrt()[..., None] + 1e-8)
    balanced *= update.norm() / balanced.norm().clamp(min=1e-8)
    return balanced + decay * weight


@contextmanager
def of_blocks(change: Callable[[decoder.Stack], None]) -> Iterator[None]:
    """Call ``change`` with each stack of blocks that is built."""
    build = decoder.Stack.__init__

    def built(self: decoder.Stack, *arguments: Any, **named: Any) -> None:
        build(self, *arguments, **named)
        change(self)

    with patch.object(decoder.Stack, "__init__", built):
        yield


GATED = 12  # dimensions that a gate reads


@contextmanager
def value_embeddings() -> Iterator[None]:
    """Add to the values of every second layer, the last one included, a vector of the token, times
    a gate of 0 to 3."""

    def add(stack: decoder.Stack) -> None:
        config = stack.config
        heads, size = config.attention.kv_heads, config.attention.head_dim
        for layer, each in enumerate(stack.blocks):
            if layer % 2 == (config.layers - 1) % 2:
                own: Any = each.attention
                own.table = nn.Embedding(stack.config.vocab, heads * size)
                role = Role(part="embedding", use="lookup", std=config.hidden**-0.5)
                roles.set_roles(own.table, weight=role)
                own.gate = roles.linear(GATED, heads, part="attention", bias=False, shrink=0.03)

    def keys_and_values(
        self: Any, x: Tensor, view: layers.View, plain: Any = layers.SelfAttention.keys_and_values
    ) -> tuple[Tensor, Tensor]:
        k, v = plain(self, x, view.rotation)
        if hasattr(self, "table"):
            vectors = self.table(view.tokens).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            gate = 3 * torch.sigmoid(self.gate(x[..., :GATED])).transpose(1, 2)
            v = v + gate[..., None] * vectors
        return k, v

    with of_blocks(add), patch.object(layers.SelfAttention, "keys_values_in_view", keys_and_values):
        yield


@contextmanager
def residual_weights() -> Iterator[None]:
    """Give each layer a learned weight of the residual stream and one of the embedding."""
    forward = block.SerialBlock.forward

    def add(stack: decoder.Stack) -> None:
        last, embedded = max(1, stack.config.layers - 1), {}
        for layer, each in enumerate(stack.blocks):
            each.of_stream, each.of_embedding = (nn.Parameter(torch.ones(1)) for _ in range(2))
            starts = 1.15 - 0.10 * layer / last, 0.20 - 0.15 * layer / last
            own = [Role(part="other", use="vector", start=start) for start in starts]
            roles.set_roles(each, of_stream=own[0], of_embedding=own[1])
            vars(each)["embedded"], vars(each)["first"] = embedded, layer == 0

    def weighed(self: Any, x: Tensor, view: layers.View) -> Any:
        if self.first:
            self.embedded["x"] = x
        return forward(self, self.of_stream * x + self.of_embedding * self.embedded["x"], view)

    with of_blocks(add), patch.object(block.SerialBlock, "forward", weighed):
        yield


PATCHES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "Polar Express": polar_express,
    "cautious decay": lambda: updates(cautious),
    "NorMuon": lambda: updates(even),
    "value embeddings": value_embeddings,
    "residual weights": residual_weights,
}
