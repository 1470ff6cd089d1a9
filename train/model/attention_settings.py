"""The settings of attention: which tokens each token sees, and with how many heads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from llmcurate.base.errors import UsageError
from llmcurate.base.settings import dataclass, refuse_any

Biases = Literal["none", "qkv", "out", "but_keys", "all"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionPattern:
    """The rule by which a layer's queries see keys; for the fields see ``attention.Mask``. Without
    a window or segment, queries see all keys. All layers with the same pattern share one mask."""

    window: int | None = None
    sinks: int = 0
    globals: int = 0
    random: int = 0
    draw: int = 0
    block: int = 1
    dilations: tuple[int, ...] = ()
    segment: int | None = None
    softcap: float | None = None

    @property
    def cached_tokens(self) -> int | None:
        """The number of tokens that a cache keeps for later queries; None: all tokens."""
        if self.segment is not None:
            return 2 * self.segment
        if self.window is None:
            return None
        return self.window * self.block * max(self.dilations, default=1) + self.sinks


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """Attention with as many key and value heads as query heads, or fewer."""

    kind: Literal["grouped"] = "grouped"
    heads: int = Field(ge=1)
    """Number of query heads."""
    kv_heads: int = Field(ge=1)
    """Number of key and value heads, each shared by heads / kv_heads query heads (MQA: Shazeer
    2019; GQA: Ainslie et al. 2023)."""
    head_dim: int = Field(ge=1)
    """Dimensions of a head."""
    score_dim: int | None = Field(None, ge=1)
    """Number by whose square root scores are divided (Gemma 2 27B: 144). Without a value
    head_dim."""
    bias: Biases = "none"
    """Linear layers that have a bias: none, qkv (Qwen2.5), out, the one after the heads (GPT-Neo),
    all, or but_keys, all except the keys' (DeBERTa)."""
    qk_norm: bool = False
    """Apply RMSNorm over head_dim to queries and keys before the rotation (Henry et al. 2020, as in
    Qwen3)."""
    qk_norm_whole: bool = False
    """Apply that norm once to the queries of all heads, and once to their keys (OLMo 2)."""
    clip: float | None = Field(None, gt=0)
    """Limit queries, keys and values to numbers from -clip to clip (DBRX: 8). Without a value there
    is no limit."""
    window: int | None = Field(None, ge=1)
    """Most keys that a query sees to either side, its own included (Beltagy et al. 2020). Without a
    value it sees all keys."""
    window_pattern: str = "W"
    """One letter per layer, repeated: W for the window, D for the dilated window, F for full
    attention."""
    dilations: tuple[int, ...] = ()
    """Step from key to key in a head's window, in layers marked D. The window holds as many keys
    and reaches that many times further (Beltagy et al. 2020). One number per head, repeated."""
    sinks: int = Field(0, ge=0)
    """First tokens of a document that stay visible outside the window (Xiao et al. 2023)."""
    globals: int = Field(0, ge=0)
    """First tokens of a document that see all of it and are seen by all of it. Only for an encoder
    with a window (Longformer: Beltagy et al. 2020)."""
    random: int = Field(0, ge=0)
    """Random keys that each query sees in addition, different in each layer. Only for an encoder
    with a window (BigBird: Zaheer et al. 2020)."""
    seed: int = Field(0, ge=0)
    """Seed of the random keys."""
    block: int = Field(1, ge=1)
    """Number of tokens that window, globals and random count as one unit (BigBird: 64)."""
    segment: int | None = Field(None, ge=1)
    """Tokens of a segment. A document is read in segments. Each sees itself and the one before,
    without a gradient through it: Transformer-XL's memory (Dai et al. 2019, section 3.2). Without a
    value a document is one segment."""
    softcap: float | None = Field(None, gt=0)
    """Cap c on attention scores, which become c x tanh(score / c) (Gemma 2: 50). Computed by eager
    attention only. Without a value scores are not capped."""

    def __post_init__(self) -> None:
        refuse_any(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.heads % self.kv_heads != 0:
            kv, all_heads = self.kv_heads, self.heads
            yield f"attention.kv_heads is {kv}: it must divide attention.heads ({all_heads})"
        if not self.window_pattern or set(self.window_pattern) - set("WDF"):
            yield (
                f"attention.window_pattern is {self.window_pattern!r}: give one letter per layer, W"
                " (window), D (dilated window) or F (full)"
            )
        if self.qk_norm_whole and not self.qk_norm:
            yield "attention.qk_norm_whole without attention.qk_norm: set that too"
        for name in ("sinks", "globals", "random", "dilations"):
            if self.window is None and getattr(self, name):
                own = f"attention.{name} has no effect without a window"
                yield f"{own}: set attention.window too"
        if self.window is not None and self.segment is not None:
            own = "attention.segment with attention.window"
            yield f"{own}: a segment acts as a window, leave one out"
        if bool(self.dilations) != ("D" in self.window_pattern):
            yield (
                f"attention.dilations {list(self.dilations)} with window_pattern "
                f"{self.window_pattern!r}: set both for dilated windows (layers marked D), or"
                " neither"
            )
        if self.block > 1 and (self.sinks or self.dilations):
            yield f"attention.block {self.block} with sinks or dilations: these count single tokens"
        if any(step < 1 for step in self.dilations) or (
            self.dilations and self.heads % len(self.dilations)
        ):
            yield (
                f"attention.dilations is {list(self.dilations)}: give numbers of 1 or more, and a "
                f"count that divides attention.heads ({self.heads})"
            )

    def pattern(self, layer: int) -> AttentionPattern:
        if self.segment is not None:
            return AttentionPattern(segment=self.segment, softcap=self.softcap)
        letter = self.window_pattern[layer % len(self.window_pattern)]
        if self.window is None or letter == "F":
            return AttentionPattern(softcap=self.softcap)
        repeated = self.dilations * (self.heads // max(1, len(self.dilations)))
        return AttentionPattern(
            window=self.window,
            sinks=self.sinks,
            globals=self.globals,
            random=self.random,
            draw=self.seed * 2**16 + layer if self.random else 0,
            block=self.block,
            dilations=repeated if letter == "D" else (),
            softcap=self.softcap,
        )

    @property
    def value_dim(self) -> int:
        return self.head_dim

    @property
    def cached(self) -> int:
        """The number of values that a layer's cache holds per token."""
        return 2 * self.kv_heads * self.head_dim


def heads_of(hidden: int, heads: int, **more: Any) -> Grouped:
    """Return attention with ``heads`` query and key heads; ``heads`` must divide ``hidden``."""
    shape = {"heads": heads, "kv_heads": heads, "head_dim": hidden // heads}
    return Grouped(**(shape | more))


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek-AI 2024, section 2.1), by default DeepSeek-V3's. Keys
    and values of all heads are computed from a short vector per token and one rotated key. A cache
    keeps only the vectors and rotated keys.
    """

    bias: ClassVar[str] = "none"
    qk_norm: ClassVar[bool] = False
    qk_norm_whole: ClassVar[bool] = False
    clip: ClassVar[None] = None
    score_dim: ClassVar[None] = None
    kind: Literal["latent"] = "latent"
    heads: int = Field(ge=1)
    """Number of heads."""
    query_rank: int | None = Field(None, ge=1)
    """Dimensions that queries are compressed to. Without a value queries are not compressed
    (DeepSeek-V2-Lite)."""
    rank: int = Field(512, ge=1)
    """Dimensions that keys and values are compressed to, for all heads."""
    rotary_dim: int = Field(64, ge=2)
    """Rotated dimensions of a key, an even number. All heads share this part of the key; each query
    has as many rotated dimensions."""
    plain_dim: int = Field(128, ge=1)
    """Dimensions of a head's queries and keys that are not rotated."""
    value_dim: int = Field(128, ge=1)
    """Dimensions of a head's values."""

    def __post_init__(self) -> None:
        if self.rotary_dim % 2:
            raise UsageError(f"attention.rotary_dim is {self.rotary_dim}: it must be even")

    def pattern(self, layer: int) -> AttentionPattern:
        return AttentionPattern()

    @property
    def head_dim(self) -> int:
        return self.plain_dim + self.rotary_dim

    @property
    def kv_heads(self) -> int:
        """The number of heads: each head has its own keys and values."""
        return self.heads

    @property
    def cached(self) -> int:
        """The number of values that a layer's cache holds per token."""
        return self.rank + self.rotary_dim
