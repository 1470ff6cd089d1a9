"""Small cases of attention, and their masks."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import flex_attention

from train.attention import Alibi, Mask, Relative


def case(queries=8, keys=8, heads=4, kv_heads=2, dtype=torch.float32):
    draw = torch.Generator().manual_seed(0)
    q = torch.randn(2, heads, queries, 16, generator=draw).to(dtype)
    k = torch.randn(2, kv_heads, keys, 16, generator=draw).to(dtype)
    v = torch.randn(2, kv_heads, keys, 16, generator=draw).to(dtype)
    return q, k, v


def mask(queries=8, keys=8, **more):
    return Mask(queries=queries, keys=keys, device=torch.device("cpu"), **more)


PREFIX = torch.tensor([[1, 1, 0, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]], dtype=torch.bool)

MASKS = {
    "causal": {},
    "full": {"causal": False},
    "window": {"window": 3},
    "window and sinks": {"window": 2, "sinks": 1},
    "prefix": {"prefix": PREFIX},
    "window to both sides": {"window": 2, "sinks": 4, "causal": False},
    "alibi": {"bias": Alibi(slopes=torch.tensor([0.5, 0.25, 0.1, 0.01]))},
    "relative": {
        "bias": Relative(weight=torch.linspace(-1, 1, 24).view(6, 4), distance=7),
    },
    "window, prefix and alibi": {
        "window": 3,
        "prefix": PREFIX,
        "bias": Alibi(slopes=torch.tensor([0.5, 0.25, 0.1, 0.01])),
    },
}


def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """FlexAttention forward without torch.compile, whose traces take nearly all of its time."""
    monkeypatch.setattr(
        flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, raising=False
    )
