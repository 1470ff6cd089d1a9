from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change as changed
from tests.train.model.variants import SHAPE, VARIANTS
from train.attention import Mask
from train.measure.accounting import (
    active_parameters,
    attended,
    attention_flops,
    cache_bytes_per_token,
    flops_per_token,
    matmul_parameters,
    parameters,
    parts,
)
from train.model.decoder import Decoder


@pytest.mark.lab
@pytest.mark.parametrize("change", VARIANTS.values(), ids=VARIANTS)
def test_parameters_are_counted_exactly(change):
    config = changed(SHAPE, change, "model")
    assert parameters(config) == sum(weight.numel() for weight in Decoder(config).parameters())


def test_parameters_by_part_are_those_of_the_modules():
    config = changed(
        SHAPE,
        {
            "position": "learned",
            "attention.bias": "all",
            "feed_forward.bias": True,
            "head.tied": False,
        },
        "model",
    )
    counted, named = parts(config), dict.fromkeys(("feed_forward.", "attention.", "norm"), 0)
    for name, weight in Decoder(config).named_parameters():
        for part in named:
            named[part] += weight.numel() * (part in name and "_norm" not in name.split(part)[0])
    assert (counted.feed_forward, counted.norms) == (named["feed_forward."], named["norm"])
    assert counted.attention == named["attention."]
    assert counted.head == counted.embedding == 61 * 32


@pytest.mark.lab
@pytest.mark.parametrize(
    "change",
    [{}, {"shared_width": 12, "shared_gate": True}, {"first_dense": 1, "dense_width": 20}],
)
def test_of_experts_those_that_a_token_meets_count(change):
    given = {"kind": "experts", "count": 4, "top_k": 3, "width": 10, **change}
    config = changed(SHAPE, {"feed_forward": given}, "model")
    model = Decoder(config)
    assert parameters(config) == sum(weight.numel() for weight in model.parameters())
    idle = len(config.sparse) * 3 * 10 * 32  # one expert a layer
    assert parameters(config) - active_parameters(config) == idle
    vectors = sum(weight.numel() for weight in model.parameters() if weight.dim() == 1)
    assert matmul_parameters(config) == active_parameters(config) - vectors


@pytest.mark.parametrize("activation", ["swiglu", "gelu"])
def test_flops_are_what_torch_counts(activation):
    """Eager attention computes every key for every query: twice what causal attention needs."""
    config = changed(SHAPE, {"feed_forward.activation": activation}, "model")
    model = Decoder(config, attention="eager")
    tokens = torch.randint(61, (3, 32), generator=torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counter:
        model(tokens).sum().backward()
    every = 12 * config.layers * config.attention.heads * config.attention.head_dim * 32
    assert counter.get_total_flops() == (6 * matmul_parameters(config) + every) * tokens.numel()
    causal = every * (32 + 1) / 2 / 32
    assert flops_per_token(config, 32) == 6 * matmul_parameters(config) + causal
    assert attention_flops(config, 32) == causal / 3


@pytest.mark.parametrize("window", [None, 1, 5, 31, 32, 40])
@pytest.mark.parametrize("sinks", [0, 1, 4, 30])
def test_keys_attended_to_are_those_the_mask_shows(window, sinks):
    config = changed(
        SHAPE, {"attention": {"window": window, "sinks": sinks if window else 0}}, "model"
    )
    own = config.attention
    mask = Mask(queries=32, keys=32, device=torch.device("cpu"), window=window, sinks=own.sinks)
    assert attended(config, 0, 32) == float(mask.dense.sum()) / 32


@pytest.mark.parametrize(
    "pattern",
    [
        {"window": 3, "globals": 2},
        {"window": 2, "globals": 1, "random": 2},
        {"window": 2, "globals": 2, "random": 3, "block": 4},
        {"window": 2, "globals": 1, "random": 40, "block": 2},
        {"window": 3, "globals": 3, "window_pattern": "D", "dilations": (1, 1, 2, 5)},
    ],
)
def test_keys_of_a_pattern_are_counted_too(pattern):
    config = changed(SHAPE, {"causal": False, "attention": pattern}, "model")
    pattern = config.patterns[1]
    mask = Mask(queries=32, keys=32, device=torch.device("cpu"), causal=False, **vars(pattern))
    seen = float(mask.dense.float().mean()) * 32
    assert attended(config, 1, 32) == pytest.approx(seen)


def test_the_cache_takes_the_predicted_bytes():
    cache = (model := Decoder(SHAPE)).empty_cache()
    with torch.no_grad():
        model(torch.zeros(1, 64, dtype=torch.long), cache=cache)
    assert cache.bytes == 2 * 64 * cache_bytes_per_token(SHAPE)


@pytest.mark.parametrize(
    "change", [{"hidden": 1 << 62}, {"vocab": 1 << 62}, {"attention.head_dim": 1 << 62}], ids=str
)
def test_sizes_beyond_what_torch_counts_are_more_than_any_file_has(change):
    assert parameters(changed(SHAPE, change, "model")) >= 1 << 62


@pytest.mark.parametrize("name", ["layers", "head.mtp"])
def test_numbers_of_modules_have_a_limit(name):
    with pytest.raises(LlmcurateError, match=f"{name} is {1 << 31}: give "):
        changed(SHAPE, {name: 1 << 31}, "model")
