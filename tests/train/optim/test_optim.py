"""Optimisers against plain references, and what they keep."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change as changed
from train.config import TrainConfig
from train.model.attention_settings import Grouped
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.feed_forward_settings import Dense
from train.model.roles import Role, set_roles
from train.optim.optimizers import OPTIMIZERS, groups, optimizers, orthogonal

MODEL = ModelConfig(
    vocab=40,
    layers=2,
    hidden=16,
    context=16,
    attention=Grouped(heads=2, kv_heads=1, head_dim=8),
    feed_forward=Dense(width=24),
)
TRAIN = TrainConfig(lr=0.01, weight_decay=0.3, beta1=0.8, beta2=0.9, momentum=0.7)


class Small(nn.Module):
    """A weight of each kind, in double precision."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.embedding = nn.Embedding(5, 4)
        self.inner = nn.Linear(4, 6)
        self.second = nn.Linear(4, 6, bias=False)
        self.head = nn.Linear(6, 5, bias=False)
        set_roles(self.head, weight=Role(part="head", use="head"))
        self.double()
        for parameter in self.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.data.copy_(drawn)


def gradients(model: nn.Module, step: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 + step)
    return {
        name: torch.randn(p.shape, generator=generator, dtype=torch.float64)
        for name, p in model.named_parameters()
    }


def train(model: nn.Module, name: str, steps: int, config: TrainConfig = TRAIN):
    optimizer = optimizers(model, dataclasses.replace(config, optimizer=name))
    for step in range(steps):
        slopes = gradients(model, step)
        for key, parameter in model.named_parameters():
            parameter.grad = slopes[key].to(parameter.dtype)
        optimizer.rate(config.lr / (step + 1))
        optimizer.step()
    return optimizer


def adamw(w, g, state, t, lr, decay):
    m = state["m"] = 0.8 * state.get("m", 0) + 0.2 * g
    v = state["v"] = 0.9 * state.get("v", 0) + 0.1 * g * g
    update = (m / (1 - 0.8**t)) / ((v / (1 - 0.9**t)).sqrt() + 1e-8)
    return w - lr * (update + decay * w)


def lion(w, g, state, t, lr, decay):
    m = state.get("m", torch.zeros_like(g))
    state["m"] = 0.9 * m + 0.1 * g
    return w - lr * ((0.8 * m + 0.2 * g).sign() + decay * w)


def orthogonalised(g, state):
    m = state["m"] = 0.7 * state.get("m", 0) + 0.3 * g
    update = 0.3 * g + 0.7 * m
    u, s, v = torch.linalg.svd(update / (update.norm() + 1e-7), full_matrices=False)
    for _ in range(5):  # the iteration acts on each singular value
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return (u * s) @ v


def muon(w, g, state, t, lr, decay):
    return w - lr * (0.2 * max(w.shape) ** 0.5 * orthogonalised(g, state) + decay * w)


def adafactor(w, g, state, t, lr, decay):
    beta = 1 - t**-0.8
    square = g * g + 1e-30
    if g.dim() == 1:
        v = state["v"] = beta * state.get("v", 0) + (1 - beta) * square
    else:
        r = state["r"] = beta * state.get("r", 0) + (1 - beta) * square.sum(1)
        c = state["c"] = beta * state.get("c", 0) + (1 - beta) * square.sum(0)
        v = torch.outer(r, c) / r.sum()
    update = g / v.sqrt()
    update = update / max(1.0, float(update.square().mean().sqrt()))
    scale = max(1e-3, float(w.square().mean().sqrt()))
    return w - lr * decay * w - lr * scale * update


REFERENCES = {rule.__name__: rule for rule in (adamw, lion, muon, adafactor)}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_five_steps_equal_the_reference(name):
    model, plain = Small(), Small()
    train(model, name, 5)
    for key, parameter in plain.named_parameters():
        decay = (
            TRAIN.weight_decay
            if key.endswith(("inner.weight", "second.weight", "head.weight"))
            else 0
        )
        rule = REFERENCES[name]
        if name == "muon" and key not in ("inner.weight", "second.weight"):
            rule = adamw
        weight, state = parameter.data, {}
        for step in range(5):
            gradient = gradients(plain, step)[key]
            weight = rule(weight, gradient, state, step + 1, TRAIN.lr / (step + 1), decay)
        got = dict(model.named_parameters())[key]
        torch.testing.assert_close(got.data, weight, rtol=1e-9, atol=1e-12, msg=f"{name} {key}")


