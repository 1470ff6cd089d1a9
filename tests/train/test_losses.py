"""The chunked loss: the same value and gradients, without all logits at once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from train.data.rows import IGNORED
from train.losses import chunk_of, loss_sums

TOKENS, HIDDEN, VOCAB = 50, 8, 97


class Largest(TorchDispatchMode):
    """The most elements that one tensor has, while it is on."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for one in tree_flatten(out)[0]:
            if isinstance(one, torch.Tensor):
                self.elements = max(self.elements, one.numel())
        return out


def inputs(seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(TOKENS, HIDDEN, generator=generator, dtype=torch.float64)
    head = nn.Linear(HIDDEN, VOCAB).double()
    for weight in head.parameters():
        weight.data = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    targets = torch.randint(VOCAB, (TOKENS,), generator=generator)
    targets[::7] = IGNORED
    return features.requires_grad_(), targets, head


def gradients(chunk: int, z_loss: float = 0.1):
    features, targets, head = inputs()
    nats, squares = loss_sums(features, targets, head, chunk=chunk, squares=True)
    (nats + z_loss * squares).backward()
    return [nats, squares, features.grad, head.weight.grad, head.bias.grad]


@pytest.mark.parametrize("chunk", [1, 7, 49, 50, 51])
def test_chunks_change_neither_value_nor_gradients(chunk):
    features, targets, head = inputs()
    logits = head(features)
    counts = targets != IGNORED
    nats = F.cross_entropy(logits[counts], targets[counts], reduction="sum")
    squares = logits[counts].exp().sum(-1).log().square().sum()
    (nats + 0.1 * squares).backward()
    expected = [nats, squares, features.grad, head.weight.grad, head.bias.grad]
    for found, value in zip(gradients(chunk), expected, strict=True):
        torch.testing.assert_close(found, value)


def test_only_a_chunks_logits_are_held():
    for chunk, most in ((TOKENS, TOKENS * VOCAB), (5, HIDDEN * VOCAB)):
        with Largest() as seen:
            gradients(chunk)
        assert seen.elements == most, chunk


def test_where_no_target_counts_the_sums_and_gradients_are_zero():
    features, targets, head = inputs()
    nats, squares = loss_sums(
        features, torch.full_like(targets, IGNORED), head, chunk=9, squares=True
    )
    (nats + squares).backward()
    assert nats == 0 and squares == 0 and features.grad.abs().max() == 0


def test_a_chunk_is_as_asked_or_fits():
    assert chunk_of(50_257) == (1 << 26) // 50_257 and chunk_of(50_257, 100) == 100
    assert chunk_of(1 << 30) == 1
