from __future__ import annotations

import pytest
import torch

from train.data.rows import IGNORED, Batch
from train.errors import TrainError
from train.objectives.objectives import objective


def batch() -> Batch:
    documents = torch.tensor([[3] * 10 + [4] * 21 + [5], [5] * 20 + [-1] * 12])
    inputs = torch.arange(64).view(2, 32)
    targets = (inputs + 1).masked_fill(documents < 0, IGNORED)
    return Batch(inputs=inputs, targets=targets, documents=documents)


def test_causal_changes_nothing():
    example = objective("causal")(batch(), 0, 7)
    assert example.prefix is None
    assert torch.equal(example.batch.targets, batch().targets)


def test_a_prefix_begins_each_document_and_its_tokens_are_not_scored():
    before, lengths = batch(), set()
    for step in range(300):
        example = objective("prefix")(before, 0, step)
        assert example.prefix is not None
        for row, start, end in ((0, 0, 10), (0, 10, 31), (0, 31, 32), (1, 0, 20)):
            inside = example.prefix[row, start:end].tolist()
            length = sum(inside)
            assert inside == [True] * length + [False] * (end - start - length)
            scored = (example.batch.targets[row, start:end] != IGNORED).tolist()
            hidden = max(0, length - 1)
            assert scored == [False] * hidden + [True] * (end - start - hidden)
            lengths.add((start, length))
        assert not example.prefix[1, 20:].any()
        assert torch.equal(example.batch.inputs, before.inputs)
    assert {length for start, length in lengths if start == 10} == set(range(21))


def test_the_draw_is_a_function_of_seed_and_step():
    drawn = [objective("prefix")(batch(), *key).prefix for key in ((0, 1), (0, 1), (0, 2), (1, 1))]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[3])


def test_a_strange_objective_is_refused():
    with pytest.raises(TrainError, match="choose one of causal, prefix"):
        objective("masked")
