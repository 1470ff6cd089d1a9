"""Decoders like LLaMA or BLOOM with parts of their own: Phi-3, OLMo 2 and 3, SmolLM3, Gemma 1 to 3,
Falcon, and MPT."""

from __future__ import annotations

from dataclasses import replace

from train.hf import family, keys
from train.hf.gpt import BLOOM, rotated_share
from train.hf.llama import LAYER, LLAMA, MISTRAL, read_windows, write_windows
from train.hf.rope import rope
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


def _embedding(config: ModelConfig) -> family.Layout:
    return family.scaled(config.hidden**-0.5)


# Gemma's last norm is (sqrt(hidden) x ours) - 1. The factor makes up for our embedding and tied
# head, which are sqrt(hidden) x Gemma's.
_SCALED = {
    "embedding": _embedding,
    "stack.norm": lambda config: family.scaled(config.hidden**0.5, offset=1.0),
}
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
        keys.Row(
            "windows",
            write_windows,
            lambda read: read_windows(read, every=read.file.whole("sliding_window_pattern")),
        ),
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


# Falcon (Almazrouei et al. 2023), with rotary positions: 7B, 11B, 40B and 180B. Falcon-RW is left
# out: transformers' class rounds its ALiBi biases to bfloat16, but our models do not round them.


def _read_falcon(reading: keys.Reading) -> keys.Pairs:
    file, heads = reading.file, reading.ours["attention.heads"]
    new = file.flag("new_decoder_architecture", False)
    groups = file.whole("num_kv_heads", heads) if new else heads
    yield "attention.kv_heads", 1 if not new and file.flag("multi_query", True) else groups
    if new or file.flag("parallel_attn", True):
        yield "residual.kind", "parallel"
        yield "residual.norms", file.whole("num_ln_in_parallel_attn", 2) if new else 1


def _write_falcon(config: ModelConfig) -> keys.Pairs:
    own, norms = config.attention, getattr(config.residual, "norms", 0)
    yield "new_decoder_architecture", norms == 2 or 1 < own.kv_heads < own.heads
    yield from (("num_kv_heads", own.kv_heads), ("multi_query", own.kv_heads == 1))
    yield from (("parallel_attn", norms > 0), ("num_ln_in_parallel_attn", norms or None))


def _one(config: ModelConfig) -> bool:
    """Return False if parallel attention and feed-forward have separate norms, else True."""
    return getattr(config.residual, "norms", 1) == 1


FALCON = replace(
    BLOOM,
    name="falcon",
    architecture="FalconForCausalLM",
    keys=(
        keys.whole("hidden_size", "hidden", 4544),
        keys.whole("num_hidden_layers", "layers", 32),
        keys.heads("num_attention_heads", "hidden_size"),
        keys.Row("falcon", _write_falcon, _read_falcon),
        keys.whole("ffn_hidden_size", "feed_forward.width", lambda read: 4 * read.ours["hidden"]),
        keys.activated("activation", keys.ACTIVATIONS, "gelu"),
        keys.number("layer_norm_epsilon", "norm.eps", 1e-5),
        keys.length("max_position_embeddings", 2048),
        keys.expected(alibi=False, write=True),
        keys.biased("bias", False),
        rope(),
        keys.implied(("norm.kind", "layer")),
        keys.tied(True),
    ),
    parts=(
        *(replace(part, when=_one) if "layernorm" in part.theirs else part for part in BLOOM.parts),
        *(
            replace(part, when=lambda config: not _one(config))
            for part in family.parts_from(
                {
                    "{}.attention_norm": "transformer.h.{}.ln_attn",
                    "{}.feed_forward_norm": "transformer.h.{}.ln_mlp",
                }
            )
        ),
    ),
    aliases={
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "num_kv_heads": "n_head_kv",
    },
)


# MPT (MosaicML 2023): ALiBi, LayerNorm without bias, no biases


def _read_attention(reading: keys.Reading) -> keys.Pairs:
    own = reading.file.sub("attn_config") or reading.file
    # The class of transformers computes with 8 for alibi_bias_max, whatever its value.
    values = {"alibi": True, "alibi_bias_max": 8, "qk_ln": False, "softmax_scale": None}
    for name, usual in values.items():
        own.expect(name, usual, usual)
    yield "position.kind", "alibi"
    yield "attention.clip", own.number("clip_qkv", 0.0) or None


MPT = family.Family(
    name="mpt",
    architecture="MptForCausalLM",
    tasks=family.OF_GPT,
    keys=(
        keys.whole("d_model", "hidden", 2048),
        keys.whole("n_layers", "layers", 24),
        keys.heads("n_heads", "d_model"),
        keys.length("max_seq_len", 2048),
        keys.Row("width", read=lambda read: [("feed_forward.width", 4 * read.ours["hidden"])]),
        keys.number("layer_norm_epsilon", "norm.eps", 1e-5),
        keys.expected(expansion_ratio=4, no_bias=True),
        keys.constant_key(
            "attn_config",
            lambda config: {"alibi": True, "clip_qkv": config.attention.clip},
            _read_attention,
        ),
        keys.implied(("norm.kind", "layer_no_bias"), ("feed_forward.activation", "gelu")),
        keys.tied(True),
    ),
    parts=family.parts_from(
        {
            "embedding": "transformer.wte",
            "{}.attention_norm": "transformer.blocks.{}.norm_1",
            family.QKV: ("transformer.blocks.{}.attn.Wqkv", family.qkv),
            "{}.attention.out": "transformer.blocks.{}.attn.out_proj",
            "{}.feed_forward_norm": "transformer.blocks.{}.norm_2",
            "{}.feed_forward: up down": "transformer.blocks.{}.ffn: up_proj down_proj",
            "stack.norm": "transformer.norm_f",
            "head": "lm_head",
        }
    ),
)
