"""The decoder, from top to bottom: model, block, attention, feed-forward, norm, rotation.

A LLaMA-style transformer (Touvron et al. 2023). Everything that mixes positions goes through
``attend``. What the model costs is in ``accounting.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from train.attention import Mask, attend
from train.model.config import ModelConfig


@dataclass
class Cache:
    """Keys and values of the tokens seen, per layer [batch, kv_heads, capacity, head_dim]."""

    keys: list[Tensor]
    values: list[Tensor]
    length: int = 0


class Decoder(nn.Module):
    """Token ids [batch, length] to logits [batch, length, vocab] in float32."""

    def __init__(self, config: ModelConfig, *, attention: str = "auto") -> None:
        super().__init__()
        self.config = config
        self.recompute = False
        self.embedding = nn.Embedding(config.vocab, config.hidden)
        self.blocks = nn.ModuleList(Block(config, attention) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.norm_eps)
        self.head = (
            None if config.tied_embeddings else nn.Linear(config.hidden, config.vocab, bias=False)
        )

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Normal weights of deviation 1 / sqrt(inputs), those that write to the residual stream
        divided by sqrt(2 x layers) (Radford et al. 2019); an embedding counts as a tied head does.
        GPT-2's fixed 0.02 suits its width, and costs a model of 192 half of its first minute.
        Depends on the seed alone, not on global state.
        """
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                parameter.fill_(1.0)
                continue
            residual = name.endswith(("attention.out.weight", "mlp.down.weight"))
            std = parameter.shape[1] ** -0.5
            if residual:
                std /= math.sqrt(2 * self.config.layers)
            drawn = torch.empty(parameter.shape).normal_(0.0, std, generator=generator)
            parameter.copy_(drawn)

    def forward(
        self, tokens: Tensor, *, documents: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """``documents`` [batch, length]: positions of different documents do not see each other.
        With a ``cache`` the tokens continue what it holds, and are added to it.
        """
        return self.logits(self.features(tokens, documents=documents, cache=cache))

    def logits(self, features: Tensor) -> Tensor:
        """[..., hidden] to [..., vocab] in float32."""
        weight = self.embedding.weight if self.head is None else self.head.weight
        return F.linear(features, weight).float()

    def features(
        self, tokens: Tensor, *, documents: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """What the head reads: [batch, length, hidden]."""
        length = tokens.shape[1]
        start = cache.length if cache is not None else 0
        mask = Mask(queries=length, keys=start + length, device=tokens.device, documents=documents)
        rotation = rotations(self.config, start, length, tokens.device)
        x = self.embedding(tokens)
        for layer, block in enumerate(self.blocks):
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(block, x, rotation, mask, cache, layer, use_reentrant=False)
            else:
                x = block(x, rotation, mask, cache, layer)
        if cache is not None:
            cache.length += length
        return self.norm(x)

    def empty_cache(self, batch: int) -> Cache:
        """A cache for ``config.context`` tokens."""
        config, weight = self.config, self.embedding.weight
        shape = (batch, config.kv_heads, config.context, config.head_dim)
        return Cache(
            keys=[weight.new_zeros(shape) for _ in range(config.layers)],
            values=[weight.new_zeros(shape) for _ in range(config.layers)],
        )


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: ModelConfig, attention: str) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden, config.norm_eps)
        self.attention = SelfAttention(config, attention)
        self.mlp_norm = RMSNorm(config.hidden, config.norm_eps)
        self.mlp = SwiGLU(config)

    def forward(
        self, x: Tensor, rotation: Tensor, mask: Mask, cache: Cache | None, layer: int
    ) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation, mask, cache, layer)
        return x + self.mlp(self.mlp_norm(x))


class SelfAttention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023) with rotary positions."""

    def __init__(self, config: ModelConfig, backend: str) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.head_dim, self.backend = config.head_dim, backend
        self.query = nn.Linear(config.hidden, config.heads * config.head_dim, bias=False)
        self.key = nn.Linear(config.hidden, config.kv_heads * config.head_dim, bias=False)
        self.value = nn.Linear(config.hidden, config.kv_heads * config.head_dim, bias=False)
        self.out = nn.Linear(config.heads * config.head_dim, config.hidden, bias=False)

    def forward(
        self, x: Tensor, rotation: Tensor, mask: Mask, cache: Cache | None, layer: int
    ) -> Tensor:
        batch, length, _ = x.shape
        q = self.query(x).view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        k = self.key(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.value(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(q, rotation), rotate(k, rotation)
        if cache is not None:
            end = cache.length + length
            cache.keys[layer][:, :, cache.length : end] = k
            cache.values[layer][:, :, cache.length : end] = v
            k, v = cache.keys[layer][:, :, :end], cache.values[layer][:, :, :end]
        mixed = attend(q, k, v, mask, self.backend)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)) (Shazeer 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.hidden, config.mlp_hidden, bias=False)
        self.up = nn.Linear(config.hidden, config.mlp_hidden, bias=False)
        self.down = nn.Linear(config.mlp_hidden, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class RMSNorm(nn.Module):
    """x / rms(x) * weight, computed in float32 (Zhang and Sennrich 2019)."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(dim=-1, keepdim=True) + self.eps)
        return (y * self.weight).to(x.dtype)


def rotations(config: ModelConfig, start: int, length: int, device: torch.device) -> Tensor:
    """cos and sin for positions start .. start + length: [2, length, head_dim / 2], float32.

    Positions are counted from the row's start, not the document's: rotary attention depends on
    differences of positions only, so within a document it is the same (Su et al. 2021).
    """
    half = torch.arange(0, config.head_dim, 2, device=device, dtype=torch.float32)
    frequency = config.rope_theta ** (-half / config.head_dim)
    position = torch.arange(start, start + length, device=device, dtype=torch.float32)
    angle = position[:, None] * frequency
    return torch.stack((angle.cos(), angle.sin()))


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotate dimension i with i + head_dim / 2, the pairing of Hugging Face's LLaMA weights."""
    cos, sin = rotation.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
