"""The settings of positions: how a token's place is known, and how that is stretched.

Most encodings are a file each in encodings/: settings, tables, bias and cost in one.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field

from llmcurate.base.errors import UsageError
from llmcurate.base.settings import dataclass, kinds_of, refuse

P = TypeVar("P", bound="Position")


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


# Encodings of this module, and a file each in encodings/, which is imported when it is asked for.
_FILES = sorted(path.stem for path in (Path(__file__).parent / "encodings").glob("[a-z]*.py"))
POSITIONS = ("rope", "learned", *_FILES, "none")


@dataclass(frozen=True, kw_only=True)
class Position:
    """An encoding of positions, by its settings. ``table``: whether it looks positions up, so that
    there are none past the context; ``in_attention``: whether it is a part of attention; ``title``:
    its name in tables.
    """

    table: ClassVar[bool] = False
    in_attention: ClassVar[bool] = False
    title: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]] = POSITIONS
    kind: str

    @classmethod
    def of_kind(cls, kind: str | None) -> type[Position]:
        """The encoding of that name; rope where there is none. Raises ``UsageError``."""
        if kind not in KINDS and kind in POSITIONS:
            import_module(f"train.model.encodings.{kind}")
        if kind is not None and kind not in KINDS:
            raise UsageError(f"{kind!r}: choose one of {', '.join(POSITIONS)}")
        return KINDS[kind or "rope"]

    @classmethod
    def all_kinds(cls) -> tuple[type[Position], ...]:
        """All encodings that there are."""
        return tuple(map(cls.of_kind, POSITIONS))

    def flops_beside(self, config: Any, context: int) -> float:
        """Forward operations a token of a layer on vectors of distances, by head and dimension."""
        return 0.0


KINDS: dict[str, type[Position]] = {}


def position(settings: type[P]) -> type[P]:
    """Register the settings of an encoding under their ``kind``."""
    KINDS[kinds_of(settings)[0]] = settings
    return settings


def encoding(kind: str, **settings: Any) -> Position:
    """The encoding of that name with these settings."""
    return Position.of_kind(kind)(kind=kind, **settings)


@position
@dataclass(frozen=True, kw_only=True)
class Rope(Position):
    """Queries and keys turned by their positions."""

    title: ClassVar[str] = "RoPE"
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


@position
@dataclass(frozen=True, kw_only=True)
class Learned(Position):
    """A learned vector for each position, added to the embedding."""

    table: ClassVar[bool] = True
    title: ClassVar[str] = "learned"
    kind: Literal["learned"] = "learned"
    offset: int = Field(0, ge=0, description="Rows that come before position 0 (OPT has 2).")


@position
@dataclass(frozen=True, kw_only=True)
class NoPositions(Position):
    """Nothing but the causal mask says where a token stands."""

    title: ClassVar[str] = "none"
    kind: Literal["none"] = "none"
