"""The settings of stacks: a model's own, an encoder's beside it, a generator's."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from llmcurate.base.settings import ByKind, dataclass, refuse
from train.model.attention_settings import Grouped, Latent
from train.model.feed_forward_settings import Dense, Experts
from train.model.plugin_settings import OwnAttention, OwnFeedForward, OwnPosition, OwnResidual
from train.model.position_settings import Position, Rope

# Attention, with cross-attention where there is some, and the feed-forward.
ATTENDS, FEEDS = ("attention", "cross"), ("feed_forward",)
Parts = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Serial:
    """Attention, then the feed-forward, each added to the stream."""

    kind: Literal["serial"] = "serial"
    sandwich: int = Field(
        0,
        ge=0,
        description="Sandwich coefficient: attention of so many layers comes first, before any "
        "feed-forward, and as many feed-forwards come last (Press et al. 2020).",
    )

    def steps(self, layers: int) -> list[tuple[int, Parts]]:
        """The order in which parts run: a layer, and which of its parts."""
        if not self.sandwich:
            return [(layer, ATTENDS + FEEDS) for layer in range(layers)]
        steps: list[tuple[int, Parts]] = [(layer, ATTENDS) for layer in range(self.sandwich)]
        for layer in range(self.sandwich, layers):
            steps += [(layer, ATTENDS), (layer - self.sandwich, FEEDS)]
        return steps + [(layer, FEEDS) for layer in range(layers - self.sandwich, layers)]


@dataclass(frozen=True, kw_only=True)
class ReZero(Serial):
    """What parts add is multiplied by a learned number, which begins at 0; a layer has one."""

    kind: Literal["rezero"] = "rezero"  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class DeepNorm(Serial):
    """The stream is multiplied by ``alpha`` before what a part adds; first values by ``beta``."""

    kind: Literal["deepnorm"] = "deepnorm"  # type: ignore[assignment]
    alpha: float | None = Field(
        None, gt=0, description="Weight of the stream. Without a value that of the paper."
    )
    beta: float | None = Field(
        None,
        gt=0,
        description="What first values of values, of attention's output and of feed-forwards are "
        "multiplied by. Without a value that of the paper.",
    )

    def scales(self, layers: int, *, read: bool = False) -> tuple[float, float]:
        """alpha and beta of a stack; ``read``: of a decoder that sees an encoder (figure 2 of the
        paper).
        """
        n, most = (2, 8) if not read else (3, 12)
        alpha, beta = (n * layers) ** 0.25, (most * layers) ** -0.25
        return self.alpha or alpha, self.beta or beta

    def of_encoder(self, layers: int, decoder: int) -> DeepNorm:
        """That of an encoder of ``layers``, beside a decoder of so many (figure 2)."""
        ratio = (layers**4 * decoder) ** (1 / 16)
        alpha, beta = 0.81 * ratio, 0.87 / ratio
        return DeepNorm(sandwich=self.sandwich, alpha=self.alpha or alpha, beta=self.beta or beta)


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Attention and feed-forward read the same stream, and their sum is added to it."""

    kind: Literal["parallel"] = "parallel"
    norms: int = Field(1, ge=1, le=2, description="Norms of a block: 1 (GPT-J), or 2 (GPT-NeoX).")


Residual = Annotated[Serial | ReZero | DeepNorm | Parallel | OwnResidual, ByKind()]


Attention = Annotated[Grouped | Latent | OwnAttention, ByKind()]
FeedForward = Annotated[Dense | Experts | OwnFeedForward, ByKind()]


@dataclass(frozen=True, kw_only=True)
class Norm:
    """The norms of a stack."""

    kind: Literal["rms", "layer", "layer_no_bias", "layer_plain"] = Field(
        "rms",
        description="The norm: rms (Zhang and Sennrich 2019), layer (Ba et al. 2016), "
        "layer_no_bias (PaLM) or layer_plain, without weights (OLMo).",
    )
    place: Literal["pre", "post", "sandwich", "none"] = Field(
        "pre",
        description="Where norms stand: pre; post, the original LN(x + f(x)) without a norm at "
        "the end; sandwich, before and after each part (Ding et al. 2021); none in the stack "
        "(ReZero).",
    )
    eps: float = Field(
        1e-5, gt=0, description="Number added to the variance, so that it is never 0."
    )
    first: bool = Field(
        True,
        description="Whether the first block has a norm before attention (ModernBERT has one "
        "after the embedding in its place).",
    )

    def __post_init__(self) -> None:
        refuse(
            not self.first and self.place != "pre",
            f"norm.first false with norm.place {self.place}: only a norm before can be left out",
        )


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Blocks on a residual stream. The defaults are LLaMA's choices (Touvron et al. 2023)."""

    layers: int = Field(ge=1, le=10_000, description="Number of blocks.")
    hidden: int = Field(ge=1, description="Dimensions of the residual stream.")
    attention: Attention = Field(description="How tokens look at each other.")
    feed_forward: FeedForward = Field(description="What is done to each token.")
    norm: Norm = Field(default_factory=Norm, description="The norms.")
    causal: bool = Field(
        True, description="Whether a token sees those before it alone; in an encoder it sees all."
    )
    share: int = Field(
        1,
        ge=1,
        description="Blocks in a row that have the same weights (ALBERT: as many as layers).",
    )
    residual: Residual = Field(
        default_factory=Serial, description="How parts are joined to the stream."
    )
    position: Annotated[Position | OwnPosition, ByKind()] = Field(
        default_factory=Rope, description="How a token's position is known."
    )
    dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the embeddings, and of what each part adds to the residual stream, "
        "that is dropped in training.",
    )


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A second stack, which reads a source both ways; all else is as in the decoder, whose blocks
    look at what it makes of it (Vaswani et al. 2017).
    """

    layers: int = Field(ge=1, le=10_000, description="Number of its blocks.")
    shared: bool = Field(
        False,
        description="Whether its blocks have the same weights as the decoder's, but for "
        "cross-attention (Raffel et al. 2020, section 3.2).",
    )
    start: int | None = Field(
        None,
        ge=0,
        description="Id of the token that decoding begins with. Without a value it is the end of "
        "text, as in training here and in BART; T5 was trained with its padding, 0.",
    )

    learns: Literal["spans", "bart"] = Field(
        "spans", description="The objective that is its own: spans (T5's) or bart (BART's)."
    )


@dataclass(frozen=True, kw_only=True)
class Generator:
    """A smaller masked model on the same embedding, trained beside a discriminator, whose tokens
    it replaces (ELECTRA, Clark et al. 2020).
    """

    smaller: int = Field(
        4,
        ge=1,
        description="How many times fewer heads, and hidden and feed-forward dimensions, it has "
        "than the discriminator (section 3.2 of the paper: 2 to 4).",
    )
