"""The operator in the trainer's compiled step: no graph break; a CPU traces it, nothing more."""

from __future__ import annotations

import os

# Before triton is imported: see tests/conftest.py.
os.environ.setdefault("TRITON_INTERPRET", "1")


import pytest
import torch

pytest.importorskip("triton")

from llmcurate.base.settings import change as changed
from train.config import TrainConfig
from train.model.attention_settings import Grouped
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.feed_forward_settings import Dense
from train.objectives.example import Example
from train.objectives.losses import Losses

SHAPE = ModelConfig(
    vocab=97,
    layers=2,
    hidden=32,
    context=32,
    attention=Grouped(heads=2, kv_heads=1, head_dim=16),
    feed_forward=Dense(width=48),
)


WINDOWS = {
    "attention.window": 8,
    "attention.window_pattern": "WF",
    "attention.sinks": 2,
    "position": "alibi",
}


def sums(attention="triton", **change):
    model = Decoder(changed(SHAPE, change, "model"), attention=attention)
    model.initialise(0)
    model.train()
    return Losses(model, TrainConfig(loss_chunk=16))


def batch(with_prefix):
    draw = torch.Generator().manual_seed(0)
    inputs, targets = torch.randint(97, (2, 2, 32), generator=draw)
    documents = torch.tensor([[0] * 9 + [1] * 23, [2] * 30 + [-1] * 2])
    prefix = torch.arange(32).expand(2, -1) < 5 if with_prefix else None
    return Example(inputs=inputs, targets=targets, documents=documents, prefix=prefix)


def loss_and_gradients(run, ours, example):
    ours.zero_grad()
    loss = run(example)["objective"].sum
    loss.backward()
    return [loss.detach(), *(parameter.grad.clone() for parameter in ours.parameters())]


@pytest.mark.parametrize("attention", ["triton", pytest.param("auto", marks=pytest.mark.slow)])
def test_the_compiled_step_has_no_graph_break(attention):
    torch._dynamo.reset()
    ours, parts, graphs = sums(attention, **WINDOWS), batch(True), []

    def keep(graph, example):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(ours, fullgraph=True, backend=keep)
    actual = loss_and_gradients(compiled, ours, parts)
    torch.testing.assert_close(actual, loss_and_gradients(ours, ours, parts), rtol=1e-4, atol=1e-4)
    assert len(graphs) == 1
    called = [node for node in graphs[0].graph.nodes if "flash_attention" in str(node.target)]
    assert len(called) == (SHAPE.layers if attention == "triton" else 0)


@pytest.mark.slow  # small one: the test above, without the gradient's graph
@pytest.mark.parametrize("attention", ["triton", "auto"])
def test_the_gradient_too_is_traced_and_blocks_may_run_again(attention):
    torch._dynamo.reset()
    ours, parts = sums(attention, layers=1), batch(False)
    ours.model.stack.recompute = True
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    actual = loss_and_gradients(compiled, ours, parts)
    torch.testing.assert_close(actual, loss_and_gradients(ours, ours, parts), rtol=1e-4, atol=1e-4)
