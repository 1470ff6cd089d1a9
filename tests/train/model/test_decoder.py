from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change as changed
from llmcurate.base.settings import from_dict, to_dict
from train.config import TrainConfig
from train.model.attention_settings import Grouped
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.feed_forward_settings import Dense
from train.model.layers import RMSNorm

SHAPE = ModelConfig(
    vocab=97,
    layers=2,
    hidden=32,
    context=64,
    attention=Grouped(heads=4, kv_heads=2, head_dim=8),
    feed_forward=Dense(width=48),
)


def decoder(config=SHAPE, seed=0, attention="auto"):
    model = Decoder(config, attention=attention)
    model.initialise(seed)
    return model.eval()


def test_a_position_does_not_see_what_follows():
    model, tokens = decoder(), torch.arange(64)[None]
    changed = tokens.clone()
    changed[0, 40:] = 5
    torch.testing.assert_close(model(changed)[:, :40], model(tokens)[:, :40])


def test_documents_in_a_row_never_see_each_other():
    model, tokens = decoder(), torch.arange(64)[None] % 97
    documents = torch.tensor([[0] * 20 + [1] * 25 + [2] * 19])
    whole = model(tokens, documents=documents)
    torch.testing.assert_close(whole[:, 20:45], model(tokens[:, 20:45]), rtol=1e-4, atol=1e-5)
    changed = tokens.clone()
    changed[0, :20] = 3
    assert torch.equal(model(changed, documents=documents)[:, 20:], whole[:, 20:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_residual_stream_has_the_dtype_of_the_products(dtype):
    model, seen = decoder(), []
    for each in model.stack.blocks:
        each.register_forward_hook(lambda *args: seen.append(args[-1][0].dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        logits = model(torch.zeros(1, 4, dtype=torch.long))
    assert set(seen) == {dtype} and logits.dtype == torch.float32


def test_a_document_in_a_row_counts_its_positions_from_its_start():
    for position in ("learned", "sinusoidal", "alibi", "t5"):
        model = decoder(changed(SHAPE, {"position": position}, "model"))
        tokens = torch.arange(30)[None]
        documents = torch.tensor([[0] * 20 + [1] * 10])
        both, alone = model(tokens, documents=documents), model(tokens[:, 20:])
        torch.testing.assert_close(both[:, 20:], alone, rtol=1e-4, atol=1e-5)


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    first = decoder(seed=7).state_dict()
    torch.manual_seed(2)
    second, other = decoder(seed=7).state_dict(), decoder(seed=8).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


@pytest.mark.parametrize("width", [64, 256, 1024])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_the_first_loss_is_that_of_a_guess(width, tied):
    config = changed(
        SHAPE,
        {"vocab": 4096, "hidden": width, "feed_forward.width": 2 * width, "head.tied": tied},
        "model",
    )
    draw = torch.Generator().manual_seed(0)
    tokens, targets = torch.randint(4096, (2, 4, 64), generator=draw)
    with torch.no_grad():
        loss = F.cross_entropy(decoder(config)(tokens).flatten(0, 1), targets.flatten())
    assert float(loss) == pytest.approx(math.log(4096), rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rms_norm_and_its_gradient_are_those_of_the_formula(dtype):
    draw = torch.Generator().manual_seed(0)
    norm = RMSNorm(24, 1e-3)
    with torch.no_grad():
        norm.weight.normal_(1, 0.5, generator=draw)
    norm = norm.double() if dtype == torch.float64 else norm
    x = torch.randn(3, 5, 24, generator=draw, dtype=torch.float64).to(dtype)
    grad = torch.randn(3, 5, 24, generator=draw, dtype=torch.float64).to(dtype)
    results = []
    for plain in (False, True):
        inputs = x.clone().requires_grad_()
        norm.weight.grad = None
        if plain:
            wide = inputs.double()
            y = wide * (wide.square().mean(dim=-1, keepdim=True) + 1e-3).rsqrt() * norm.weight
        else:
            y = norm(inputs)
            assert y.dtype == dtype
        y.backward(grad.to(y.dtype))
        results.append([value.double() for value in (y, inputs.grad, norm.weight.grad)])
    bound = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(*results, rtol=bound, atol=bound)


@pytest.mark.parametrize(
    ("kind", "change", "named"),
    [
        (SHAPE, {"layers": 0}, "layers"),
        (SHAPE, {"attention.kv_heads": 3}, "kv_heads"),
        (SHAPE, {"attention.head_dim": 7}, "head_dim"),
        (SHAPE, {"norm.kind": "batch"}, "norm.kind is 'batch': choose one of rms"),
        (SHAPE, {"feed_forward.activation": "tanh"}, "activation"),
        (SHAPE, {"residual": "parallel", "norm.place": "post"}, "parallel with norm.place post"),
        (SHAPE, {"attention.sinks": 4}, "sinks has no effect without a window"),
        (SHAPE, {"attention.window": 0}, "window"),
        (SHAPE, {"attention.window": 3, "attention.globals": 1}, "globals with causal true"),
        (SHAPE, {"attention.window": 3, "attention.block": 8}, "block with causal true"),
        (SHAPE, {"attention.random": 2}, "random has no effect without a window"),
        (
            SHAPE,
            {"attention": {"window": 3, "window_pattern": "D", "dilations": [1, 2, 2]}},
            "divides attention.heads",
        ),
        (SHAPE, {"attention": {"window": 3, "window_pattern": "D"}}, "layers marked D"),
        (SHAPE, {"attention.window": 8, "attention.window_pattern": "WX"}, "window_pattern"),
        (SHAPE, {"position.dim": 3}, "position.dim"),
        (SHAPE, {"position": "alibi", "position.dim": 4}, "unknown setting 'position.dim'"),
        (SHAPE, {"position": "t5", "position.distance": 9}, "position.distance"),
        (SHAPE, {"dropout": 1.0}, "dropout"),
        (TrainConfig(), {"steps": 0}, "steps"),
        (TrainConfig(), {"held_out": 1.5}, "held_out"),
        (TrainConfig(), {"seed": -1}, "seed"),
        (TrainConfig(), {"lr": float("nan")}, "lr"),
    ],
)
def test_wrong_settings_name_the_field(kind, change, named):
    with pytest.raises(LlmcurateError, match=named) as caught:
        changed(kind, change, "model")
    assert caught.value.exit_code == 2


def test_configs_survive_json_and_refuse_strangers():
    assert from_dict(ModelConfig, to_dict(SHAPE), "x") == SHAPE
    for wrong in ({"layer": 1}, {"layers": "2"}, {"layers": True}, {"layers": 2}, []):
        with pytest.raises(LlmcurateError, match=r"config\.json"):
            from_dict(ModelConfig, wrong, "config.json")
