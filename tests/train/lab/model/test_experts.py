"""Experts compute what a loop over tokens computes."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.model.variants import LATENT, SHAPE
from train.config import TrainConfig
from train.lab.model.experts import Experts, grouped_linear, looped
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.feed_forward_settings import ACTIVATIONS
from train.model.layers import FUNCTIONS, FeedForward, View, token_seeds
from train.objectives.example import Example
from train.objectives.losses import Losses
from train.optim.optimizers import Muon, groups, optimizers, orthogonal


def mixture(**changes) -> ModelConfig:
    given = {"kind": "experts", "count": 4, "top_k": 2, "width": 20} | changes
    return change(SHAPE, {"feed_forward": given}, "model")


CASES = {
    "two of four": {},
    "one, its score as it is": {"top_k": 1, "normalise": False},
    "all": {"top_k": 4},
    "scores as they are": {"normalise": False},
    "plain activation": {"activation": "relu"},
    "sigmoid, scaled": {"scores": "sigmoid", "scale": 2.5},
    "a bias": {"bias_rate": 0.1, "scores": "sigmoid"},
    "of two groups one": {"count": 4, "groups": 2, "top_groups": 1, "scores": "sigmoid"},
    "of two groups the one with the best": {"groups": 2, "top_groups": 1, "group_best": 1},
    "of three groups two": {"count": 6, "groups": 3, "top_groups": 2, "top_k": 3},
    "shared": {"shared_width": 12},
    "shared, weighed": {"shared_width": 12, "shared_gate": True},
    "capacity": {"capacity": 0.75},
    "hash": {"routing": "hash", "top_k": 1},
}


def layer_of(config: ModelConfig, dtype: torch.dtype = torch.float64) -> Experts:
    layer = Decoder(config)
    layer.initialise(3)
    experts = layer.stack.blocks[0].feed_forward
    assert isinstance(experts, Experts)
    if experts.router is not None and experts.router.bias is not None:
        experts.router.bias.data = torch.tensor([0.3, -0.4, 0.0, 0.1])
    return experts.to(dtype)


def one_expert(layer: Experts, number: int, x: torch.Tensor) -> torch.Tensor:
    up = layer.up[number] @ x
    if layer.gate is not None:
        return layer.down[number] @ (layer.activation(layer.gate[number] @ x) * up)
    return layer.down[number] @ layer.activation(up)


def by_tokens(layer: Experts, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The definition: token by token, expert by expert."""
    own, out = layer.own, torch.zeros_like(x)
    for row in range(len(x)):
        chosen: list[list[tuple[int, torch.Tensor]]] = []
        for position in range(x.shape[1]):
            one = x[row, position]
            if layer.router is None:
                view = View(mask=None, tokens=tokens)  # type: ignore[arg-type]
                number = int(layer._hashed(view).experts[row, position])
                chosen.append([(number, torch.ones(()))])
                continue
            logits = layer.router.weight @ one
            scores = logits.softmax(0) if own.scores == "softmax" else 1 / (1 + (-logits).exp())
            bias = 0.0 if layer.router.bias is None else layer.router.bias
            ranked = (scores + bias).argsort(descending=True).tolist()
            size = own.count // own.groups
            of_groups = [
                sum(sorted((scores + bias)[g * size : (g + 1) * size].tolist())[-own.group_best :])
                for g in range(own.groups)
            ]
            top = sorted(range(own.groups), key=of_groups.__getitem__)[-own.top_groups :]
            best = [n for n in ranked if n // size in top][: own.top_k]
            total = scores[best].sum() if own.normalise else 1.0
            chosen.append([(n, own.scale * scores[n] / total) for n in best])
        room = dict.fromkeys(range(own.count), math.inf)
        if own.capacity is not None:
            most = math.ceil(own.capacity * x.shape[1] * own.top_k / own.count)
            room = dict.fromkeys(range(own.count), most)
        for choice in range(own.top_k):
            for position, choices in enumerate(chosen):
                number, weight = choices[choice]
                if room[number] > 0:
                    room[number] -= 1
                    out[row, position] += weight * one_expert(layer, number, x[row, position])
        if layer.shared is not None:
            for position in range(x.shape[1]):
                added = layer.shared(x[row, position])[0]
                if layer.shared_gate is not None:
                    added = added * layer.shared_gate(x[row, position]).sigmoid()
                out[row, position] += added
    return out


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_output_and_gradients_are_those_of_a_loop_over_tokens(changes):
    layer = layer_of(mixture(**changes))
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2, 7, 32, dtype=torch.float64, generator=draw, requires_grad=True)
    tokens = torch.randint(61, (2, 7), generator=draw)
    out, notes = layer(x, View(mask=None, tokens=tokens))  # type: ignore[arg-type]
    expected = by_tokens(layer, x, tokens)
    assert torch.allclose(out, expected, atol=1e-12)
    if "capacity" in changes:
        assert notes["dropped"] > 0
    leaves = [x, *(weight for weight in layer.parameters() if weight.requires_grad)]
    weights = torch.randn(out.shape, dtype=torch.float64, generator=draw)
    ours = torch.autograd.grad((out * weights).sum(), leaves, allow_unused=True)
    theirs = torch.autograd.grad((expected * weights).sum(), leaves, allow_unused=True)
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine is None) == (other is None)
        assert mine is None or torch.allclose(mine, other, atol=1e-12)


