"""The shape of a model: every choice of the transformer family on one page.

A model is a stack of blocks with an embedding and a head. What combines is allowed; what does not
is refused in one line that names both choices.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

from train.errors import TrainError
from train.settings import Setting, check

NORMS = ("rms", "layer", "layer_no_bias", "layer_plain")
PLACES = ("pre", "post", "sandwich")
BIASES = ("none", "qkv", "all")
SCALINGS = ("linear", "ntk", "yarn", "llama3", "longrope")
# name: (activation, gated)
ACTIVATIONS = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gelu_tanh": ("gelu_tanh", False),
    "swish": ("silu", False),
    "relu2": ("relu2", False),
    "glu": ("sigmoid", True),
    "geglu": ("gelu", True),
    "geglu_tanh": ("gelu_tanh", True),
    "reglu": ("relu", True),
    "swiglu": ("silu", True),
}


def _refuse(condition: bool, message: str) -> None:
    if condition:
        raise TrainError(message, exit_code=2)


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
            "sandwich, before and after each part (Ding et al. 2021).",
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
        _refuse(
            not self.first and self.place != "pre",
            f"norm.first false with norm.place {self.place}: only a norm before can be left out",
        )


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

    def __post_init__(self) -> None:
        check(self, "position.scaling.")
        if self.kind not in ("linear", "ntk"):
            _refuse(
                self.original_context < 1,
                f"position.scaling {self.kind}: give original_context, the context before scaling",
            )
        _refuse(self.low >= self.high, "position.scaling: low must be less than high")
        _refuse(
            self.beta_slow >= self.beta_fast,
            "position.scaling: beta_slow must be less than beta_fast",
        )


def _kind(name: str, description: str) -> Any:
    return Setting(description, choices=(name,))


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Queries and keys turned by their positions. ``table``: whether an encoding looks positions
    up, so that there are none past the context.
    """

    table: ClassVar[bool] = False
    kind: Annotated[str, _kind("rope", "Rotary positions (Su et al. 2021).")] = "rope"
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
    kind: Annotated[str, _kind("learned", "Learned positions.")] = "learned"
    offset: Annotated[int, Setting("Rows that come before position 0 (OPT has 2).", ge=0)] = 0

    def __post_init__(self) -> None:
        check(self, "position.")


@dataclass(frozen=True, kw_only=True)
class Sinusoidal:
    """Sines and cosines, added to the embedding times sqrt(hidden)."""

    table: ClassVar[bool] = True
    kind: Annotated[str, _kind("sinusoidal", "Sinusoids (Vaswani et al. 2017).")] = "sinusoidal"

    def __post_init__(self) -> None:
        check(self, "position.")


@dataclass(frozen=True, kw_only=True)
class Alibi:
    """A number for the distance and the head, taken off each score."""

    table: ClassVar[bool] = False
    kind: Annotated[str, _kind("alibi", "ALiBi (Press et al. 2022).")] = "alibi"

    def __post_init__(self) -> None:
        check(self, "position.")


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """A learned number for each bucket of distances and head, shared by the layers."""

    table: ClassVar[bool] = False
    kind: Annotated[str, _kind("t5", "T5's relative positions (Raffel et al. 2020).")] = "t5"
    buckets: Annotated[int, Setting("Buckets of distances.", ge=2)] = 32
    distance: Annotated[
        int, Setting("Distance in tokens from which on all share the last bucket.", ge=1)
    ] = 128

    def __post_init__(self) -> None:
        check(self, "position.")
        _refuse(
            self.distance <= self.buckets // 2,
            "position.buckets: give position.distance over half of them",
        )


@dataclass(frozen=True, kw_only=True)
class NoPositions:
    """Nothing but the causal mask says where a token stands."""

    table: ClassVar[bool] = False
    kind: Annotated[str, _kind("none", "No positions.")] = "none"

    def __post_init__(self) -> None:
        check(self, "position.")


