"""What serving a model takes: weights in several precisions, keys and values, texts at once."""

from __future__ import annotations

import dataclasses
from typing import Any

from train.measure.accounting import cache_bytes, cache_bytes_per_token, sharing, weights
from train.model.attention_settings import Grouped, Latent
from train.model.config import ModelConfig
from train.settings import change

# The share of a GPU's memory that weights and cache may take; activations and buffers need the
# rest. That of vLLM (gpu_memory_utilization).
USABLE = 0.9
BATCHES = (1, 8, 32)
# Weights of the matrices in blocks, bits; others stay in bf16, as in GPTQ.
PRECISIONS = {"bf16": 16, "8 bit": 8, "4 bit": 4}
GROUP = 128  # weights that share a scale of 16 bits and a zero point (Frantar et al. 2023)


def weight_bytes(config: ModelConfig, bits: int = 16) -> int:
    """Bytes of all weights that serving needs where matrices in blocks are kept in so many bits."""
    each = float(bits) if bits == 16 else bits + (16 + bits) / GROUP
    total = 0.0
    for role, numbers, _ in weights(config):
        if role.part in ("mtp", "generator"):
            continue
        total += numbers * (each if role.use == "matrix" else 16) / 8
    return round(total)


def most_texts(config: ModelConfig, memory: float, context: int, bits: int = 16) -> int:
    """How many texts of ``context`` tokens a GPU of ``memory`` bytes serves at once, keys and
    values in bf16; 0 where one is too many, or the weights alone are too large.
    """
    room = USABLE * memory - weight_bytes(config, bits)
    return max(0, int(room // cache_bytes(config, context)))


def serving(config: ModelConfig, *, memory: float, context: int, batch: int = 1) -> dict[str, Any]:
    """As plain values: bytes, and how many texts at once fit into ``memory`` bytes of a GPU.
    ``heads``: the model as it is beside the same one with other numbers of keys to its queries.
    """
    contexts = sorted({max(1, context // 4), max(1, context // 2), context})
    batches = sorted({*BATCHES, batch})
    return {
        "usable": USABLE * memory,
        "weights": {name: weight_bytes(config, bits) for name, bits in PRECISIONS.items()},
        "contexts": contexts,
        "cache": [
            {"batch": texts, "bytes": [texts * cache_bytes(config, length) for length in contexts]}
            for texts in batches
        ],
        "most": {
            name: [most_texts(config, memory, length, bits) for length in contexts]
            for name, bits in PRECISIONS.items()
        },
        "heads": [
            {
                "kind": sharing(shared),
                "kv_heads": shared.attention.kv_heads,
                "own": shared.attention == config.attention,
                "bytes_per_token": cache_bytes_per_token(shared),
                "weights": weight_bytes(shared),
                "most": [most_texts(shared, memory, length) for length in contexts],
            }
            for shared in _shared(config)
        ],
    }


def _shared(config: ModelConfig) -> list[ModelConfig]:
    """With as many keys as queries, with the model's own number or else 8, and with one. Of latent
    attention these have the plain dimensions of its heads (DeepSeek-V2, table 1), and it is last.
    """
    own_attention = config.attention
    if isinstance(own_attention, Latent):
        heads, size = own_attention.heads, own_attention.plain_dim
        grouped_attention = Grouped(heads=heads, kv_heads=heads, head_dim=size)
        return [*_shared(dataclasses.replace(config, attention=grouped_attention)), config]
    heads = config.attention.heads
    kv_heads = config.attention.kv_heads
    grouped = [8] if kv_heads in (1, heads) and heads % 8 == 0 else []
    counts = sorted({heads, kv_heads, *grouped, 1}, reverse=True)
    return [change(config, {"attention.kv_heads": count}, "model") for count in counts]
