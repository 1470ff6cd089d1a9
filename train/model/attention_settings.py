"""The settings of attention: how tokens look at each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from train.settings import Setting, check, kind_of, refuse

BIASES = ("none", "qkv", "but_keys", "all")


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """Attention with as many key and value heads as query heads, or fewer."""

    kind: Annotated[
        str, kind_of("grouped", "Grouped-query attention; MHA and MQA are its ends.")
    ] = "grouped"
    heads: Annotated[int, Setting("Number of query heads.", ge=1)]
    kv_heads: Annotated[
        int,
        Setting(
            "Number of key and value heads, each shared by heads / kv_heads query heads "
            "(MQA: Shazeer 2019; GQA: Ainslie et al. 2023).",
            ge=1,
        ),
    ]
    head_dim: Annotated[int, Setting("Dimensions of a head.", ge=1)]
    bias: Annotated[
        str,
        Setting(
            "Which of its linear layers have a bias: none, qkv (Qwen2.5), all, or all but that of "
            "keys (DeBERTa).",
            choices=BIASES,
        ),
    ] = "none"
    qk_norm: Annotated[
        bool,
        Setting(
            "RMSNorm over head_dim of queries and keys before the rotation (Henry et al. 2020, as "
            "in Qwen3)."
        ),
    ] = False
    window: Annotated[
        int | None,
        Setting(
            "Keys that a query sees at most to either side, itself counted, in tokens (Beltagy et "
            "al. 2020). Without a value it sees all.",
            ge=1,
        ),
    ] = None
    window_pattern: Annotated[
        str,
        Setting("A letter a layer, repeated: W where the window holds, F for full attention."),
    ] = "W"
    sinks: Annotated[
        int,
        Setting(
            "First tokens of a document that stay visible past the window (Xiao et al. 2023).",
            ge=0,
        ),
    ] = 0

    def __post_init__(self) -> None:
        check(self, "attention.")
        refuse(
            self.heads % self.kv_heads != 0,
            f"attention.kv_heads is {self.kv_heads}: it must divide attention.heads ({self.heads})",
        )
        refuse(
            not self.window_pattern or bool(set(self.window_pattern) - set("WF")),
            f"attention.window_pattern is {self.window_pattern!r}: a letter a layer, W (window) or "
            "F (full)",
        )
        refuse(
            self.window is None and self.sinks > 0,
            "attention.sinks without a window do nothing: give attention.window too",
        )

    def window_of(self, layer: int) -> int | None:
        """The window of a layer, or None where it sees everything."""
        marked = self.window_pattern[layer % len(self.window_pattern)] == "W"
        return self.window if marked else None

    @property
    def value_dim(self) -> int:
        """Dimensions of a value."""
        return self.head_dim

    @property
    def cached(self) -> int:
        """Numbers that a layer keeps of a token for those after it."""
        return 2 * self.kv_heads * self.head_dim


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek-AI 2024, section 2.1): keys and values of all heads are
    made of one short vector a token, which is all that a cache keeps, and of one rotated key.
    The defaults are DeepSeek-V3's. What is of grouped attention alone is fixed here.
    """

    window: ClassVar[int | None] = None
    window_pattern: ClassVar[str] = "W"
    sinks: ClassVar[int] = 0
    bias: ClassVar[str] = "none"
    qk_norm: ClassVar[bool] = False
    kind: Annotated[
        str, kind_of("latent", "Latent attention, MLA (DeepSeek-V2, arXiv 2405.04434).")
    ] = "latent"
    heads: Annotated[int, Setting("Number of heads.", ge=1)]
    query_rank: Annotated[
        int | None,
        Setting(
            "Dimensions that queries are compressed to. Without a value they are not "
            "(DeepSeek-V2-Lite).",
            ge=1,
        ),
    ] = None
    rank: Annotated[
        int, Setting("Dimensions that keys and values are compressed to, for all heads.", ge=1)
    ] = 512
    rotary_dim: Annotated[
        int,
        Setting(
            "Dimensions of a key that are turned, an even number; all heads share them, and each "
            "query has as many.",
            ge=2,
        ),
    ] = 64
    plain_dim: Annotated[
        int, Setting("Dimensions of a head's queries and keys that are not turned.", ge=1)
    ] = 128
    value_dim: Annotated[int, Setting("Dimensions of a head's values.", ge=1)] = 128

    def __post_init__(self) -> None:
        check(self, "attention.")
        refuse(
            self.rotary_dim % 2 != 0,
            f"attention.rotary_dim is {self.rotary_dim}: it must be even",
        )

    def window_of(self, layer: int) -> None:
        """There are no windows."""

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
