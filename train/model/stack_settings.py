"""The settings of stacks: a model's own, an encoder's beside it, a generator's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from llmcurate.base.settings import Setting, check, refuse
from train.model.attention_settings import Grouped, Latent
from train.model.feed_forward_settings import Dense, Experts
from train.model.plugin_settings import OwnAttention, OwnFeedForward, OwnPosition
from train.model.position_settings import Position, Rope
from train.model.residual_settings import Residual, Serial

NORMS = ("rms", "layer", "layer_no_bias", "layer_plain")
PLACES = ("pre", "post", "sandwich", "none")
Attention = Grouped | Latent | OwnAttention
FeedForward = Dense | Experts | OwnFeedForward


@dataclass(frozen=True, kw_only=True)
class Norm:
    """The norms of a stack."""

    kind: Annotated[
        str,
        Setting(
            "The norm: rms (Zhang and Sennrich 2019), layer (Ba et al. 2016), layer_no_bias (PaLM) "
            "or layer_plain, without weights (OLMo).",
            choices=NORMS,
        ),
    ] = "rms"
    place: Annotated[
        str,
        Setting(
            "Where norms stand: pre; post, the original LN(x + f(x)) without a norm at the end; "
            "sandwich, before and after each part (Ding et al. 2021); none in the stack (ReZero).",
            choices=PLACES,
        ),
    ] = "pre"
    eps: Annotated[float, Setting("Number added to the variance, so that it is never 0.", gt=0)] = (
        1e-5
    )
    first: Annotated[
        bool,
        Setting(
            "Whether the first block has a norm before attention (ModernBERT has one after the "
            "embedding in its place)."
        ),
    ] = True

    def __post_init__(self) -> None:
        check(self, "norm.")
        refuse(
            not self.first and self.place != "pre",
            f"norm.first false with norm.place {self.place}: only a norm before can be left out",
        )


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Blocks on a residual stream. The defaults are LLaMA's choices (Touvron et al. 2023)."""

    layers: Annotated[int, Setting("Number of blocks.", ge=1, le=10_000)]
    hidden: Annotated[int, Setting("Dimensions of the residual stream.", ge=1)]
    attention: Annotated[Attention, Setting("How tokens look at each other.")]
    feed_forward: Annotated[FeedForward, Setting("What is done to each token.")]
    norm: Annotated[Norm, Setting("The norms.")] = field(default_factory=Norm)
    causal: Annotated[
        bool, Setting("Whether a token sees those before it alone; in an encoder it sees all.")
    ] = True
    share: Annotated[
        int,
        Setting("Blocks in a row that have the same weights (ALBERT: as many as layers).", ge=1),
    ] = 1
    residual: Annotated[Residual, Setting("How parts are joined to the stream.")] = field(
        default_factory=Serial
    )
    position: Annotated[Position | OwnPosition, Setting("How a token's position is known.")] = (
        field(default_factory=Rope)
    )
    dropout: Annotated[
        float,
        Setting(
            "Share of the embeddings, and of what each part adds to the residual stream, that is "
            "dropped in training.",
            ge=0,
            lt=1,
        ),
    ] = 0.0


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A second stack, which reads a source both ways; all else is as in the decoder, whose blocks
    look at what it makes of it (Vaswani et al. 2017).
    """

    layers: Annotated[int, Setting("Number of its blocks.", ge=1, le=10_000)]
    shared: Annotated[
        bool,
        Setting(
            "Whether its blocks have the same weights as the decoder's, but for cross-attention "
            "(Raffel et al. 2020, section 3.2)."
        ),
    ] = False
    start: Annotated[
        int | None,
        Setting(
            "Id of the token that decoding begins with. Without a value it is the end of text, as "
            "in training here and in BART; T5 was trained with its padding, 0.",
            ge=0,
        ),
    ] = None

    learns: Annotated[
        str,
        Setting(
            "The objective that is its own: spans (T5's) or bart (BART's).",
            choices=("spans", "bart"),
        ),
    ] = "spans"

    def __post_init__(self) -> None:
        check(self, "encoder.")


@dataclass(frozen=True, kw_only=True)
class Generator:
    """A smaller masked model on the same embedding, trained beside a discriminator, whose tokens
    it replaces (ELECTRA, Clark et al. 2020).
    """

    smaller: Annotated[
        int,
        Setting(
            "How many times fewer heads, and hidden and feed-forward dimensions, it has than the "
            "discriminator (section 3.2 of the paper: 2 to 4).",
            ge=1,
        ),
    ] = 4

    def __post_init__(self) -> None:
        check(self, "generator.")
