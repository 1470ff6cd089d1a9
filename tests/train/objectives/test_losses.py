"""The chunked loss: the same value and gradients, without all logits at once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from tests.train.data.feed_settings import MODEL
from train.model.decoder import Decoder
from train.objectives.example import IGNORED, Example
from train.objectives.losses import chunk_of, loss_sums, token_losses

TOKENS, HIDDEN, VOCAB = 50, 8, 97


class Largest(TorchDispatchMode):
    """The most elements that one tensor has, while it is on."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_flatten(out)[0]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
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


def gradients(chunk: int, z_loss: float = 0.1, softcap: float | None = None):
    features, targets, head = inputs()
    loss, nats, squares = loss_sums(
        features, targets, head.weight, head.bias, softcap, chunk=chunk, z_loss=z_loss
    )
    loss.backward()
    return [loss, nats, squares, features.grad, head.weight.grad, head.bias.grad]


def expected(z_loss: float = 0.1, softcap: float | None = None):
    """With PyTorch's functions, all logits at once."""
    features, targets, head = inputs()
    logits = head(features)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    counts = targets != IGNORED
    nats = F.cross_entropy(logits[counts], targets[counts], reduction="sum")
    squares = logits[counts].exp().sum(-1).log().square().sum()
    loss = nats + z_loss * squares
    loss.backward()
    return [loss, nats, squares, features.grad, head.weight.grad, head.bias.grad]


@pytest.mark.parametrize("z_loss", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 7, 49, 50, 51])
def test_value_and_gradients_are_those_of_pytorchs_functions(chunk, z_loss):
    for actual, value in zip(gradients(chunk, z_loss), expected(z_loss), strict=True):
        torch.testing.assert_close(actual, value)


@pytest.mark.parametrize("chunk", [7, 50])
def test_a_cap_on_logits_is_in_value_and_gradients(chunk):
    for actual, value in zip(gradients(chunk, softcap=3.0), expected(softcap=3.0), strict=True):
        torch.testing.assert_close(actual, value)
    assert expected(softcap=3.0)[0] < expected()[0]


def test_logits_far_from_zero_are_neither_infinite_nor_lost():
    features, targets, head = inputs()
    features, weight = features.detach().float() * 1e3, head.weight.detach().float()
    loss = loss_sums(features, targets, weight, None, chunk=7)[0]
    logits = F.linear(features.double(), weight.double())
    assert logits.abs().max() > 1e3
    nats = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
    torch.testing.assert_close(loss.double(), nats, rtol=1e-5, atol=0)


def test_the_gradient_follows_the_loss_it_is_part_of():
    features, targets, head = inputs()
    loss, _, _ = loss_sums(features, targets, head.weight, head.bias, chunk=9, z_loss=0.1)
    (3 * loss).backward()
    for gradient, value in zip(
        (features.grad, head.weight.grad, head.bias.grad), expected()[3:], strict=True
    ):
        torch.testing.assert_close(gradient, 3 * value)
    with pytest.raises(RuntimeError):  # its gradients are given away, not copied
        loss.backward()


def test_without_gradients_the_sums_are_the_same():
    features, targets, head = inputs()
    with torch.no_grad():
        sums = loss_sums(features, targets, head.weight, head.bias, chunk=9, z_loss=0.1)
    assert not any(tensor.requires_grad for tensor in sums)
    for tensor, value in zip(sums, expected()[:3], strict=True):
        torch.testing.assert_close(tensor, value)


def test_under_autocast_products_are_in_bfloat16_and_the_softmax_is_not():
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(TOKENS, 64, generator=generator).requires_grad_()
    weight = (torch.randn(VOCAB, 64, generator=generator) / 8).requires_grad_()
    targets = torch.randint(VOCAB, (TOKENS,), generator=generator)
    gradients = []
    for chunk in (7, TOKENS):
        features.grad = weight.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_sums(features, targets, weight, None, chunk=chunk)[0]
        loss.backward()
        assert loss.dtype == features.grad.dtype == weight.grad.dtype == torch.float32
        gradients.append([loss.detach(), features.grad, weight.grad])
    logits = F.linear(features.bfloat16(), weight.bfloat16()).float()
    torch.testing.assert_close(gradients[0][0], F.cross_entropy(logits, targets, reduction="sum"))
    exact = F.cross_entropy(F.linear(features, weight), targets, reduction="sum")
    for pair, value in zip(
        gradients, [torch.autograd.grad(exact, (features, weight))] * 2, strict=True
    ):
        for gradient, wanted in zip(pair[1:], value, strict=True):
            assert (gradient - wanted).norm() < 0.01 * wanted.norm()


@pytest.mark.parametrize("learns", ["features", "weight"])
def test_only_what_learns_gets_a_gradient(learns):
    features, targets, head = inputs()
    weight = head.weight.detach().requires_grad_(learns == "weight")
    features = features.detach().requires_grad_(learns == "features")
    loss_sums(features, targets, weight, None, chunk=9)[0].backward()
    assert (features.grad is None) == (learns == "weight")
    assert (weight.grad is None) == (learns == "features")


def test_the_graph_stays_whole_when_compiled():
    def loss(features, weight, bias):
        return loss_sums(features, targets, weight, bias, 3.0, chunk=20, z_loss=0.1)[0]

    features, targets, head = inputs()
    torch.compile(loss, backend="aot_eager", fullgraph=True)(
        features, head.weight, head.bias
    ).backward()
    for actual, value in zip(
        (features.grad, head.weight.grad, head.bias.grad), expected(softcap=3.0)[3:], strict=True
    ):
        torch.testing.assert_close(actual, value)


def test_only_a_chunks_logits_are_held():
    for chunk, most in ((TOKENS, 2 * TOKENS * VOCAB), (5, 2 * 5 * VOCAB)):
        with Largest() as seen:
            gradients(chunk)
        assert seen.elements == most, chunk  # logits and their softmax


def test_without_a_counted_target_sums_and_gradients_are_zero():
    features, targets, head = inputs()
    nothing = torch.full_like(targets, IGNORED)
    loss, nats, squares = loss_sums(features, nothing, head.weight, head.bias, chunk=9, z_loss=1.0)
    loss.backward()
    assert loss == 0 and nats == 0 and squares == 0
    for tensor in (features, head.weight, head.bias):
        assert tensor.grad.abs().max() == 0


def test_a_chunk_is_as_asked_or_fits():
    assert chunk_of(50_257) == chunk_of(500) == 256 and chunk_of(50_257, 100) == 100
    assert chunk_of(50_257, device="cuda") == (1 << 28) // 50_257
    assert chunk_of(1 << 20) == 64 and chunk_of(1 << 30) == 1


def test_what_is_scored_holds_a_chunks_logits_alone_and_is_the_same():
    model = Decoder(MODEL).eval()
    tokens = torch.randint(300, (6, 32), generator=torch.Generator().manual_seed(0))
    targets = tokens.roll(-1, 1)
    targets[:, -1] = IGNORED
    example = Example(inputs=tokens, targets=targets, documents=None)
    whole = F.cross_entropy(
        model(tokens).flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    with Largest() as seen:
        chunked = token_losses(model, example, chunk=16)
    torch.testing.assert_close(chunked, whole.detach())
    assert seen.elements < 192 * 300 / 4