@pytest.mark.parametrize("name", ["adamw", "lion", "adafactor"])
def test_a_weight_with_a_rate_of_its_own_decays_as_the_others_do(name):
    model = Small()
    set_roles(model.second, weight=Role(part="matrix", use="matrix", rate=0.25))
    before = {key: value.clone() for key, value in model.named_parameters()}
    optimizer = optimizers(model, dataclasses.replace(TRAIN, optimizer=name))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.rate(0.01)
    optimizer.step()
    for key, value in model.named_parameters():
        decays = key in ("inner.weight", "second.weight", "head.weight")
        torch.testing.assert_close(value.data, before[key] * (1 - 0.01 * 0.3 * decays))


def test_adafactor_agrees_with_pytorchs():
    module = pytest.importorskip("torch.optim", reason="torch.optim.Adafactor")
    if not hasattr(module, "Adafactor"):
        pytest.skip("torch.optim.Adafactor came with PyTorch 2.5")
    torch.manual_seed(0)
    ours, theirs = nn.Linear(7, 5).double(), nn.Linear(7, 5).double()
    theirs.load_state_dict(ours.state_dict())
    plain = module.Adafactor(theirs.parameters(), lr=1e-3, weight_decay=0.0)
    own = optimizers(ours, TrainConfig(optimizer="adafactor", lr=1e-3, weight_decay=0.0))
    for _ in range(4):
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            a.grad = b.grad = torch.randn(a.shape, dtype=torch.float64)
        own.step()
        plain.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 5, 12), (2, 12, 5)])
def test_muons_update_has_singular_values_about_one(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonal(matrices))
    assert values.max() < 1.3 and values.median() > 0.6
    assert orthogonal(torch.zeros(shape)).abs().max() == 0


def test_every_weight_is_in_one_group_and_only_maps_decay():
    untied = changed(MODEL, {"head.tied": False}, "model")
    for config in (MODEL, untied):
        model = Decoder(config)
        exempt, decayed = groups(model, TRAIN)
        weights = [*decayed["params"], *exempt["params"]]
        assert sorted(map(id, weights)) == sorted(map(id, model.parameters()))
        assert (decayed["weight_decay"], exempt["weight_decay"]) == (TRAIN.weight_decay, 0.0)
        (hidden,) = groups(model, TRAIN, ["matrix"])
        assert len(hidden["params"]) == 7 * config.layers
        assert len(decayed["params"]) == len(hidden["params"]) + (not config.head.tied)
        assert exempt["params"][0] is model.embedding.weight
        assert len(exempt["params"]) == 1 + 2 * config.layers + 1


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_embeddings_and_head_have_their_rates_and_every_decay_is_that_of_the_run(name):
    own = {"embedding_rate": 8.0, "head_rate": 0.25}
    model = Decoder(changed(MODEL, {"head.tied": False}, "model"))
    parts = optimizers(model, dataclasses.replace(TRAIN, optimizer=name, **own))
    parts.rate(0.01)
    rates = {
        id(weight): (group["lr"], group["lr"] * group["weight_decay"])
        for part in parts.parts
        for group in part.param_groups
        for weight in group["params"]
    }
    decay = 0.01 * TRAIN.weight_decay
    assert rates[id(model.embedding.weight)] == (pytest.approx(0.08), 0.0)
    assert rates[id(model.head.weight)] == pytest.approx((0.0025, decay))
    assert rates[id(model.stack.blocks[0].attention.out.weight)] == pytest.approx((0.01, decay))
    assert rates[id(model.stack.norm.weight)] == (0.01, 0.0)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_a_dumped_state_taken_over_continues_with_the_same_bits(name):
    straight, first = Small(), Small()
    train(straight, name, 3)
    old = train(first, name, 2)
    second = Small(seed=9)
    second.load_state_dict(first.state_dict())
    fresh = optimizers(second, dataclasses.replace(TRAIN, optimizer=name))
    state, new = old.state(first), fresh.state(second)
    assert {k: v.shape for k, v in state.items()} == {k: v.shape for k, v in new.items()}
    for key, value in new.items():
        value.copy_(state[key])
    slopes = gradients(second, 2)
    for key, parameter in second.named_parameters():
        parameter.grad = slopes[key]
    fresh.rate(TRAIN.lr / 3)
    fresh.step()
    for a, b in zip(straight.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_the_state_before_the_first_step_is_that_of_zeros_and_has_all_names(name):
    model = Small()
    before = optimizers(model, dataclasses.replace(TRAIN, optimizer=name)).state(model)
    after = train(model, name, 1).state(model)
    assert {k: v.shape for k, v in before.items()} == {k: v.shape for k, v in after.items()}
    assert not any(value.any() for value in before.values())


def test_an_unknown_optimizer_lists_the_known_names():
    with pytest.raises(LlmcurateError, match="optimizer 'sgd': choose one of adamw, muon"):
        optimizers(Small(), TrainConfig(optimizer="sgd"))
