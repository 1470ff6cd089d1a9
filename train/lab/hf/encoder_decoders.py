"""Encoder-decoders: T5, T5 1.1, mT5, BART."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from train.hf import keys
from train.hf.family import Family, Layout, Part, Theirs, parts_from, plain, scaled
from train.model.config import ModelConfig


def _unscaled(config: ModelConfig) -> Layout:
    """Return the layout of query weights: T5's weights are our weights times head_dim^-0.5. Our
    models multiply attention scores by head_dim^-0.5, and T5 does not."""
    return scaled(config.attention.head_dim**-0.5)


def _before_head(config: ModelConfig) -> Layout:
    """Return a layout of the norm before the head. With a tied head, T5's weights are ours times
    sqrt(hidden), because T5 divides the head's input by sqrt(hidden)."""
    return scaled(config.hidden**0.5) if config.head.tied else plain(config)


_AS_ROW = Layout(pack=lambda ours: ours[0][None], unpack=lambda theirs: [theirs[0]])


def _read_start(reading: keys.Reading) -> keys.Pairs:
    names = ("decoder_start_token_id", "bos_token_id")
    start, begin = (reading.file.whole(name, None) for name in names)
    end = next(iter(reading.file.wholes("eos_token_id")), None)
    yield "encoder.start", None if start == begin == end else start


# T5 (Raffel et al. 2020), 1.1 and mT5 (Xue et al. 2021)


def _t5_stack(ours: str, theirs: str, cross: bool) -> tuple[Part, ...]:
    names = {"attention": "SelfAttention"} | ({"cross": "EncDecAttention"} if cross else {})
    block, layer = f"{ours}.blocks.{{}}", f"{theirs}.block.{{}}.layer"
    parts: dict[str, Theirs] = {}
    for index, (name, own) in enumerate(names.items()):
        parts[f"{block}.{name}.query"] = f"{layer}.{index}.{own}.q", _unscaled
        parts[f"{block}.{name}: key value out"] = f"{layer}.{index}.{own}: k v o"
        parts[f"{block}.{name}_norm"] = f"{layer}.{index}.layer_norm"
    feeds, dense = f"{block}.feed_forward", f"{layer}.{len(names)}.DenseReluDense"
    parts |= {
        f"{feeds}.gate": f"{dense}.wi_0",
        f"{feeds}.down": f"{dense}.wo",
        f"{feeds}_norm": f"{layer}.{len(names)}.layer_norm",
        f"{ours}.positions": f"{theirs}.block.0.layer.0.SelfAttention.relative_attention_bias",
    }
    up = Part(ours=(f"{feeds}.up",), theirs=f"{dense}.wi_1", when=attrgetter("feed_forward.gated"))
    plain_up = replace(up, theirs=f"{dense}.wi", when=lambda config: not config.feed_forward.gated)
    return (*parts_from(parts), up, plain_up)


# transformers reads "gated-gelu" as the tanh approximation of GELU.
_T5_GATED = keys.GATED | {"gelu": "geglu_tanh"}


def _projection(config: ModelConfig) -> str:
    name = keys.activation(config)
    return "gated-" + {"gelu_new": "gelu"}.get(name, name) if config.feed_forward.gated else name


def _read_projection(reading: keys.Reading) -> keys.Pairs:
    kind, _, name = reading.file.word("feed_forward_proj", "relu").rpartition("-")
    names = {"": keys.ACTIVATIONS, "gated": _T5_GATED}.get(kind, {})
    if name not in names:
        known = [*keys.ACTIVATIONS, *(f"gated-{name}" for name in _T5_GATED)]
        shown = f"{kind}-{name}".lstrip("-")
        raise reading.file.refusal("feed_forward_proj", shown, f"known are {', '.join(known)}")
    yield "feed_forward.activation", names[name]


def _read_tied(reading: keys.Reading) -> keys.Pairs:
    """Read whether the head is tied; recent transformers stores this in scale_decoder_outputs."""
    tied = reading.file.flag("tie_word_embeddings", True)
    yield "head.tied", reading.file.flag("scale_decoder_outputs", tied)


