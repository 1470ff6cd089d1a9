"""Families of models like GPT: GPT-2, GPT-J, GPT-NeoX, BLOOM, OPT."""

from __future__ import annotations

from dataclasses import replace

from train.hf import family, keys
from train.hf.rope import rope, rope_keys
from train.model.config import ModelConfig

_LAYER_NORM = keys.implied(("norm.kind", "layer"))


def _rotated(rotated: int, reading: keys.Reading) -> keys.Pairs:
    yield "position.dim", None if rotated == reading.ours["attention.head_dim"] else rotated


# GPT-2 (Radford et al. 2019)


_GPT = (
    keys.length("n_positions", 2048),
    keys.whole("n_embd", "hidden"),
    keys.whole("n_layer", "layers"),
    keys.heads("n_head", "n_embd"),
    keys.whole("n_inner", "feed_forward.width", lambda read: 4 * read.ours["hidden"]),
    keys.activated("activation_function", keys.ACTIVATIONS, "gelu_new"),
    keys.number("layer_norm_epsilon", "norm.eps", 1e-5),
    keys.number("resid_pdrop", "dropout", 0.0),
    keys.constant_key("embd_pdrop", lambda config: config.dropout),
    keys.constant_key("attn_pdrop", 0.0),
    _LAYER_NORM,
)
GPT2 = family.Family(
    name="gpt2",
    architecture="GPT2LMHeadModel",
    tasks=family.OF_GPT,
    keys=(
        *_GPT,
        keys.learned("n_positions", 1024),
        keys.number("resid_pdrop", "dropout", 0.1),
        keys.BIASED,
        keys.expected(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False),
        keys.expected(add_cross_attention=False),
        keys.tied(True),
    ),
    parts=family.parts_from(
        {
            "embedding": "transformer.wte",
            "stack.positions": "transformer.wpe",
            "{}.attention_norm": "transformer.h.{}.ln_1",
            family.QKV: ("transformer.h.{}.attn.c_attn", family.CONV1D_QKV),
            "{}.attention.out": ("transformer.h.{}.attn.c_proj", family.CONV1D),
            "{}.feed_forward_norm": "transformer.h.{}.ln_2",
            "{}.feed_forward: up down": ("transformer.h.{}.mlp: c_fc c_proj", family.CONV1D),
            "stack.norm": "transformer.ln_f",
            "head": "lm_head",
        }
    ),
    aliases={
        "n_embd": "hidden_size",
        "n_head": "num_attention_heads",
        "n_layer": "num_hidden_layers",
        "n_positions": "max_position_embeddings",
    },
)


# GPT-J (Wang and Komatsuzaki 2021)


GPTJ = replace(
    GPT2,
    name="gptj",
    architecture="GPTJForCausalLM",
    keys=(
        *_GPT,
        keys.constant_key(
            "rotary_dim",
            lambda config: config.rotated,
            lambda reading: _rotated(reading.file.whole("rotary_dim", 64), reading),
        ),
        keys.implied(
            ("feed_forward.bias", True), ("head.bias", True), ("residual.kind", "parallel")
        ),
        keys.tied(False),
    ),
    parts=family.exchanged(
        GPT2.parts,
        {
            "{}.attention: query key": ("transformer.h.{}.attn: q_proj k_proj", family.interleaved),
            "{}.attention: value out": "transformer.h.{}.attn: v_proj out_proj",
            "{}.feed_forward: up down": "transformer.h.{}.mlp: fc_in fc_out",
        },
    ),
    tasks=family.SCORE,
)


# GPT-NeoX (Black et al. 2022), and Pythia


def _share(rotated: int, size: int) -> float:
    """Return a fraction whose product with ``size`` is ``rotated`` after rounding down."""
    share = rotated / size
    return share if int(size * share) == rotated else (rotated + 0.5) / size


def rotated_share(theirs: str, default: float) -> keys.Row:
    """Return a row of the table of config.json keys: the share of a head's dimensions that rotary
    positions rotate."""

    def read(reading: keys.Reading) -> keys.Pairs:
        new, share = reading.file.sub("rope_parameters"), reading.file.number(theirs, default)
        share = new.number("partial_rotary_factor", share) if new else share
        return _rotated(int(reading.ours["attention.head_dim"] * share), reading)

    def write(config: ModelConfig) -> keys.Pairs:
        yield theirs, _share(config.rotated, config.attention.head_dim)

    return keys.Row(theirs, write, read)


def _read_residual(reading: keys.Reading) -> keys.Pairs:
    if reading.file.flag("use_parallel_residual", True):
        yield from (("residual.kind", "parallel"), ("residual.norms", 2))


