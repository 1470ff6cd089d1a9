"""What bounds each operation of a layer: the arithmetic units or the memory (Williams et al. 2009).

An operation of intensity (FLOPs a byte moved) below the GPU's ridge, FLOP/s over bytes/s, waits for
memory. Each operation reads its inputs and weights once and writes its outputs once; attention is
a fused kernel, which does not write its scores.
"""

from __future__ import annotations

from dataclasses import dataclass

from train.accounting import attended
from train.model.config import MLPS, ModelConfig


@dataclass(frozen=True, kw_only=True)
class Operation:
    """``flops`` and ``bytes`` of the forward pass over one layer (the head: over the model)."""

    name: str
    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        """FLOPs a byte."""
        return self.flops / self.bytes


def training(config: ModelConfig, *, rows: int, context: int, width: int = 2) -> list[Operation]:
    """The forward pass over rows of ``context`` tokens, ``width`` bytes a number. The backward
    pass does twice the work on twice the data, so its intensities are about the same.
    """
    tokens = rows * context
    keys = attended(config, 0, context)
    kv = 2 * config.kv_heads * config.head_dim * tokens
    return _operations(config, tokens, keys, kv, width)


def decoding(config: ModelConfig, *, batch: int, context: int, width: int = 2) -> list[Operation]:
    """One new token for each of ``batch`` texts whose caches hold ``context`` tokens."""
    window = config.window_of(0)
    held = context if window is None else min(context, window + config.sinks)
    kv = 2 * config.kv_heads * config.head_dim * batch * held
    return _operations(config, batch, held, kv, width)


def _operations(
    config: ModelConfig, tokens: int, keys: float, kv: int, width: int
) -> list[Operation]:
    hidden, inner = config.hidden, config.heads * config.head_dim
    both = inner + 2 * config.kv_heads * config.head_dim
    gates = 2 if MLPS[config.mlp][1] else 1

    def matmul(name: str, inputs: int, outputs: int) -> Operation:
        moved = tokens * (inputs + outputs) + inputs * outputs
        return Operation(name=name, flops=2.0 * tokens * inputs * outputs, bytes=moved * width)

    return [
        # Squared, summed, scaled and weighted: about five operations a number.
        Operation(
            name="norm and residual", flops=5.0 * tokens * hidden, bytes=3 * tokens * hidden * width
        ),
        matmul("queries, keys, values", hidden, both),
        Operation(
            name="attention",
            flops=4.0 * tokens * inner * keys,
            bytes=(2 * tokens * inner + kv) * width,
        ),
        matmul("attention output", inner, hidden),
        matmul("feed-forward in", hidden, gates * config.mlp_hidden),
        matmul("feed-forward out", config.mlp_hidden, hidden),
        matmul("output head", hidden, config.vocab),
    ]
