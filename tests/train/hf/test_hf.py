"""An exported model computes in transformers what it does here, and comes back bit for bit."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change as changed
from tests.train.generate.streams import continue_ids
from tests.train.loop.small_runs import build, trained
from train.generate import load as load_run
from train.hf.export import export
from train.hf.families import family_of
from train.hf.load import import_model
from train.model.attention_settings import Grouped
from train.model.config import Head, ModelConfig
from train.model.feed_forward_settings import ACTIVATIONS, Dense
from train.model.position_settings import Rope

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

LLAMA = ModelConfig(
    vocab=300,
    layers=3,
    hidden=48,
    context=64,
    position=Rope(theta=5000.0),
    attention=Grouped(heads=4, kv_heads=2, head_dim=16),
    feed_forward=Dense(width=80),
    head=Head(tied=False),
)
GPT = changed(
    LLAMA,
    {
        "attention": {"heads": 4, "kv_heads": 4, "head_dim": 12, "bias": "all"},
        "norm.kind": "layer",
        "feed_forward": {"activation": "gelu_tanh", "bias": True},
        "head.tied": True,
        "position.theta": 10_000.0,
    },
    "model",
)
GPT2 = changed(GPT, {"position": "learned", "norm.eps": 1e-4}, "model")
GPTJ = changed(
    GPT,
    {
        "attention.bias": "none",
        "residual": "parallel",
        "position.dim": 8,
        "head": {"tied": False, "bias": True},
    },
    "model",
)
NEOX = changed(
    GPT,
    {
        "feed_forward.activation": "gelu",
        "residual": "parallel",
        "residual.norms": 2,
        "position.dim": 4,
        "head.tied": False,
    },
    "model",
)
BLOOM = changed(
    GPT, {"feed_forward.width": 192, "position": "alibi", "embedding.norm": True}, "model"
)
OPT = changed(
    GPT, {"feed_forward.activation": "relu", "position": "learned", "position.offset": 2}, "model"
)
QWEN2 = changed(LLAMA, {"attention.bias": "qkv", "head.tied": True, "norm.eps": 1e-6}, "model")


MIXTRAL = changed(
    LLAMA,
    {
        "feed_forward": {"kind": "experts", "count": 4, "top_k": 2, "width": 40, "balance": 0.02},
        "position.theta": 1e6,
    },
    "model",
)
QWEN2_MOE = changed(
    MIXTRAL,
    {
        "feed_forward": {
            **{"normalise": False, "shared_width": 56, "shared_gate": True, "top_k": 3},
            **{"first_dense": 1, "dense_width": 72},
        },
        "attention.bias": "qkv",
        "norm.eps": 1e-6,
    },
    "model",
)


def llama(change: dict) -> ModelConfig:
    return changed(LLAMA, change, "model")


OLMO2 = llama(
    {
        "norm.place": "out",
        "attention": {"qk_norm": True, "qk_norm_whole": True, "head_dim": 12},
        "head.tied": True,
    }
)
OLMO3 = changed(
    OLMO2,
    {
        "attention": {"window": 7, "window_pattern": "WWF"},
        "position": {"theta": 500_000.0, "window_theta": 500_000.0},
    },
    "model",
)


def scaled(kind: str, **more) -> ModelConfig:
    original = {} if kind in ("linear", "ntk") else {"original_context": 16}
    return llama({"position.scaling": {"kind": kind, "factor": 4.0, **original, **more}})


CASES: dict[str, tuple[str, ModelConfig]] = {
    "llama": ("llama", LLAMA),
    "llama, tied": ("llama", llama({"head.tied": True, "norm.eps": 1e-6})),
    "llama, biases": ("llama", llama({"attention.bias": "all", "feed_forward.bias": True})),
    "llama, biases of the mlp": (
        "llama",
        llama({"attention.bias": "none", "feed_forward.bias": True}),
    ),
    "llama, MQA": ("llama", llama({"attention.kv_heads": 1})),
    **{
        f"llama, {mlp}": ("llama", llama({"feed_forward.activation": mlp}))
        for mlp, (_, gated) in ACTIVATIONS.items()
        if gated
    },
    "llama, linear": ("llama", scaled("linear")),
    "llama, ntk": ("llama", scaled("ntk")),
    "llama, yarn": ("llama", scaled("yarn", beta_fast=0.5, beta_slow=0.05)),
    "llama, llama3": ("llama", scaled("llama3", low=1.0, high=3.0)),
    "llama, longrope": (
        "llama",
        scaled("longrope", short=(1.0,) * 8, long=tuple(1.0 + i / 3 for i in range(8))),
    ),
    "llama, longrope, searched": (
        "llama",
        scaled("longrope", short=(1.0,) * 8, long=(1.5,) * 8, attention_factor=1.3),
    ),
    "llama, yarn, a factor of its own": ("llama", scaled("yarn", attention_factor=1.3)),
    "mistral": ("mistral", llama({"attention.window": 7})),
    "mistral, a window past the text": ("mistral", llama({"attention.window": 100})),
    "mistral, odd heads": ("mistral", llama({"attention.heads": 7, "attention.kv_heads": 7})),
    "ministral": ("ministral", llama({"attention.window": 7, "attention.window_pattern": "WF"})),
    "qwen2": ("qwen2", QWEN2),
    "qwen2, windows": (
        "qwen2",
        changed(QWEN2, {"attention.window": 9, "attention.window_pattern": "WWF"}, "model"),
    ),
    "qwen3": ("qwen3", llama({"attention.qk_norm": True})),
    "qwen3, windows": ("qwen3", llama({"attention.qk_norm": True, "attention.window": 5})),
    "olmo": ("olmo", llama({"norm.kind": "layer_plain", "attention.head_dim": 12})),
    "olmo2": ("olmo2", OLMO2),
    "olmo2, biases, llama3": (
        "olmo2",
        changed(
            OLMO2,
            {
                "attention.bias": "all",
                "position.scaling": {"kind": "llama3", "factor": 4.0, "original_context": 16},
            },
            "model",
        ),
    ),
    "olmo3": ("olmo3", OLMO3),
    "olmo3, yarn": (
        "olmo3",
        changed(
            OLMO3,
            {"position.scaling": {"kind": "yarn", "factor": 4.0, "original_context": 16}},
            "model",
        ),
    ),
    "smollm3": ("smollm3", llama({"layers": 5, "position.pattern": "RRRN"})),
    "smollm3, linear, tied": (
        "smollm3",
        changed(
            scaled("linear"),
            {"position.pattern": "RN", "head.tied": True, "attention.bias": "all"},
            "model",
        ),
    ),
    "gpt2": ("gpt2", GPT2),
    "gpt2, sigmoid": ("gpt2", changed(GPT2, {"feed_forward.activation": "sigmoid"}, "model")),
    "gpt2, relu2, untied": (
        "gpt2",
        changed(
            GPT2, {"feed_forward.activation": "relu2", "head.tied": False, "dropout": 0.1}, "model"
        ),
    ),
    "gptj": ("gptj", GPTJ),
    "gptj, tied": ("gptj", changed(GPTJ, {"head.tied": True, "position.dim": None}, "model")),
    "gpt-neox": ("gpt_neox", NEOX),
    "gpt-neox, serial": (
        "gpt_neox",
        changed(
            NEOX,
            {
                "residual": "serial",
                "attention.bias": "none",
                "feed_forward.bias": True,
                "position.dim": None,
            },
            "model",
        ),
    ),
    "gpt-neox, yarn": (
        "gpt_neox",
        changed(
            NEOX,
            {"position.scaling": {"kind": "yarn", "factor": 4.0, "original_context": 16}},
            "model",
        ),
    ),
    "mixtral": ("mixtral", MIXTRAL),
    "mixtral, window, tied": (
        "mixtral",
        changed(MIXTRAL, {"attention.window": 7, "head.tied": True}, "model"),
    ),
    "qwen2-moe": ("qwen2_moe", QWEN2_MOE),
    "qwen2-moe, every other, normalised": (
        "qwen2_moe",
        changed(
            QWEN2_MOE,
            {"feed_forward": {"first_dense": 0, "every": 2, "normalise": True}},
            "model",
        ),
    ),
    "bloom": ("bloom", BLOOM),
    "bloom, 6 heads": (
        "bloom",
        changed(
            BLOOM,
            {
                "attention.heads": 6,
                "attention.kv_heads": 6,
                "attention.head_dim": 8,
                "head.tied": False,
            },
            "model",
        ),
    ),
    "opt": ("opt", OPT),
    "opt, a narrower embedding": (
        "opt",
        changed(
            OPT,
            {
                "embedding": {"size": 20, "bias": False, "positions": "after"},
                "norm.place": "post",
            },
            "model",
        ),
    ),
    "opt, norms after": (
        "opt",
        changed(
            OPT,
            {
                "norm.place": "post",
                "norm.kind": "layer_plain",
                "attention.bias": "none",
                "feed_forward.bias": False,
                "feed_forward.activation": "gelu",
                "dropout": 0.1,
            },
            "model",
        ),
    ),
}
for query_rank in (None, 24):
    LATENT = {"kind": "latent", "heads": 4, "query_rank": query_rank, "rank": 20, "rotary_dim": 8}
    LATENT |= {"plain_dim": 12, "value_dim": 10}
    DENSE = changed(LLAMA, {"attention": LATENT, "norm.eps": 1e-6}, "model")
    CASES[f"deepseek, queries of rank {query_rank}"] = "deepseek_v3", DENSE
# Normed queries make scores so large that rounding shows.
PLAIN_QUERIES = {"attention.query_rank": None}
YARN = {"kind": "yarn", "factor": 4.0, "original_context": 16}
CASES["deepseek, tied, yarn"] = (
    "deepseek_v3",
    changed(DENSE, PLAIN_QUERIES | {"head.tied": True, "position.scaling": YARN}, "model"),
)
DEEPSEEK = {
    **{"kind": "experts", "count": 8, "top_k": 3, "width": 24, "shared_width": 48, "scale": 1.5},
    **{"first_dense": 1, "dense_width": 72},
}
V3 = changed(
    DENSE,
    PLAIN_QUERIES
    | {"feed_forward": DEEPSEEK | {"scores": "sigmoid", "bias_rate": 0.001}, "head.tied": True},
    "model",
)
V2 = changed(
    DENSE,
    PLAIN_QUERIES | {"feed_forward": DEEPSEEK | {"normalise": False}},
    "model",
)
CASES |= {
    "deepseek-v3, experts": ("deepseek_v3", V3),
    "deepseek-v3, of four groups two": (
        "deepseek_v3",
        changed(V3, {"feed_forward": {"groups": 4, "top_groups": 2, "normalise": False}}, "model"),
    ),
    "deepseek-v3, yarn of whole scores": (
        "deepseek_v3",
        changed(V3, {"position.scaling": YARN | {"all_dims": 0.7}}, "model"),
    ),
    "deepseek-v2, experts": ("deepseek_v2", V2),
    "deepseek-v2, of four groups three by their best": (
        "deepseek_v2",
        changed(
            V2,
            {
                "feed_forward": {"groups": 4, "top_groups": 3, "group_best": 1, "first_dense": 0},
                "position.scaling": YARN | {"all_dims": 0.3, "attention_factor": 1.1},
            },
            "model",
        ),
    ),
}


def close(theirs: torch.Tensor, ours: torch.Tensor) -> None:
    """Within 1e-5 of the logits' scale."""
    scale = float(ours.abs().max())
    assert scale > 0.5
    assert float((theirs - ours).abs().max()) <= 1e-5 * scale


