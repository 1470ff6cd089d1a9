"""The settings of positions: how a token's place is known, and how that is stretched."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from llmcurate.base.settings import dataclass, refuse


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched to a context longer than ``original_context``.

    ``linear``: positions over ``factor`` (Chen et al. 2023). ``ntk``: theta times
    factor ** (d / (d - 2)) (bloc97 2023). ``yarn`` (Peng et al. 2023) and ``llama3`` (Llama 3.1):
    by wavelength. ``longrope``: a divisor for each frequency (Ding et al. 2024).
    """

    kind: Literal["linear", "ntk", "yarn", "llama3", "longrope"] = Field(
        description="The kind of scaling."
    )
    factor: float = Field(1.0, ge=1, description="How many times longer the context becomes.")
    original_context: int = Field(
        0, ge=0, description="Tokens of the context before scaling; of linear and ntk not needed."
    )
    beta_fast: float = Field(
        32.0,
        gt=0,
        description="Turns in the original context from which on yarn leaves a frequency as it is.",
    )
    beta_slow: float = Field(
        1.0,
        gt=0,
        description="Turns in the original context up to which yarn scales a frequency fully.",
    )
    low: float = Field(
        1.0, ge=0, description="Turns in the original context up to which llama3 scales fully."
    )
    high: float = Field(
        4.0, ge=0, description="Turns in the original context from which on llama3 scales nothing."
    )
    short: tuple[float, ...] = Field(
        (), description="Divisors of longrope while the context is at most the original one."
    )
    long: tuple[float, ...] = Field((), description="Divisors of longrope in longer contexts.")
    attention_factor: float | None = Field(
        None,
        gt=0,
        description="Number that yarn, and longrope in longer contexts, multiply sines and "
        "cosines by. Without a value it follows from how many times longer the context becomes.",
    )
    all_dims: float = Field(
        0.0,
        ge=0,
        description="Of yarn with latent attention: scores are multiplied by (0.1 x this x "
        "ln(factor) + 1) squared, and the attention factor is 1 without a value (DeepSeek-V2: "
        "0.707 or 1).",
    )

    def __post_init__(self) -> None:
        if self.kind not in ("linear", "ntk"):
            refuse(
                self.original_context < 1,
                f"position.scaling {self.kind}: give original_context, the context before scaling",
            )
        refuse(self.low >= self.high, "position.scaling: low must be less than high")
        refuse(
            self.beta_slow >= self.beta_fast,
            "position.scaling: beta_slow must be less than beta_fast",
        )


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Queries and keys turned by their positions. ``table``: whether an encoding looks positions
    up, so that there are none past the context.
    """

    table: ClassVar[bool] = False
    kind: Literal["rope"] = "rope"
    theta: float = Field(10_000.0, gt=0, description="Base of the rotary frequencies.")
    window_theta: float | None = Field(
        None, gt=0, description="That of layers with a window (ModernBERT). Without a value theta."
    )
    dim: int | None = Field(
        None,
        ge=2,
        description="Dimensions of a head that are turned, an even number; all where absent.",
    )
    scaling: RopeScaling | None = Field(
        None, description="How the rotation is stretched to a longer context."
    )


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A learned vector for each position, added to the embedding."""

    table: ClassVar[bool] = True
    kind: Literal["learned"] = "learned"
    offset: int = Field(0, ge=0, description="Rows that come before position 0 (OPT has 2).")


@dataclass(frozen=True, kw_only=True)
class Sinusoidal:
    """Sines and cosines, added to the embedding times sqrt(hidden)."""

    table: ClassVar[bool] = True
    kind: Literal["sinusoidal"] = "sinusoidal"


@dataclass(frozen=True, kw_only=True)
class Alibi:
    """A number for the distance and the head, taken off each score."""

    table: ClassVar[bool] = False
    kind: Literal["alibi"] = "alibi"


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """A learned number for each bucket of distances and head, shared by the layers."""

    table: ClassVar[bool] = False
    kind: Literal["t5"] = "t5"
    buckets: int = Field(32, ge=2, description="Buckets of distances.")
    distance: int = Field(
        128, ge=1, description="Distance in tokens from which on all share the last bucket."
    )

    def __post_init__(self) -> None:
        refuse(
            self.distance <= self.buckets // 2,
            "position.buckets: give position.distance over half of them",
        )


@dataclass(frozen=True, kw_only=True)
class Disentangled:
    """A learned vector for each distance, shared by the layers, which each make a key and a query
    of it that meet the queries and keys of tokens.
    """

    table: ClassVar[bool] = False
    kind: Literal["disentangled"] = "disentangled"
    span: int = Field(
        512, ge=2, description="Distance in tokens from which on all share the last vector."
    )
    buckets: int | None = Field(
        None,
        ge=4,
        description="Vectors to either side: for half of them single distances, then more by the "
        "logarithm up to span (DeBERTa-v2). Without a value one for each distance.",
    )
    norm: bool = Field(False, description="Whether the vectors are normed (DeBERTa-v2).")
    shared: bool = Field(
        False,
        description="Whether each layer's matrices of tokens make keys and queries of them too "
        "(v2).",
    )

    def __post_init__(self) -> None:
        refuse(
            self.buckets is not None and self.span < 2 * self.buckets,
            f"position.buckets is {self.buckets}: give position.span of twice as much or more",
        )


@dataclass(frozen=True, kw_only=True)
class Clipped:
    """A learned vector for each distance up to ``span``, one in each layer for all its heads, added
    to the keys; not to the values, which changed nothing in the paper's table 3.
    """

    table: ClassVar[bool] = False
    kind: Literal["clipped"] = "clipped"
    span: int = Field(
        16, ge=1, description="Distance in tokens from which on all share the last vector."
    )


@dataclass(frozen=True, kw_only=True)
class Distances:
    """The sinusoids of each distance, of which each layer makes a key; two learned vectors a head
    stand in for what a query knows of its own position.
    """

    table: ClassVar[bool] = False
    kind: Literal["distances"] = "distances"


@dataclass(frozen=True, kw_only=True)
class NoPositions:
    """Nothing but the causal mask says where a token stands."""

    table: ClassVar[bool] = False
    kind: Literal["none"] = "none"


Position = (
    Rope | Learned | Sinusoidal | Alibi | Buckets | Disentangled | Clipped | Distances | NoPositions
)
# Those by vectors of distances, which are a part of attention.
Vectors = Disentangled | Clipped | Distances

POSITIONS = (
    "rope",
    "learned",
    "sinusoidal",
    "alibi",
    "t5",
    "disentangled",
    "clipped",
    "distances",
    "none",
)
