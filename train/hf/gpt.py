"""Families after GPT: GPT-2, GPT-J, GPT-NeoX, BLOOM, OPT."""

from __future__ import annotations

from typing import Any

from train.hf import rope
from train.hf.family import (
    ACTIVATIONS,
    COMMON,
    PLAIN_MLPS,
    Family,
    Part,
    activation,
    by_head,
    conv1d,
    conv1d_qkv,
    interleaved,
)
from train.hf.settings import Settings
from train.model.config import ModelConfig

_ALLOWS = COMMON | {"norm": ("layer",), "bias": ("all",), "mlp": PLAIN_MLPS}
_QKV = ("blocks.{}.attention.query", "blocks.{}.attention.key", "blocks.{}.attention.value")


def _heads(settings: Settings, hidden: str, heads: str, layers: str) -> dict[str, Any]:
    size, count = settings.whole(hidden), settings.whole(heads)
    if count < 1 or size % count:
        raise settings.refusal(heads, count, f"it must divide {hidden} ({size})")
    return {
        "hidden": size,
        "heads": count,
        "kv_heads": count,
        "head_dim": size // count,
        "layers": settings.whole(layers),
        "norm": "layer",
    }


# GPT-2 (Radford et al. 2019)


def _write_gpt2(config: ModelConfig) -> dict[str, Any]:
    return {
        "n_positions": config.context,
        "n_embd": config.hidden,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.mlp_hidden,
        "activation_function": activation(config),
        "layer_norm_epsilon": config.norm_eps,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": 0.0,
    }


def _read_gpt2(settings: Settings, context: int | None) -> dict[str, Any]:
    settings.expect("scale_attn_weights", True, True)
    settings.expect("scale_attn_by_inverse_layer_idx", False, False)
    settings.expect("add_cross_attention", False, False)
    heads = _heads(settings, "n_embd", "n_head", "n_layer")
    _no_context(settings, "n_positions", context)
    return heads | {
        "bias": "all",
        "mlp": settings.one_of("activation_function", ACTIVATIONS, "gelu_new"),
        "mlp_hidden": settings.whole("n_inner", 4 * heads["hidden"]),
        "norm_eps": settings.number("layer_norm_epsilon", 1e-5),
        "position": "learned",
        "context": settings.whole("n_positions", 1024),
        "dropout": settings.number("resid_pdrop", 0.1),
        "tied_embeddings": settings.flag("tie_word_embeddings", True),
    }


def _no_context(settings: Settings, name: str, context: int | None) -> None:
    if context is not None:
        raise settings.refusal(name, settings.whole(name, None), "learned positions keep it")


GPT2 = Family(
    name="gpt2",
    architecture="GPT2LMHeadModel",
    allows=_ALLOWS | {"position": ("learned",)},
    write=_write_gpt2,
    read=_read_gpt2,
    parts=(
        Part(ours=("embedding",), theirs="transformer.wte"),
        Part(ours=("position_embedding",), theirs="transformer.wpe"),
        Part(ours=("blocks.{}.attention_norm",), theirs="transformer.h.{}.ln_1"),
        Part(ours=_QKV, theirs="transformer.h.{}.attn.c_attn", layout=conv1d_qkv),
        Part(
            ours=("blocks.{}.attention.out",),
            theirs="transformer.h.{}.attn.c_proj",
            layout=conv1d,
        ),
        Part(ours=("blocks.{}.mlp_norm",), theirs="transformer.h.{}.ln_2"),
        Part(ours=("blocks.{}.mlp.up",), theirs="transformer.h.{}.mlp.c_fc", layout=conv1d),
        Part(ours=("blocks.{}.mlp.down",), theirs="transformer.h.{}.mlp.c_proj", layout=conv1d),
        Part(ours=("norm",), theirs="transformer.ln_f"),
        Part(ours=("head",), theirs="lm_head"),
    ),
    prefix="transformer.",
    aliases={
        "n_embd": "hidden_size",
        "n_head": "num_attention_heads",
        "n_layer": "num_hidden_layers",
        "n_positions": "max_position_embeddings",
    },
)


