"""The decoder: embedding, blocks, norm, head. Everything that mixes positions goes through
``attend``. What the model costs is in ``accounting.py``.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from train.attention import Alibi, Mask, Relative, positions_of, prepare
from train.model import positions as pos
from train.model.cache import Cache, Kind
from train.model.config import ModelConfig
from train.model.layers import Block, norm

# So small that the first loss is ln(vocab) within a few hundredths, for a tied head too.
EMBEDDING = 0.4


@torch.no_grad()
def initialise(model: nn.Module, config: ModelConfig, seed: int) -> None:
    """Normal weights of deviation 1 / sqrt(inputs), those that write to the residual stream
    divided by sqrt(2 x layers) (Radford et al. 2019), embeddings and head 0.4 / sqrt(hidden).
    GPT-2's fixed 0.02 suits its width, and costs a model of 192 half of its first minute. Norms
    begin as the identity, biases as 0. Depends on the seed alone, not on global state.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
            continue
        std = parameter.shape[1] ** -0.5
        if name.endswith(("attention.out.weight", "mlp.down.weight")):
            std /= math.sqrt(2 * config.layers)
        if name.endswith(("embedding.weight", "head.weight")):
            std = EMBEDDING * config.hidden**-0.5
        if name == "relative":
            std = 0.02
        drawn = torch.empty(parameter.shape).normal_(0.0, std, generator=generator)
        parameter.copy_(drawn)