GPT_NEOX = family.Family(
    name="gpt_neox",
    architecture="GPTNeoXForCausalLM",
    tasks=family.OF_GPT,
    keys=(
        keys.whole("hidden_size", "hidden"),
        keys.whole("num_hidden_layers", "layers"),
        keys.heads("num_attention_heads", "hidden_size"),
        keys.whole("intermediate_size", "feed_forward.width"),
        keys.activated("hidden_act", keys.ACTIVATIONS, "gelu"),
        keys.length("max_position_embeddings", 2048),
        keys.number("layer_norm_eps", "norm.eps", 1e-5),
        keys.constant_key(
            "use_parallel_residual",
            lambda config: config.residual.kind == "parallel",
            _read_residual,
        ),
        keys.either("attention_bias", "attention.bias", "all", "none", True),
        rotated_share("rotary_pct", 0.25),
        keys.number("hidden_dropout", "dropout", 0.0),
        keys.constant_key("rotary_emb_base", lambda config: dict(rope_keys(config))["rope_theta"]),
        rope("rotary_emb_base"),
        _LAYER_NORM,
        keys.implied(("feed_forward.bias", True)),
        keys.tied(False),
    ),
    parts=family.parts_from(
        {
            "embedding": "gpt_neox.embed_in",
            "{}: attention_norm feed_forward_norm": (
                "gpt_neox.layers.{}: input_layernorm post_attention_layernorm"
            ),
            family.QKV: ("gpt_neox.layers.{}.attention.query_key_value", family.by_head),
            "{}.attention.out": "gpt_neox.layers.{}.attention.dense",
            "{}.feed_forward: up down": "gpt_neox.layers.{}.mlp: dense_h_to_4h dense_4h_to_h",
            # transformers 5 calls the head lm_head but still reads this older name.
            "stack.norm": "gpt_neox.final_layer_norm",
            "head": "embed_out",
        }
    ),
)


# BLOOM (BigScience 2022)


BLOOM = family.Family(
    name="bloom",
    architecture="BloomForCausalLM",
    tasks=family.OF_GPT,
    keys=(
        keys.whole("hidden_size", "hidden"),
        keys.whole("n_layer", "layers"),
        keys.heads("n_head", "hidden_size"),
        keys.number("layer_norm_epsilon", "norm.eps", 1e-5),
        keys.length("seq_length", 2048),
        keys.number("hidden_dropout", "dropout", 0.0),
        keys.expected(apply_residual_connection_post_layernorm=False),
        keys.Row("width", read=lambda read: [("feed_forward.width", 4 * read.ours["hidden"])]),
        _LAYER_NORM,
        keys.BIASED,
        keys.implied(("feed_forward.activation", "gelu_tanh"), ("embedding.norm", True)),
        keys.implied(("position.kind", "alibi")),
        keys.tied(True),
    ),
    parts=family.parts_from(
        {
            "embedding": "transformer.word_embeddings",
            "embedding.norm": "transformer.word_embeddings_layernorm",
            "{}.attention_norm": "transformer.h.{}.input_layernorm",
            family.QKV: ("transformer.h.{}.self_attention.query_key_value", family.by_head),
            "{}.attention.out": "transformer.h.{}.self_attention.dense",
            "{}.feed_forward_norm": "transformer.h.{}.post_attention_layernorm",
            "{}.feed_forward: up down": "transformer.h.{}.mlp: dense_h_to_4h dense_4h_to_h",
            "stack.norm": "transformer.ln_f",
            "head": "lm_head",
        }
    ),
    aliases={
        "hidden_size": "n_embed",
        "n_head": "num_attention_heads",
        "n_layer": "num_hidden_layers",
    },
)


# OPT (Zhang et al. 2022)


def _read_size(reading: keys.Reading) -> keys.Pairs:
    size = reading.file.whole("word_embed_proj_dim", reading.ours["hidden"])
    if size != reading.ours["hidden"]:
        reading.file.expect("tie_word_embeddings", True, True)
        yield from (("embedding.size", size), ("embedding.bias", False))
        yield "embedding.positions", "after"


OPT = family.Family(
    name="opt",
    architecture="OPTForCausalLM",
    tasks=family.SCORE,
    keys=(
        keys.whole("hidden_size", "hidden"),
        keys.constant_key("word_embed_proj_dim", lambda config: config.embedding_dim, _read_size),
        keys.whole("num_hidden_layers", "layers"),
        keys.heads("num_attention_heads", "hidden_size"),
        keys.whole("ffn_dim", "feed_forward.width"),
        keys.activated("activation_function", keys.ACTIVATIONS, "relu"),
        keys.learned("max_position_embeddings", 2048, offset=2),
        keys.either("do_layer_norm_before", "norm.place", "pre", "post", True),
        keys.biased("enable_bias", True),
        keys.either("layer_norm_elementwise_affine", "norm.kind", "layer", "layer_plain", True),
        keys.number("dropout", "dropout", 0.1),
        keys.expected(_remove_final_layer_norm=False),
        keys.tied(True),
    ),
    parts=family.parts_from(
        {
            "embedding": "model.decoder.embed_tokens",
            "embedding.out": "model.decoder.project_in",
            "head.transform": "model.decoder.project_out",
            "stack.positions": "model.decoder.embed_positions",
            "{}.attention: query key value out": (
                "model.decoder.layers.{}.self_attn: q_proj k_proj v_proj out_proj"
            ),
            "{}.attention_norm": "model.decoder.layers.{}.self_attn_layer_norm",
            "{}.feed_forward: up down": "model.decoder.layers.{}: fc1 fc2",
            "{}.feed_forward_norm": "model.decoder.layers.{}.final_layer_norm",
            "stack.norm": "model.decoder.final_layer_norm",
            "head": "lm_head",
        }
    ),
)