def test_each_expert_chooses_its_best_tokens_of_a_row_and_no_padding():
    config = change(SHAPE, {"causal": False, "feed_forward": {
        "kind": "experts", "count": 4, "top_k": 2, "width": 20, "routing": "expert_choice",
    }}, "model")  # fmt: skip
    layer = layer_of(config)
    x = torch.randn(2, 8, 32, dtype=torch.float64)
    counted = torch.ones(2, 8, dtype=torch.bool)
    counted[1, 5:] = False
    out, notes = layer(x, View(mask=None, counted=counted))  # type: ignore[arg-type]
    expected = torch.zeros_like(x)
    for row, taken in ((0, 8), (1, 5)):
        scores = (x[row, :taken] @ layer.router.weight.T).softmax(-1)
        for number in range(4):
            for position in scores[:, number].argsort(descending=True)[:4].tolist():
                made = one_expert(layer, number, x[row, position])
                expected[row, position] += scores[position, number] * made
    assert torch.allclose(out, expected, atol=1e-12)
    assert set(notes) == {"router_z"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_grouped_products_are_those_of_each_group_and_so_are_gradients(dtype):
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(12, 16, generator=draw).to(dtype).requires_grad_()
    weight = torch.randn(4, 8, 16, generator=draw).to(dtype).requires_grad_()
    ends = torch.tensor([3, 3, 4, 12], dtype=torch.int32)
    out = grouped_linear(x, weight, ends)
    expected = torch.cat([x[:3] @ weight[0].T, x[3:4] @ weight[2].T, x[4:] @ weight[3].T])
    near = 0.1 if dtype == torch.bfloat16 else 1e-5
    assert torch.allclose(out, expected, atol=near)
    assert torch.allclose(out, looped(x.detach(), weight.detach(), ends), atol=near)
    other = torch.randn(out.shape, generator=draw).to(dtype)
    ours = torch.autograd.grad(out, (x, weight), other)
    theirs = torch.autograd.grad(expected, (x, weight), other)
    for mine, reference in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, reference, atol=2 * near)
    assert not ours[1][1].any()  # a group without rows


def losses_of(config: ModelConfig, *, recompute: bool = False, compiled: bool = False):
    torch.manual_seed(0)
    model = Decoder(config)
    model.initialise(0)
    model.stack.recompute = recompute
    losses = Losses(model, TrainConfig())
    if compiled:
        losses.compile(fullgraph=True, backend="aot_eager")
    tokens = torch.arange(48).view(2, 24) * 7 % 61
    documents = torch.tensor([[0] * 24, [1] * 10 + [2] * 6 + [-1] * 8])
    terms = losses(Example(inputs=tokens, targets=tokens, documents=documents))
    sum(term.sum * term.weight for term in terms.values() if term.weight).backward()
    return terms, {name: w.grad for name, w in model.named_parameters() if w.grad is not None}


