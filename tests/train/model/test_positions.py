"""Positions: rotary scalings are those of the papers, as transformers computes them."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change as changed
from train.model.attention_settings import Grouped
from train.model.config import ModelConfig
from train.model.feed_forward_settings import Dense
from train.model.position_settings import Rope, RopeScaling
from train.model.positions import rope_frequencies, rotate, rotations, sinusoids

SHAPE = ModelConfig(
    vocab=61,
    layers=1,
    hidden=64,
    context=4096,
    position=Rope(theta=50_000.0),
    attention=Grouped(heads=2, kv_heads=2, head_dim=32),
    feed_forward=Dense(width=48),
)


def stretched(scaling: RopeScaling) -> ModelConfig:
    return dataclasses.replace(SHAPE, position=Rope(theta=50_000.0, scaling=scaling))


SHORT, LONG = tuple(1 + i / 10 for i in range(16)), tuple(1.5 + i / 3 for i in range(16))
SCALINGS = {
    "linear": (RopeScaling(kind="linear", factor=4.0), {"rope_type": "linear", "factor": 4.0}),
    "yarn": (
        RopeScaling(kind="yarn", factor=8.0, original_context=512),
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512},
    ),
    "yarn, a factor of its own": (
        RopeScaling(kind="yarn", factor=8.0, original_context=512, attention_factor=1.3),
        {
            "rope_type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 512,
            "attention_factor": 1.3,
        },
    ),
    "llama3": (
        RopeScaling(kind="llama3", factor=8.0, original_context=512),
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512,
        },
    ),
    "longrope": (
        RopeScaling(kind="longrope", factor=8.0, original_context=512, short=SHORT, long=LONG),
        {
            "rope_type": "longrope",
            "factor": 8.0,
            "short_factor": SHORT,
            "long_factor": LONG,
            "original_max_position_embeddings": 512,
        },
    ),
}


@pytest.mark.parametrize(("scaling", "theirs"), SCALINGS.values(), ids=SCALINGS)
def test_a_scaling_is_the_one_transformers_computes(scaling, theirs):
    rope = pytest.importorskip("transformers.modeling_rope_utils")
    from transformers import LlamaConfig

    config = stretched(scaling)
    peer = LlamaConfig(
        hidden_size=64,
        num_attention_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
        rope_parameters={"rope_theta": 50_000.0, **theirs},
    )
    frequencies, factor = rope_frequencies(config)
    kind = theirs["rope_type"]
    expected, scale = rope.ROPE_INIT_FUNCTIONS[kind](peer, torch.device("cpu"), seq_len=4096)
    torch.testing.assert_close(frequencies, expected, rtol=1e-6, atol=0)
    assert factor == pytest.approx(scale, rel=1e-9)


def test_ntk_keeps_short_waves_and_stretches_the_longest_by_the_factor():
    plain, _ = rope_frequencies(SHAPE)
    scaling = RopeScaling(kind="ntk", factor=4.0)
    scaled, factor = rope_frequencies(stretched(scaling))
    assert factor == 1.0
    assert float(scaled[0]) == float(plain[0]) == 1.0
    assert float(plain[-1] / scaled[-1]) == pytest.approx(4.0, rel=1e-5)


def test_longrope_takes_the_short_divisors_within_the_original_context():
    scaling = RopeScaling(
        kind="longrope", original_context=4096, short=SHORT, long=LONG, attention_factor=1.3
    )
    frequencies, factor = rope_frequencies(stretched(scaling))
    plain, _ = rope_frequencies(SHAPE)
    torch.testing.assert_close(frequencies, plain / torch.tensor(SHORT))
    assert factor == 1.0


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"kind": "cubic"}, "kind is 'cubic'"),
        ({"kind": "yarn", "factor": 2.0}, "set original_context"),
        ({"kind": "linear", "factor": 0.5}, "give 1 or more"),
        ({"kind": "llama3", "original_context": 8, "low": 4.0}, "low must be less"),
        ({"kind": "yarn", "original_context": 8, "beta_slow": 40.0}, "beta_slow"),
    ],
)
def test_a_wrong_scaling_names_its_field(settings, named):
    with pytest.raises(LlmcurateError, match=named):
        RopeScaling(**settings)


def test_longrope_without_a_divisor_for_each_pair_is_refused():
    with pytest.raises(LlmcurateError, match="short needs 16 numbers"):
        stretched(RopeScaling(kind="longrope", original_context=9))


def test_a_rotation_keeps_lengths_and_depends_on_distances_alone():
    config = changed(SHAPE, {"position.dim": 16}, "model")
    frequencies, factor = rope_frequencies(config)
    turned = rotations(frequencies, factor, torch.arange(40)[None])
    draw = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 32, generator=draw).expand(2, 1, 1, 40, 32)
    q, k = rotate(q, turned)[0, 0], rotate(k, turned)[0, 0]
    torch.testing.assert_close(q.norm(dim=-1), q[:1].norm(dim=-1).expand(40))
    scores = q @ k.T
    torch.testing.assert_close(scores[30, 20], scores[15, 5], rtol=1e-4, atol=1e-4)
    assert torch.equal(q[:, 16:], q[:1, 16:].expand(40, 16))


def test_sinusoids_are_those_of_the_paper():
    table = sinusoids(20, 7)
    assert table.shape == (20, 7)
    assert float(table[3, 0]) == pytest.approx(math.sin(3))
    assert float(table[3, 5]) == pytest.approx(math.cos(3 / 10_000 ** (4 / 7)))
