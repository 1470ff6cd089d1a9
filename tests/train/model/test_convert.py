"""A trained model as the start of another: the weights, and what they compute."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.loop.small_runs import build
from tests.train.model.variants import SHAPE
from train.hf.family import our_shapes
from train.model.convert import anew, conversions, converted, fits
from train.model.decoder import Decoder

MANY = change(SHAPE, {"attention.kv_heads": 4, "attention.bias": "all"}, "model")
ENCODER = change(
    MANY,
    {"causal": False, "norm.place": "post", "embedding.norm": True, "head.transform": True}
    | {"position": "learned", "head.pair": "next", "embedding.segments": 2},
    "model",
)
APART = {"causal": True, "encoder.layers": ENCODER.layers, "head.pair": "none"}
TOKENS = torch.arange(24).reshape(2, 12)


def convert(model: Decoder, changes: dict) -> Decoder:
    """The converted model, what begins anew from another seed."""
    new = Decoder(change(model.config, changes, "model"))
    new.initialise(5)
    steps, state = conversions(model.config, new.config), new.state_dict()
    weights = dict(converted(model.state_dict().items(), steps))
    assert {name for name in state if name not in weights} == {n for n in state if anew(n, steps)}
    new.load_state_dict(state | weights)
    return new.eval()


def test_a_key_head_is_the_mean_of_those_it_stands_for():
    old = build(MANY)
    new = convert(old, {"attention.kv_heads": 2})
    for name in ("key", "value"):
        for part in ("weight", "bias"):
            before, after = (
                getattr(getattr(m.stack.blocks[1].attention, name), part) for m in (old, new)
            )
            size = MANY.attention.head_dim
            first, second, third, last = before.split(size)
            torch.testing.assert_close(after, torch.cat(((first + second) / 2, (third + last) / 2)))
    query = [m.stack.blocks[1].attention.query.weight for m in (old, new)]
    assert torch.equal(*query)


@pytest.mark.lab
def test_a_generator_and_keys_of_distances_are_converted_with_the_rest():
    config = change(
        ENCODER,
        {"attention": {"heads": 8, "kv_heads": 8, "head_dim": 4}, "position": "disentangled"}
        | {"head.pair": "none", "head.bias": True, "head.replaced": True}
        | {"generator.smaller": 2},
        "model",
    )
    old = build(config)
    new = convert(old, {"attention.kv_heads": 4, "vocab": SHAPE.vocab + 2})
    assert new.generator.stack.blocks[0].attention.key.weight.shape == (8, 16)
    assert new.stack.blocks[0].attention.position_key.weight.shape == (16, 32)
    assert len(new.generator.head.bias) == SHAPE.vocab + 2


def test_equal_key_heads_lose_nothing():
    old = build(MANY)
    with torch.no_grad():
        for block in old.stack.blocks:
            for part in (block.attention.key, block.attention.value):
                for tensor in (part.weight, part.bias):
                    heads = tensor.unflatten(0, (2, 2, -1))
                    heads[:, 1] = heads[:, 0]
    torch.testing.assert_close(convert(old, {"attention.kv_heads": 2})(TOKENS), old(TOKENS))


@pytest.mark.parametrize("tied", [True, False])
def test_further_tokens_begin_as_the_mean_and_change_no_other(tied):
    old = build(change(SHAPE, {"head.tied": tied, "head.bias": True}, "model"))
    new = convert(old, {"vocab": SHAPE.vocab + 2})
    logits, before = new(TOKENS), old(TOKENS)
    torch.testing.assert_close(logits[..., : SHAPE.vocab], before)
    for token in (-1, -2):
        torch.testing.assert_close(logits[..., token], before.mean(-1))


def test_a_decoder_reads_both_ways_and_back_again():
    old = build(SHAPE)
    both = convert(old, {"causal": False})
    other = TOKENS.clone()
    other[:, -1] = 50
    assert torch.equal(old(TOKENS)[:, :-1], old(other)[:, :-1])
    assert not torch.allclose(both(TOKENS)[:, :-1], both(other)[:, :-1])
    torch.testing.assert_close(convert(both, {"causal": True})(TOKENS), old(TOKENS))


@pytest.mark.lab
def test_both_stacks_begin_as_the_encoder():
    old = build(ENCODER)
    new = convert(old, APART)
    read = new.encode(TOKENS)
    torch.testing.assert_close(read, old.features(TOKENS))
    blocks = [new.stack.blocks[0], new.encoder.stack.blocks[0], old.stack.blocks[0]]
    for block in blocks[:2]:
        assert torch.equal(block.attention.query.weight, blocks[2].attention.query.weight)
        assert torch.equal(block.feed_forward_norm.weight, blocks[2].feed_forward_norm.weight)
    fresh = Decoder(new.config)
    fresh.initialise(5)
    mine, other = (m.stack.blocks[0].cross.key.weight for m in (new, fresh))
    assert torch.equal(mine, other)
    assert new.head.pair is None


@pytest.mark.lab
def test_a_shallow_decoder_takes_the_first_layers():
    old = build(ENCODER)
    new = convert(old, APART | {"layers": 1})
    assert len(new.stack.blocks) == 1 and len(new.encoder.stack.blocks) == ENCODER.layers
    torch.testing.assert_close(new.encode(TOKENS), old.features(TOKENS))


@pytest.mark.lab
def test_several_conversions_can_be_combined():
    changes = APART | {"encoder.shared": True, "attention.kv_heads": 1, "vocab": SHAPE.vocab + 1}
    new = convert(build(ENCODER), changes)
    assert new.stack.blocks[0].attention.key.out_features == MANY.attention.head_dim
    source = {"source": TOKENS}
    assert torch.isfinite(new(TOKENS, **source)).all()


@pytest.mark.lab
@pytest.mark.parametrize(
    "changes",
    [
        {"layers": SHAPE.layers + 1},
        {"hidden": 64},
        {"vocab": SHAPE.vocab - 1},
        {"attention.heads": 8, "attention.kv_heads": 2},
        {"encoder.layers": SHAPE.layers + 1},
        {"attention.kv_heads": 4},
    ],
)
def test_conversions_do_not_fit_other_shapes(changes):
    new = change(SHAPE, changes, "model")
    assert not fits(our_shapes(SHAPE), our_shapes(new), conversions(SHAPE, new))


def test_a_mean_needs_a_divisor():
    old = change(SHAPE, {"attention.heads": 6, "attention.kv_heads": 6}, "model")
    new = dataclasses.replace(
        old, attention=dataclasses.replace(old.attention, heads=4, kv_heads=4)
    )
    with pytest.raises(LlmcurateError, match=r"kv_heads is 4: to average heads, it must divide 6"):
        conversions(old, new)