def test_loss_terms_are_the_papers_formulas_and_padding_is_no_part_of_them():
    config = mixture(balance=0.1, router_z=0.2)
    terms, _ = losses_of(config)
    assert terms["balance"].weight == pytest.approx(0.1 * 2)
    assert terms["router_z"].weight == pytest.approx(0.2 * 2)
    assert terms["loads"].sum.shape == (2, 4)
    assert terms["loads"].sum.sum(-1).tolist() == [80.0, 80.0]  # 40 tokens, two experts each

    layer = layer_of(config)
    x = torch.randn(2, 6, 32, dtype=torch.float64)
    counted = torch.ones(2, 6, dtype=torch.bool)
    counted[1, 4:] = False
    _, notes = layer(x, View(mask=None, counted=counted))  # type: ignore[arg-type]
    balance = squares = 0.0
    for row, length in ((0, 6), (1, 4)):
        logits = x[row, :length] @ layer.router.weight.T
        logits = logits.detach()
        shares = F.one_hot(logits.topk(2).indices, 4).sum((0, 1)) / (2 * length)
        balance += length * 4 * float((shares * logits.softmax(-1).mean(0)).sum())
        squares += float(logits.exp().sum(-1).log().square().sum())
    assert float(notes["balance"].detach()) == pytest.approx(balance)
    assert float(notes["router_z"].detach()) == pytest.approx(squares)


def test_the_loss_by_device_is_that_of_groups():
    layer = layer_of(mixture(groups=2, top_groups=2, device_balance=0.05, balance=0.0))
    x = torch.randn(2, 6, 32, dtype=torch.float64)
    _, notes = layer(x, View(mask=None))  # type: ignore[arg-type]
    expected = 0.0
    for row in x:
        scores = (row @ layer.router.weight.T).softmax(-1).detach()
        chosen = F.one_hot(scores.topk(2).indices, 4).sum((0, 1)).double()
        loads = 4 / (2 * 6) * chosen  # f_i of equation 25
        for own in (slice(0, 2), slice(2, 4)):
            expected += 6 * float(loads[own].mean() * scores[:, own].mean(0).sum())
    assert float(notes["device_balance"].detach()) == pytest.approx(expected)
    terms, _ = losses_of(mixture(groups=2, top_groups=2, device_balance=0.05))
    assert terms["device_balance"].weight == pytest.approx(0.05 * 2)


@pytest.mark.parametrize("capacity", [None, 0.5])
def test_a_random_second_expert_is_used_with_twice_its_weight_as_probability(capacity):
    layer = layer_of(mixture(random_second=True, capacity=capacity))
    x = torch.randn(1, 3, 32, dtype=torch.float64).repeat(400, 1, 1)
    draws = token_seeds(torch.arange(400), torch.arange(3)[None], 32)
    view = View(mask=None, draws=draws)  # type: ignore[arg-type]
    routed = layer.router(x, view)
    assert routed.sent[..., 0].all()
    shares = routed.sent[..., 1].double().mean(0)
    assert torch.allclose(shares, 2 * routed.weights[0, :, 1], atol=0.08)

    room = 3 if capacity is None else math.ceil(capacity * 3 * 2 / 4)
    expected, dropped = torch.zeros_like(x[:20]), 0
    for row in range(20):
        left = dict.fromkeys(range(4), room)
        for choice in (0, 1):
            for position in range(3):
                number = int(routed.experts[row, position, choice])
                if not routed.sent[row, position, choice]:
                    continue
                if left[number] == 0:
                    dropped += 1
                    continue
                left[number] -= 1
                made = one_expert(layer, number, x[row, position])
                expected[row, position] += routed.weights[row, position, choice] * made
    few = View(mask=None, draws=draws[:20])  # type: ignore[arg-type]
    out, notes = layer(x[:20], few)
    assert torch.allclose(out, expected, atol=1e-12)
    assert float(notes.get("dropped", 0)) * 2 == dropped
    assert (dropped > 0) == (capacity is not None)
    layer.eval()
    assert layer.router(x, View(mask=None)).kept is None  # type: ignore[arg-type]


def test_even_loads_have_a_balance_of_one():
    layer = layer_of(mixture(top_k=1, normalise=False))
    layer.router.weight.data = torch.eye(32, dtype=torch.float64)[:4] * 1e-9
    x = torch.eye(32, dtype=torch.float64)[None, :4].repeat(1, 3, 1)
    _, notes = layer(x, View(mask=None))  # type: ignore[arg-type]
    assert float(notes["balance"]) / 12 == pytest.approx(1.0)
    assert notes["loads"].tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize("changes", [{}, {"capacity": 0.5, "shared_width": 8}])
