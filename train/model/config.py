"""The shape of a model: a stack of blocks with an embedding and a head. Choices combine freely, but
for those that ``check_together`` refuses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from llmcurate.base.settings import ByKind, dataclass, refuse
from train.model.attention_settings import Grouped, Latent, Sight
from train.model.feed_forward_settings import Dense, Experts
from train.model.plugin_settings import OwnAttention, OwnFeedForward, OwnPosition, OwnResidual
from train.model.position_settings import Position, Rope

TaskKind = Literal["classify", "token", "span"]
Before = Literal["nothing", "pool", "transform"]
SPAN = ("start", "end")  # what is said of each token


@dataclass(frozen=True, kw_only=True)
class Task:
    """A head that tells labels apart (Devlin et al. 2019, section 4)."""

    kind: TaskKind = Field(
        description="What has a label: the text (classify), each word (token), or the first and "
        "the last token of an answer (span)."
    )
    labels: tuple[str, ...] = Field(
        description="The labels by number; of a span they are start and end."
    )
    before: Before = Field(
        "nothing",
        description="What stands before its matrix: nothing; pool, a layer with tanh (BERT); or "
        "transform, that of the head that predicts tokens (ModernBERT).",
    )

    def __post_init__(self) -> None:
        refuse(
            len(set(self.labels)) != len(self.labels) or len(self.labels) < 2,
            "head.task.labels: two different ones at least, each once",
        )
        refuse(
            self.kind == "span" and self.labels != SPAN,
            f"head.task.labels with head.task.kind span: they are {' and '.join(SPAN)}",
        )


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """The embedding of tokens."""

    norm: bool = Field(False, description="A norm after the embedding (BLOOM, BERT).")
    size: int | None = Field(
        None,
        ge=1,
        description="Dimensions of the embedding where they are others than hidden: a matrix "
        "leads from one to the other (ALBERT).",
    )
    bias: bool = Field(
        True, description="Whether that matrix has a bias (ALBERT has, OPT-350m has not)."
    )
    positions: Literal["before", "after"] = Field(
        "before",
        description="Whether positions are added before that matrix (ALBERT) or after it "
        "(OPT-350m).",
    )
    segments: int = Field(
        0, ge=0, description="Learned vectors for the segments of a text, added (BERT: 2)."
    )


@dataclass(frozen=True, kw_only=True)
class Head:
    """The output head."""

    tied: bool = Field(True, description="Whether it is the embedding, transposed.")
    bias: bool = Field(False, description="Whether it has a bias.")
    transform: bool = Field(
        False,
        description="A layer with an activation and a norm before it (BERT); it has a bias where "
        "the feed-forward has.",
    )
    pair: Literal["none", "next", "order"] = Field(
        "none",
        description="A second head, which reads the first token of a text and tells of its two "
        "segments whether one comes next (BERT), or which order they stand in (ALBERT).",
    )
    task: Task | None = Field(
        None, description="A head for a task, in place of the one that predicts tokens."
    )
    replaced: bool = Field(
        False,
        description="Whether the model tells of each token if it was replaced, and predicts none "
        "(ELECTRA).",
    )
    boundary: bool = Field(
        False,
        description="A second head, in training, which predicts the tokens of a hidden span from "
        "the two beside it (SpanBERT).",
    )
    mtp: int = Field(
        0,
        ge=0,
        le=100,
        description="Modules that each predict a token further on than the next, in training "
        "(DeepSeek-V3, arXiv 2412.19437, section 2.2).",
    )


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


def check_together(config: ModelConfig) -> None:
    """Raises ``LlmcurateError`` where two choices cannot be together."""
    if config.encoder is not None:
        _check_encoder(config, config.encoder)
    refuse(
        isinstance(config.residual, Parallel) and config.norm.place != "pre",
        f"residual parallel with norm.place {config.norm.place}: a parallel block has its norms "
        "before",
    )
    if isinstance(config.residual, Serial):
        _check_serial(config, config.residual)
    refuse(
        config.layers % config.share != 0,
        f"share is {config.share}: it must divide layers ({config.layers})",
    )
    if isinstance(config.attention, Grouped):
        _check_grouped(config, config.attention)
    _check_heads(config)
    if config.generator is not None:
        _check_generator(config, config.generator)
    if isinstance(config.feed_forward, Experts):
        _check_experts(config, config.feed_forward)
    if isinstance(config.attention, Latent):
        _check_latent(config)
    if isinstance(config.position, Rope):
        _check_rope(config, config.position)
    refuse(
        config.position.in_attention and not isinstance(config.attention, Grouped),
        f"position {config.position.kind} with attention {config.attention.kind}: it is a part of "
        "grouped attention",
    )


def _check_grouped(config: ModelConfig, own: Grouped) -> None:
    for name, used in {
        "globals": own.globals,
        "random": own.random,
        "block": own.block > 1,
    }.items():
        refuse(
            config.causal and bool(used),
            f"attention.{name} with causal true: it is an encoder's; a decoder has windows, "
            "dilations and sinks",
        )
    refuse(
        own.segment is not None and config.form != "decoder",
        f"attention.segment with an {config.form}: what it remembers is a decoder's",
    )


def _check_heads(config: ModelConfig) -> None:
    refuse(
        config.head.task is not None
        and (
            config.head.pair != "none"
            or config.head.replaced
            or config.head.boundary
            or config.encoder is not None
        ),
        "head.task with head.pair, head.replaced, head.boundary or encoder: it follows one "
        "stack, alone",
    )
    refuse(
        config.causal and config.head.pair != "none",
        f"head.pair {config.head.pair} with causal true: a decoder has no such head",
    )
    for name, other in {
        "causal false": not config.causal,
        "mup_base": config.mup_base is not None,
        "embedding.size": config.embedding.size is not None,
        "head.task": config.head.task is not None,
    }.items():
        refuse(
            config.head.mtp > 0 and other,
            f"head.mtp {config.head.mtp} with {name}: it follows a decoder without that",
        )
    refuse(
        config.head.boundary and (config.causal or config.head.replaced),
        "head.boundary with causal true or head.replaced: it reads what an encoder predicts by",
    )
    refuse(
        config.head.replaced and (config.causal or config.head.pair != "none"),
        "head.replaced with causal true or head.pair: a discriminator is an encoder without it",
    )


def _check_generator(config: ModelConfig, own: Generator) -> None:
    refuse(not config.head.replaced, "generator without head.replaced: set that to true")
    for name, other in {
        "attention latent": isinstance(config.attention, Latent),
        "feed_forward experts": isinstance(config.feed_forward, Experts),
        "embedding.positions after": config.embedding.positions == "after",
        "head.tied false": not config.head.tied,
        "mup_base": config.mup_base is not None,
    }.items():
        refuse(other, f"generator with {name}: leave one of them out")
    for name, size in {
        "hidden": config.hidden,
        "attention.heads": config.attention.heads,
        "attention.kv_heads": config.attention.kv_heads,
        "feed_forward.width": config.feed_forward.width,
    }.items():
        refuse(
            size % own.smaller != 0,
            f"generator.smaller is {own.smaller}: it must divide {name} ({size})",
        )


def _check_encoder(config: ModelConfig, own: Encoder) -> None:
    for name, other in {
        "causal false": not config.causal,
        "attention latent": isinstance(config.attention, Latent),
        "feed_forward experts": isinstance(config.feed_forward, Experts),
        "residual parallel": isinstance(config.residual, Parallel),
        "mup_base": config.mup_base is not None,
        f"head.mtp {config.head.mtp}": config.head.mtp > 0,
    }.items():
        refuse(other, f"encoder with {name}: an encoder-decoder is built without that")
    refuse(
        own.shared and own.layers != config.layers,
        f"encoder.shared with encoder.layers {own.layers} and layers {config.layers}: give both "
        "as many",
    )
    refuse(
        own.layers % config.share != 0,
        f"share is {config.share}: it must divide encoder.layers ({own.layers}) too",
    )


def _check_serial(config: ModelConfig, own: Serial) -> None:
    refuse(
        own.sandwich > 0 and own.sandwich >= config.layers,
        f"residual.sandwich is {own.sandwich}: give less than layers ({config.layers})",
    )
    deep, place = isinstance(own, DeepNorm), config.norm.place
    refuse(
        deep and place != "post",
        f"residual deepnorm with norm.place {place}: its norms come after the sum, give post",
    )
    refuse(
        deep and config.encoder is not None and config.encoder.shared,
        "residual deepnorm with encoder.shared: encoder and decoder have numbers of their own",
    )


def _check_experts(config: ModelConfig, own: Experts) -> None:
    last = config.layers // own.every * own.every - 1  # that may have experts
    refuse(
        last < own.first_dense,
        f"feed_forward.first_dense {own.first_dense} and every {own.every} leave no layer of "
        f"{config.layers} with experts",
    )
    refuse(
        config.share > 1 and (own.first_dense > 0 or own.every > 1),
        f"share {config.share} with feed_forward.first_dense or every: shared blocks are alike",
    )
    refuse(
        own.routing == "expert_choice" and config.causal,
        "feed_forward.routing expert_choice with causal true: experts would choose by tokens "
        "that come later",
    )


def _check_latent(config: ModelConfig) -> None:
    position = config.position
    refuse(
        not isinstance(position, Rope),
        f"attention latent with position {position.kind}: a part of each key is turned, it "
        "needs position rope",
    )
    refuse(
        isinstance(position, Rope) and position.dim is not None,
        "position.dim with attention latent: attention.rotary_dim says how much is turned",
    )
    refuse(
        isinstance(config.residual, DeepNorm),
        "residual deepnorm with attention latent: its first values are not known there",
    )
    refuse(
        config.mup_base is not None,
        "mup_base with attention latent: no rates are known for its compressed dimensions",
    )


def _check_rope(config: ModelConfig, rope: Rope) -> None:
    size, rotated = config.attention.head_dim, config.rotated
    refuse(
        rope.dim is None and rotated % 2 != 0,
        f"attention.head_dim is {size}: position rope needs it even",
    )
    refuse(
        not 2 <= rotated <= size or rotated % 2 != 0,
        f"position.dim is {rope.dim}: an even number up to attention.head_dim ({size})",
    )
    if rope.scaling is None:
        return
    refuse(
        rope.scaling.all_dims > 0
        and (rope.scaling.kind != "yarn" or not isinstance(config.attention, Latent)),
        "position.scaling.all_dims: it is of yarn with attention latent alone",
    )
    if rope.scaling.kind == "longrope":
        for name in ("short", "long"):
            refuse(
                len(getattr(rope.scaling, name)) != rotated // 2,
                f"position.scaling longrope: {name} needs {rotated // 2} numbers, one for each "
                "rotated pair",
            )
    refuse(
        rope.scaling.kind == "ntk" and rotated < 4,
        "position.scaling ntk needs position.dim over 2",
    )


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Stack):
    """A transformer: a decoder, or an encoder, or a decoder with an encoder."""

    vocab: int = Field(ge=1, description="Tokens of the vocabulary.")
    context: int = Field(
        256, ge=1, description="Tokens of the longest row, in training and in generation."
    )
    mup_base: int | None = Field(
        None,
        ge=1,
        description="Hidden size at which the learning rate was found: first values, rates and "
        "the output then follow muP (Yang et al. 2022), so that it holds at other sizes of equal "
        "head_dim. Without a value they do not.",
    )
    embedding: Embedding = Field(default_factory=Embedding, description="The embedding.")
    head: Head = Field(default_factory=Head, description="The output head.")
    encoder: Encoder | None = Field(
        None, description="The encoder of an encoder-decoder. Without a value there is none."
    )
    generator: Generator | None = Field(
        None, description="What replaces tokens in training, where head.replaced is true."
    )

    def __post_init__(self) -> None:
        check_together(self)

    @property
    def trunk(self) -> ModelConfig:
        """Without what is there for training alone: the modules of ``head.mtp``, ``head.boundary``
        and a generator.
        """
        return replace(self, head=replace(self.head, mtp=0, boundary=False), generator=None)

    @property
    def generating(self) -> ModelConfig | None:
        """The generator as a model of its own."""
        if self.generator is None:
            return None
        by, own = self.generator.smaller, self.attention
        assert isinstance(own, Grouped)
        hidden = self.hidden // by
        return replace(
            self,
            hidden=hidden,
            attention=replace(own, heads=own.heads // by, kv_heads=own.kv_heads // by),
            feed_forward=replace(self.feed_forward, width=self.feed_forward.width // by),
            embedding=replace(
                self.embedding, size=self.embedded if self.embedded != hidden else None
            ),
            head=replace(self.head, replaced=False),
            generator=None,
        )

    @property
    def form(self) -> str:
        """``decoder``, ``encoder`` or ``encoder-decoder``."""
        if self.encoder is not None:
            return "encoder-decoder"
        return "decoder" if self.causal else "encoder"

    @property
    def writes(self) -> bool:
        """Whether it predicts tokens from those before them."""
        return self.causal and self.head.task is None

    @property
    def fills(self) -> bool:
        """Whether it predicts hidden tokens from all others."""
        tokens = not self.head.replaced or self.generator is not None
        return self.form == "encoder" and self.head.task is None and tokens

    @property
    def described(self) -> str:
        """What it is, where it is no model of text, in a message."""
        return f"an {self.form}" if self.head.task is None else "a model with a head for a task"

    @property
    def head_shape(self) -> tuple[int, int]:
        """Of the head's matrix: what it gives, nothing where there is none, and what it reads."""
        if self.head.task is not None:
            return len(self.head.task.labels), self.hidden
        there = not self.head.replaced or self.generator is not None
        return self.vocab * there, self.embedded if self.head.tied else self.hidden

    @property
    def reader(self) -> ModelConfig:
        """The encoder of an encoder-decoder, as a model of its own."""
        assert self.encoder is not None
        layers, residual = self.encoder.layers, self.residual
        if isinstance(residual, DeepNorm):
            residual = residual.of_encoder(layers, self.layers)
        return replace(self, layers=layers, causal=False, encoder=None, residual=residual)

    @property
    def shrink(self) -> float:
        """What the first values of matrices that write to the stream are multiplied by: 1 / sqrt of
        their number, two a layer, with cross-attention three (Radford et al. 2019); with DeepNorm
        its own number.
        """
        if self.deep is not None:
            return self.deep[1]
        return float(((2 if self.encoder is None else 3) * self.layers) ** -0.5)

    @property
    def gain(self) -> float:
        """What the first values of values and of a feed-forward's first matrices are multiplied by:
        1, or DeepNorm's number.
        """
        return 1.0 if self.deep is None else self.deep[1]

    @property
    def deep(self) -> tuple[float, float] | None:
        """The two numbers of DeepNorm; None without it."""
        if not isinstance(self.residual, DeepNorm):
            return None
        return self.residual.scales(self.layers, read=self.encoder is not None)

    @property
    def steps(self) -> list[tuple[int, Parts]]:
        """The order in which layers run, or parts of them."""
        if isinstance(self.residual, Serial):
            return self.residual.steps(self.layers)
        return [(layer, ()) for layer in range(self.layers)]

    @property
    def wider(self) -> float:
        """How many times wider than muP's base; 1 without one."""
        return 1.0 if self.mup_base is None else self.hidden / self.mup_base

    @property
    def sparse(self) -> list[int]:
        """The layers that have experts."""
        own = self.feed_forward
        if not isinstance(own, Experts):
            return []
        return [layer for layer in range(self.layers) if own.at(layer)]

    @property
    def random(self) -> bool:
        """Whether training draws numbers."""
        own = self.feed_forward
        return self.dropout > 0 or (isinstance(own, Experts) and own.random)

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
    def sights(self) -> list[Sight]:
        """How far each layer sees."""
        return [self.attention.sight(layer) for layer in range(self.layers)]

    @property
    def windows(self) -> list[int | None]:
        """The window of each layer, or None where it sees everything."""
        return [sight.window for sight in self.sights]
