"""The settings of attention: how tokens look at each other."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

from pydantic import Field

from llmcurate.base.settings import dataclass, refuse

Biases = Literal["none", "qkv", "but_keys", "all"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sight:
    """How far a layer's queries see, in the words of ``attention.Mask``; without a window
    everything. Layers of equal sight share masks.
    """

    window: int | None = None
    sinks: int = 0
    globals: int = 0
    random: int = 0
    draw: int = 0
    block: int = 1
    dilations: tuple[int, ...] = ()
    segment: int | None = None

    @property
    def kept(self) -> int | None:
        """Tokens that a cache keeps for later ones; None: all."""
        if self.segment is not None:
            return 2 * self.segment
        if self.window is None:
            return None
        return self.window * self.block * max(self.dilations, default=1) + self.sinks


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """Attention with as many key and value heads as query heads, or fewer."""

    kind: Literal["grouped"] = "grouped"
    heads: int = Field(ge=1, description="Number of query heads.")
    kv_heads: int = Field(
        ge=1,
        description="Number of key and value heads, each shared by heads / kv_heads query heads "
        "(MQA: Shazeer 2019; GQA: Ainslie et al. 2023).",
    )
    head_dim: int = Field(ge=1, description="Dimensions of a head.")
    bias: Biases = Field(
        "none",
        description="Which of its linear layers have a bias: none, qkv (Qwen2.5), all, or all but "
        "that of keys (DeBERTa).",
    )
    qk_norm: bool = Field(
        False,
        description="RMSNorm over head_dim of queries and keys before the rotation (Henry et al. "
        "2020, as in Qwen3).",
    )
    window: int | None = Field(
        None,
        ge=1,
        description="Keys that a query sees at most to either side, itself counted, in tokens "
        "(Beltagy et al. 2020). Without a value it sees all.",
    )
    window_pattern: str = Field(
        "W",
        description="A letter a layer, repeated: W where the window holds, D where it is dilated, "
        "F for full attention.",
    )
    dilations: tuple[int, ...] = Field(
        (),
        description="In layers marked D the step from key to key of a head's window, which holds "
        "as many keys and reaches so many times further (Beltagy et al. 2020); a number a head, "
        "repeated.",
    )
    sinks: int = Field(
        0,
        ge=0,
        description="First tokens of a document that stay visible past the window (Xiao et al. "
        "2023).",
    )
    globals: int = Field(
        0,
        ge=0,
        description="First tokens of a document that see all of it and are seen by all of it, of "
        "an encoder with a window (Longformer: Beltagy et al. 2020).",
    )
    random: int = Field(
        0,
        ge=0,
        description="Keys besides that each query of an encoder with a window sees, drawn anew "
        "for each layer (BigBird: Zaheer et al. 2020).",
    )
    seed: int = Field(0, ge=0, description="What they are drawn from.")
    block: int = Field(
        1,
        ge=1,
        description="Tokens that window, globals and random count in, in place of single ones "
        "(BigBird: 64).",
    )
    segment: int | None = Field(
        None,
        ge=1,
        description="Tokens of a segment. A document is read in segments, each of which sees "
        "itself and the one before, through which no gradient flows: Transformer-XL's memory (Dai "
        "et al. 2019, section 3.2). Without a value a document is one.",
    )

    def __post_init__(self) -> None:
        refuse(
            self.heads % self.kv_heads != 0,
            f"attention.kv_heads is {self.kv_heads}: it must divide attention.heads ({self.heads})",
        )
        refuse(
            not self.window_pattern or bool(set(self.window_pattern) - set("WDF")),
            f"attention.window_pattern is {self.window_pattern!r}: a letter a layer, W (window), D "
            "(dilated window) or F (full)",
        )
        for name in ("sinks", "globals", "random", "dilations"):
            refuse(
                self.window is None and bool(getattr(self, name)),
                f"attention.{name} without a window do nothing: give attention.window too",
            )
        refuse(
            self.window is not None and self.segment is not None,
            "attention.segment with attention.window: a segment is one already, leave one out",
        )
        refuse(
            bool(self.dilations) != ("D" in self.window_pattern),
            f"attention.dilations {list(self.dilations)} with window_pattern "
            f"{self.window_pattern!r}: layers marked D have a step for each head, others none",
        )
        refuse(
            self.block > 1 and (self.sinks > 0 or bool(self.dilations)),
            f"attention.block {self.block} with sinks or dilations: these count single tokens",
        )
        refuse(
            any(step < 1 for step in self.dilations)
            or (bool(self.dilations) and self.heads % len(self.dilations) != 0),
            f"attention.dilations is {list(self.dilations)}: numbers of 1 or more, as many as "
            f"divide attention.heads ({self.heads})",
        )

    def sight(self, layer: int) -> Sight:
        """What the queries of a layer see."""
        if self.segment is not None:
            return Sight(segment=self.segment)
        letter = self.window_pattern[layer % len(self.window_pattern)]
        if self.window is None or letter == "F":
            return Sight()
        repeated = self.dilations * (self.heads // max(1, len(self.dilations)))
        return Sight(
            window=self.window,
            sinks=self.sinks,
            globals=self.globals,
            random=self.random,
            draw=self.seed * 2**16 + layer if self.random else 0,
            block=self.block,
            dilations=repeated if letter == "D" else (),
        )

    @property
    def value_dim(self) -> int:
        """Dimensions of a value."""
        return self.head_dim

    @property
    def cached(self) -> int:
        """Numbers that a layer keeps of a token for those after it."""
        return 2 * self.kv_heads * self.head_dim


def heads_of(hidden: int, heads: int, **more: Any) -> Grouped:
    """As many key heads as query heads, which share the hidden dimensions."""
    shape = {"heads": heads, "kv_heads": heads, "head_dim": hidden // heads}
    return Grouped(**(shape | more))


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek-AI 2024, section 2.1): keys and values of all heads are
    made of one short vector a token, which is all that a cache keeps, and of one rotated key.
    The defaults are DeepSeek-V3's. What is of grouped attention alone is fixed here.
    """

    bias: ClassVar[str] = "none"
    qk_norm: ClassVar[bool] = False
    kind: Literal["latent"] = "latent"
    heads: int = Field(ge=1, description="Number of heads.")
    query_rank: int | None = Field(
        None,
        ge=1,
        description="Dimensions that queries are compressed to. Without a value they are not "
        "(DeepSeek-V2-Lite).",
    )
    rank: int = Field(
        512, ge=1, description="Dimensions that keys and values are compressed to, for all heads."
    )
    rotary_dim: int = Field(
        64,
        ge=2,
        description="Dimensions of a key that are turned, an even number; all heads share them, "
        "and each query has as many.",
    )
    plain_dim: int = Field(
        128, ge=1, description="Dimensions of a head's queries and keys that are not turned."
    )
    value_dim: int = Field(128, ge=1, description="Dimensions of a head's values.")

    def __post_init__(self) -> None:
        refuse(
            self.rotary_dim % 2 != 0,
            f"attention.rotary_dim is {self.rotary_dim}: it must be even",
        )

    def sight(self, layer: int) -> Sight:
        """What the queries of a layer see: all."""
        return Sight()

    @property
    def head_dim(self) -> int:
        """Dimensions of a query and of a key."""
        return self.plain_dim + self.rotary_dim

    @property
    def kv_heads(self) -> int:
        """Each head has its own keys and values, made of what all share."""
        return self.heads

    @property
    def cached(self) -> int:
        """Numbers that a layer keeps of a token for those after it."""
        return self.rank + self.rotary_dim
