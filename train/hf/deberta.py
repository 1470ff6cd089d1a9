"""DeBERTa and DeBERTa-v2, whose third version is of v2's class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from train.hf.encoders import ALLOWS, parts, read_bert, write_bert
from train.hf.family import Family, Part, by_head
from train.hf.settings import Settings
from train.model.config import ModelConfig
from train.model.position_settings import Disentangled

_BLOCK = {
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
_V1 = _BLOCK | {
    "attention.query.bias": "attention.self.q_bias",
    "attention.value.bias": "attention.self.v_bias",
    "attention.position_key": "attention.self.pos_proj",
    "attention.position_query": "attention.self.pos_q_proj",
}
_V2 = _BLOCK | {
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
    hidden, heads = values["hidden"], values["attention.heads"]
    settings.expect("attention_head_size", hidden // heads, hidden // heads)
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
        Part(
            ours=tuple(
                f"stack.blocks.{{}}.attention.{name}.weight" for name in ("query", "key", "value")
            ),
            theirs=f"{_LAYER}.attention.self.in_proj.weight",
            layout=by_head,
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
