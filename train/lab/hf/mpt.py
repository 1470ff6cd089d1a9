"""MPT (MosaicML 2023): ALiBi, LayerNorm without bias, no biases."""

from __future__ import annotations

from train.hf import family, keys


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
