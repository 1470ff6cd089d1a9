"""The settings of positions: how a token's place is known, and how that is stretched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from llmcurate.base.settings import Setting, check, kind_of, refuse

SCALINGS = ("linear", "ntk", "yarn", "llama3", "longrope")


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched to a context longer than ``original_context``.

    ``linear``: positions over ``factor`` (Chen et al. 2023). ``ntk``: theta times
    factor ** (d / (d - 2)) (bloc97 2023). ``yarn`` (Peng et al. 2023) and ``llama3`` (Llama 3.1):
    by wavelength. ``longrope``: a divisor for each frequency (Ding et al. 2024).
    """

    kind: Annotated[str, Setting("The kind of scaling.", choices=SCALINGS)]
    factor: Annotated[float, Setting("How many times longer the context becomes.", ge=1)] = 1.0
    original_context: Annotated[
        int, Setting("Tokens of the context before scaling; of linear and ntk not needed.", ge=0)
    ] = 0
    beta_fast: Annotated[
        float,
        Setting(
            "Turns in the original context from which on yarn leaves a frequency as it is.", gt=0
        ),
    ] = 32.0
    beta_slow: Annotated[
        float,
        Setting("Turns in the original context up to which yarn scales a frequency fully.", gt=0),
    ] = 1.0
    low: Annotated[
        float, Setting("Turns in the original context up to which llama3 scales fully.", ge=0)
    ] = 1.0
    high: Annotated[
        float, Setting("Turns in the original context from which on llama3 scales nothing.", ge=0)
    ] = 4.0
    short: Annotated[
        tuple[float, ...],
        Setting("Divisors of longrope while the context is at most the original one."),
    ] = ()
    long: Annotated[tuple[float, ...], Setting("Divisors of longrope in longer contexts.")] = ()
    attention_factor: Annotated[
        float | None,
        Setting(
            "Number that yarn, and longrope in longer contexts, multiply sines and cosines by. "
            "Without a value it follows from how many times longer the context becomes.",
            gt=0,
        ),
    ] = None
    all_dims: Annotated[
        float,
        Setting(
            "Of yarn with latent attention: scores are multiplied by (0.1 x this x ln(factor) + 1) "
            "squared, and the attention factor is 1 without a value (DeepSeek-V2: 0.707 or 1).",
            ge=0,
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        check(self, "position.scaling.")
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
    kind: Annotated[str, kind_of("rope", "Rotary positions (Su et al. 2021).")] = "rope"
    theta: Annotated[float, Setting("Base of the rotary frequencies.", gt=0)] = 10_000.0
    window_theta: Annotated[
        float | None,
        Setting("That of layers with a window (ModernBERT). Without a value theta.", gt=0),
    ] = None
    dim: Annotated[
        int | None,
        Setting("Dimensions of a head that are turned, an even number; all where absent.", ge=2),
    ] = None
    scaling: Annotated[
        RopeScaling | None, Setting("How the rotation is stretched to a longer context.")
    ] = None

    def __post_init__(self) -> None:
        check(self, "position.")


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A learned vector for each position, added to the embedding."""

    table: ClassVar[bool] = True
    kind: Annotated[str, kind_of("learned", "Learned positions.")] = "learned"
    offset: Annotated[int, Setting("Rows that come before position 0 (OPT has 2).", ge=0)] = 0

    def __post_init__(self) -> None:
        check(self, "position.")


@dataclass(frozen=True, kw_only=True)
class Sinusoidal:
    """Sines and cosines, added to the embedding times sqrt(hidden)."""

    table: ClassVar[bool] = True
    kind: Annotated[str, kind_of("sinusoidal", "Sinusoids (Vaswani et al. 2017).")] = "sinusoidal"

    def __post_init__(self) -> None:
        check(self, "position.")


@dataclass(frozen=True, kw_only=True)
class Alibi:
    """A number for the distance and the head, taken off each score."""

    table: ClassVar[bool] = False
    kind: Annotated[str, kind_of("alibi", "ALiBi (Press et al. 2022).")] = "alibi"

    def __post_init__(self) -> None:
        check(self, "position.")


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """A learned number for each bucket of distances and head, shared by the layers."""

    table: ClassVar[bool] = False
    kind: Annotated[str, kind_of("t5", "T5's relative positions (Raffel et al. 2020).")] = "t5"
    buckets: Annotated[int, Setting("Buckets of distances.", ge=2)] = 32
    distance: Annotated[
        int, Setting("Distance in tokens from which on all share the last bucket.", ge=1)
    ] = 128

    def __post_init__(self) -> None:
        check(self, "position.")
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
    kind: Annotated[
        str, kind_of("disentangled", "DeBERTa's relative positions (He et al. 2021).")
    ] = "disentangled"
    span: Annotated[
        int, Setting("Distance in tokens from which on all share the last vector.", ge=2)
    ] = 512
    buckets: Annotated[
        int | None,
        Setting(
            "Vectors to either side: for half of them single distances, then more by the logarithm"
            " up to span (DeBERTa-v2). Without a value one for each distance.",
            ge=4,
        ),
    ] = None
    norm: Annotated[bool, Setting("Whether the vectors are normed (DeBERTa-v2).")] = False
    shared: Annotated[
        bool,
        Setting("Whether each layer's matrices of tokens make keys and queries of them too (v2)."),
    ] = False

    def __post_init__(self) -> None:
        check(self, "position.")
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
    kind: Annotated[str, kind_of("clipped", "Relative positions of keys (Shaw et al. 2018).")] = (
        "clipped"
    )
    span: Annotated[
        int, Setting("Distance in tokens from which on all share the last vector.", ge=1)
    ] = 16

    def __post_init__(self) -> None:
        check(self, "position.")


@dataclass(frozen=True, kw_only=True)
class Distances:
    """The sinusoids of each distance, of which each layer makes a key; two learned vectors a head
    stand in for what a query knows of its own position.
    """

    table: ClassVar[bool] = False
    kind: Annotated[
        str, kind_of("distances", "Transformer-XL's relative positions (Dai et al. 2019).")
    ] = "distances"

    def __post_init__(self) -> None:
        check(self, "position.")


@dataclass(frozen=True, kw_only=True)
class NoPositions:
    """Nothing but the causal mask says where a token stands."""

    table: ClassVar[bool] = False
    kind: Annotated[str, kind_of("none", "No positions.")] = "none"

    def __post_init__(self) -> None:
        check(self, "position.")


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