# GPT-J (Wang and Komatsuzaki 2021)


def _write_gptj(config: ModelConfig) -> dict[str, Any]:
    return _write_gpt2(config) | {"rotary_dim": config.rotated}


def _read_gptj(settings: Settings, context: int | None) -> dict[str, Any]:
    heads = _heads(settings, "n_embd", "n_head", "n_layer")
    rotated = settings.whole("rotary_dim", 64)
    return heads | {
        "bias": "mlp",
        "head_bias": True,
        "mlp": settings.one_of("activation_function", ACTIVATIONS, "gelu_new"),
        "mlp_hidden": settings.whole("n_inner", 4 * heads["hidden"]),
        "norm_eps": settings.number("layer_norm_epsilon", 1e-5),
        "parallel": True,
        "rope_dim": None if rotated == heads["head_dim"] else rotated,
        "context": context or settings.whole("n_positions", 2048),
        "dropout": settings.number("resid_pdrop", 0.0),
        "tied_embeddings": settings.flag("tie_word_embeddings", False),
    }


GPTJ = Family(
    name="gptj",
    architecture="GPTJForCausalLM",
    allows=_ALLOWS
    | {
        "bias": ("mlp",),
        "head_bias": (True,),
        "parallel": (True,),
        "position": ("rope",),
        "rope_dim": ("head_dim", "a part of head_dim"),
    },
    write=_write_gptj,
    read=_read_gptj,
    parts=(
        Part(ours=("embedding",), theirs="transformer.wte"),
        Part(ours=("blocks.{}.attention_norm",), theirs="transformer.h.{}.ln_1"),
        Part(
            ours=("blocks.{}.attention.query",),
            theirs="transformer.h.{}.attn.q_proj",
            layout=interleaved,
        ),
        Part(
            ours=("blocks.{}.attention.key",),
            theirs="transformer.h.{}.attn.k_proj",
            layout=interleaved,
        ),
        Part(ours=("blocks.{}.attention.value",), theirs="transformer.h.{}.attn.v_proj"),
        Part(ours=("blocks.{}.attention.out",), theirs="transformer.h.{}.attn.out_proj"),
        Part(ours=("blocks.{}.mlp.up",), theirs="transformer.h.{}.mlp.fc_in"),
        Part(ours=("blocks.{}.mlp.down",), theirs="transformer.h.{}.mlp.fc_out"),
        Part(ours=("norm",), theirs="transformer.ln_f"),
        Part(ours=("head",), theirs="lm_head"),
        Part(ours=("head_bias",), theirs="lm_head.bias"),  # of a tied head
    ),
    prefix="transformer.",
    aliases=GPT2.aliases,
)


# GPT-NeoX (Black et al. 2022), and Pythia


def _write_neox(config: ModelConfig) -> dict[str, Any]:
    values = rope.written(config)
    values["rotary_emb_base"] = values["rope_theta"]
    return values | {
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.mlp_hidden,
        "hidden_act": activation(config),
        "max_position_embeddings": config.context,
        "layer_norm_eps": config.norm_eps,
        "use_parallel_residual": config.parallel,
        "attention_bias": config.bias == "all",
        "rotary_pct": _share(config.rotated, config.head_dim),
        "hidden_dropout": config.dropout,
        "attention_dropout": 0.0,
    }


def _share(rotated: int, size: int) -> float:
    """A fraction of ``size`` that rounds down to ``rotated`` again."""
    share = rotated / size
    return share if int(size * share) == rotated else (rotated + 0.5) / size


