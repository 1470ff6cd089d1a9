"""The back end of attention for each kind of layer of a run, and why: known before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from train.attention import BACKENDS, Mask, Relative
from train.attention.choice import EXCLUDED, fault, resolve
from train.config import TrainConfig
from train.device import computes_in
from train.model.attention_settings import Sight
from train.model.cache import Seen
from train.model.config import ModelConfig
from train.model.positions import positions
from train.objectives.objectives import both_ways


@dataclass(frozen=True)
class LayerBackend:
    """Of a kind of layer: how many there are, what their mask is, the back end and the reason."""

    layers: int
    mask: list[str]
    dtype: str
    device: str
    backend: str
    why: str


def layer_backends(
    model: ModelConfig, train: TrainConfig, device: torch.device
) -> list[LayerBackend]:
    """Raises ``LlmcurateError`` where the back end asked for cannot do one of the layers."""
    like, rows = _like(model, train, device), []
    for layers, mask in _kinds(model, train, torch.device("meta")):
        row = resolve(train.attention, like, mask, model.attention.value_dim)
        why = row.why
        if train.attention == "auto" and row.backend == "flex":
            why += f"; triton does not do {_not_for_triton(like, mask, model.attention.value_dim)}"
        name = str(like.dtype).removeprefix("torch.")
        shown = sorted(mask.features)
        rows.append(LayerBackend(layers, shown, name, device.type, row.backend, why))
    return rows


def try_kernels(model: ModelConfig, train: TrainConfig, device: torch.device) -> list[str]:
    """Our own kernels tried on a small case of each kind of layer that would use them, against the
    eager reference; where they fail, another back end takes their place from now on. A line on each
    failure.
    """
    lines, own, like = [], model.attention, _like(model, train, device)
    for _, mask in _kinds(model, train, device):
        if resolve(train.attention, like, mask, own.value_dim).backend != "triton":
            continue
        wrong = fault("triton", mask, own.heads, own.kv_heads, own.head_dim, like.dtype)
        if wrong is not None:
            EXCLUDED["triton"] = wrong
            other = resolve(train.attention, like, mask, own.value_dim).backend
            lines.append(f"attention triton is not used, {other} is: {wrong}")
    return lines


def _like(model: ModelConfig, train: TrainConfig, device: torch.device) -> SimpleNamespace:
    """What a back end is chosen by of the queries."""
    own, dtype = model.attention, computes_in(device, train.precision)
    shape = (1, own.heads, 2, own.head_dim)
    return SimpleNamespace(dtype=dtype, device=device, shape=shape, requires_grad=True)


def _not_for_triton(like: Any, mask: Mask, values: int) -> str:
    if isinstance(mask.bias, Relative):
        return "T5's learned bias"
    return BACKENDS["triton"].refusal(like, mask, values) or f"the dtype {like.dtype}"


def _kinds(
    model: ModelConfig, train: TrainConfig, device: torch.device
) -> Iterator[tuple[int, Mask]]:
    stacks = [model] if model.encoder is None else [model.reader, model]
    for stack in stacks:
        for sight in dict.fromkeys(stack.sights):
            yield stack.sights.count(sight), _mask(stack, train, sight, device)
    if model.encoder is not None:
        documents = torch.zeros(1, 2, dtype=torch.long, device=device)
        like = torch.empty(1, 2, model.hidden, device=device)
        yield model.layers, Seen(length=2, documents=documents).mask(like, documents)


def _mask(model: ModelConfig, train: TrainConfig, sight: Sight, device: torch.device) -> Mask:
    """Of the kind that a stack makes in training; a few tokens long."""
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
        **vars(sight),
        prefix=torch.zeros(1, length, dtype=torch.bool, device=device) if prefix else None,
        bias=bias,
        content=own.content,
    )
    return mask.of_queries(2, 4) if shared else mask


def backends_line(rows: list[LayerBackend]) -> str:
    """The back ends in one line."""
    parts = [
        f"{row.backend} in {row.layers} layers ({', '.join(row.mask)}; "
        f"{row.dtype} on {row.device}): {row.why}"
        for row in rows
    ]
    return "attention: " + "; ".join(parts)
