"""What serving takes: figures that can be worked out by hand, and the published 13B on 40 GB."""

from __future__ import annotations

import pytest

from llmcurate.base.settings import change
from train.measure.accounting import parameters
from train.measure.describe import find_gpu, most_texts, serving, weight_bytes
from train.model.presets import preset

A100 = find_gpu("A100 40GB").memory


def test_a_13b_on_40_gb_leaves_a_third_for_the_cache_of_a_few_texts():
    """Kwon et al. 2023, figure 1: 26 GB of weights, 65 % of the GPU, more than 30 % for keys and
    values, 800 KB a token."""
    config = preset("llama-13b")
    facts = serving(config, memory=A100, context=2048)
    assert facts["weights"]["bf16"] == 2 * parameters(config) == pytest.approx(26e9, rel=0.01)
    assert facts["heads"][0]["bytes_per_token"] == 800 * 1024
    assert facts["cache"][0] == {"batch": 1, "bytes": [n * 819_200 for n in (512, 1024, 2048)]}
    room = 0.9 * A100 - facts["weights"]["bf16"]
    assert facts["most"]["bf16"] == [int(room // (n * 819_200)) for n in (512, 1024, 2048)]
    assert facts["most"]["bf16"][-1] == 5
    assert facts["most"]["4 bit"][-1] > 2 * facts["most"]["bf16"][-1]
    assert most_texts(preset("llama-65b"), A100, 2048) == 0


def test_quantised_matrices_take_their_bits_a_scale_and_a_zero_point_for_128():
    config = preset("llama-7b")
    whole = weight_bytes(config)
    rest = 2 * config.vocab * config.hidden + (2 * config.layers + 1) * config.hidden
    matrices = whole / 2 - rest
    assert weight_bytes(config, 8) == pytest.approx(2 * rest + matrices * (8 + 24 / 128) / 8)
    assert weight_bytes(config, 4) == pytest.approx(2 * rest + matrices * (4 + 20 / 128) / 8)


def test_serving_figures_compare_shared_keys_with_the_model_as_it_is():
    kinds = {}
    for name in ("llama-13b", "llama3-8b", "palm-8b"):
        heads = serving(preset(name), memory=A100, context=2048)["heads"]
        kinds[name] = [row["kind"] for row in heads if row["own"]]
        assert heads[0]["kind"] == "MHA" and heads[-1]["kind"] == "MQA"
        assert heads[0]["bytes_per_token"] % heads[1]["bytes_per_token"] == 0
        most = [row["most"][0] for row in heads]
        assert most == sorted(most)  # fewer keys, more texts
    assert kinds == {"llama-13b": ["MHA"], "llama3-8b": ["GQA 4:1"], "palm-8b": ["MQA"]}


def test_a_window_bounds_the_cache():
    config = change(preset("llama-7b"), {"attention.window": 256}, "model")
    sizes = serving(config, memory=A100, context=2048)["cache"][0]["bytes"]
    assert sizes[0] == sizes[1] == sizes[2]
