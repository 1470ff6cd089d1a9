"""Encoders: BERT, RoBERTa, ALBERT, ELECTRA, ModernBERT, DeBERTa."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from train.hf import family, keys
from train.hf.llama import layer_types, read_marks
from train.model.config import ModelConfig
from train.model.position_settings import Rope

_BLOCK = {
    "attention: query key value": "attention.self: query key value",
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
_ALBERT_BLOCK = {
    "attention: query key value out": "attention: query key value dense",
    "attention_norm": "attention.LayerNorm",
    "feed_forward.up": "ffn",
    "feed_forward.down": "ffn_output",
    "feed_forward_norm": "full_layer_layer_norm",
}
_PREDICTIONS = {
    "head": "cls.predictions",
    "head.transform: linear norm": "cls.predictions.transform: dense LayerNorm",
}


def parts(
    model: str, layer: str, block: dict[str, str], others: dict[str, str]
) -> tuple[family.Part, ...]:
    return family.parts_from(
        {
            "embedding": f"{model}.embeddings.word_embeddings",
            "stack.positions": f"{model}.embeddings.position_embeddings",
            "embedding: segments norm": f"{model}.embeddings: token_type_embeddings LayerNorm",
            **{f"{{}}.{ours}": f"{layer}.{theirs}" for ours, theirs in block.items()},
            **others,
        }
    )


_KEYS = (
    keys.whole("hidden_size", "hidden"),
    keys.whole("num_hidden_layers", "layers"),
    keys.heads("num_attention_heads", "hidden_size"),
    keys.whole("intermediate_size", "feed_forward.width"),
    keys.activated("hidden_act", keys.ACTIVATIONS, "gelu"),
    keys.number("hidden_dropout_prob", "dropout", 0.1),
    keys.constant_key("attention_probs_dropout_prob", 0.0),
    keys.learned("max_position_embeddings", 512),
    keys.constant_key(
        "type_vocab_size",
        attrgetter("embedding.segments"),
        lambda read: [("embedding.segments", max(1, read.file.whole("type_vocab_size", 2)))],
    ),
    keys.number("layer_norm_eps", "norm.eps", 1e-12),
    keys.expected(position_embedding_type="absolute", is_decoder=False, tie_word_embeddings=True),
    keys.BIASED,
    keys.implied(("causal", False), ("norm.kind", "layer"), ("norm.place", "post")),
    keys.implied(("embedding.norm", True), ("head.bias", True), ("head.transform", True)),
)


def _saved_as(architecture: str, ours: str, yes: str | bool, no: str | bool) -> keys.Row:

    def read(reading: keys.Reading) -> keys.Pairs:
        yield ours, yes if architecture in (reading.file.words("architectures") or []) else no

    return keys.Row(ours, read=read)


BERT = family.Family(
    name="bert",
    architecture="BertForMaskedLM",
    tasks=family.of_encoder("bert.pooler.dense") | family.of_choice("bert.pooler.dense"),
    keys=(*_KEYS, _saved_as("BertForPreTraining", "head.pair", "next", "none")),
    parts=parts(
        "bert",
        "bert.encoder.layer.{}",
        _BLOCK,
        {
            **_PREDICTIONS,
            "head.pair.pool": "bert.pooler.dense",
            "head.pair.out": "cls.seq_relationship",
        },
    ),
)


_DENSE = family.of_encoder("classifier.dense", "classifier.out_proj")
ROBERTA = family.Family(
    name="roberta",
    architecture="RobertaForMaskedLM",
    tasks=_DENSE | family.of_choice("roberta.pooler.dense"),
    keys=(
        *_KEYS,
        keys.learned("max_position_embeddings", 512, offset=2, counted=True),
        keys.expected(pad_token_id=1, write=True),  # positions start after it
    ),
    parts=parts(
        "roberta",
        "roberta.encoder.layer.{}",
        _BLOCK,
        {"head": "lm_head", "head.transform: linear norm": "lm_head: dense layer_norm"},
    ),
)


XLM_ROBERTA = replace(ROBERTA, name="xlm-roberta", architecture="XLMRobertaForMaskedLM")


def _read_size(reading: keys.Reading) -> keys.Pairs:
    size = reading.file.whole("embedding_size", 128)
    yield "embedding.size", None if size == reading.ours["hidden"] else size


_SIZE = keys.constant_key("embedding_size", lambda config: config.embedding_dim, _read_size)


ELECTRA = family.Family(
    name="electra",
    architecture="ElectraForMaskedLM",
    tasks=_DENSE | family.of_choice("sequence_summary.summary"),
    pool="gelu",
    keys=(
        *_KEYS,
        keys.activated("hidden_act", {"gelu": "gelu"}, "gelu"),  # as its generator's head
        _SIZE,
        _saved_as("ElectraForPreTraining", "head.replaced", True, False),
    ),
    parts=parts(
        "electra",
        "electra.encoder.layer.{}",
        _BLOCK,
        {
            "embedding.out": "electra.embeddings_project",
            "head.replaced: linear out": "discriminator_predictions: dense dense_prediction",
            "head.transform: linear norm": "generator_predictions: dense LayerNorm",
            "head": "generator_lm_head",
        },
    ),
)


def _read_groups(reading: keys.Reading) -> keys.Pairs:
    layers, groups = reading.ours["layers"], reading.file.whole("num_hidden_groups", 1)
    if groups < 1 or layers % groups:
        raise reading.file.refusal("num_hidden_groups", groups, "it must divide num_hidden_layers")
    yield "share", layers // groups


ALBERT = family.Family(
    name="albert",
    architecture="AlbertForMaskedLM",
    tasks=family.of_encoder("albert.pooler") | family.of_choice("albert.pooler"),
    keys=(
        *_KEYS,
        keys.activated("hidden_act", keys.ACTIVATIONS, "gelu_new"),
        keys.number("hidden_dropout_prob", "dropout", 0.0),
        keys.whole("embedding_size", "embedding.size", 128),
        keys.constant_key(
            "num_hidden_groups", lambda config: config.layers // config.share, _read_groups
        ),
        keys.expected(inner_group_num=1, write=True),
        keys.constant_key("classifier_dropout_prob", 0.1),
        _saved_as("AlbertForPreTraining", "head.pair", "order", "none"),
    ),
    parts=parts(
        "albert",
        "albert.encoder.albert_layer_groups.{}.albert_layers.0",
        _ALBERT_BLOCK,
        {
            "embedding.out": "albert.encoder.embedding_hidden_mapping_in",
            "head.pair.pool": "albert.pooler",
            "head": "predictions",
            "head.transform: linear norm": "predictions: dense LayerNorm",
            "head.pair.out": "sop_classifier.classifier",
        },
    ),
)


_MODERN = "model.layers.{}"
_MODERN_HEAD = {"head.transform: linear norm": "head: dense norm"}


def _write_layers(config: ModelConfig) -> keys.Pairs:
    assert isinstance(config.position, Rope)
    theta, window = config.position.theta, next(filter(None, config.windows), None)
    kinds = layer_types(config)
    marks = "".join(kind[0] for kind in kinds)
    yield "global_rope_theta", theta
    yield "local_rope_theta", config.position.window_theta or theta
    yield "global_attn_every_n_layers", len(keys.repeated(marks))
    yield "layer_types", kinds
    yield "local_attention", 128 if window is None else 2 * (window - 1)


def _read_layers(reading: keys.Reading) -> keys.Pairs:
    file = reading.file
    pattern = read_marks(reading) or "F" + "W" * (file.whole("global_attn_every_n_layers", 3) - 1)
    thetas = file.sub("rope_parameters")
    for ours, kind, old, default in (
        ("position.theta", "full_attention", "global_rope_theta", 160_000.0),
        ("position.window_theta", "sliding_attention", "local_rope_theta", 10_000.0),
    ):
        inner = thetas.sub(kind) if thetas else None
        if inner is not None:
            inner.expect("rope_type", "default", "default")
        yield ours, (inner or file).number("rope_theta" if inner else old, default)
    yield "attention.window", file.whole("local_attention", 128) // 2 + 1
    yield "attention.window_pattern", keys.repeated(pattern)


def _pooling(config: ModelConfig) -> str:
    task = config.head.task
    return "mean" if task is not None and task.before == "mean" else "cls"


_DROPOUT = ("attention_dropout", "embedding_dropout", "mlp_dropout")
MODERNBERT = family.Family(
    name="modernbert",
    architecture="ModernBertForMaskedLM",
    tasks=dict.fromkeys(family.CLASSES, family.parts_from(_MODERN_HEAD | {"head": "classifier"})),
    pool="transform",
    keys=(
        keys.whole("hidden_size", "hidden"),
        keys.whole("num_hidden_layers", "layers", 22),
        keys.heads("num_attention_heads", "hidden_size"),
        keys.whole("intermediate_size", "feed_forward.width", 1152),
        keys.activated("hidden_activation", keys.GATED, "gelu"),
        keys.constant_key("classifier_activation", keys.activation),
        keys.constant_key("classifier_pooling", _pooling),
        keys.length("max_position_embeddings", 8192),
        keys.number("norm_eps", "norm.eps", 1e-5),
        keys.implied(("causal", False), ("norm.kind", "layer_no_bias"), ("norm.first", False)),
        keys.implied(("position.kind", "rope"), ("embedding.norm", True), ("head.transform", True)),
        keys.Row("layers", _write_layers, _read_layers),
        keys.flag("decoder_bias", "head.bias", True),
        keys.expected(norm_bias=False, attention_bias=False, write=True),
        keys.expected(mlp_bias=False, classifier_bias=False, write=True),
        *(keys.constant_key(name, lambda config: config.dropout) for name in _DROPOUT),
        keys.expected(tie_word_embeddings=True),
    ),
    parts=family.parts_from(
        {
            "embedding": "model.embeddings.tok_embeddings",
            "embedding.norm": "model.embeddings.norm",
            "{}.attention_norm": f"{_MODERN}.attn_norm",
            family.QKV: (f"{_MODERN}.attn.Wqkv", family.qkv),
            "{}.attention.out": f"{_MODERN}.attn.Wo",
            "{}.feed_forward_norm": f"{_MODERN}.mlp_norm",
            family.GATE_UP: (f"{_MODERN}.mlp.Wi", family.GATE_AND_UP),
            "{}.feed_forward.down": f"{_MODERN}.mlp.Wo",
            "stack.norm": "model.final_norm",
            **_MODERN_HEAD,
            "head": "decoder",
        }
    ),
)


_V1 = {ours: theirs for ours, theirs in _BLOCK.items() if ".self" not in theirs} | {
    "attention: query.bias value.bias": "attention.self: q_bias v_bias",
    "attention: position_key position_query": "attention.self: pos_proj pos_q_proj",
}
_V2 = _BLOCK | {
    "attention: query key value": "attention.self: query_proj key_proj value_proj",
    "attention: position_key position_query": "attention.self: pos_key_proj pos_query_proj",
}
_HEADS = _PREDICTIONS | {
    "stack.positions": "deberta.encoder.rel_embeddings",
    "stack.positions.norm": "deberta.encoder.LayerNorm",
}
_LAYER = "deberta.encoder.layer.{}"


def _read_norm(reading: keys.Reading) -> keys.Pairs:
    norms = reading.file.words("norm_rel_ebd", between="|") or ["none"]
    if norms not in (["none"], ["layer_norm"]):
        raise reading.file.refusal("norm_rel_ebd", norms, "choose none or layer_norm")
    yield "position.norm", norms == ["layer_norm"]


def _read_span(reading: keys.Reading) -> keys.Pairs:
    span = reading.file.whole("max_relative_positions", -1)
    rows = reading.file.whole("max_position_embeddings", 512)
    yield "position.span", rows if span < 1 else span


def _read_kinds(reading: keys.Reading) -> keys.Pairs:
    kinds = reading.file.words("pos_att_type", between="|") or []
    if sorted(kinds) != ["c2p", "p2c"]:
        raise reading.file.refusal("pos_att_type", kinds, "only c2p with p2c is supported")
    return ()


_DEBERTA = (
    *_KEYS,
    keys.length("max_position_embeddings", 512),
    keys.number("layer_norm_eps", "norm.eps", 1e-7),
    keys.whole("type_vocab_size", "embedding.segments", 0),
    keys.expected(
        write=True,
        missing={"relative_attention": False, "position_biased_input": True},
        relative_attention=True,
        position_biased_input=False,
        legacy=True,
    ),
    keys.implied(("position.kind", "disentangled")),
    keys.constant_key("max_relative_positions", lambda config: config.position.span, _read_span),
    keys.constant_key("pos_att_type", ["c2p", "p2c"], _read_kinds),
    keys.expected(talking_head=False, conv_kernel_size=0),
    keys.same("embedding_size", "hidden", write=False),
    keys.same("pooler_hidden_size", "hidden"),
    keys.expected(pooler_hidden_act="gelu", write=True),
)
DEBERTA = family.Family(
    name="deberta",
    architecture="DebertaForMaskedLM",
    tasks=family.of_encoder("pooler.dense"),
    pool="gelu",
    keys=(*_DEBERTA, keys.implied(("attention.bias", "but_keys"))),
    parts=(
        *parts("deberta", _LAYER, _V1, _HEADS),
        *family.parts_from(
            {
                tuple(f"{name}.weight" for name in family.QKV): (
                    f"{_LAYER}.attention.self.in_proj.weight",
                    family.by_head,
                )
            }
        ),
    ),
)
DEBERTA_V2 = replace(
    DEBERTA,
    name="deberta-v2",
    architecture="DebertaV2ForMaskedLM",
    tasks={**DEBERTA.tasks, **family.of_choice("pooler.dense")},
    keys=(
        *_DEBERTA,
        keys.same("attention_head_size", "attention.head_dim", write=False),
        keys.constant_key(
            "position_buckets",
            lambda config: config.position.buckets or -1,
            lambda read: [
                ("position.buckets", max(0, read.file.whole("position_buckets", -1)) or None)
            ],
        ),
        keys.constant_key(
            "norm_rel_ebd",
            lambda config: "layer_norm" if config.position.norm else "none",
            _read_norm,
        ),
        keys.flag("share_att_key", "position.shared", False),
    ),
    parts=parts("deberta", _LAYER, _V2, _HEADS),
)
