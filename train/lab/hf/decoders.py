"""Decoders like LLaMA with parts of their own: Phi-3, OLMo 2 and 3, SmolLM3, Gemma 1 to 3."""

from __future__ import annotations

from dataclasses import replace

from train.hf import family, keys
from train.hf.gpt import rotated_share
from train.hf.llama import LAYER, LLAMA, MISTRAL, read_windows, write_windows
from train.model.config import ModelConfig

# Phi-3 (Abdin et al. 2024), and Phi-4-mini


PHI3 = replace(
    MISTRAL,
    name="phi3",
    architecture="Phi3ForCausalLM",
    keys=(*MISTRAL.keys, rotated_share("partial_rotary_factor", 1.0)),
    parts=family.exchanged(
        MISTRAL.parts,
        {
            family.QKV: (f"{LAYER}.self_attn.qkv_proj", family.qkv),
            family.GATE_UP: (f"{LAYER}.mlp.gate_up_proj", family.GATE_AND_UP),
        },
    ),
    defaults={},
)


# OLMo 2 and 3 (Team OLMo 2024, arXiv 2501.00656, section 3.2; 2025)


OLMO2 = replace(
    LLAMA,
    name="olmo2",
    architecture="Olmo2ForCausalLM",
    tasks=family.SCORE,
    keys=(
        *LLAMA.keys,
        keys.expected(mlp_bias=False),
        keys.implied(
            ("norm.place", "out"), ("attention.qk_norm", True), ("attention.qk_norm_whole", True)
        ),
    ),
    parts=family.exchanged(
        LLAMA.parts,
        {
            "{}.attention_out_norm": f"{LAYER}.post_attention_layernorm",
            "{}.feed_forward_out_norm": f"{LAYER}.post_feedforward_layernorm",
        },
    ),
    defaults={"rms_norm_eps": 1e-5},
)


def _read_window_theta(reading: keys.Reading, usual: float = 10_000.0) -> keys.Pairs:
    new = reading.file.sub("rope_parameters")
    inner = new and new.sub("sliding_attention")
    name = "rope_theta" if inner else "rope_local_base_freq"
    yield "position.window_theta", (inner or reading.file).number(name, usual)


def _read_olmo3(reading: keys.Reading) -> keys.Pairs:
    yield from read_windows(reading, every=4)
    # transformers 5 reads no other base from the older spelling, and published models have this.
    yield from _read_window_theta(reading, usual=500_000.0)


