"""Encoders: BERT, RoBERTa, ALBERT, ELECTRA, ModernBERT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from train.hf.family import (
    ACTIVATIONS,
    COMMON,
    GATED,
    QKV,
    Family,
    Part,
    activation,
    by_head,
    heads_of,
    joined,
    learned,
    listed,
    of_encoder,
    of_modernbert,
    repeated,
)
from train.hf.settings import Settings
from train.model.config import ModelConfig
from train.model.position_settings import Disentangled, Rope

_BLOCK = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
_ALBERT_BLOCK = {
    "attention.query": "attention.query",
    "attention.key": "attention.key",
    "attention.value": "attention.value",
    "attention.out": "attention.dense",
    "attention_norm": "attention.LayerNorm",
    "feed_forward.up": "ffn",
    "feed_forward.down": "ffn_output",
    "feed_forward_norm": "full_layer_layer_norm",
}


def parts(model: str, layer: str, block: dict[str, str], heads: dict[str, str]) -> tuple[Part, ...]:
    """``heads``: of ours, theirs."""
    return listed(
        {
            "embedding": f"{model}.embeddings.word_embeddings",
            "stack.positions": f"{model}.embeddings.position_embeddings",
            "embedding.segments": f"{model}.embeddings.token_type_embeddings",
            "embedding.norm": f"{model}.embeddings.LayerNorm",
            **{f"{{}}.{ours}": f"{layer}.{theirs}" for ours, theirs in block.items()},
        }
    ) + listed(heads)


ALLOWS = COMMON | {
    "causal": (False,),
    "norm.kind": ("layer",),
    "norm.place": ("post",),
    "bias": ("all",),
    "feed_forward.activation": ("gelu", "gelu_tanh", "relu", "swish"),
    "embedding.norm": (True,),
    "embedding.segments": (1, 2),
    "head.tied": (True,),
    "head.bias": (True,),
    "head.transform": (True,),
    "position.kind": ("learned",),
}


def write_bert(config: ModelConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.attention.heads,
        "intermediate_size": config.feed_forward.width,
        "hidden_act": activation(config),
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": config.context,
        "type_vocab_size": config.embedding.segments,
        "layer_norm_eps": config.norm.eps,
    }


def read_bert(settings: Settings, context: int | None, *, offset: int = 0) -> dict[str, Any]:
    settings.expect("position_embedding_type", "absolute", "absolute")
    settings.expect("is_decoder", False, False)
    settings.expect("tie_word_embeddings", True, True)
    return {
        **heads_of(settings, "hidden_size", "num_attention_heads"),
        "causal": False,
        "layers": settings.whole("num_hidden_layers"),
        "context": learned(settings, "max_position_embeddings", 512, context) - offset,
        "attention.bias": "all",
        "feed_forward.width": settings.whole("intermediate_size"),
        "feed_forward.activation": settings.one_of("hidden_act", ACTIVATIONS, "gelu"),
        "feed_forward.bias": True,
        "norm.kind": "layer",
        "norm.place": "post",
        "norm.eps": settings.number("layer_norm_eps", 1e-12),
        "position.kind": "learned",
        "position.offset": offset,
        "embedding.norm": True,
        "embedding.segments": settings.whole("type_vocab_size", 2),
        "head.bias": True,
        "head.transform": True,
        "dropout": settings.number("hidden_dropout_prob", 0.1),
    }


def _with_pairs(kind: str, architecture: str) -> Callable[[Settings], dict[str, Any]]:
    def read(settings: Settings) -> dict[str, Any]:
        """Which head it has besides, by the class that it was saved from."""
        there = architecture in (settings.words("architectures") or [])
        return {"head.pair": kind if there else "none"}

    return read


_bert_pairs = _with_pairs("next", "BertForPreTraining")
_albert_pairs = _with_pairs("order", "AlbertForPreTraining")

BERT = Family(
    name="bert",
    architecture="BertForMaskedLM",
    of_pairs="BertForPreTraining",
    tasks=of_encoder("Bert", "bert.pooler.dense"),
    allows=ALLOWS | {"head.pair": ("none", "next")},
    write=write_bert,
    read=lambda settings, context: read_bert(settings, context) | _bert_pairs(settings),
    parts=parts(
        "bert",
        "bert.encoder.layer.{}",
        _BLOCK,
        {
            "head.pair.pool": "bert.pooler.dense",
            "head": "cls.predictions",
            "head.transform.linear": "cls.predictions.transform.dense",
            "head.transform.norm": "cls.predictions.transform.LayerNorm",
            "head.pair.out": "cls.seq_relationship",
        },
    ),
    prefix="bert.",
)


def _write_roberta(config: ModelConfig) -> dict[str, Any]:
    return write_bert(config) | {"max_position_embeddings": config.context + 2, "pad_token_id": 1}


def _read_roberta(settings: Settings, context: int | None) -> dict[str, Any]:
    settings.expect("pad_token_id", 1, 1)  # positions are counted from behind it
    return read_bert(settings, context, offset=2)


ROBERTA = Family(
    name="roberta",
    architecture="RobertaForMaskedLM",
    tasks=of_encoder("Roberta", "classifier.dense", "classifier.out_proj"),
    allows=ALLOWS | {"position.offset": (2,)},
    write=_write_roberta,
    read=_read_roberta,
    parts=parts(
        "roberta",
        "roberta.encoder.layer.{}",
        _BLOCK,
        {
            "head": "lm_head",
            "head.transform.linear": "lm_head.dense",
            "head.transform.norm": "lm_head.layer_norm",
        },
    ),
    prefix="roberta.",
)


def _write_albert(config: ModelConfig) -> dict[str, Any]:
    return write_bert(config) | {
        "embedding_size": config.embedded,
        "num_hidden_groups": config.layers // config.share,
        "inner_group_num": 1,
        "classifier_dropout_prob": 0.1,
    }


def _read_albert(settings: Settings, context: int | None) -> dict[str, Any]:
    settings.expect("inner_group_num", 1, 1)
    values = read_bert(settings, context)
    groups = settings.whole("num_hidden_groups", 1)
    if groups < 1 or values["layers"] % groups:
        raise settings.refusal("num_hidden_groups", groups, "it must divide num_hidden_layers")
    return (
        values
        | {
            "share": values["layers"] // groups,
            "embedding.size": settings.whole("embedding_size", 128),
            "feed_forward.activation": settings.one_of("hidden_act", ACTIVATIONS, "gelu_new"),
            "dropout": settings.number("hidden_dropout_prob", 0.0),
        }
        | _albert_pairs(settings)
    )


ALBERT = Family(
    name="albert",
    architecture="AlbertForMaskedLM",
    of_pairs="AlbertForPreTraining",
    tasks=of_encoder("Albert", "albert.pooler"),
    allows=ALLOWS
    | {
        "share": ("all or groups of blocks", "none"),
        "embedding.size": ("other than hidden", "hidden"),
        "head.pair": ("none", "order"),
    },
    write=_write_albert,
    read=_read_albert,
    parts=parts(
        "albert",
        "albert.encoder.albert_layer_groups.{}.albert_layers.0",
        _ALBERT_BLOCK,
        {
            "embedding.out": "albert.encoder.embedding_hidden_mapping_in",
            "head.pair.pool": "albert.pooler",
            "head": "predictions",
            "head.transform.linear": "predictions.dense",
            "head.transform.norm": "predictions.LayerNorm",
            "head.pair.out": "sop_classifier.classifier",
        },
    ),
    prefix="albert.",
)


def _write_electra(config: ModelConfig) -> dict[str, Any]:
    return write_bert(config) | {"embedding_size": config.embedded}


def _read_electra(settings: Settings, context: int | None) -> dict[str, Any]:
    values = read_bert(settings, context)
    size = settings.whole("embedding_size", 128)
    return values | {
        "embedding.size": None if size == values["hidden"] else size,
        "head.replaced": "ElectraForPreTraining" in (settings.words("architectures") or []),
    }


# A generator's head has GELU whatever its blocks have.
ELECTRA = Family(
    name="electra",
    architecture="ElectraForMaskedLM",
    of_replaced="ElectraForPreTraining",
    allows=ALLOWS
    | {
        "embedding.size": ("other than hidden", "hidden"),
        "embedding.segments": (2,),
        "feed_forward.activation": ("gelu",),
        "head.replaced": (True, False),
    },
    write=_write_electra,
    read=_read_electra,
    parts=parts(
        "electra",
        "electra.encoder.layer.{}",
        _BLOCK,
        {
            "embedding.out": "electra.embeddings_project",
            "head.replaced.linear": "discriminator_predictions.dense",
            "head.replaced.out": "discriminator_predictions.dense_prediction",
            "head.transform.linear": "generator_predictions.dense",
            "head.transform.norm": "generator_predictions.LayerNorm",
            "head": "generator_lm_head",
        },
    ),
    prefix="electra.",
)


_MODERN = "model.layers.{}"


def _write_modern(config: ModelConfig) -> dict[str, Any]:
    assert isinstance(config.position, Rope)
    theta, window = config.position.theta, next(filter(None, config.windows), None)
    marks = "".join("F" if size is None else "W" for size in config.windows)
    kinds = [{"F": "full_attention", "W": "sliding_attention"}[mark] for mark in marks]
    return {
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.attention.heads,
        "intermediate_size": config.feed_forward.width,
        "hidden_activation": activation(config),
        "classifier_activation": activation(config),
        "max_position_embeddings": config.context,
        "norm_eps": config.norm.eps,
        "global_rope_theta": theta,
        "local_rope_theta": config.position.window_theta or theta,
        "global_attn_every_n_layers": len(repeated(marks)),
        "layer_types": kinds,
        "local_attention": 128 if window is None else 2 * (window - 1),
        "decoder_bias": config.head.bias,
        **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), False),
        **dict.fromkeys(("attention_dropout", "embedding_dropout", "mlp_dropout"), config.dropout),
    }


def _read_modern(settings: Settings, context: int | None) -> dict[str, Any]:
    for name in ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"):
        settings.expect(name, False, False)
    settings.expect("tie_word_embeddings", True, True)
    layers = settings.whole("num_hidden_layers", 22)
    every = settings.whole("global_attn_every_n_layers", 3)
    kinds = settings.words("layer_types")
    marks = {"full_attention": "F", "sliding_attention": "W"}
    if kinds is None:
        pattern = "F" + "W" * (every - 1)
    else:
        pattern = "".join(marks.get(kind, "?") for kind in kinds)
        if "?" in pattern or len(kinds) != layers:
            raise settings.refusal("layer_types", kinds[:3], "a known kind for each layer")
    thetas = settings.sub("rope_parameters")
    named = {"F": ("full_attention", "global_rope_theta", 160_000.0)}
    named["W"] = ("sliding_attention", "local_rope_theta", 10_000.0)
    theta = {}
    for mark, (kind, old, default) in named.items():
        inner = thetas.sub(kind) if thetas else None
        if inner is not None:
            inner.expect("rope_type", "default", "default")
        theta[mark] = (inner or settings).number("rope_theta" if inner else old, default)
    return {
        **heads_of(settings, "hidden_size", "num_attention_heads"),
        "causal": False,
        "layers": layers,
        "context": context or settings.whole("max_position_embeddings", 8192),
        "attention.window": settings.whole("local_attention", 128) // 2 + 1,
        "attention.window_pattern": repeated(pattern),
        "feed_forward.width": settings.whole("intermediate_size", 1152),
        "feed_forward.activation": settings.one_of("hidden_activation", GATED, "gelu"),
        "norm.kind": "layer_no_bias",
        "norm.eps": settings.number("norm_eps", 1e-5),
        "norm.first": False,
        "position.kind": "rope",
        "position.theta": theta["F"],
        "position.window_theta": theta["W"],
        "embedding.norm": True,
        "head.bias": settings.flag("decoder_bias", True),
        "head.transform": True,
    }


MODERNBERT = Family(
    name="modernbert",
    architecture="ModernBertForMaskedLM",
    tasks=of_modernbert(),
    allows=COMMON
    | {
        "causal": (False,),
        "norm.kind": ("layer_no_bias",),
        "norm.first": (False,),
        "bias": ("none",),
        "feed_forward.activation": ("geglu", "geglu_tanh", "swiglu", "reglu"),
        "embedding.norm": (True,),
        "attention.window": ("some layers",),
        "head.tied": (True,),
        "head.bias": (True, False),
        "head.transform": (True,),
        "position.kind": ("rope",),
        "position.theta": ("10000", "other"),
        "position.window_theta": ("other than theta", "theta"),
    },
    write=_write_modern,
    read=_read_modern,
    parts=listed(
        {
            "embedding": "model.embeddings.tok_embeddings",
            "embedding.norm": "model.embeddings.norm",
            "{}.attention_norm": f"{_MODERN}.attn_norm",
            QKV: (f"{_MODERN}.attn.Wqkv", lambda config: joined(3)),
            "{}.attention.out": f"{_MODERN}.attn.Wo",
            "{}.feed_forward_norm": f"{_MODERN}.mlp_norm",
            ("{}.feed_forward.gate", "{}.feed_forward.up"): (
                f"{_MODERN}.mlp.Wi",
                lambda config: joined(2),
            ),
            "{}.feed_forward.down": f"{_MODERN}.mlp.Wo",
            "stack.norm": "model.final_norm",
            "head.transform.linear": "head.dense",
            "head.transform.norm": "head.norm",
            "head": "decoder",
        }
    ),
    prefix="",
)


_DEBERTA_BLOCK = {
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
_V1 = _DEBERTA_BLOCK | {
    "attention.query.bias": "attention.self.q_bias",
    "attention.value.bias": "attention.self.v_bias",
    "attention.position_key": "attention.self.pos_proj",
    "attention.position_query": "attention.self.pos_q_proj",
}
_V2 = _DEBERTA_BLOCK | {
    "attention.query": "attention.self.query_proj",
    "attention.key": "attention.self.key_proj",
    "attention.value": "attention.self.value_proj",
    "attention.position_key": "attention.self.pos_key_proj",
    "attention.position_query": "attention.self.pos_query_proj",
}
_HEADS = {
    "stack.positions": "deberta.encoder.rel_embeddings",
    "stack.positions.norm": "deberta.encoder.LayerNorm",
    "head": "cls.predictions",
    "head.transform.linear": "cls.predictions.transform.dense",
    "head.transform.norm": "cls.predictions.transform.LayerNorm",
}
_LAYER = "deberta.encoder.layer.{}"
_ALLOWS = ALLOWS | {"position.kind": ("disentangled",), "embedding.segments": (0, 1, 2)}


def _write(config: ModelConfig) -> dict[str, Any]:
    assert isinstance(config.position, Disentangled)
    return write_bert(config) | {
        "relative_attention": True,
        "max_relative_positions": config.position.span,
        "pos_att_type": ["c2p", "p2c"],
        "position_biased_input": False,
        "legacy": True,
    }


def _write_v2(config: ModelConfig) -> dict[str, Any]:
    own = config.position
    assert isinstance(own, Disentangled)
    return _write(config) | {
        "position_buckets": -1 if own.buckets is None else own.buckets,
        "norm_rel_ebd": "layer_norm" if own.norm else "none",
        "share_att_key": own.shared,
    }


def _read(settings: Settings, context: int | None) -> dict[str, Any]:
    """With settings that both versions have; a context other than the file's is no matter."""
    for name, value, default in (
        ("relative_attention", True, False),
        ("position_biased_input", False, True),
        ("legacy", True, True),
        ("talking_head", False, False),
        ("conv_kernel_size", 0, 0),
    ):
        settings.expect(name, value, default)
    kinds = settings.words("pos_att_type", between="|") or []
    if sorted(kinds) != ["c2p", "p2c"]:
        raise settings.refusal("pos_att_type", kinds, "our models know c2p with p2c alone")
    rows = settings.whole("max_position_embeddings", 512)
    span = settings.whole("max_relative_positions", -1)
    values = read_bert(settings, None)
    settings.expect("embedding_size", values["hidden"], values["hidden"])
    del values["position.offset"]
    return values | {
        "context": context or rows,
        "position.kind": "disentangled",
        "position.span": rows if span < 1 else span,
        "norm.eps": settings.number("layer_norm_eps", 1e-7),
        "embedding.segments": settings.whole("type_vocab_size", 0),
    }