@pytest.mark.lab
@pytest.mark.parametrize(("family", "config"), CASES.values(), ids=CASES)
@torch.no_grad()
def test_the_export_computes_the_same_and_comes_back(family, config, tmp_path, small_tokenizer):
    model = build(config)
    run = trained(tmp_path / "run", model, small_tokenizer)
    assert export(run, tmp_path / "hf").family == family
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


@pytest.mark.lab
@torch.no_grad()
def test_a_dense_model_of_deepseek_v2s_class_is_read(tmp_path, small_tokenizer):
    config = transformers.DeepseekV2Config(
        vocab_size=300, hidden_size=48, intermediate_size=80, num_hidden_layers=3,
        first_k_dense_replace=3, num_attention_heads=4, q_lora_rank=None, kv_lora_rank=20,
        qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=10, max_position_embeddings=64,
        initializer_range=0.3, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = transformers.DeepseekV2ForCausalLM(config).eval()
    theirs.save_pretrained(tmp_path / "hf")
    (tmp_path / "hf" / "tokenizer.json").write_bytes(small_tokenizer.read_bytes())
    import_model(tmp_path / "hf", tmp_path / "run")
    ours, _ = load_run(tmp_path / "run")
    tokens = torch.randint(300, (2, 48), generator=torch.Generator().manual_seed(2))
    close(theirs(tokens).logits, ours(tokens))


@pytest.mark.lab
@pytest.mark.parametrize("config", [V2, V3], ids=["v2", "v3"])
@torch.no_grad()
def test_deepseeks_classes_write_what_ours_does(config, tmp_path, small_tokenizer):
    model = build(config)
    run = trained(tmp_path / "run", model, small_tokenizer)
    export(run, tmp_path / "hf")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    prompt = torch.tensor([[5, 9, 200, 41]])
    theirs.generation_config.suppress_tokens = None  # ids without a token count here
    written = theirs.generate(prompt, max_new_tokens=20, do_sample=False, eos_token_id=None)
    ours = continue_ids(model, prompt[0].tolist(), temperature=0.0, top_k=0, seed=0)
    assert [next(ours) for _ in range(20)] == written[0, 4:].tolist()


@pytest.mark.lab
@torch.no_grad()
def test_modules_for_later_tokens_in_a_file_are_left_out(tmp_path, small_tokenizer):
    """DeepSeek-V3's files have one behind the last layer, which is no part of the class."""
    model = build(V3)
    export(trained(tmp_path / "run", model, small_tokenizer), tmp_path / "hf")
    file = tmp_path / "hf" / "model.safetensors"
    more = {"model.layers.3.eh_proj.weight": torch.ones(48, 96)}
    save_file(load_file(file) | more, file, {"format": "pt"})
    summary = import_model(tmp_path / "hf", tmp_path / "back")
    assert summary.left_out == ["model.layers.3.eh_proj.weight"]
    assert load_run(tmp_path / "back")[0].config == V3


@pytest.mark.lab
@pytest.mark.parametrize(
    ("changes", "obstacle"),
    [
        ({"feed_forward.group_best": 1, "feed_forward.groups": 2}, "feed_forward.group_best 1"),
        ({"feed_forward.shared_width": 20}, "feed_forward.shared_width 20"),
        ({"feed_forward.bias_rate": 0.0}, r"feed_forward.bias_rate 0.0 \(expected 0.001\)"),
    ],
)
def test_what_deepseeks_classes_do_not_compute_is_named(changes, obstacle):
    with pytest.raises(LlmcurateError, match=f"nearest is deepseek_v3, but for {obstacle}"):
        family_of(changed(V3, changes, "model"))
