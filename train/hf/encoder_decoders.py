"""Encoder-decoders: T5, T5 1.1, mT5, BART."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from train.hf.family import (
    ACTIVATIONS,
    COMMON,
    GATED,
    Family,
    Layout,
    Part,
    activation,
    heads_of,
    learned,
    plain,
)
from train.hf.settings import Settings
from train.model.config import ModelConfig
from train.model.position_settings import Buckets


def _times(factor: float) -> Layout:
    """Theirs is ours times a number that the model has in another place."""
    return Layout(pack=lambda ours: ours[0] * factor, unpack=lambda theirs: [theirs / factor])


def _unscaled(config: ModelConfig) -> Layout:
    """T5's queries are not divided by the root of head_dim, ours in attention."""
    return _times(config.attention.head_dim**-0.5)


def _before_head(config: ModelConfig) -> Layout:
    """T5 divides what a tied head reads by the root of its dimensions, ours has that in the norm
    before it.
    """
    return _times(config.hidden**0.5) if config.head.tied else plain(config)


def _as_row(config: ModelConfig) -> Layout:
    """BART's bias of the head is [1, vocab]."""
    return Layout(pack=lambda ours: ours[0][None], unpack=lambda theirs: [theirs[0]])


def _read_start(settings: Settings) -> int | None:
    """What decoding begins with, where it is another token than that which ends a text."""
    start = settings.whole("decoder_start_token_id", None)
    ends = settings.whole("eos_token_id", None)
    return None if start == ends == settings.whole("bos_token_id", None) else start


# T5 (Raffel et al. 2020), 1.1 and mT5 (Xue et al. 2021)


def _gated(config: ModelConfig) -> bool:
    return config.feed_forward.gated


def _t5_stack(ours: str, theirs: str, cross: bool) -> tuple[Part, ...]:
    """The parts of a stack, whose layers have two or three modules."""
    names = {"attention": "SelfAttention"} | ({"cross": "EncDecAttention"} if cross else {})
    parts = []
    for number, (name, class_name) in enumerate(names.items()):
        block, layer = f"{ours}.blocks.{{}}.{name}", f"{theirs}.block.{{}}.layer.{number}"
        of_query = Part(ours=(f"{block}.query",), theirs=f"{layer}.{class_name}.q")
        parts += [
            replace(of_query, layout=_unscaled),
            Part(ours=(f"{block}.key",), theirs=f"{layer}.{class_name}.k"),
            Part(ours=(f"{block}.value",), theirs=f"{layer}.{class_name}.v"),
            Part(ours=(f"{block}.out",), theirs=f"{layer}.{class_name}.o"),
            Part(ours=(f"{block}_norm",), theirs=f"{layer}.layer_norm"),
        ]
    layer, block = f"{theirs}.block.{{}}.layer.{len(names)}", f"{ours}.blocks.{{}}.feed_forward"
    dense = f"{layer}.DenseReluDense"
    first = f"{theirs}.block.0.layer.0.SelfAttention"
    return (
        *parts,
        Part(ours=(f"{block}.gate",), theirs=f"{dense}.wi_0"),
        Part(ours=(f"{block}.up",), theirs=f"{dense}.wi_1", when=_gated),
        Part(ours=(f"{block}.up",), theirs=f"{dense}.wi", when=lambda config: not _gated(config)),
        Part(ours=(f"{block}.down",), theirs=f"{dense}.wo"),
        Part(ours=(f"{block}_norm",), theirs=f"{layer}.layer_norm"),
        Part(ours=(f"{ours}.positions",), theirs=f"{first}.relative_attention_bias"),
    )


_T5_ACTIVATIONS = {name: ours for name, ours in ACTIVATIONS.items() if ours != "relu2"}
# Of "gated-gelu" transformers makes the approximation of GELU.
_T5_GATED = {name: ours for name, ours in GATED.items() if ours != "geglu"} | {"gelu": "geglu_tanh"}


