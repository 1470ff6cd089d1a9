"""Decoders with joined matrices or scaled norms: Phi-3, Gemma."""

from __future__ import annotations

from dataclasses import replace

from train.hf import family, keys
from train.hf.gpt import rotated_share
from train.hf.llama import LAYER, LLAMA, MISTRAL
from train.model.config import ModelConfig

# Phi-3 (Abdin et al. 2024), and Phi-4-mini


PHI3 = replace(
    MISTRAL,
    name="phi3",
    architecture="Phi3ForCausalLM",
    keys=(*MISTRAL.keys, rotated_share("partial_rotary_factor", 1.0)),
    parts=family.exchanged(
        MISTRAL.parts,
        {
            family.QKV: (f"{LAYER}.self_attn.qkv_proj", family.qkv),
            family.GATE_UP: (f"{LAYER}.mlp.gate_up_proj", family.gate_up),
        },
    ),
    tasks=family.of_decoder("Phi3"),
    defaults={},
)


# Gemma (Mesnard et al. 2024)


def _norm(config: ModelConfig) -> family.Layout:
    return family.scaled(1.0, offset=1.0)


def _last_norm(config: ModelConfig) -> family.Layout:
    """Return a layout that undoes the scale of the embedding, which is also the head's matrix."""
    return family.scaled(config.hidden**0.5, offset=1.0)


def _embedding(config: ModelConfig) -> family.Layout:
    return family.scaled(config.hidden**-0.5)


_SCALED = {"embedding": _embedding, "stack.norm": _last_norm}
GEMMA = replace(
    LLAMA,
    name="gemma",
    architecture="GemmaForCausalLM",
    keys=(
        *LLAMA.keys,
        keys.activated("hidden_act", keys.GATED, "gelu_pytorch_tanh"),
        keys.expected("tie_word_embeddings", True),
        keys.implied(("head.tied", True)),
    ),
    parts=tuple(
        replace(
            part, layout=_SCALED.get(part.ours[0], _norm if "norm" in part.theirs else part.layout)
        )
        for part in LLAMA.parts
    ),
    tasks={},
    defaults={"head_dim": 256, "num_key_value_heads": 16, "max_position_embeddings": 8192},
)