def _read_neox(settings: Settings, context: int | None) -> dict[str, Any]:
    heads = _heads(settings, "hidden_size", "num_attention_heads", "num_hidden_layers")
    length = context or settings.whole("max_position_embeddings", 2048)
    new = settings.sub("rope_parameters")
    share = settings.number("rotary_pct", 0.25)
    share = new.number("partial_rotary_factor", share) if new else share
    rotated = int(heads["head_dim"] * share)
    parallel = settings.flag("use_parallel_residual", True)
    return heads | {
        "bias": "all" if settings.flag("attention_bias", True) else "mlp",
        "mlp": settings.one_of("hidden_act", ACTIVATIONS, "gelu"),
        "mlp_hidden": settings.whole("intermediate_size"),
        "norm_eps": settings.number("layer_norm_eps", 1e-5),
        "parallel": parallel,
        "parallel_norms": 2 if parallel else 1,
        "rope_dim": None if rotated == heads["head_dim"] else rotated,
        "context": length,
        "dropout": settings.number("hidden_dropout", 0.0),
        "tied_embeddings": settings.flag("tie_word_embeddings", False),
        **rope.read(settings, length, theta="rotary_emb_base"),
    }


_NEOX = _ALLOWS | {
    "bias": ("all", "mlp"),
    "position": ("rope",),
    "rope_dim": ("head_dim", "a part of head_dim"),
    "rope_scaling": (False, True),
    "rope_theta": ("10000", "other"),
}
GPT_NEOX = Family(
    name="gpt_neox",
    architecture="GPTNeoXForCausalLM",
    allows=_NEOX | {"parallel": (True, False), "parallel_norms": (2, 1)},
    write=_write_neox,
    read=_read_neox,
    parts=(
        Part(ours=("embedding",), theirs="gpt_neox.embed_in"),
        Part(ours=("blocks.{}.attention_norm",), theirs="gpt_neox.layers.{}.input_layernorm"),
        Part(ours=("blocks.{}.mlp_norm",), theirs="gpt_neox.layers.{}.post_attention_layernorm"),
        Part(ours=_QKV, theirs="gpt_neox.layers.{}.attention.query_key_value", layout=by_head),
        Part(ours=("blocks.{}.attention.out",), theirs="gpt_neox.layers.{}.attention.dense"),
        Part(ours=("blocks.{}.mlp.up",), theirs="gpt_neox.layers.{}.mlp.dense_h_to_4h"),
        Part(ours=("blocks.{}.mlp.down",), theirs="gpt_neox.layers.{}.mlp.dense_4h_to_h"),
        Part(ours=("norm",), theirs="gpt_neox.final_layer_norm"),
        # transformers 5 calls it lm_head, and reads this name as older versions do.
        Part(ours=("head",), theirs="embed_out"),
    ),
    prefix="gpt_neox.",
)


# BLOOM (BigScience 2022)


def _write_bloom(config: ModelConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.hidden,
        "n_layer": config.layers,
        "n_head": config.heads,
        "layer_norm_epsilon": config.norm_eps,
        "seq_length": config.context,
        "hidden_dropout": config.dropout,
        "attention_dropout": 0.0,
    }


def _read_bloom(settings: Settings, context: int | None) -> dict[str, Any]:
    settings.expect("apply_residual_connection_post_layernorm", False, False)
    heads = _heads(settings, "hidden_size", "n_head", "n_layer")
    return heads | {
        "bias": "all",
        "mlp": "gelu_tanh",
        "mlp_hidden": 4 * heads["hidden"],
        "norm_eps": settings.number("layer_norm_epsilon", 1e-5),
        "embedding_norm": True,
        "position": "alibi",
        "context": context or settings.whole("seq_length", 2048),
        "dropout": settings.number("hidden_dropout", 0.0),
        "tied_embeddings": settings.flag("tie_word_embeddings", True),
    }


BLOOM = Family(
    name="bloom",
    architecture="BloomForCausalLM",
    allows=_ALLOWS
    | {
        "embedding_norm": (True,),
        "mlp": ("gelu_tanh",),
        "mlp_hidden": ("4 x hidden",),
        "position": ("alibi",),
    },
    write=_write_bloom,
    read=_read_bloom,
    parts=(
        Part(ours=("embedding",), theirs="transformer.word_embeddings"),
        Part(ours=("embedding_norm",), theirs="transformer.word_embeddings_layernorm"),
        Part(ours=("blocks.{}.attention_norm",), theirs="transformer.h.{}.input_layernorm"),
        Part(ours=_QKV, theirs="transformer.h.{}.self_attention.query_key_value", layout=by_head),
        Part(ours=("blocks.{}.attention.out",), theirs="transformer.h.{}.self_attention.dense"),
        Part(ours=("blocks.{}.mlp_norm",), theirs="transformer.h.{}.post_attention_layernorm"),
        Part(ours=("blocks.{}.mlp.up",), theirs="transformer.h.{}.mlp.dense_h_to_4h"),
        Part(ours=("blocks.{}.mlp.down",), theirs="transformer.h.{}.mlp.dense_4h_to_h"),
        Part(ours=("norm",), theirs="transformer.ln_f"),
        Part(ours=("head",), theirs="lm_head"),
    ),
    prefix="transformer.",
    aliases={
        "hidden_size": "n_embed",
        "n_head": "num_attention_heads",
        "n_layer": "num_hidden_layers",
    },
)


