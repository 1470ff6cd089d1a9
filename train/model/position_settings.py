"""The settings of position encodings, and of stretching them to longer contexts. Most encodings
have a file in encodings/ with settings, module and cost.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field

from llmcurate.base.errors import UsageError
from llmcurate.base.settings import dataclass, kinds_of

P = TypeVar("P", bound="Position")


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """Stretching of rotary frequencies to a context longer than ``original_context``. ``linear``:
    positions are divided by ``factor`` (Chen et al. 2023). ``ntk``: theta is multiplied by factor
    ** (d / (d - 2)) for d rotated dimensions (bloc97 2023). ``yarn`` (Peng et al. 2023) and
    ``llama3`` (Llama 3.1): long wavelengths are stretched by ``factor``, short ones are not, those
    between by less. ``longrope``: each frequency has its own divisor (Ding et al. 2024)."""

    kind: Literal["linear", "ntk", "yarn", "llama3", "longrope"]
    """The kind of scaling."""
    factor: float = Field(1.0, ge=1)
    """Factor by which the context becomes longer."""
    original_context: int = Field(0, ge=0)
    """Tokens of the context before scaling; not needed for linear and ntk."""
    beta_fast: float = Field(32.0, gt=0)
    """Turns in the original context from which yarn leaves a frequency unchanged."""
    beta_slow: float = Field(1.0, gt=0)
    """Turns in the original context up to which yarn scales a frequency fully."""
    low: float = Field(1.0, ge=0)
    """Turns in the original context up to which llama3 scales fully."""
    high: float = Field(4.0, ge=0)
    """Turns in the original context from which llama3 does not scale."""
    short: tuple[float, ...] = ()
    """Divisors of longrope while the context is at most the original one."""
    long: tuple[float, ...] = ()
    """Divisors of longrope in longer contexts."""
    attention_factor: float | None = Field(None, gt=0)
    """Factor on sines and cosines for yarn, and for longrope in longer contexts. Without a value it
    follows from the growth of the context."""
    all_dims: float = Field(0.0, ge=0)
    """For yarn with latent attention: scores are multiplied by (0.1 x all_dims x ln(factor) + 1)
    squared, and attention_factor is 1 if not set (DeepSeek-V2: 0.707 or 1)."""

    def __post_init__(self) -> None:
        if self.kind not in ("linear", "ntk") and self.original_context < 1:
            raise UsageError(
                f"position.scaling {self.kind}: set original_context, the context before scaling"
            )
        if self.low >= self.high:
            raise UsageError("position.scaling: low must be less than high")
        if self.beta_slow >= self.beta_fast:
            raise UsageError("position.scaling: beta_slow must be less than beta_fast")


# Those of this module, and one per file in encodings/, imported when it is needed.
_FILES = sorted(path.stem for path in (Path(__file__).parent / "encodings").glob("[a-z]*.py"))
POSITIONS = ("rope", "learned", *_FILES, "none")


@dataclass(frozen=True, kw_only=True)
class Position:
    """The settings of a position encoding. ``table``: True if it looks positions up in a table that
    has as many rows as the context. ``in_attention``: True if it is part of attention. ``title``:
    the encoding's name."""

    table: ClassVar[bool] = False
    in_attention: ClassVar[bool] = False
    title: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]] = POSITIONS
    kind: str

    @classmethod
    def of_kind(cls, kind: str | None) -> type[Position]:
        """Return the settings class of the encoding ``kind``; None means rope. Raises
        ``UsageError`` for an unknown kind."""
        if kind not in KINDS and kind in POSITIONS:
            import_module(f"train.model.encodings.{kind}")
        if kind is not None and kind not in KINDS:
            raise UsageError(f"{kind!r}: choose one of {', '.join(POSITIONS)}")
        return KINDS[kind or "rope"]

    @classmethod
    def all_kinds(cls) -> tuple[type[Position], ...]:
        return tuple(map(cls.of_kind, POSITIONS))

    def distance_flops(self, config: Any, context: int) -> float:
        """Return the forward operations that the encoding does for the distances between queries
        and keys, per token, layer, head and dimension."""
        return 0.0


KINDS: dict[str, type[Position]] = {}


def position(settings: type[P]) -> type[P]:
    """Register the settings class of an encoding under its ``kind``."""
    KINDS[kinds_of(settings)[0]] = settings
    return settings


def encoding(kind: str, **settings: Any) -> Position:
    """Return the settings of the encoding ``kind`` with these values."""
    return Position.of_kind(kind)(kind=kind, **settings)


@position
@dataclass(frozen=True, kw_only=True)
class Rope(Position):
    """Rotary positions: queries and keys are rotated by their positions."""

    title: ClassVar[str] = "RoPE"
    kind: Literal["rope"] = "rope"
    theta: float = Field(10_000.0, gt=0)
    """Base of the rotary frequencies."""
    window_theta: float | None = Field(None, gt=0)
    """Base in layers with a window (ModernBERT). Without a value theta."""
    dim: int | None = Field(None, ge=2)
    """Rotated dimensions of a head, an even number. Without a value all."""
    pattern: str = Field("R", pattern="^[RN]+$")
    """One letter per layer, repeated: R for a layer that rotates, N for one without positions
    (SmolLM3: RRRN)."""
    scaling: RopeScaling | None = None
    """Stretching of the rotation to a longer context."""


@position
@dataclass(frozen=True, kw_only=True)
class Learned(Position):
    """A learned vector for each position, added to the embedding."""

    table: ClassVar[bool] = True
    title: ClassVar[str] = "learned"
    kind: Literal["learned"] = "learned"
    offset: int = Field(0, ge=0)
    """Unused rows before position 0 (OPT: 2)."""


@position
@dataclass(frozen=True, kw_only=True)
class NoPositions(Position):
    """No position encoding. Only the causal mask lets the model tell the order of tokens."""

    title: ClassVar[str] = "none"
    kind: Literal["none"] = "none"
