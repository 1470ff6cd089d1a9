"""Falcon (Almazrouei et al. 2023), with rotary positions: 7B, 11B, 40B and 180B. Falcon-RW is left
out: transformers' class rounds its ALiBi biases to bfloat16, but our models do not round them."""

from __future__ import annotations

from dataclasses import replace

from train.hf import family, keys
from train.hf.gpt import BLOOM
from train.hf.rope import rope
from train.model.config import ModelConfig


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