def _write_t5(config: ModelConfig) -> dict[str, Any]:
    assert config.encoder is not None and isinstance(config.position, Buckets)
    name = activation(config)
    if _gated(config):
        name = "gated-" + {"gelu_new": "gelu"}.get(name, name)
    return {
        "d_model": config.hidden,
        "d_kv": config.attention.head_dim,
        "d_ff": config.feed_forward.width,
        "num_layers": config.encoder.layers,
        "num_decoder_layers": config.layers,
        "num_heads": config.attention.heads,
        "relative_attention_num_buckets": config.position.buckets,
        "relative_attention_max_distance": config.position.distance,
        "dropout_rate": config.dropout,
        "layer_norm_epsilon": config.norm.eps,
        "feed_forward_proj": name,
        "n_positions": config.context,
        "pad_token_id": config.encoder.start,
    }


def _read_t5(settings: Settings, context: int | None) -> dict[str, Any]:
    layers, heads = settings.whole("num_layers", 6), settings.whole("num_heads", 8)
    kind, _, name = settings.word("feed_forward_proj", "relu").rpartition("-")
    names = {"": _T5_ACTIVATIONS, "gated": _T5_GATED}.get(kind, {})
    if name not in names:
        known = [*_T5_ACTIVATIONS, *(f"gated-{name}" for name in _T5_GATED)]
        shown = f"{kind}-{name}".lstrip("-")
        raise settings.refusal("feed_forward_proj", shown, f"known are {', '.join(known)}")
    tied = settings.flag("tie_word_embeddings", True)
    return {
        "layers": settings.whole("num_decoder_layers", layers),
        "encoder": {"layers": layers, "start": _read_start(settings)},
        "hidden": settings.whole("d_model", 512),
        "context": context or settings.whole("n_positions", 512),
        "attention.heads": heads,
        "attention.kv_heads": heads,
        "attention.head_dim": settings.whole("d_kv", 64),
        "feed_forward.width": settings.whole("d_ff", 2048),
        "feed_forward.activation": names[name],
        "norm.eps": settings.number("layer_norm_epsilon", 1e-6),
        "position.kind": "t5",
        "position.buckets": settings.whole("relative_attention_num_buckets", 32),
        "position.distance": settings.whole("relative_attention_max_distance", 128),
        "dropout": settings.number("dropout_rate", 0.1),
        # Later versions of transformers say in a flag of its own what 1.1 does not share.
        "head.tied": settings.flag("scale_decoder_outputs", tied),
    }


_ALLOWS = COMMON | {"encoder": ("own weights",)}
T5 = Family(
    name="t5",
    architecture="T5ForConditionalGeneration",
    allows=_ALLOWS
    | {
        "norm.kind": ("rms",),
        "bias": ("none",),
        "feed_forward.activation": (*_T5_ACTIVATIONS.values(), *_T5_GATED.values()),
        "attention.head_dim": ("hidden / heads", "other", "other, heads not dividing hidden"),
        "position.kind": ("t5",),
    },
    write=_write_t5,
    read=_read_t5,
    parts=(
        Part(ours=("embedding",), theirs="shared"),
        *_t5_stack("encoder.stack", "encoder", cross=False),
        Part(ours=("encoder.stack.norm",), theirs="encoder.final_layer_norm"),
        *_t5_stack("stack", "decoder", cross=True),
        Part(ours=("stack.norm",), theirs="decoder.final_layer_norm", layout=_before_head),
        Part(ours=("head",), theirs="lm_head"),
    ),
    prefix="",
    copies=("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
)
MT5 = replace(
    T5,
    name="mt5",
    architecture="MT5ForConditionalGeneration",
    allows={**T5.allows, "head.tied": (False,)},
    # In transformers it has a head of its own, whatever its configuration says.
    read=lambda settings, context: _read_t5(settings, context) | {"head.tied": False},
    defaults={"feed_forward_proj": "gated-gelu"},
)


# BART (Lewis et al. 2020)


def _bart_stack(ours: str, theirs: str, cross: bool) -> tuple[Part, ...]:
    names = {"attention": "self_attn"} | ({"cross": "encoder_attn"} if cross else {})
    ends = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}
    own = {
        **{f"{part}.{end}": f"{names[part]}.{ends[end]}" for part in names for end in ends},
        **{f"{part}_norm": f"{names[part]}_layer_norm" for part in names},
        "feed_forward.up": "fc1",
        "feed_forward.down": "fc2",
        "feed_forward_norm": "final_layer_norm",
    }
    block, layer = f"{ours}.blocks.{{}}", f"{theirs}.layers.{{}}"
    return (
        Part(ours=(f"{ours}.positions",), theirs=f"{theirs}.embed_positions"),
        *(Part(ours=(f"{block}.{o}",), theirs=f"{layer}.{t}") for o, t in own.items()),
    )


