"""A back end that computes wrong results is found before training begins."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import dataclasses

import pytest
import torch

pytest.importorskip("triton")

from llmcurate.base.settings import change
from train.attention import BACKENDS, Alibi, Mask, choice
from train.attention.choice import difference, fault, small_mask
from train.attention.flash import op
from train.config import TrainConfig
from train.loop.backends import layer_backends, try_kernels
from train.model.presets import preset

CPU = torch.device("cpu")
LIKE = Mask(queries=2, keys=2, device=CPU, documents=torch.zeros(1, 2, dtype=torch.long))
KINDS = {
    "documents": {},
    "window and sinks": {"window": 64, "sinks": 3},
    "prefix": {"prefix": torch.zeros(1, 2, dtype=torch.bool)},
    "alibi": {"bias": Alibi(slopes=torch.tensor([0.5, 0.02]))},
    "queries of a chunk": {"keys": 4},
}

pytestmark = pytest.mark.skipif(not op.INTERPRETED, reason="TRITON_INTERPRET is 0")


def few(*quick):
    """All kinds, those but the quick ones as slow tests."""
    slow = pytest.mark.slow
    return [pytest.param(k, id=n, marks=() if n in quick else slow) for n, k in KINDS.items()]


@pytest.fixture
def excluded(monkeypatch):
    monkeypatch.setattr(choice, "EXCLUDED", {})
    monkeypatch.setattr("train.loop.backends.EXCLUDED", choice.EXCLUDED)
    return choice.EXCLUDED


@pytest.mark.parametrize("kind", few("window and sinks", "queries of a chunk"))
def test_kernels_that_are_right_pass(kind):
    assert fault("triton", dataclasses.replace(LIKE, **kind), 2, 1, 16, torch.float32) is None


@pytest.mark.parametrize("kind", few("documents", "queries of a chunk"))
def test_kernels_that_leave_the_kind_of_mask_out_do_not(kind, monkeypatch):
    right = BACKENDS["triton"].attention

    def wrong(q, k, v, mask):
        bare = {"documents": None, "window": None, "sinks": 0, "prefix": None, "bias": None}
        return right(q, k, v, Mask(queries=mask.queries, keys=mask.keys, device=CPU, **bare))

    broken = dataclasses.replace(BACKENDS["triton"], attention=wrong)
    monkeypatch.setitem(BACKENDS, "triton", broken)
    what = fault("triton", dataclasses.replace(LIKE, **kind), 2, 1, 16, torch.float32)
    assert what is not None and "differ from the reference by" in what


def test_gradients_are_compared_too(monkeypatch):
    def wrong(q, k, v, mask):
        return BACKENDS["eager"].attention(q, k.detach(), v, mask) + 0 * k.sum()

    broken = dataclasses.replace(BACKENDS["triton"], attention=wrong)
    monkeypatch.setitem(BACKENDS, "triton", broken)
    assert difference("triton", small_mask(LIKE, CPU), 2, 2, 16, torch.float32) >= 1


def test_failing_kernels_are_reported_and_replaced_by_another_back_end(excluded, monkeypatch):
    small = {"heads": 2, "kv_heads": 1, "head_dim": 16, "window": 8, "window_pattern": "WF"}
    model = change(preset("tiny"), {"attention": small}, "model")
    asked = TrainConfig(attention="triton", precision="fp32")
    assert try_kernels(model, asked, CPU) == []

    def raising(q, k, v, mask):
        raise RuntimeError("PTX assembly aborted\nin line 7")

    broken = dataclasses.replace(BACKENDS["triton"], attention=raising)
    monkeypatch.setitem(BACKENDS, "triton", broken)
    assert try_kernels(model, asked, CPU) == [
        "attention uses sdpa instead of triton: RuntimeError: PTX assembly aborted"
    ]
    assert {row.backend for row in layer_backends(model, asked, CPU)} == {"sdpa"}