OLMO3 = replace(
    OLMO2,
    name="olmo3",
    architecture="Olmo3ForCausalLM",
    keys=(*OLMO2.keys, keys.Row("windows", write_windows, _read_olmo3)),
    defaults={"rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "sliding_window": 4096},
)


# SmolLM3 (Bakouch et al. 2025): no positions in every fourth layer


def _read_rotated(reading: keys.Reading) -> keys.Pairs:
    layers, every = reading.ours["layers"], reading.file.whole("no_rope_layer_interval", 4)
    turned = reading.file.wholes("no_rope_layers")
    turned = turned or [(layer + 1) % max(1, every) for layer in range(min(layers, 9999))]
    if len(turned) != layers:
        raise reading.file.refusal("no_rope_layers", turned[:3], "give a number for each layer")
    yield "position.pattern", keys.repeated("".join("R" if one else "N" for one in turned))


SMOLLM3 = replace(
    LLAMA,
    name="smollm3",
    architecture="SmolLM3ForCausalLM",
    keys=(
        *LLAMA.keys,
        keys.length("max_position_embeddings", 32_768),
        keys.constant_key(
            "no_rope_layers",
            lambda config: [int(n not in config.unrotated) for n in range(config.layers)],
            _read_rotated,
        ),
        keys.expected(use_sliding_window=False, write=True),
        keys.tied(True),
    ),
    defaults={"num_key_value_heads": 4, "rope_theta": 2e6},
)


# Gemma (Mesnard et al. 2024)


def _norm(config: ModelConfig) -> family.Layout:
    return family.scaled(1.0, offset=1.0)


def _last_norm(config: ModelConfig) -> family.Layout:
    """Return the layout of the last norm's weight: Gemma's is (sqrt(hidden) x ours) - 1. The factor
    makes up for our embedding and tied head, which are sqrt(hidden) x Gemma's."""
    return family.scaled(config.hidden**0.5, offset=1.0)


def _embedding(config: ModelConfig) -> family.Layout:
    return family.scaled(config.hidden**-0.5)


_SCALED = {"embedding": _embedding, "stack.norm": _last_norm}
GEMMA = replace(
    LLAMA,
    name="gemma",
    architecture="GemmaForCausalLM",
    keys=(
        *LLAMA.keys,
        keys.activated("hidden_act", keys.GATED, "gelu_pytorch_tanh"),
        keys.expected(tie_word_embeddings=True),
        keys.implied(("head.tied", True)),
    ),
    parts=tuple(
        replace(
            part, layout=_SCALED.get(part.ours[0], _norm if "norm" in part.theirs else part.layout)
        )
        for part in LLAMA.parts
    ),
    tasks={"classify": family.parts_from({"head": ("score", _embedding)})},
    defaults={"head_dim": 256, "num_key_value_heads": 16, "max_position_embeddings": 8192},
)


# Gemma 2 and 3 (Gemma Team 2024, arXiv 2408.00118, section 2; 2025, arXiv 2503.19786, section 2)


def _read_windows(reading: keys.Reading) -> keys.Pairs:
    return read_windows(reading, every=reading.file.whole("sliding_window_pattern"))


def _read_score_dim(reading: keys.Reading) -> keys.Pairs:
    size = reading.file.whole("query_pre_attn_scalar", 256)
    yield "attention.score_dim", None if size == reading.ours["attention.head_dim"] else size


_GEMMA = {"head_dim": 256, "num_key_value_heads": 4, "sliding_window": 4096}
GEMMA2 = replace(
    GEMMA,
    name="gemma2",
    architecture="Gemma2ForCausalLM",
    keys=(
        *GEMMA.keys,
        keys.whole("head_dim", "attention.head_dim"),
        keys.activated("hidden_activation", keys.GATED, "gelu_pytorch_tanh"),
        keys.constant_key(
            "query_pre_attn_scalar",
            lambda config: config.attention.score_dim or config.attention.head_dim,
            _read_score_dim,
        ),
        keys.cap("attn_logit_softcapping", "attention.softcap"),
        keys.cap("final_logit_softcapping", "head.softcap"),
        keys.Row("windows", write_windows, _read_windows),
        keys.expected(use_bidirectional_attention=False),
        keys.implied(("norm.place", "sandwich")),
    ),
    parts=family.exchanged(
        GEMMA.parts,
        {
            "{}.attention_out_norm": (f"{LAYER}.post_attention_layernorm", _norm),
            "{}.feed_forward_norm": (f"{LAYER}.pre_feedforward_layernorm", _norm),
            "{}.feed_forward_out_norm": (f"{LAYER}.post_feedforward_layernorm", _norm),
        },
    ),
    defaults={
        **_GEMMA,
        "max_position_embeddings": 8192,
        "sliding_window_pattern": 2,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
)


GEMMA3 = replace(
    GEMMA2,
    name="gemma3_text",
    architecture="Gemma3ForCausalLM",
    tasks={},  # its class for tasks is that of the model that also reads images
    keys=(
        *GEMMA2.keys,
        # The class of transformers does not cap attention scores, whatever this key says.
        keys.constant_key("attn_logit_softcapping", None),
        keys.constant_key(
            "rope_local_base_freq",
            lambda config: config.position.window_theta or config.position.theta,
            _read_window_theta,
        ),
        keys.implied(("attention.qk_norm", True)),
    ),
    defaults={
        **_GEMMA,
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "max_position_embeddings": 131_072,
        "sliding_window_pattern": 6,
        "rope_theta": 1e6,
    },
)
