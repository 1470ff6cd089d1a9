from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from train.accounting import flops_per_token, matmul_parameters, parameters
from train.config import TrainConfig
from train.errors import TrainError
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.presets import preset, small, tiny
from train.settings import from_dict, to_dict

SHAPE = ModelConfig(
    vocab=97, layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, mlp_hidden=48, context=64
)


def decoder(config=SHAPE, seed=0, attention="auto"):
    model = Decoder(config, attention=attention)
    model.initialise(seed)
    return model.eval()


@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_counted_exactly(tied):
    config = dataclasses.replace(SHAPE, tied_embeddings=tied)
    assert parameters(config) == sum(weight.numel() for weight in Decoder(config).parameters())


def test_flops_are_what_torch_counts():
    """Eager attention computes every key for every query: attended = context."""
    model = decoder(attention="eager")
    tokens = torch.randint(97, (3, 64), generator=torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counter:
        model(tokens).sum().backward()
    assert counter.get_total_flops() == flops_per_token(SHAPE, attended=64) * tokens.numel()


def test_presets_have_the_size_they_claim():
    assert 2e6 < parameters(tiny(4096)) < 4e6
    assert 8e6 < parameters(small(8192)) < 11e6
    assert matmul_parameters(tiny(4096)) < parameters(tiny(4096))
    with pytest.raises(TrainError, match="choose one of tiny, small"):
        preset("huge", vocab=10, context=10)


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


def test_rotary_attention_depends_on_distances_alone():
    model, tokens = decoder(), torch.arange(30)[None]
    cache = model.empty_cache(1)
    cache.length = 20  # 20 keys of zeros; hide them behind the document mask
    documents = torch.tensor([[0] * 20 + [1] * 30])
    torch.testing.assert_close(
        model(tokens, documents=documents, cache=cache), model(tokens), rtol=1e-4, atol=1e-4
    )


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    first = decoder(seed=7).state_dict()
    torch.manual_seed(2)
    second, other = decoder(seed=7).state_dict(), decoder(seed=8).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


@pytest.mark.parametrize(
    ("kind", "change", "named"),
    [
        (SHAPE, {"layers": 0}, "layers"),
        (SHAPE, {"kv_heads": 3}, "kv_heads"),
        (SHAPE, {"head_dim": 7}, "head_dim"),
        (TrainConfig(), {"steps": 0}, "steps"),
        (TrainConfig(), {"held_out": 1.5}, "held_out"),
        (TrainConfig(), {"seed": -1}, "seed"),
        (TrainConfig(), {"lr": float("nan")}, "lr"),
    ],
)
def test_wrong_settings_name_the_field(kind, change, named):
    with pytest.raises(TrainError, match=named) as caught:
        dataclasses.replace(kind, **change)
    assert caught.value.exit_code == 2


def test_configs_survive_json_and_refuse_strangers():
    assert from_dict(ModelConfig, to_dict(SHAPE), "x") == SHAPE
    for wrong in ({"layer": 1}, {"layers": "2"}, {"layers": True}, {"layers": 2}, []):
        with pytest.raises(TrainError, match=r"config\.json"):
            from_dict(ModelConfig, wrong, "config.json")
