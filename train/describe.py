"""A model on paper: what it is made of, what it costs, what bounds it, whether it fits."""

from __future__ import annotations

import dataclasses
from typing import Any

from train.accounting import cache_bytes_per_token, flops_per_token, parts
from train.architecture import row
from train.errors import TrainError
from train.estimate import training_memory
from train.gpus import GPUS, Gpu, gpu
from train.losses import chunk_of
from train.model.config import ModelConfig
from train.roofline import Operation, decoding, training


def find_gpu(name: str) -> Gpu:
    """The GPU of that name; raises ``TrainError`` that lists them."""
    found = gpu(name)
    if found is None:
        known = ", ".join(one.name for one in GPUS)
        raise TrainError(f"gpu {name!r}: choose one of {known}", exit_code=2)
    return found


def describe(
    config: ModelConfig,
    *,
    device: Gpu,
    rows: int,
    context: int,
    batch: int,
    precision: str = "bf16",
    recompute: bool = False,
    optimizer: str = "adamw",
    preset: str | None = None,
) -> dict[str, Any]:
    """All of it as plain values: bytes, FLOPs, FLOPs a byte. ``rows`` of ``context`` tokens a step
    in training; ``batch`` texts of that length in decoding. ``preset``: the published model that
    it is.
    """
    if config.position in ("learned", "sinusoidal") and context > config.context:
        raise TrainError(
            f"context is {context}: the model has {config.context} positions", exit_code=2
        )
    memory = training_memory(
        config,
        rows=rows,
        context=context,
        precision=precision,
        recompute=recompute,
        optimizer=optimizer,
        loss_chunk=chunk_of(config.vocab, device="cuda"),
    )
    counted = parts(config)
    flops = flops_per_token(config, context)
    return {
        "config": dataclasses.asdict(config),
        "row": row(config, preset),
        "parameters": dataclasses.asdict(counted) | {"total": counted.total},
        "training_flops_per_token": flops,
        "gpu": dataclasses.asdict(device) | {"ridge": device.ridge},
        "tokens_per_second_at_peak": device.flops / flops,
        "cache_bytes_per_token": cache_bytes_per_token(config),
        "cache_bytes": _cache(config, context) * batch,
        "rows": rows,
        "context": context,
        "batch": batch,
        "precision": precision,
        "recompute": recompute,
        "optimizer": optimizer,
        "memory": dataclasses.asdict(memory),
        "fits": memory.peak <= device.memory,
        "training": _bounds(training(config, rows=rows, context=context), device),
        "decoding": _bounds(decoding(config, batch=batch, context=context), device),
    }


def _cache(config: ModelConfig, context: int) -> int:
    """Bytes of keys and values of one text, bfloat16; layers with a window keep that much."""
    held = 0
    for layer in range(config.layers):
        window = config.window_of(layer)
        held += context if window is None else min(context, window + config.sinks)
    return 4 * config.kv_heads * config.head_dim * held


def _bounds(operations: list[Operation], device: Gpu) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "flops": one.flops,
            "bytes": one.bytes,
            "intensity": one.intensity,
            "bound": "compute" if one.intensity >= device.ridge else "memory",
        }
        for one in operations
    ]