Position = Rope | Learned | Sinusoidal | Alibi | Buckets | NoPositions
POSITIONS = ("rope", "learned", "sinusoidal", "alibi", "t5", "none")


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """Attention with as many key and value heads as query heads, or fewer."""

    kind: Annotated[str, _kind("grouped", "Grouped-query attention; MHA and MQA are its ends.")] = (
        "grouped"
    )
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
            "Which of its linear layers have a bias: none, qkv (Qwen2.5) or all.", choices=BIASES
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
        _refuse(
            self.heads % self.kv_heads != 0,
            f"attention.kv_heads is {self.kv_heads}: it must divide attention.heads ({self.heads})",
        )
        _refuse(
            not self.window_pattern or bool(set(self.window_pattern) - set("WF")),
            f"attention.window_pattern is {self.window_pattern!r}: a letter a layer, W (window) or "
            "F (full)",
        )
        _refuse(
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
        str, _kind("latent", "Latent attention, MLA (DeepSeek-V2, arXiv 2405.04434).")
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
        _refuse(
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


Attention = Grouped | Latent


@dataclass(frozen=True, kw_only=True)
class Dense:
    """A feed-forward that every token goes through."""

    kind: Annotated[str, _kind("dense", "One feed-forward.")] = "dense"
    width: Annotated[int, Setting("Dimensions between its layers; see gated_width.", ge=1)]
    activation: Annotated[
        str,
        Setting(
            "Plain relu, gelu, gelu_tanh, swish, relu2 (So et al. 2021), gated (Shazeer 2020) glu, "
            "geglu, geglu_tanh, reglu, swiglu.",
            choices=tuple(ACTIVATIONS),
        ),
    ] = "swiglu"
    bias: Annotated[bool, Setting("Whether its linear layers have a bias.")] = False

    def __post_init__(self) -> None:
        check(self, "feed_forward.")

    @property
    def gated(self) -> bool:
        return ACTIVATIONS[self.activation][1]


@dataclass(frozen=True, kw_only=True)
class Serial:
    """Attention, then the feed-forward, each added to the stream."""

    kind: Annotated[str, _kind("serial", "One part after the other.")] = "serial"

    def __post_init__(self) -> None:
        check(self, "residual.")


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Attention and feed-forward read the same stream, and their sum is added to it."""

    kind: Annotated[str, _kind("parallel", "Both parts at once (GPT-J, PaLM).")] = "parallel"
    norms: Annotated[int, Setting("Norms of a block: 1 (GPT-J), or 2 (GPT-NeoX).", ge=1, le=2)] = 1

    def __post_init__(self) -> None:
        check(self, "residual.")


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """The embedding of tokens."""

    norm: Annotated[bool, Setting("A norm after the embedding (BLOOM, BERT).")] = False
    size: Annotated[
        int | None,
        Setting(
            "Dimensions of the embedding where they are others than hidden: a matrix leads from "
            "one to the other (ALBERT).",
            ge=1,
        ),
    ] = None
    bias: Annotated[
        bool, Setting("Whether that matrix has a bias (ALBERT has, OPT-350m has not).")
    ] = True
    positions: Annotated[
        str,
        Setting(
            "Whether positions are added before that matrix (ALBERT) or after it (OPT-350m).",
            choices=("before", "after"),
        ),
    ] = "before"
    segments: Annotated[
        int, Setting("Learned vectors for the segments of a text, added (BERT: 2).", ge=0)
    ] = 0

    def __post_init__(self) -> None:
        check(self, "embedding.")


@dataclass(frozen=True, kw_only=True)
class Head:
    """The output head."""

    tied: Annotated[bool, Setting("Whether it is the embedding, transposed.")] = True
    bias: Annotated[bool, Setting("Whether it has a bias.")] = False
    transform: Annotated[
        bool,
        Setting(
            "A layer with an activation and a norm before it (BERT); it has a bias where the "
            "feed-forward has."
        ),
    ] = False
    pair: Annotated[
        str,
        Setting(
            "A second head, which reads the first token of a text and tells of its two segments "
            "whether one comes next (BERT), or which order they stand in (ALBERT).",
            choices=("none", "next", "order"),
        ),
    ] = "none"
    mtp: Annotated[
        int,
        Setting(
            "Modules that each predict a token further on than the next, in training (DeepSeek-V3, "
            "arXiv 2412.19437, section 2.2).",
            ge=0,
        ),
    ] = 0

    def __post_init__(self) -> None:
        check(self, "head.")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Blocks on a residual stream. The defaults are LLaMA's choices (Touvron et al. 2023)."""

    layers: Annotated[int, Setting("Number of blocks.", ge=1)]
    hidden: Annotated[int, Setting("Dimensions of the residual stream.", ge=1)]
    attention: Annotated[Attention, Setting("How tokens look at each other.")]
    feed_forward: Annotated[Dense, Setting("What is done to each token.")]
    norm: Annotated[Norm, Setting("The norms.")] = field(default_factory=Norm)
    causal: Annotated[
        bool, Setting("Whether a token sees those before it alone; in an encoder it sees all.")
    ] = True
    share: Annotated[
        int,
        Setting("Blocks in a row that have the same weights (ALBERT: as many as layers).", ge=1),
    ] = 1
    residual: Annotated[Serial | Parallel, Setting("How parts are joined to the stream.")] = field(
        default_factory=Serial
    )
    position: Annotated[Position, Setting("How a token's position is known.")] = field(
        default_factory=Rope
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
class ModelConfig(Stack):
    """A transformer of one stack: a decoder, or an encoder."""

    vocab: Annotated[int, Setting("Tokens of the vocabulary.", ge=1)]
    context: Annotated[
        int, Setting("Tokens of the longest row, in training and in generation.", ge=1)
    ] = 256
    mup_base: Annotated[
        int | None,
        Setting(
            "Hidden size at which the learning rate was found: first values, rates and the output "
            "then follow muP (Yang et al. 2022), so that it holds at other sizes of equal "
            "head_dim. Without a value they do not.",
            ge=1,
        ),
    ] = None
    embedding: Annotated[Embedding, Setting("The embedding.")] = field(default_factory=Embedding)
    head: Annotated[Head, Setting("The output head.")] = field(default_factory=Head)

    def __post_init__(self) -> None:
        check(self)
        _refuse(
            self.residual.kind == "parallel" and self.norm.place != "pre",
            f"residual parallel with norm.place {self.norm.place}: a parallel block has its norms "
            "before",
        )
        _refuse(
            self.layers % self.share != 0,
            f"share is {self.share}: it must divide layers ({self.layers})",
        )
        _refuse(
            self.causal and self.head.pair != "none",
            f"head.pair {self.head.pair} with causal true: a decoder has no such head",
        )
        for name, other in {
            "causal false": not self.causal,
            "mup_base": self.mup_base is not None,
            "embedding.size": self.embedding.size is not None,
        }.items():
            _refuse(
                self.head.mtp > 0 and other,
                f"head.mtp {self.head.mtp} with {name}: it follows a decoder without that",
            )
        if isinstance(self.attention, Latent):
            self._check_latent()
        if isinstance(self.position, Rope):
            self._check_rope(self.position)

    def _check_latent(self) -> None:
        position = self.position
        _refuse(
            not isinstance(position, Rope),
            f"attention latent with position {position.kind}: a part of each key is turned, it "
            "needs position rope",
        )
        _refuse(
            isinstance(position, Rope) and position.dim is not None,
            "position.dim with attention latent: attention.rotary_dim says how much is turned",
        )
        _refuse(
            self.mup_base is not None,
            "mup_base with attention latent: no rates are known for its compressed dimensions",
        )

    def _check_rope(self, rope: Rope) -> None:
        size, rotated = self.attention.head_dim, self.rotated
        _refuse(
            rope.dim is None and rotated % 2 != 0,
            f"attention.head_dim is {size}: position rope needs it even",
        )
        _refuse(
            not 2 <= rotated <= size or rotated % 2 != 0,
            f"position.dim is {rope.dim}: an even number up to attention.head_dim ({size})",
        )
        if rope.scaling is None:
            return
        if rope.scaling.kind == "longrope":
            for name in ("short", "long"):
                _refuse(
                    len(getattr(rope.scaling, name)) != rotated // 2,
                    f"position.scaling longrope: {name} needs {rotated // 2} numbers, one for each "
                    "rotated pair",
                )
        _refuse(
            rope.scaling.kind == "ntk" and rotated < 4,
            "position.scaling ntk needs position.dim over 2",
        )

    @property
    def trunk(self) -> ModelConfig:
        """Without what is there for training alone, the modules of ``head.mtp``."""
        return replace(self, head=replace(self.head, mtp=0))

    @property
    def wider(self) -> float:
        """How many times wider than muP's base; 1 without one."""
        return 1.0 if self.mup_base is None else self.hidden / self.mup_base

    @property
    def embedded(self) -> int:
        """Dimensions of an embedding."""
        return self.embedding.size or self.hidden

    @property
    def positioned(self) -> int:
        """Dimensions that positions are added to."""
        return self.hidden if self.embedding.positions == "after" else self.embedded

    @property
    def rotated(self) -> int:
        """Dimensions of a head that are turned; 0 without rotary positions."""
        if not isinstance(self.position, Rope):
            return 0
        if isinstance(self.attention, Latent):
            return self.attention.rotary_dim
        return self.attention.head_dim if self.position.dim is None else self.position.dim

    @property
    def windows(self) -> list[int | None]:
        """The window of each layer, or None where it sees everything."""
        return [self.attention.window_of(layer) for layer in range(self.layers)]


def gated_width(hidden: int, multiple: int = 256, ratio: float = 4.0) -> int:
    """The width of a gated feed-forward that costs what a plain one of ``ratio * hidden`` does: 2/3
    of it (Shazeer 2020), rounded up to a multiple as LLaMA does.
    """
    width = int(2 * ratio * hidden / 3)
    return -(-width // multiple) * multiple
