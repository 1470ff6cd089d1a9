"""What choices of a model do not go together, each refused in one line that names both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmcurate.base.settings import refuse
from train.model.attention_settings import Grouped, Latent
from train.model.feed_forward_settings import Experts
from train.model.position_settings import Rope, Vectors
from train.model.stack_settings import DeepNorm, Encoder, Generator, Parallel, Serial

if TYPE_CHECKING:
    from train.model.config import ModelConfig


def check_together(config: ModelConfig) -> None:
    """Raises ``LlmcurateError`` where two choices cannot be together."""
    if config.encoder is not None:
        _check_encoder(config, config.encoder)
    refuse(
        isinstance(config.residual, Parallel) and config.norm.place != "pre",
        f"residual parallel with norm.place {config.norm.place}: a parallel block has its norms "
        "before",
    )
    if isinstance(config.residual, Serial):
        _check_serial(config, config.residual)
    refuse(
        config.layers % config.share != 0,
        f"share is {config.share}: it must divide layers ({config.layers})",
    )
    if isinstance(config.attention, Grouped):
        _check_grouped(config, config.attention)
    _check_heads(config)
    if config.generator is not None:
        _check_generator(config, config.generator)
    if isinstance(config.feed_forward, Experts):
        _check_experts(config, config.feed_forward)
    if isinstance(config.attention, Latent):
        _check_latent(config)
    if isinstance(config.position, Rope):
        _check_rope(config, config.position)
    refuse(
        isinstance(config.position, Vectors) and not isinstance(config.attention, Grouped),
        f"position {config.position.kind} with attention {config.attention.kind}: it is a part of "
        "grouped attention",
    )


def _check_grouped(config: ModelConfig, own: Grouped) -> None:
    for name, used in {
        "globals": own.globals,
        "random": own.random,
        "block": own.block > 1,
    }.items():
        refuse(
            config.causal and bool(used),
            f"attention.{name} with causal true: it is an encoder's; a decoder has windows, "
            "dilations and sinks",
        )
    refuse(
        own.segment is not None and config.form != "decoder",
        f"attention.segment with an {config.form}: what it remembers is a decoder's",
    )


def _check_heads(config: ModelConfig) -> None:
    refuse(
        config.head.task is not None
        and (
            config.head.pair != "none"
            or config.head.replaced
            or config.head.boundary
            or config.encoder is not None
        ),
        "head.task with head.pair, head.replaced, head.boundary or encoder: it follows one "
        "stack, alone",
    )
    refuse(
        config.causal and config.head.pair != "none",
        f"head.pair {config.head.pair} with causal true: a decoder has no such head",
    )
    for name, other in {
        "causal false": not config.causal,
        "mup_base": config.mup_base is not None,
        "embedding.size": config.embedding.size is not None,
        "head.task": config.head.task is not None,
    }.items():
        refuse(
            config.head.mtp > 0 and other,
            f"head.mtp {config.head.mtp} with {name}: it follows a decoder without that",
        )
    refuse(
        config.head.boundary and (config.causal or config.head.replaced),
        "head.boundary with causal true or head.replaced: it reads what an encoder predicts by",
    )
    refuse(
        config.head.replaced and (config.causal or config.head.pair != "none"),
        "head.replaced with causal true or head.pair: a discriminator is an encoder without it",
    )


def _check_generator(config: ModelConfig, own: Generator) -> None:
    refuse(not config.head.replaced, "generator without head.replaced: set that to true")
    for name, other in {
        "attention latent": isinstance(config.attention, Latent),
        "feed_forward experts": isinstance(config.feed_forward, Experts),
        "embedding.positions after": config.embedding.positions == "after",
        "head.tied false": not config.head.tied,
        "mup_base": config.mup_base is not None,
    }.items():
        refuse(other, f"generator with {name}: leave one of them out")
    for name, size in {
        "hidden": config.hidden,
        "attention.heads": config.attention.heads,
        "attention.kv_heads": config.attention.kv_heads,
        "feed_forward.width": config.feed_forward.width,
    }.items():
        refuse(
            size % own.smaller != 0,
            f"generator.smaller is {own.smaller}: it must divide {name} ({size})",
        )


def _check_encoder(config: ModelConfig, own: Encoder) -> None:
    for name, other in {
        "causal false": not config.causal,
        "attention latent": isinstance(config.attention, Latent),
        "feed_forward experts": isinstance(config.feed_forward, Experts),
        "residual parallel": isinstance(config.residual, Parallel),
        "mup_base": config.mup_base is not None,
        f"head.mtp {config.head.mtp}": config.head.mtp > 0,
    }.items():
        refuse(other, f"encoder with {name}: an encoder-decoder is built without that")
    refuse(
        own.shared and own.layers != config.layers,
        f"encoder.shared with encoder.layers {own.layers} and layers {config.layers}: give both "
        "as many",
    )
    refuse(
        own.layers % config.share != 0,
        f"share is {config.share}: it must divide encoder.layers ({own.layers}) too",
    )


def _check_serial(config: ModelConfig, own: Serial) -> None:
    refuse(
        own.sandwich > 0 and own.sandwich >= config.layers,
        f"residual.sandwich is {own.sandwich}: give less than layers ({config.layers})",
    )
    deep, place = isinstance(own, DeepNorm), config.norm.place
    refuse(
        deep and place != "post",
        f"residual deepnorm with norm.place {place}: its norms come after the sum, give post",
    )
    refuse(
        deep and config.encoder is not None and config.encoder.shared,
        "residual deepnorm with encoder.shared: encoder and decoder have numbers of their own",
    )


def _check_experts(config: ModelConfig, own: Experts) -> None:
    last = config.layers // own.every * own.every - 1  # that may have experts
    refuse(
        last < own.first_dense,
        f"feed_forward.first_dense {own.first_dense} and every {own.every} leave no layer of "
        f"{config.layers} with experts",
    )
    refuse(
        config.share > 1 and (own.first_dense > 0 or own.every > 1),
        f"share {config.share} with feed_forward.first_dense or every: shared blocks are alike",
    )
    refuse(
        own.routing == "expert_choice" and config.causal,
        "feed_forward.routing expert_choice with causal true: experts would choose by tokens "
        "that come later",
    )


def _check_latent(config: ModelConfig) -> None:
    position = config.position
    refuse(
        not isinstance(position, Rope),
        f"attention latent with position {position.kind}: a part of each key is turned, it "
        "needs position rope",
    )
    refuse(
        isinstance(position, Rope) and position.dim is not None,
        "position.dim with attention latent: attention.rotary_dim says how much is turned",
    )
    refuse(
        isinstance(config.residual, DeepNorm),
        "residual deepnorm with attention latent: its first values are not known there",
    )
    refuse(
        config.mup_base is not None,
        "mup_base with attention latent: no rates are known for its compressed dimensions",
    )


def _check_rope(config: ModelConfig, rope: Rope) -> None:
    size, rotated = config.attention.head_dim, config.rotated
    refuse(
        rope.dim is None and rotated % 2 != 0,
        f"attention.head_dim is {size}: position rope needs it even",
    )
    refuse(
        not 2 <= rotated <= size or rotated % 2 != 0,
        f"position.dim is {rope.dim}: an even number up to attention.head_dim ({size})",
    )
    if rope.scaling is None:
        return
    refuse(
        rope.scaling.all_dims > 0
        and (rope.scaling.kind != "yarn" or not isinstance(config.attention, Latent)),
        "position.scaling.all_dims: it is of yarn with attention latent alone",
    )
    if rope.scaling.kind == "longrope":
        for name in ("short", "long"):
            refuse(
                len(getattr(rope.scaling, name)) != rotated // 2,
                f"position.scaling longrope: {name} needs {rotated // 2} numbers, one for each "
                "rotated pair",
            )
    refuse(
        rope.scaling.kind == "ntk" and rotated < 4,
        "position.scaling ntk needs position.dim over 2",
    )
