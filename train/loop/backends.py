"""Find out before a run which attention back end each kind of layer uses, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from llmcurate.base.disk.units import counted
from train.attention import BACKENDS, Mask, Relative
from train.attention.choice import EXCLUDED, fault, resolve
from train.config import TrainConfig
from train.device import computes_in, generation
from train.model.attention_settings import AttentionPattern
from train.model.cache import SourceTokens
from train.model.config import ModelConfig
from train.model.positions import positions
from train.objectives.objectives import both_ways


@dataclass(frozen=True)
class LayerBackend:
    """The attention back end of one kind of layer, and why it was chosen. ``layers``: how many."""

    layers: int
    mask: list[str]
    dtype: str
    device: str
    backend: str
    why: str


def layer_backends(
    model: ModelConfig, train: TrainConfig, device: torch.device
) -> list[LayerBackend]:
    """Return the back end of each kind of layer. Raises ``LlmcurateError`` if a kind has none."""
    queries, rows = _query_traits(model, train, device), []
    for layers, mask in _layer_kinds(model, train, torch.device("meta")):
        row = resolve(train.attention, queries, mask, model.attention.value_dim)
        why = row.why
        if train.attention == "auto" and row.backend == "flex":
            missing = _not_for_triton(queries, mask, model.attention.value_dim)
            why += f"; triton does not support {missing}"
        name = str(queries.dtype).removeprefix("torch.")
        shown = sorted(mask.features)
        rows.append(LayerBackend(layers, shown, name, device.type, row.backend, why))
    return rows


def try_kernels(model: ModelConfig, train: TrainConfig, device: torch.device) -> list[str]:
    """Compare our Triton kernels with the eager reference on a small case of each kind of layer.
    Kernels that fail are not used. Return a line of text for each failure. If the table of tile
    sizes has no row for this GPU, measure the fastest sizes first: a minute at the first use.
    """
    lines, own, queries = [], model.attention, _query_traits(model, train, device)
    for _, mask in _layer_kinds(model, train, device):
        if resolve(train.attention, queries, mask, own.value_dim).backend != "triton":
            continue
        half = queries.dtype != torch.float32
        if half and not train.deterministic and generation(device) not in (0, 9):
            from train.attention.flash.tune import measure

            shape = 2, own.heads, 4_096, own.head_dim
            q = torch.randn(shape, dtype=queries.dtype, device=device, requires_grad=True)
            measure(q, (torch.arange(4_096, device=device) // 512).expand(2, -1))
        failure = fault("triton", mask, own.heads, own.kv_heads, own.head_dim, queries.dtype)
        if failure is not None:
            EXCLUDED["triton"] = failure
            replacement = resolve(train.attention, queries, mask, own.value_dim).backend
            lines.append(f"attention uses {replacement} instead of triton: {failure}")
    return lines


def _query_traits(model: ModelConfig, train: TrainConfig, device: torch.device) -> SimpleNamespace:
    own, dtype = model.attention, computes_in(device, train.precision)
    shape = (1, own.heads, 2, own.head_dim)
    return SimpleNamespace(dtype=dtype, device=device, shape=shape, requires_grad=True)


def _not_for_triton(queries: Any, mask: Mask, values: int) -> str:
    if isinstance(mask.bias, Relative):
        return "T5's learned bias"
    return BACKENDS["triton"].refusal(queries, mask, values) or f"the dtype {queries.dtype}"


def _layer_kinds(
    model: ModelConfig, train: TrainConfig, device: torch.device
) -> Iterator[tuple[int, Mask]]:
    stacks = [model] if model.encoder is None else [model.encoder_config, model]
    for stack in stacks:
        for pattern in dict.fromkeys(stack.patterns):
            yield stack.patterns.count(pattern), _mask(stack, train, pattern, device)
    if model.encoder is not None:
        documents = torch.zeros(1, 2, dtype=torch.long, device=device)
        queries = torch.empty(1, 2, model.hidden, device=device)
        yield model.layers, SourceTokens(length=2, documents=documents).mask(queries, documents)


def _mask(
    model: ModelConfig, train: TrainConfig, pattern: AttentionPattern, device: torch.device
) -> Mask:
    prefix, shared = both_ways(train), train.context_parallel > 1
    length = 8 if shared else 2
    with device:
        own = positions(model)
        bias = own.bias()
    mask = Mask(
        queries=length,
        keys=length,
        device=device,
        causal=model.causal,
        documents=torch.zeros(1, length, dtype=torch.long, device=device),
        **vars(pattern),
        prefix=torch.zeros(1, length, dtype=torch.bool, device=device) if prefix else None,
        bias=bias,
        content=own.content,
    )
    return mask.of_queries(2, 4) if shared else mask


def backends_line(rows: list[LayerBackend]) -> str:
    """Return the back ends of all kinds of layers in one line of text."""
    parts = [
        f"{row.backend} in {counted(row.layers, 'layer')} ({', '.join(row.mask)}; "
        f"{row.dtype} on {row.device}): {row.why}"
        for row in rows
    ]
    return "attention: " + "; ".join(parts)