def _read_v1(settings: Settings, context: int | None) -> dict[str, Any]:
    return _read(settings, context) | {"attention.bias": "but_keys"}


def _read_v2(settings: Settings, context: int | None) -> dict[str, Any]:
    values = _read(settings, context)
    size = values["attention.head_dim"]
    settings.expect("attention_head_size", size, size)
    buckets = settings.whole("position_buckets", -1)
    norms = settings.words("norm_rel_ebd", between="|") or ["none"]
    if norms not in (["none"], ["layer_norm"]):
        raise settings.refusal("norm_rel_ebd", norms, "our models know none or layer_norm")
    return values | {
        "position.buckets": buckets if buckets > 0 else None,
        "position.norm": norms == ["layer_norm"],
        "position.shared": settings.flag("share_att_key", False),
    }


DEBERTA = Family(
    name="deberta",
    architecture="DebertaForMaskedLM",
    allows=_ALLOWS | {"bias": ("all but keys",)},
    write=_write,
    read=_read_v1,
    parts=(
        *parts("deberta", _LAYER, _V1, _HEADS),
        *listed(
            {
                tuple(f"{name}.weight" for name in QKV): (
                    f"{_LAYER}.attention.self.in_proj.weight",
                    by_head,
                )
            }
        ),
    ),
    prefix="deberta.",
)
DEBERTA_V2 = replace(
    DEBERTA,
    name="deberta-v2",
    architecture="DebertaV2ForMaskedLM",
    allows=_ALLOWS
    | {
        "position.buckets": ("none", "some"),
        "position.norm": (False, True),
        "position.shared": (False, True),
    },
    write=_write_v2,
    read=_read_v2,
    parts=parts("deberta", _LAYER, _V2, _HEADS),
)
