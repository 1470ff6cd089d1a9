"""Every choice of the configuration, alone and together, against what it promises."""

from __future__ import annotations

import itertools

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change as changed
from tests.train.model.variants import SHAPE, VARIANTS
from train.model.decoder import Decoder


def build(change: dict, *, attention: str = "auto", spread: float = 3.0) -> Decoder:
    """Weights larger than at the start, so that what is wrong shows."""
    model = Decoder(changed(SHAPE, change, "model"), attention=attention)
    model.initialise(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.mul_(spread)
            elif name.endswith("bias"):
                weight.normal_(0, 0.3, generator=torch.Generator().manual_seed(1))
    return model.eval()


def tokens_of(rows: int = 2, length: int = 24) -> torch.Tensor:
    return torch.randint(61, (rows, length), generator=torch.Generator().manual_seed(2))


@pytest.mark.lab
@pytest.mark.parametrize("change", VARIANTS.values(), ids=VARIANTS)
def test_no_model_choice_sees_the_future_or_another_document(change):
    model, tokens = build(change), tokens_of()
    documents = torch.tensor([[0] * 9 + [1] * 15, [2] * 24])
    plain = model(tokens, documents=documents)
    assert plain.isfinite().all()
    later = tokens.clone()
    later[:, 17:] = 7
    assert torch.equal(model(later, documents=documents)[:, :17], plain[:, :17])
    other = tokens.clone()
    other[0, :9] = 7
    assert torch.equal(model(other, documents=documents)[0, 9:], plain[0, 9:])
    assert not torch.equal(model(other, documents=documents)[0, :9], plain[0, :9])


@pytest.mark.lab
@pytest.mark.parametrize("change", VARIANTS.values(), ids=VARIANTS)
def test_a_cache_gives_the_same_logits_token_for_token(change):
    model, tokens = build(change), tokens_of()
    with torch.no_grad():
        whole = model(tokens)
        cache = model.empty_cache()
        pieces = [model(tokens[:, :6], cache=cache), model(tokens[:, 6:9], cache=cache)]
        pieces += [model(tokens[:, i : i + 1], cache=cache) for i in range(9, 24)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=1e-4, atol=1e-4)


def test_a_windowed_cache_does_not_grow():
    model, sizes = build({"attention.window": 5, "attention.sinks": 2}), []
    with torch.no_grad():
        cache = model.empty_cache()
        for _ in range(4):
            model(tokens_of(), cache=cache)
            sizes.append(cache.bytes)
    assert len(set(sizes)) == 1
    assert sizes[0] == 2 * 2 * 2 * 2 * 7 * 8 * 4  # k, v; layers; rows; heads; kept; size; float32


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"attention.window": 5, "attention.sinks": 2},
        {"position": "alibi"},
        {"position": "learned"},
    ],
    ids=["full", "window and sinks", "alibi", "learned"],
)
def test_texts_of_different_lengths_share_a_batch(change):
    """Shorter ones are padded in front, which none of their tokens sees."""
    model, tokens = build(change), tokens_of(rows=1, length=24)
    short = tokens[:, 10:]
    padded = torch.cat((torch.full((1, 10), 3), short), dim=1)
    documents = torch.zeros(2, 24, dtype=torch.long)
    documents[1, :10] = -1
    with torch.no_grad():
        cache = model.empty_cache()
        both = torch.cat((tokens, padded))
        pieces = [model(both[:, :12], documents=documents[:, :12], cache=cache)]
        pieces += [
            model(both[:, i : i + 1], documents=documents[:, i : i + 1], cache=cache)
            for i in range(12, 24)
        ]
        out = torch.cat(pieces, dim=1)
        torch.testing.assert_close(out[0], model(tokens)[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(out[1, 10:], model(short)[0], rtol=1e-4, atol=1e-4)


def test_a_window_hides_what_is_far_and_sinks_stay():
    model, tokens = (
        build({"attention.window": 5, "attention.sinks": 2, "layers": 1}),
        tokens_of(rows=1),
    )
    plain = model(tokens)
    for position, seen in ((0, True), (1, True), (2, False), (18, False), (19, True), (23, True)):
        changed = tokens.clone()
        changed[0, position] = (changed[0, position] + 1) % 61
        assert torch.equal(model(changed)[0, 23], plain[0, 23]) != seen, position


def test_a_prefix_is_seen_by_its_document_alone():
    model, tokens = build({"layers": 1}), tokens_of(rows=1)
    documents = torch.tensor([[0] * 12 + [1] * 12])
    prefix = torch.zeros(1, 24, dtype=torch.bool)
    prefix[0, :4] = prefix[0, 12:18] = True
    plain = model(tokens, documents=documents, prefix=prefix)
    changed = tokens.clone()
    changed[0, 17] = (changed[0, 17] + 1) % 61  # the end of the second prefix
    after = model(changed, documents=documents, prefix=prefix)
    assert torch.equal(after[0, :12], plain[0, :12])
    assert not (after[0, 12:] == plain[0, 12:]).all(dim=-1).any()
    changed[0, 17], changed[0, 20] = tokens[0, 17], (tokens[0, 20] + 1) % 61  # past it: causal
    after = model(changed, documents=documents, prefix=prefix)
    assert torch.equal(after[0, :20], plain[0, :20])


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"attention.window": 5, "attention.sinks": 1},
        {"position": "alibi"},
        {"position": "t5"},
        {"attention.qk_norm": True},
    ],
    ids=["plain", "window and sinks", "alibi", "t5", "qk norm"],
)
def test_gradients_are_those_of_finite_differences(backend, change):
    """In float64, along random directions in the space of all weights."""
    model = build({"context": 12, **change}, attention=backend, spread=1.0).double()
    tokens = tokens_of(length=13)
    documents = torch.tensor([[0] * 5 + [1] * 7, [2] * 12])

    def loss() -> torch.Tensor:
        logits = model(tokens[:, :-1], documents=documents)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    loss().backward()
    weights = list(model.parameters())
    draw = torch.Generator().manual_seed(3)
    for _ in range(2):
        steps = [
            torch.randn(weight.shape, generator=draw, dtype=torch.float64) for weight in weights
        ]
        predicted = sum(
            float((weight.grad * step).sum()) for weight, step in zip(weights, steps, strict=True)
        )
        values = []
        for sign in (1, -2):
            with torch.no_grad():
                for weight, step in zip(weights, steps, strict=True):
                    weight.add_(step, alpha=sign * 1e-6)
                values.append(float(loss()))
        with torch.no_grad():
            for weight, step in zip(weights, steps, strict=True):
                weight.add_(step, alpha=1e-6)
        measured = (values[0] - values[1]) / 2e-6
        assert measured == pytest.approx(predicted, rel=1e-5, abs=1e-8)