class Decoder(nn.Module):
    """Token ids [batch, length] to logits [batch, length, vocab] in float32.

    ``recompute``: blocks keep their input alone for the backward pass and run again in it.
    """

    frequencies: Tensor
    sinusoids: Tensor
    slopes: Tensor

    def __init__(self, config: ModelConfig, *, attention: str = "auto") -> None:
        super().__init__()
        self.config = config
        self.recompute, self.attention = False, attention
        self.embedding = nn.Embedding(config.vocab, config.hidden)
        learned = config.position == "learned"
        rows = config.context + config.learned_offset
        self.position_embedding = nn.Embedding(rows, config.hidden) if learned else None
        self.embedding_norm = norm(config) if config.embedding_norm else None
        relative = config.position == "t5"
        self.relative = (
            nn.Parameter(torch.zeros(config.t5_buckets, config.heads)) if relative else None
        )
        self.blocks = nn.ModuleList(Block(config, attention) for _ in range(config.layers))
        self.norm = None if config.norm_place == "post" else norm(config)
        self.head = (
            None
            if config.tied_embeddings
            else nn.Linear(config.hidden, config.vocab, bias=config.head_bias)
        )
        self.head_bias = (
            nn.Parameter(torch.zeros(config.vocab))
            if config.tied_embeddings and config.head_bias
            else None
        )
        self._tables()

    def _tables(self) -> None:
        """What follows from the configuration alone, and so is in no checkpoint."""
        config = self.config
        if config.position == "rope":
            frequencies, self.rope_factor = pos.rope_frequencies(config)
            self.register_buffer("frequencies", frequencies, persistent=False)
        if config.position == "sinusoidal":
            table = pos.sinusoids(config.context, config.hidden)
            self.register_buffer("sinusoids", table, persistent=False)
        if config.position == "alibi":
            slopes = pos.alibi_slopes(config.heads)
            self.register_buffer("slopes", slopes, persistent=False)

    def initialise(self, seed: int) -> None:
        """First weights from the seed alone; see ``initialise``."""
        initialise(self, self.config, seed)

    def forward(self, tokens: Tensor, **kwargs: Any) -> Tensor:
        """Logits; the arguments of ``features``."""
        return self.logits(self.features(tokens, **kwargs))

    def logits(self, features: Tensor) -> Tensor:
        """[..., hidden] to [..., vocab] in float32 (or wider)."""
        out = F.linear(features, *self.head_weights())
        return out if out.dtype == torch.float64 else out.float()

    def head_weights(self) -> tuple[Tensor, Tensor | None]:
        """The head's matrix [vocab, hidden], with tied embeddings theirs, and its bias [vocab]."""
        if self.head is None:
            return self.embedding.weight, self.head_bias
        return self.head.weight, self.head.bias

    def features(
        self,
        tokens: Tensor,
        *,
        documents: Tensor | None = None,
        prefix: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """What the head reads: [batch, length, hidden].

        ``documents`` [batch, length]: positions of different documents do not see each other, and
        each document counts its positions from 0 within the row. ``prefix``: bool
        [batch, length], tokens that all of their document see. With a ``cache`` the tokens
        continue what it holds, and are added to it; there ``documents`` is -1 for the padding
        before shorter texts of a batch.
        """
        batch, length = tokens.shape
        if cache is not None:
            if prefix is not None and cache.started:
                raise ValueError("a prefix goes with the first tokens of a text")
            positions = cache.next_positions(batch, length, documents, tokens.device)
        elif documents is not None:
            positions = positions_of(documents)
        else:
            positions = torch.arange(length, device=tokens.device)[None]
        masks = self._masks(tokens, positions, documents, prefix, cache)
        rotation = None
        if self.config.position == "rope":
            rotation = pos.rotations(self.frequencies, self.rope_factor, positions)
        x = self._embed(tokens, positions)
        again = self.recompute and cache is None and torch.is_grad_enabled()
        if again:
            kind = x.device.type
            halved = torch.is_autocast_enabled(kind)
            dtype = torch.get_autocast_dtype(kind) if halved else x.dtype
            like = x.new_empty(0, self.config.heads, length, self.config.head_dim, dtype=dtype)
            for mask in masks.values():
                prepare(like, mask, self.attention)
        for layer, block in enumerate(self.blocks):
            window = self.config.window_of(layer)
            mask = masks[window]
            if cache is not None:
                kept = cache.kinds[window].kept
                x = block(x, rotation, mask, cache.layers[layer], kept)
            elif again:
                x = checkpoint(block, x, rotation, mask, use_reentrant=False)
            else:
                x = block(x, rotation, mask)
        return x if self.norm is None else self.norm(x)

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        config = self.config
        x = self.embedding(tokens)
        if config.position == "sinusoidal":
            x = x * config.hidden**0.5 + self.sinusoids[positions].to(x.dtype)
        if self.position_embedding is not None:
            x = x + self.position_embedding(positions + config.learned_offset)
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        return F.dropout(x, config.dropout, self.training) if config.dropout else x

    def _masks(
        self,
        tokens: Tensor,
        positions: Tensor,
        documents: Tensor | None,
        prefix: Tensor | None,
        cache: Cache | None,
    ) -> dict[int | None, Mask]:
        """A mask for each kind of layer: its window, or None."""
        config, length = self.config, tokens.shape[1]
        bias: Alibi | Relative | None = None
        if config.position == "alibi":
            bias = Alibi(slopes=self.slopes)
        elif self.relative is not None:
            bias = Relative(weight=self.relative, distance=config.t5_distance)
        masks = {}
        for window in dict.fromkeys(config.window_of(layer) for layer in range(config.layers)):
            keys, where, docs = length, positions, documents
            if cache is not None:
                where, docs = self._cached(cache.kinds[window], cache, positions, documents)
                keys = where.shape[1]
            masks[window] = Mask(
                queries=length,
                keys=keys,
                device=tokens.device,
                documents=docs,
                window=window,
                sinks=config.sinks if window is not None else 0,
                prefix=prefix,
                positions=where if bias is not None or window is not None else None,
                bias=bias,
                gaps=window is not None and keys > length,
            )
        return masks

    @staticmethod
    def _cached(
        kind: Kind, cache: Cache, positions: Tensor, documents: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        if documents is None:
            documents = torch.zeros_like(positions)
        where, docs = kind.extend(positions, documents)
        return where, docs if cache.padded else None

    def empty_cache(self) -> Cache:
        """A cache for any number of texts."""
        return Cache(self.config)
