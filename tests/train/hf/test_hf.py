"""An exported model computes in transformers what it does here, and comes back bit for bit."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from tests.train.loop.small_runs import build, trained
from train.generate.generate import load as load_run
from train.hf.export import export
from train.hf.load import import_model
from train.model.config import MLPS, ModelConfig, RopeScaling

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

LLAMA = ModelConfig(
    vocab=300,
    layers=3,
    hidden=48,
    heads=4,
    kv_heads=2,
    head_dim=16,
    mlp_hidden=80,
    context=64,
    tied_embeddings=False,
    rope_theta=5000.0,
)
GPT = dataclasses.replace(
    LLAMA,
    heads=4,
    kv_heads=4,
    head_dim=12,
    norm="layer",
    bias="all",
    mlp="gelu_tanh",
    tied_embeddings=True,
    rope_theta=10_000.0,
)
GPT2 = dataclasses.replace(GPT, position="learned", norm_eps=1e-4)
GPTJ = dataclasses.replace(
    GPT, bias="mlp", head_bias=True, parallel=True, rope_dim=8, tied_embeddings=False
)
NEOX = dataclasses.replace(
    GPT, mlp="gelu", parallel=True, parallel_norms=2, rope_dim=4, tied_embeddings=False
)
BLOOM = dataclasses.replace(GPT, mlp_hidden=192, position="alibi", embedding_norm=True)
OPT = dataclasses.replace(GPT, mlp="relu", position="learned", learned_offset=2)
QWEN2 = dataclasses.replace(LLAMA, bias="qkv", tied_embeddings=True, norm_eps=1e-6)


def llama(**change) -> ModelConfig:
    return dataclasses.replace(LLAMA, **change)


def scaled(kind: str, **more) -> ModelConfig:
    original = {} if kind in ("linear", "ntk") else {"original_context": 16}
    return llama(rope_scaling=RopeScaling(kind=kind, factor=4.0, **original, **more))


CASES: dict[str, tuple[str, ModelConfig]] = {
    "llama": ("llama", LLAMA),
    "llama, tied": ("llama", llama(tied_embeddings=True, norm_eps=1e-6)),
    "llama, biases": ("llama", llama(bias="all")),
    "llama, biases of the mlp": ("llama", llama(bias="mlp")),
    "llama, MQA": ("llama", llama(kv_heads=1)),
    **{f"llama, {mlp}": ("llama", llama(mlp=mlp)) for mlp, (_, gated) in MLPS.items() if gated},
    "llama, linear": ("llama", scaled("linear")),
    "llama, ntk": ("llama", scaled("ntk")),
    "llama, yarn": ("llama", scaled("yarn", beta_fast=0.5, beta_slow=0.05)),
    "llama, llama3": ("llama", scaled("llama3", low=1.0, high=3.0)),
    "llama, longrope": (
        "llama",
        scaled("longrope", short=(1.0,) * 8, long=tuple(1.0 + i / 3 for i in range(8))),
    ),
    "mistral": ("mistral", llama(window=7)),
    "mistral, a window past the text": ("mistral", llama(window=100)),
    "mistral, odd heads": ("mistral", llama(heads=7, kv_heads=7)),
    "ministral": ("ministral", llama(window=7, window_pattern="WF")),
    "qwen2": ("qwen2", QWEN2),
    "qwen2, windows": ("qwen2", dataclasses.replace(QWEN2, window=9, window_pattern="WWF")),
    "qwen3": ("qwen3", llama(qk_norm=True)),
    "qwen3, windows": ("qwen3", llama(qk_norm=True, window=5)),
    "olmo": ("olmo", llama(norm="layer_plain", head_dim=12)),
    "gpt2": ("gpt2", GPT2),
    "gpt2, relu2, untied": (
        "gpt2",
        dataclasses.replace(GPT2, mlp="relu2", tied_embeddings=False, dropout=0.1),
    ),
    "gptj": ("gptj", GPTJ),
    "gptj, tied": ("gptj", dataclasses.replace(GPTJ, tied_embeddings=True, rope_dim=None)),
    "gpt-neox": ("gpt_neox", NEOX),
    "gpt-neox, serial": (
        "gpt_neox",
        dataclasses.replace(NEOX, parallel=False, parallel_norms=1, bias="mlp", rope_dim=None),
    ),
    "gpt-neox, yarn": (
        "gpt_neox",
        dataclasses.replace(
            NEOX, rope_scaling=RopeScaling(kind="yarn", factor=4.0, original_context=16)
        ),
    ),
    "bloom": ("bloom", BLOOM),
    "bloom, 6 heads": (
        "bloom",
        dataclasses.replace(BLOOM, heads=6, kv_heads=6, head_dim=8, tied_embeddings=False),
    ),
    "opt": ("opt", OPT),
    "opt, norms after": (
        "opt",
        dataclasses.replace(
            OPT, norm_place="post", norm="layer_plain", bias="none", mlp="gelu", dropout=0.1
        ),
    ),
}


def close(theirs: torch.Tensor, ours: torch.Tensor) -> None:
    """Within 1e-5 of the logits' scale."""
    scale = float(ours.abs().max())
    assert scale > 0.5
    assert float((theirs - ours).abs().max()) <= 1e-5 * scale


@pytest.mark.parametrize(("family", "config"), CASES.values(), ids=CASES)
@torch.no_grad()
def test_the_export_computes_the_same_and_comes_back(family, config, tmp_path, small_tokenizer):
    model = build(config)
    run = trained(tmp_path / "run", model, small_tokenizer)
    assert export(run, tmp_path / "hf")["family"] == family
    theirs, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "hf", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    theirs = theirs.eval()
    tokens = torch.randint(300, (2, 48), generator=torch.Generator().manual_seed(2))
    ours = model(tokens)
    close(theirs(tokens).logits, ours)

    # Token after token, through their cache.
    out = theirs(tokens[:, :20], use_cache=True)
    pieces = [out.logits]
    for position in range(20, 30):
        out = theirs(
            tokens[:, position : position + 1], past_key_values=out.past_key_values, use_cache=True
        )
        pieces.append(out.logits)
    close(torch.cat(pieces, dim=1), ours[:, :30])

    # Padded in front.
    mask = torch.ones_like(tokens)
    mask[1, :11] = 0
    position_ids = (mask.cumsum(1) - 1).clamp(min=0)
    more = {} if family in ("bloom", "opt") else {"position_ids": position_ids}
    out = theirs(tokens, attention_mask=mask, **more).logits
    close(out[1, 11:], model(tokens[1:, 11:])[0])

    import_model(tmp_path / "hf", tmp_path / "back")
    back, _ = load_run(tmp_path / "back")
    before, after = model.state_dict(), back.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(back(tokens), ours) or config.rope_scaling is not None
    close(back(tokens), ours)
