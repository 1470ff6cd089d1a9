"""MPT (MosaicML 2023): ALiBi, LayerNorm without bias, no biases."""

from __future__ import annotations

from train.hf import family, keys


def _read_alibi(reading: keys.Reading) -> keys.Pairs:
    own, heads = reading.file.sub("attn_config"), reading.ours["attention.heads"]
    usual = {"alibi": True, "alibi_bias_max": 8, "clip_qkv": None, "qk_ln": False}
    for name, value in usual.items():
        (own or reading.file).expect(name, value, value)
    if heads & (heads - 1):
        raise reading.file.refusal("n_heads", heads, "only powers of 2 are supported")
    yield "position.kind", "alibi"


MPT = family.Family(
    name="mpt",
    architecture="MptForCausalLM",
    keys=(
        keys.whole("d_model", "hidden", 2048),
        keys.whole("n_layers", "layers", 24),
        keys.heads("n_heads", "d_model"),
        keys.length("max_seq_len", 2048),
        keys.Row("width", read=lambda read: [("feed_forward.width", 4 * read.ours["hidden"])]),
        keys.number("layer_norm_epsilon", "norm.eps", 1e-5),
        keys.expected(expansion_ratio=4, no_bias=True),
        keys.constant_key("attn_config", {"alibi": True}, _read_alibi),
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