def test_computing_blocks_again_changes_nothing(changes):
    plain, gradients = losses_of(mixture(**changes))
    again, others = losses_of(mixture(**changes), recompute=True)
    assert all(torch.equal(plain[name].sum, again[name].sum) for name in plain)
    assert all(torch.equal(gradients[name], others[name]) for name in gradients)


@pytest.mark.parametrize("attention", [SHAPE.attention, LATENT], ids=["grouped", "latent"])
@pytest.mark.parametrize("changes", [{"shared_width": 12}, {"routing": "hash", "top_k": 1}])
def test_with_either_attention_a_cache_gives_the_same_logits(changes, attention):
    given = attention if isinstance(attention, dict) else dataclasses.asdict(attention)
    model = Decoder(change(mixture(**changes), {"attention": given}, "model"))
    model.initialise(0)
    tokens = torch.arange(24).view(2, 12) * 7 % 61
    with torch.no_grad():
        whole = model.eval()(tokens)
        cache = model.empty_cache()
        pieces = [model(tokens[:, :5], cache=cache)]
        pieces += [model(tokens[:, i : i + 1], cache=cache) for i in range(5, 12)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_traced_as_one_graph_it_is_the_same_within_rounding():
    plain, gradients = losses_of(mixture(router_z=0.1))
    again, others = losses_of(mixture(router_z=0.1), compiled=True)
    for name in plain:
        assert torch.allclose(plain[name].sum, again[name].sum, rtol=1e-4)
    assert all(torch.allclose(gradients[n], others[n], atol=1e-3, rtol=1e-3) for n in gradients)


def test_the_router_is_exact_where_the_rest_is_not():
    layer = layer_of(mixture(), torch.float32)
    x = torch.randn(1, 9, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        routed = layer.router(x, View(mask=None))  # type: ignore[arg-type]
        out, _ = layer(x, View(mask=None))  # type: ignore[arg-type]
    assert routed.logits.dtype == torch.float32 and out.dtype == torch.bfloat16
    assert torch.equal(routed.logits, x @ layer.router.weight.T)


@pytest.mark.parametrize("changes", [{"jitter": 0.3}, {"noisy": True}])
def test_noise_follows_from_the_seeds_of_tokens_and_is_of_training_alone(changes):
    layer = layer_of(mixture(**changes))
    x = torch.randn(2, 9, 32, dtype=torch.float64)
    draws = token_seeds(torch.tensor([11, 12]), torch.arange(9)[None], 32)

    def logits(draws, rows=slice(None)):
        view = View(mask=None, draws=draws)  # type: ignore[arg-type]
        return layer.router(x[rows], view).logits

    first = logits(draws)
    assert torch.equal(first, logits(draws))
    assert torch.equal(first[1:], logits(draws[1:], slice(1, 2)))
    assert not torch.equal(first, logits(draws + 1))
    exact = x @ layer.router.weight.T
    assert float((first - exact).abs().mean()) > 0.01
    layer.eval()
    assert torch.allclose(logits(draws), exact)


def test_noise_is_finite_whatever_is_drawn(monkeypatch):
    layer = layer_of(mixture(noisy=True), torch.float32)
    for most in (0, 2**24 - 1):
        monkeypatch.setattr(
            "train.lab.model.experts.random_numbers",
            lambda d, _, n, most=most: torch.full((*d.shape, n), most),
        )
        view = View(mask=None, draws=torch.zeros(1, 3, dtype=torch.long))  # type: ignore[arg-type]
        assert layer.router(torch.zeros(1, 3, 32), view).logits.isfinite().all()


def test_noise_has_the_learned_deviation():
    layer = layer_of(mixture(noisy=True))
    x = torch.zeros(8, 500, 32, dtype=torch.float64)
    draws = token_seeds(torch.arange(8), torch.arange(500)[None], 32)
    noise = layer.router(x, View(mask=None, draws=draws)).logits  # type: ignore[arg-type]
    assert float(noise.std()) == pytest.approx(math.log(2), rel=0.02)  # softplus(0)
    assert abs(float(noise.mean())) < 0.02


def test_the_bias_moves_against_the_load():
    layer = layer_of(mixture(bias_rate=0.1))
    before = layer.router.bias.clone()
    layer.rebalance(torch.tensor([9.0, 1.0, 5.0, 5.0]))
    moved = layer.router.bias - before
    assert torch.allclose(moved, torch.tensor([-0.1, 0.1, 0.0, 0.0], dtype=moved.dtype))


def test_matrices_of_experts_begin_by_their_own_inputs_and_muon_takes_each_alone():
    model = Decoder(mixture())
    model.initialise(0)
    layer = model.stack.blocks[0].feed_forward
    assert float(layer.up.std()) == pytest.approx(32**-0.5, rel=0.05)
    assert float(layer.down.std()) == pytest.approx(20**-0.5 / 2, rel=0.05)
    (matrices,) = groups(model, TrainConfig(), ["matrix"])
    hidden = {id(weight) for weight in matrices["params"]}
    assert {id(layer.up), id(layer.down), id(layer.gate), id(layer.router.weight)} <= hidden

    before, gradient = layer.up.detach().clone(), torch.randn(layer.up.shape)
    layer.up.grad = gradient
    muon = Muon([{"params": [layer.up]}], {"lr": 1.0, "momentum": 0.0, "weight_decay": 0.0})
    muon.state[layer.up]["momentum"] = torch.zeros_like(layer.up)
    muon.step()
    for number in range(4):
        alone = orthogonal(gradient[number][None])[0] * 0.2 * 32**0.5
        assert torch.allclose(before[number] - layer.up[number], alone, atol=1e-4)


@pytest.mark.parametrize("name", ["adamw", "muon", "adafactor", "lion"])
def test_every_optimiser_takes_experts_and_leaves_the_bias(name):
    config = mixture(bias_rate=0.1)
    model = Decoder(config)
    model.initialise(0)
    optimizer = optimizers(model, TrainConfig(optimizer=name))
    tokens = torch.arange(24).view(1, 24)
    terms = Losses(model, TrainConfig())(Example(inputs=tokens, targets=tokens, documents=None))
    terms["objective"].sum.backward()
    before = {n: weight.detach().clone() for n, weight in model.named_parameters()}
    optimizer.rate(0.1)
    optimizer.step()
    same = {n for n, weight in model.named_parameters() if torch.equal(weight, before[n])}
    assert same == {f"stack.blocks.{n}.feed_forward.router.bias" for n in (0, 1)}
    assert not any("router.bias" in key for key in optimizer.state(model))


def test_first_dense_and_every_choose_the_expert_layers():
    config = mixture(first_dense=1, dense_width=40)
    kinds = [type(block.feed_forward) for block in Decoder(config).stack.blocks]
    assert kinds == [FeedForward, Experts] and config.sparse == [1]
    every = change(SHAPE, {"layers": 4, "feed_forward": {"kind": "experts", "every": 2}}, "model")
    assert every.sparse == [1, 3]


def test_changing_the_kind_keeps_the_settings_that_both_kinds_have():
    config = change(SHAPE, {"feed_forward.count": 4, "feed_forward": "experts"}, "model")
    assert (config.feed_forward.width, config.feed_forward.count) == (48, 4)
    assert change(config, {"feed_forward": "dense"}, "model") == SHAPE


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"top_k": 5}, "top_k is 5: there are 4 experts"),
        ({"top_k": 1}, "top_k 1 with normalise"),
        ({"shared_gate": True}, "shared_gate without shared_width"),
        ({"random_second": True, "top_k": 3}, "random_second with top_k 3"),
        ({"device_balance": 0.1}, "device_balance without groups"),
        ({"groups": 3}, "groups is 3: it must divide count"),
        ({"groups": 4, "top_k": 2}, "top_groups is 1 of 4 groups"),
        ({"routing": "hash"}, "routing hash: it has no router"),
        ({"routing": "expert_choice"}, "routing expert_choice with causal true"),
        ({"routing": "expert_choice", "capacity": 1.0}, "capacity with routing expert_choice"),
        ({"first_dense": 2}, "leave no layer of 2 with experts"),
    ],
)
def test_incompatible_settings_are_refused(changes, message):
    with pytest.raises(LlmcurateError, match=message) as caught:
        mixture(**changes)
    assert caught.value.exit_code == 2


def test_experts_support_every_activation():
    for name in ACTIVATIONS:
        layer = layer_of(mixture(activation=name))
        assert layer.activation is FUNCTIONS[ACTIVATIONS[name][0]]
        x = torch.randn(1, 3, 32, dtype=torch.float64)
        out, _ = layer(x, View(mask=None))  # type: ignore[arg-type]
        assert torch.allclose(out, by_tokens(layer, x, torch.zeros(1, 3, dtype=torch.long)))