def test_recomputing_a_block_changes_no_gradient():
    grads = []
    for recompute in (False, True, 2):
        model = build({}).train()
        model.stack.recompute = recompute
        model(tokens_of()).square().mean().backward()
        grads.append([weight.grad for weight in model.parameters()])
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(*grads, strict=True))


def test_every_second_block_may_run_again():
    model = build({"layers": 3}).train()
    model.stack.recompute = 2
    runs = [0, 0, 0]
    for layer, each in enumerate(model.stack.blocks):

        def count(*_, layer=layer):
            runs[layer] += 1

        each.register_forward_pre_hook(count)
    model(tokens_of()).square().mean().backward()
    assert runs == [2, 1, 2]


@pytest.mark.lab
@pytest.mark.parametrize("share", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_combinations_build_and_run(share):
    """Pairs of choices that mean something together; the rest is refused by name."""
    kept = refused = 0
    for first, other in [*itertools.combinations(VARIANTS.values(), 2)][::share]:
        try:
            config = changed(SHAPE, {**first, **other}, "model")
        except LlmcurateError as error:
            assert error.exit_code == 2
            refused += 1
            continue
        if kept % 7 == 0:
            model = Decoder(config)
            model.initialise(0)
            assert model(tokens_of(rows=1, length=6)).isfinite().all()
        kept += 1
    assert kept > 500 / share
    assert 0 < refused < 150 / share


def test_flex_is_refused_where_it_has_no_gradients():
    model = build({}, attention="flex").train()
    with pytest.raises(LlmcurateError, match="flex does not support gradients on the device cpu"):
        model(tokens_of())


def test_dropout_is_off_outside_training_and_follows_the_seed():
    model, tokens = build({"dropout": 0.5}), tokens_of()
    assert torch.equal(model(tokens), model(tokens))
    model.train()
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(model(tokens))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