def _write_bart(config: ModelConfig) -> dict[str, Any]:
    assert config.encoder is not None
    heads, width = config.attention.heads, config.feed_forward.width
    return {
        "d_model": config.hidden,
        "max_position_embeddings": config.context,
        "encoder_layers": config.encoder.layers,
        "decoder_layers": config.layers,
        **{f"{stack}_attention_heads": heads for stack in ("encoder", "decoder")},
        **{f"{stack}_ffn_dim": width for stack in ("encoder", "decoder")},
        "activation_function": activation(config),
        "dropout": config.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "scale_embedding": False,
        "forced_eos_token_id": None,
    }


def _read_bart(settings: Settings, context: int | None) -> dict[str, Any]:
    shape = heads_of(settings, "d_model", "encoder_attention_heads")
    heads, width = shape["attention.heads"], settings.whole("encoder_ffn_dim")
    settings.expect("decoder_attention_heads", heads, heads)
    settings.expect("decoder_ffn_dim", width, width)
    settings.expect("scale_embedding", False, False)
    settings.expect("tie_word_embeddings", True, True)
    # Flags of versions with other norms.
    settings.expect("normalize_before", False, False)
    settings.expect("add_final_layer_norm", False, False)
    return shape | {
        "layers": settings.whole("decoder_layers"),
        "encoder": {
            "layers": settings.whole("encoder_layers"),
            "start": _read_start(settings),
            "learns": "bart",
        },
        "context": learned(settings, "max_position_embeddings", 1024, context),
        "attention.bias": "all",
        "feed_forward.width": width,
        "feed_forward.bias": True,
        "feed_forward.activation": settings.one_of("activation_function", ACTIVATIONS, "gelu"),
        "norm.kind": "layer",
        "norm.place": "post",
        "position.kind": "learned",
        "position.offset": 2,
        "embedding.norm": True,
        "head.bias": True,
        "dropout": settings.number("dropout", 0.1),
    }


BART = Family(
    name="bart",
    architecture="BartForConditionalGeneration",
    allows=_ALLOWS
    | {
        "norm.kind": ("layer",),
        "norm.place": ("post",),
        "norm.eps": ("1e-5",),
        "bias": ("all",),
        "feed_forward.activation": tuple(dict.fromkeys(ACTIVATIONS.values())),
        "embedding.norm": (True,),
        "head.tied": (True,),
        "head.bias": (True,),
        "position.kind": ("learned",),
        "position.offset": (2,),
    },
    write=_write_bart,
    read=_read_bart,
    parts=(
        Part(ours=("embedding",), theirs="model.shared"),
        Part(ours=("encoder.norm",), theirs="model.encoder.layernorm_embedding"),
        *_bart_stack("encoder.stack", "model.encoder", cross=False),
        Part(ours=("embedding.norm",), theirs="model.decoder.layernorm_embedding"),
        *_bart_stack("stack", "model.decoder", cross=True),
        Part(ours=("head.bias",), theirs="final_logits_bias", layout=_as_row),
    ),
    prefix="model.",
    copies=(
        "lm_head.weight",
        "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
    ),
)