T5 = Family(
    name="t5",
    architecture="T5ForConditionalGeneration",
    keys=(
        keys.whole("d_model", "hidden", 512),
        keys.whole("d_kv", "attention.head_dim", 64),
        keys.whole("d_ff", "feed_forward.width", 2048),
        keys.whole("num_layers", "encoder.layers", 6),
        keys.whole("num_decoder_layers", "layers", lambda read: read.ours["encoder.layers"]),
        keys.whole("num_heads", "attention.heads", 8),
        keys.Row("kv", read=lambda read: [("attention.kv_heads", read.ours["attention.heads"])]),
        keys.implied(("position.kind", "t5")),
        keys.whole("relative_attention_num_buckets", "position.buckets", 32),
        keys.whole("relative_attention_max_distance", "position.distance", 128),
        keys.number("dropout_rate", "dropout", 0.1),
        keys.number("layer_norm_epsilon", "norm.eps", 1e-6),
        keys.constant_key("feed_forward_proj", _projection, _read_projection),
        keys.length("n_positions", 512),
        keys.constant_key("pad_token_id", attrgetter("encoder.start"), _read_start),
        keys.Row("tied", read=_read_tied),
    ),
    parts=(
        Part(ours=("embedding",), theirs="shared"),
        *_t5_stack("encoder.stack", "encoder", cross=False),
        Part(ours=("encoder.stack.norm",), theirs="encoder.final_layer_norm"),
        *_t5_stack("stack", "decoder", cross=True),
        Part(ours=("stack.norm",), theirs="decoder.final_layer_norm", layout=_before_head),
        Part(ours=("head",), theirs="lm_head"),
    ),
)
MT5 = replace(
    T5,
    name="mt5",
    architecture="MT5ForConditionalGeneration",
    # In transformers its head is never tied, whatever its configuration says.
    keys=(*T5.keys, keys.implied(("head.tied", False))),
    defaults={"feed_forward_proj": "gated-gelu"},
)


# BART (Lewis et al. 2020)


def _bart_stack(ours: str, theirs: str, cross: bool) -> tuple[Part, ...]:
    block, layer = f"{ours}.blocks.{{}}", f"{theirs}.layers.{{}}"
    parts = {
        f"{ours}.positions": f"{theirs}.embed_positions",
        f"{block}.feed_forward: up down": f"{layer}: fc1 fc2",
        f"{block}.feed_forward_norm": f"{layer}.final_layer_norm",
    }
    for name, own in (("attention", "self_attn"), ("cross", "encoder_attn"))[: 1 + cross]:
        names = f"{layer}.{own}: q_proj k_proj v_proj out_proj"
        parts[f"{block}.{name}: query key value out"] = names
        parts[f"{block}.{name}_norm"] = f"{layer}.{own}_layer_norm"
    return parts_from(parts)


BART = Family(
    name="bart",
    architecture="BartForConditionalGeneration",
    keys=(
        keys.whole("d_model", "hidden"),
        keys.learned("max_position_embeddings", 1024, offset=2),
        keys.whole("encoder_layers", "encoder.layers"),
        keys.whole("decoder_layers", "layers"),
        keys.heads("encoder_attention_heads", "d_model"),
        keys.same("decoder_attention_heads", "attention.heads"),
        keys.whole("encoder_ffn_dim", "feed_forward.width"),
        keys.same("decoder_ffn_dim", "feed_forward.width"),
        keys.activated("activation_function", keys.ACTIVATIONS, "gelu"),
        keys.number("dropout", "dropout", 0.1),
        keys.expected(scale_embedding=False, write=True),
        keys.constant_key("forced_eos_token_id", None),
        # The last two are set by variants with other norms.
        keys.expected(tie_word_embeddings=True, normalize_before=False, add_final_layer_norm=False),
        keys.Row("start", read=_read_start),
        keys.BIASED,
        keys.implied(("encoder.learns", "bart"), ("norm.kind", "layer"), ("norm.place", "post")),
        keys.implied(("embedding.norm", True), ("head.bias", True)),
    ),
    parts=(
        Part(ours=("embedding",), theirs="model.shared"),
        Part(ours=("encoder.norm",), theirs="model.encoder.layernorm_embedding"),
        *_bart_stack("encoder.stack", "model.encoder", cross=False),
        Part(ours=("embedding.norm",), theirs="model.decoder.layernorm_embedding"),
        *_bart_stack("stack", "model.decoder", cross=True),
        Part(ours=("head.bias",), theirs="final_logits_bias", layout=lambda config: _AS_ROW),
    ),
)