# OPT (Zhang et al. 2022)


def _write_opt(config: ModelConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.hidden,
        "word_embed_proj_dim": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "ffn_dim": config.mlp_hidden,
        "activation_function": activation(config),
        "max_position_embeddings": config.context,
        "do_layer_norm_before": config.norm_place == "pre",
        "enable_bias": config.bias == "all",
        "layer_norm_elementwise_affine": config.norm == "layer",
        "dropout": config.dropout,
        "attention_dropout": 0.0,
    }


def _read_opt(settings: Settings, context: int | None) -> dict[str, Any]:
    settings.expect("_remove_final_layer_norm", False, False)
    heads = _heads(settings, "hidden_size", "num_attention_heads", "num_hidden_layers")
    settings.expect("word_embed_proj_dim", heads["hidden"], heads["hidden"])
    _no_context(settings, "max_position_embeddings", context)
    affine = settings.flag("layer_norm_elementwise_affine", True)
    return heads | {
        "norm": "layer" if affine else "layer_plain",
        "norm_place": "pre" if settings.flag("do_layer_norm_before", True) else "post",
        "bias": "all" if settings.flag("enable_bias", True) else "none",
        "mlp": settings.one_of("activation_function", ACTIVATIONS, "relu"),
        "mlp_hidden": settings.whole("ffn_dim"),
        "position": "learned",
        "learned_offset": 2,
        "context": settings.whole("max_position_embeddings", 2048),
        "dropout": settings.number("dropout", 0.1),
        "tied_embeddings": settings.flag("tie_word_embeddings", True),
    }


OPT = Family(
    name="opt",
    architecture="OPTForCausalLM",
    allows=_ALLOWS
    | {
        "norm": ("layer", "layer_plain"),
        "norm_eps": ("1e-5",),
        "norm_place": ("pre", "post"),
        "bias": ("all", "none"),
        "position": ("learned",),
        "learned_offset": (2,),
    },
    write=_write_opt,
    read=_read_opt,
    parts=(
        Part(ours=("embedding",), theirs="model.decoder.embed_tokens"),
        Part(ours=("position_embedding",), theirs="model.decoder.embed_positions"),
        Part(
            ours=("blocks.{}.attention.query",), theirs="model.decoder.layers.{}.self_attn.q_proj"
        ),
        Part(ours=("blocks.{}.attention.key",), theirs="model.decoder.layers.{}.self_attn.k_proj"),
        Part(
            ours=("blocks.{}.attention.value",), theirs="model.decoder.layers.{}.self_attn.v_proj"
        ),
        Part(
            ours=("blocks.{}.attention.out",), theirs="model.decoder.layers.{}.self_attn.out_proj"
        ),
        Part(
            ours=("blocks.{}.attention_norm",),
            theirs="model.decoder.layers.{}.self_attn_layer_norm",
        ),
        Part(ours=("blocks.{}.mlp.up",), theirs="model.decoder.layers.{}.fc1"),
        Part(ours=("blocks.{}.mlp.down",), theirs="model.decoder.layers.{}.fc2"),
        Part(ours=("blocks.{}.mlp_norm",), theirs="model.decoder.layers.{}.final_layer_norm"),
        Part(ours=("norm",), theirs="model.decoder.final_layer_norm"),
        Part(ours=("head",), theirs="lm_head"),
    ),
    prefix="model.",
)
