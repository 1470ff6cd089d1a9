"""Families with experts, named as LLaMA's but for these: Mixtral, Qwen2-MoE.

Files hold a tensor for each matrix of each expert, as transformers 4 has them; 5 puts them together
when it reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from train.hf.family import listed
from train.hf.llama import MISTRAL, QWEN2
from train.hf.settings import Settings
from train.model.config import ModelConfig
from train.model.feed_forward_settings import Experts

LAYER = "model.layers.{}"


def experts_of(config: ModelConfig) -> Experts:
    assert isinstance(config.feed_forward, Experts)
    return config.feed_forward


def matrices(theirs: str, gate: str, up: str, down: str) -> dict[str, str]:
    """Theirs by ours, of the matrices of each expert."""
    names = {"gate": gate, "up": up, "down": down}
    return {f"{{}}.feed_forward.{own}": f"{theirs}.{name}" for own, name in names.items()}


def _write_mixtral(config: ModelConfig) -> dict[str, Any]:
    own = experts_of(config)
    return MISTRAL.write(config) | {
        "num_local_experts": own.count,
        "num_experts_per_tok": own.top_k,
        "router_aux_loss_coef": own.balance,
        "router_jitter_noise": own.jitter,
        "output_router_logits": False,
    }


def _read_mixtral(settings: Settings, context: int | None) -> dict[str, Any]:
    return MISTRAL.read(settings, context) | {
        "feed_forward.kind": "experts",
        "feed_forward.count": settings.whole("num_local_experts", 8),
        "feed_forward.top_k": settings.whole("num_experts_per_tok", 2),
        "feed_forward.balance": settings.number("router_aux_loss_coef", 0.001),
        "feed_forward.jitter": settings.number("router_jitter_noise", 0.0),
    }


MIXTRAL = replace(
    MISTRAL,
    name="mixtral",
    architecture="MixtralForCausalLM",
    allows={**MISTRAL.allows, "feed_forward.kind": ("experts",)},
    write=_write_mixtral,
    read=_read_mixtral,
    parts=(
        *MISTRAL.parts,
        *listed(
            {
                "{}.feed_forward.router": f"{LAYER}.block_sparse_moe.gate",
                **matrices(f"{LAYER}.block_sparse_moe.experts.[]", "w1", "w3", "w2"),
            }
        ),
    ),
    defaults={"num_key_value_heads": 8, "rope_theta": 1e6, "rms_norm_eps": 1e-5},
    aliases={"num_local_experts": "num_experts"},
)


def _write_qwen2_moe(config: ModelConfig) -> dict[str, Any]:
    own = experts_of(config)
    return QWEN2.write(config) | {
        "intermediate_size": own.dense_width or own.width,
        "moe_intermediate_size": own.width,
        "shared_expert_intermediate_size": own.shared_width,
        "num_experts": own.count,
        "num_experts_per_tok": own.top_k,
        "norm_topk_prob": own.normalise,
        "decoder_sparse_step": own.every,
        "mlp_only_layers": list(range(own.first_dense)),
        "router_aux_loss_coef": own.balance,
        "output_router_logits": False,
        "qkv_bias": True,
    }


def _read_qwen2_moe(settings: Settings, context: int | None) -> dict[str, Any]:
    values = QWEN2.read(settings, context)
    settings.expect("qkv_bias", True, True)
    dense = settings.wholes("mlp_only_layers")
    if dense != list(range(len(dense))):
        raise settings.refusal("mlp_only_layers", dense, "our models know the first layers alone")
    every = settings.whole("decoder_sparse_step", 1)
    return values | {
        "feed_forward.kind": "experts",
        "feed_forward.count": settings.whole("num_experts", 60),
        "feed_forward.top_k": settings.whole("num_experts_per_tok", 4),
        "feed_forward.normalise": settings.flag("norm_topk_prob", False),
        "feed_forward.width": settings.whole("moe_intermediate_size", 1408),
        "feed_forward.dense_width": values["feed_forward.width"] if dense or every > 1 else None,
        "feed_forward.shared_width": settings.whole("shared_expert_intermediate_size", 5632),
        "feed_forward.shared_gate": True,
        "feed_forward.first_dense": len(dense),
        "feed_forward.every": every,
        "feed_forward.balance": settings.number("router_aux_loss_coef", 0.001),
    }


ANY = tuple(range(256))  # of layers

QWEN2_MOE = replace(
    QWEN2,
    name="qwen2_moe",
    architecture="Qwen2MoeForCausalLM",
    allows={
        **QWEN2.allows,
        "feed_forward.kind": ("experts",),
        "feed_forward.normalise": (True, False),
        "feed_forward.shared_width": ("a multiple of width", "other"),
        "feed_forward.shared_gate": (True,),
        "feed_forward.first_dense": ANY,
        "feed_forward.every": ANY,
    },
    write=_write_qwen2_moe,
    read=_read_qwen2_moe,
    parts=(
        *QWEN2.parts,
        *listed(
            {
                "{}.feed_forward.router": f"{LAYER}.mlp.gate",
                **matrices(f"{LAYER}.mlp.experts.[]", "gate_proj", "up_proj", "down_proj"),
                "{}.feed_forward.shared.gate": f"{LAYER}.mlp.shared_expert.gate_proj",
                "{}.feed_forward.shared.up": f"{LAYER}.mlp.shared_expert.up_proj",
                "{}.feed_forward.shared.down": f"{LAYER}.mlp.shared_expert.down_proj",
                "{}.feed_forward.shared_gate": f"{LAYER}.mlp.shared_expert_gate",
            }
        ),
    ),
    defaults={"sliding_window": 4096, "num_key_value_heads": 16},
)
