"""Compiled training: few graphs, whatever the mask, and none for what is scored or generated."""

from __future__ import annotations

import functools

import pytest
import torch

from train.config import TrainConfig
from train.loop.pretrain import pretrain


@pytest.fixture
def traced(monkeypatch):
    """Modules are traced as for a compiler, and the traces run as they are."""
    compiled = functools.partialmethod(torch.nn.Module.compile, backend="eager")
    monkeypatch.setattr(torch.nn.Module, "compile", compiled)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


SHAPE = {"layers": 2, "hidden": 32, "attention.heads": 2, "attention.kv_heads": 1}


@pytest.mark.parametrize(
    ("changes", "graphs"),
    [
        pytest.param({}, 1, id="documents"),
        pytest.param({"attention.window": 16}, 1, id="window"),
        pytest.param({"attention.window": 16, "attention.window_pattern": "WF"}, 2, id="both"),
    ],
)
def test_blocks_that_are_compiled_one_by_one_share_a_graph_for_each_kind_of_mask(
    changes, graphs, shard_folder, tmp_path, traced
):
    train = TrainConfig(
        steps=4, context=48, rows=2, compile=True, parallel="fsdp", eval_every=2, offload=True
    )
    summary = pretrain(shard_folder, tmp_path, changes=SHAPE | changes, train=train)
    assert summary["last_loss"] < summary["first_loss"]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs
