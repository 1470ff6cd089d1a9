"""Memory by tracing the step, what bounds an operation, a model as a row of a table."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change as changed
from train.config import TrainConfig
from train.measure.accounting import architecture_row
from train.measure.describe import (
    GPUS,
    Memory,
    decoding,
    describe,
    find_gpu,
    gpu,
    training,
    training_memory,
)
from train.model.presets import PRESETS, preset
from train.objectives.example import Example
from train.objectives.losses import Losses

TINY = preset("tiny", vocab=500, context=64)


def test_memory_is_that_of_the_tensors_of_a_step():
    """A model of which everything can be counted by hand: two layers more hold twice what one
    layer more does, and weights, gradients and AdamW's moments are 4, 4 and 8 bytes each."""
    kept = []
    for layers in (2, 3, 5):
        config = dataclasses.replace(TINY, layers=layers)
        memory = training_memory(config, rows=2, context=64)
        kept.append(memory.activations)
    assert kept[2] - kept[1] == 2 * (kept[1] - kept[0])
    weights = sum(weight.numel() for weight in _decoder(config).parameters())
    assert (memory.weights, memory.gradients) == (4 * weights, 4 * weights)
    count = len(list(_decoder(config).parameters()))
    assert memory.optimizer == 8 * weights + 4 * count  # and how many steps were done
    assert memory.peak >= memory.weights + memory.optimizer + memory.activations


def test_the_predicted_activation_memory_is_what_autograd_saves():
    saved: dict[int, int] = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    model = _decoder(TINY)
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    tokens = torch.zeros(2, 64, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        example = Example(inputs=tokens, targets=tokens, documents=tokens)
        loss = Losses(model, TrainConfig())(example)["objective"].sum
    total = sum(size for pointer, size in saved.items() if pointer not in weights)
    total -= 4 * TINY.vocab * TINY.hidden  # the loss has made the gradient of the head
    estimated = training_memory(TINY, rows=2, context=64).activations
    assert loss.requires_grad
    assert estimated == pytest.approx(total, rel=0.02)


def test_recomputing_and_half_precision_take_less():
    config = dataclasses.replace(TINY, layers=8)
    full = training_memory(config, rows=2, context=64)
    again = training_memory(config, rows=2, context=64, recompute=True)
    assert again.activations < 0.2 * full.activations
    assert again.peak <= full.peak
    many = training_memory(TINY, rows=16, context=64)
    half = training_memory(TINY, rows=16, context=64, precision="bf16")
    assert half.activations < many.activations
    lion = training_memory(config, rows=2, context=64, optimizer="lion")
    assert lion.optimizer == pytest.approx(full.optimizer / 2, rel=1e-3)


def test_decoding_waits_for_memory_and_training_for_arithmetic():
    config, device = preset("llama-7b"), find_gpu("H200")
    for operation in training(config, rows=8, context=2048):
        assert (operation.intensity > device.ridge) == (operation.name != "norm and residual")
    for operation in decoding(config, batch=1, context=2048):
        assert operation.intensity < 2
    mqa = changed(config, {"attention.kv_heads": 1}, "model")
    shared = {
        operation.name: operation.intensity for operation in decoding(mqa, batch=1, context=2048)
    }
    plain = {
        operation.name: operation.intensity for operation in decoding(config, batch=1, context=2048)
    }
    assert shared["attention"] > 20 * plain["attention"]  # 32 heads read one cache
    many = {
        operation.name: operation.intensity
        for operation in decoding(config, batch=512, context=2048)
    }
    assert many["feed-forward in"] > device.ridge > many["attention"]


@pytest.mark.parametrize(
    ("name", "tokens", "flops"),  # 6 N D, as Kaplan et al. 2020 count
    [
        pytest.param("bert-base", 250e9, 1.7e20, marks=pytest.mark.lab),
        ("gpt3-175b", 300e9, 3.1e23),
        ("palm-540b", 780e9, 2.5e24),
    ],
)
def test_the_compute_of_a_training_is_that_of_the_papers(name, tokens, flops, monkeypatch):
    none = Memory(weights=0, gradients=0, optimizer=0, activations=0, peak=0)  # takes seconds
    monkeypatch.setattr("train.measure.describe.training_memory", lambda *_, **__: none)
    facts = describe(preset(name), device=GPUS[0], rows=1, context=128, batch=1, tokens=int(tokens))
    assert float(f"{facts['training_flops']:.1e}") == flops


def test_without_a_number_of_tokens_there_are_twenty_per_parameter():
    facts = describe(TINY, device=GPUS[0], rows=1, context=64, batch=1)
    assert facts["training_tokens"] == 20 * facts["parameters"]["total"]


def test_a_window_bounds_what_a_cache_holds():
    facts = describe(
        changed(TINY, {"attention": {"window": 16, "sinks": 2}}, "model"),
        device=find_gpu("h100"),
        rows=1,
        context=64,
        batch=3,
    )
    assert facts["cache_bytes"] == 3 * 18 * facts["cache_bytes_per_token"]
    assert facts["fits"]
    assert facts["training_flops_per_token"] * facts["tokens_per_second_at_peak"] == 989e12


def test_learned_positions_end_with_the_context():
    with pytest.raises(LlmcurateError, match="1024 positions"):
        describe(preset("gpt2"), device=GPUS[0], rows=1, context=2048, batch=1)


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("NVIDIA GeForce RTX 4090", 165e12),
        ("rtx 4090", 165e12),
        ("Tesla K80", None),
        ("NVIDIA H2000", None),
    ],
)
def test_a_gpu_is_known_by_the_names_that_cuda_gives_it(name, flops):
    entry = gpu(name)
    assert (entry and entry.flops) == flops


def test_an_unknown_gpu_lists_the_known():
    assert gpu("K80") is None
    with pytest.raises(LlmcurateError, match="choose one of H200, H100"):
        find_gpu("K80")


@pytest.mark.lab
def test_every_preset_is_a_row():
    rows = {name: architecture_row(build()) for name, build in PRESETS.items()}
    assert rows["gptj-6b"] == {
        "norm": "LayerNorm, before",
        "block": "parallel",
        "position": "RoPE 10000, 64 of 256",
        "attention": "MHA, full",
        "feed-forward": "GELU (tanh), 4.00 x hidden",
        "biases": "feed-forward",
        "head": "its own",
        "hidden per layer": "146",
        "dropout": "0",
    }
    assert rows["mistral-7b"]["attention"] == "GQA 4:1, window 4096"
    assert rows["bloom-560m"]["norm"] == "LayerNorm, before, after the embedding"
    assert rows["qwen2-moe"]["feed-forward"] == (
        "SwiGLU, 0.69 x hidden, 4 of 60 experts, 2.75 x hidden shared"
    )
    assert rows["llama3.2-1b"]["position"] == "RoPE 500000, llama3 x32"


@pytest.mark.lab
def test_decoding_one_text_reads_the_experts_of_a_token_alone():
    config = preset("mixtral-8x7b")
    matrix = 4096 * 14_336
    for batch, experts in ((1, 2), (64, 8)):
        operations = decoding(config, batch=batch, context=1024)
        out = next(each for each in operations if each.name == "feed-forward out")
        assert out.flops == 2 * 2 * batch * matrix
        weights = out.bytes / 2 - 2 * batch * (4096 + 14_336)
        assert weights / matrix == pytest.approx(experts, rel=1e-6)


def _decoder(config):
    from train.model.decoder import Decoder

    return Decoder(config)
