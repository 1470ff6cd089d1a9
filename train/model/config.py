"""The shape of a model. ``problems`` names the few choices that cannot be combined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from llmcurate.base.errors import UsageError
from llmcurate.base.settings import ByKind, dataclass, refuse_any
from train.model.attention_settings import AttentionPattern, Grouped, Latent
from train.model.feed_forward_settings import Dense, Experts
from train.model.plugin_settings import OwnAttention, OwnFeedForward, OwnPosition, OwnResidual
from train.model.position_settings import Position, Rope

TaskKind = Literal["classify", "token", "span", "choice"]
Answers = Literal["label", "labels", "number"]
Before = Literal["nothing", "pool", "gelu", "transform", "mean"]
SPAN = ("start", "end")
FIXED: dict[str, tuple[str, ...]] = {"span": SPAN, "choice": ("right",)}  # labels by kind


@dataclass(frozen=True, kw_only=True)
class Task:
    """A head that predicts labels instead of tokens (Devlin et al. 2019, section 4)."""

    kind: TaskKind
    """Unit that gets a label: the text (classify), each word (token), the first and the last token
    of an answer (span), or one of several texts (choice)."""
    labels: tuple[str, ...]
    """The labels, in the order of their numbers; for span start and end, for choice right."""
    before: Before = "nothing"
    """Layer before the head's matrix: nothing; pool, with tanh (BERT); gelu, with GELU (ELECTRA,
    DeBERTa); transform, the layer of the head that predicts tokens (ModernBERT); or mean, the mean
    over the text's tokens and then transform's layer."""

    answers: Answers = "label"
    """Answer for a text: one label (a softmax), any of the labels (a sigmoid each), or a number for
    each label (regression). Training knows only label; the others come from imported models."""

    def __post_init__(self) -> None:
        least = 2 if self.answers == "label" and self.kind != "choice" else 1
        kind, fixed = f"head.task.kind {self.kind}", FIXED.get(self.kind, self.labels)
        if len(set(self.labels)) != len(self.labels) or len(self.labels) < least:
            raise UsageError("head.task.labels: give two or more labels, each once")
        if self.answers != "label" and self.kind != "classify":
            raise UsageError(f"head.task.answers {self.answers} with {kind}: only classify has it")
        if self.labels != fixed:
            raise UsageError(f"head.task.labels with {kind}: give {' and '.join(fixed)}")


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """The settings of the embedding of tokens."""

    norm: bool = False
    """Apply a norm after the embedding (BLOOM, BERT)."""
    std: float | None = Field(None, gt=0)
    """Standard deviation of the initial numbers. Without a value 0.4 / sqrt(size)."""
    size: int | None = Field(None, ge=1)
    """Dimensions of the embedding, if other than hidden: a matrix maps it to the hidden size
    (ALBERT)."""
    bias: bool = True
    """Give that matrix a bias (ALBERT: true, OPT-350m: false)."""
    positions: Literal["before", "after"] = "before"
    """Add positions before that matrix (ALBERT) or after it (OPT-350m)."""
    segments: int = Field(0, ge=0)
    """Number of learned vectors for the segments of a text (BERT: 2)."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """The settings of the output head."""

    tied: bool = True
    """Use the transposed embedding as the head's matrix."""
    bias: bool = False
    """Give the head a bias."""
    transform: bool = False
    """Put a layer with an activation and a norm before the head (BERT). It has a bias if the
    feed-forward has one."""
    pair: Literal["none", "next", "order"] = "none"
    """A second head, which reads the first token of a text and predicts if its second segment
    follows the first (next, BERT), or their order (order, ALBERT)."""
    task: Task | None = None
    """A head for a task, instead of the one that predicts tokens."""
    replaced: bool = False
    """Predict for each token if it was replaced, instead of predicting tokens (ELECTRA)."""
    boundary: bool = False
    """A second head for training, which predicts the tokens of a hidden span from the two tokens
    next to the span (SpanBERT)."""
    mtp: int = Field(0, ge=0, le=100)
    """Number of modules for training that predict tokens after the next one, one token further each
    (DeepSeek-V3, arXiv 2412.19437, section 2.2)."""
    softcap: float | None = Field(None, gt=0)
    """Cap c on the logits, which become c x tanh(logit / c) (Gemma 2: 30). Without a value logits
    are not capped."""


# Attention includes cross-attention in an encoder-decoder.
ATTENDS, FEEDS = ("attention", "cross"), ("feed_forward",)
Parts = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Serial:
    """A block that runs attention, then the feed-forward, and adds each to the residual stream."""

    kind: Literal["serial"] = "serial"
    sandwich: int = Field(0, ge=0)
    """Sandwich coefficient k: the attention of the first k layers runs before any feed-forward, and
    k feed-forwards run last (Press et al. 2020)."""

    def steps(self, layers: int) -> list[tuple[int, Parts]]:
        """Return the order in which parts run, as pairs (layer, names of its parts)."""
        if not self.sandwich:
            return [(layer, ATTENDS + FEEDS) for layer in range(layers)]
        steps: list[tuple[int, Parts]] = [(layer, ATTENDS) for layer in range(self.sandwich)]
        for layer in range(self.sandwich, layers):
            steps += [(layer, ATTENDS), (layer - self.sandwich, FEEDS)]
        return steps + [(layer, FEEDS) for layer in range(layers - self.sandwich, layers)]


@dataclass(frozen=True, kw_only=True)
class ReZero(Serial):
    """A serial block that adds each part's output times a learned number, which starts at 0."""

    kind: Literal["rezero"] = "rezero"  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class DeepNorm(Serial):
    """A serial block that scales the stream by ``alpha`` and initial weights by ``beta``."""

    kind: Literal["deepnorm"] = "deepnorm"  # type: ignore[assignment]
    alpha: float | None = Field(None, gt=0)
    """Weight of the stream. Without a value the paper's."""
    beta: float | None = Field(None, gt=0)
    """Factor on the initial weights of values, attention outputs and feed-forwards. Without a value
    the paper's."""

    def scales(self, layers: int, *, read: bool = False) -> tuple[float, float]:
        """Return alpha, the weight of the stream, and beta, the factor on initial weights. A
        missing setting has the paper's value for ``layers`` layers (Wang et al. 2022, figure 2).
        ``read``: True for a decoder that reads an encoder."""
        n, most = (2, 8) if not read else (3, 12)
        alpha, beta = (n * layers) ** 0.25, (most * layers) ** -0.25
        return self.alpha or alpha, self.beta or beta

    def of_encoder(self, layers: int, decoder: int) -> DeepNorm:
        """Return DeepNorm for an encoder with ``layers`` and a decoder with ``decoder`` layers."""
        ratio = (layers**4 * decoder) ** (1 / 16)
        alpha, beta = 0.81 * ratio, 0.87 / ratio
        return DeepNorm(sandwich=self.sandwich, alpha=self.alpha or alpha, beta=self.beta or beta)


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """A block whose parts both read the stream; the sum of their outputs is added to the stream."""

    kind: Literal["parallel"] = "parallel"
    norms: int = Field(1, ge=1, le=2)
    """Norms of a block: 1 (GPT-J), or 2 (GPT-NeoX)."""


Residual = Annotated[Serial | ReZero | DeepNorm | Parallel | OwnResidual, ByKind()]


Attention = Annotated[Grouped | Latent | OwnAttention, ByKind()]
FeedForward = Annotated[Dense | Experts | OwnFeedForward, ByKind()]


@dataclass(frozen=True, kw_only=True)
class Norm:
    """The settings of a stack's norms."""

    kind: Literal["rms", "layer", "layer_no_bias", "layer_plain"] = "rms"
    """The norm: rms (Zhang and Sennrich 2019), layer (Ba et al. 2016), layer_no_bias (PaLM) or
    layer_plain, without weights (OLMo)."""
    place: Literal["pre", "post", "out", "sandwich", "none"] = "pre"
    """Place of the norms: pre; post, the original LN(x + f(x)) without a norm at the end; out, of
    each part's output alone (OLMo 2); sandwich, before and after each part (Ding et al. 2021);
    none, without norms in the stack (ReZero)."""
    eps: float = Field(1e-5, gt=0)
    """Number added to the variance, so that it is never 0."""
    first: bool = True
    """Put a norm before the attention of the first block (ModernBERT: false, it has a norm after
    the embedding instead)."""

    def __post_init__(self) -> None:
        if not self.first and self.place != "pre":
            line = f"norm.first false with norm.place {self.place}: set norm.place=pre"
            raise UsageError(line)


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The settings of blocks on a residual stream, by default LLaMA's (Touvron et al. 2023)."""

    layers: int = Field(ge=1, le=10_000)
    """Number of blocks."""
    hidden: int = Field(ge=1)
    """Dimensions of the residual stream."""
    attention: Attention
    """The attention."""
    feed_forward: FeedForward
    """The feed-forward."""
    norm: Norm = Field(default_factory=Norm)
    """The norms."""
    causal: bool = True
    """Let a token see only itself and those before it; false for an encoder, whose tokens see
    all."""
    share: int = Field(1, ge=1)
    """Number of consecutive blocks that share weights (ALBERT: as many as layers)."""
    residual: Residual = Field(default_factory=Serial)
    """The way parts are added to the residual stream."""
    position: Annotated[Position | OwnPosition, ByKind()] = Field(default_factory=Rope)
    """The encoding of positions."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the embeddings, and of what each part adds to the residual stream, that is dropped
    in training."""


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """The settings of a second stack, which reads a source in both directions. The decoder's blocks
    see its output (Vaswani et al. 2017). All other settings are those of the decoder.
    """

    layers: int = Field(ge=1, le=10_000)
    """Number of the encoder's blocks."""
    shared: bool = False
    """Share the weights of its blocks with the decoder, except cross-attention (Raffel et al. 2020,
    section 3.2)."""
    start: int | None = Field(None, ge=0)
    """Id of the token that decoding starts with. Without a value the end of text, as in training
    here and in BART; T5 was trained with its padding, 0."""

    learns: Literal["spans", "bart"] = "spans"
    """Objective that `auto` chooses: spans (T5's) or bart (BART's)."""


@dataclass(frozen=True, kw_only=True)
class Generator:
    """A smaller model that predicts masked tokens. Its predictions replace tokens of the text that
    a discriminator reads. Both share the embedding and are trained together (ELECTRA, Clark et al.
    2020)."""

    smaller: int = Field(4, ge=1)
    """Factor by which heads, hidden and feed-forward dimensions are fewer than the discriminator's
    (section 3.2 of the paper: 2 to 4)."""


def problems(config: ModelConfig) -> Iterator[str]:
    """Yield a line for each pair of settings that cannot be combined."""
    position, residual, place = config.position, config.residual, config.norm.place
    if config.encoder is not None:
        yield from _of_encoder(config, config.encoder)
    if isinstance(residual, Parallel) and place != "pre":
        yield f"residual parallel with norm.place {place}: set norm.place=pre"
    if isinstance(residual, Serial) and 0 < residual.sandwich >= config.layers:
        yield f"residual.sandwich is {residual.sandwich}: give less than layers ({config.layers})"
    if isinstance(residual, DeepNorm):
        if place != "post":
            yield f"residual deepnorm with norm.place {place}: set norm.place=post"
        if config.encoder is not None and config.encoder.shared:
            yield (
                "residual deepnorm with encoder.shared: encoder and decoder need different alpha"
                " and beta"
            )
    if config.layers % config.share:
        yield f"share is {config.share}: it must divide layers ({config.layers})"
    if isinstance(config.attention, Grouped):
        yield from _of_grouped(config, config.attention)
    yield from _of_heads(config, config.head)
    if config.generator is not None:
        yield from _of_generator(config, config.generator)
    if isinstance(config.feed_forward, Experts):
        yield from _of_experts(config, config.feed_forward)
    if isinstance(config.attention, Latent):
        yield from _of_latent(config)
    if isinstance(position, Rope):
        yield from _of_rope(config, position)
    if position.in_attention and not isinstance(config.attention, Grouped):
        yield (
            f"position {position.kind} with attention {config.attention.kind}: it needs "
            "attention grouped"
        )


def _named(config: ModelConfig, *names: str) -> Iterator[str]:
    """Yield those of the ``names`` that are true of the model."""
    true = {
        "causal false": not config.causal,
        "attention latent": isinstance(config.attention, Latent),
        "feed_forward experts": isinstance(config.feed_forward, Experts),
        "residual parallel": isinstance(config.residual, Parallel),
        "embedding.positions after": config.embedding.positions == "after",
        "embedding.size": config.embedding.size is not None,
        "head.tied false": not config.head.tied,
        "head.task": config.head.task is not None,
        f"head.mtp {config.head.mtp}": config.head.mtp > 0,
        "mup_base": config.mup_base is not None,
    }
    return (name for name in names if true[name])


def _of_grouped(config: ModelConfig, own: Grouped) -> Iterator[str]:
    for name, used in (("globals", own.globals), ("random", own.random), ("block", own.block > 1)):
        if config.causal and used:
            yield (
                f"attention.{name} with causal true: only an encoder has it; a decoder has windows,"
                " dilations and sinks"
            )
    if own.segment is not None and config.form != "decoder":
        yield f"attention.segment with an {config.form}: only a decoder has segments"


def _of_heads(config: ModelConfig, own: Head) -> Iterator[str]:
    pair = own.pair != "none"
    if own.task is not None and (pair or own.replaced or own.boundary or config.encoder):
        yield (
            "head.task with head.pair, head.replaced, head.boundary or encoder: leave the others"
            " out"
        )
    if config.causal and own.task is not None and own.task.kind == "choice":
        yield "head.task choice with causal true: only an encoder chooses among texts"
    if config.causal and pair:
        yield f"head.pair {own.pair} with causal true: only an encoder has this head"
    others = ("causal false", "mup_base", "embedding.size", "head.task")
    for name in _named(config, *others) if own.mtp else ():
        yield f"head.mtp {own.mtp} with {name}: leave one of them out"
    if own.boundary and (config.causal or own.replaced):
        yield (
            "head.boundary with causal true or head.replaced: only an encoder that predicts tokens "
            "has it"
        )
    if own.replaced and (config.causal or pair):
        yield "head.replaced with causal true or head.pair: set both off"


def _of_generator(config: ModelConfig, own: Generator) -> Iterator[str]:
    if not config.head.replaced:
        yield "generator without head.replaced: set that to true"
    others = ("attention latent", "feed_forward experts", "embedding.positions after")
    for name in _named(config, *others, "head.tied false", "mup_base"):
        yield f"generator with {name}: leave one of them out"
    for name, size in (
        ("hidden", config.hidden),
        ("attention.heads", config.attention.heads),
        ("attention.kv_heads", config.attention.kv_heads),
        ("feed_forward.width", config.feed_forward.width),
    ):
        if size % own.smaller:
            yield f"generator.smaller is {own.smaller}: it must divide {name} ({size})"


def _of_encoder(config: ModelConfig, own: Encoder) -> Iterator[str]:
    others = ("causal false", "attention latent", "feed_forward experts", "residual parallel")
    for name in _named(config, *others, "mup_base", f"head.mtp {config.head.mtp}"):
        yield f"encoder with {name}: leave one of them out"
    if own.shared and own.layers != config.layers:
        yield (
            f"encoder.shared with encoder.layers {own.layers} and layers {config.layers}: set them "
            "equal"
        )
    if own.layers % config.share:
        yield f"share is {config.share}: it must divide encoder.layers ({own.layers}) too"


def _of_experts(config: ModelConfig, own: Experts) -> Iterator[str]:
    last = config.layers // own.every * own.every - 1  # the last layer that may have experts
    if last < own.first_dense:
        yield (
            f"feed_forward.first_dense {own.first_dense} and every {own.every} leave no layer of "
            f"{config.layers} with experts"
        )
    if config.share > 1 and (own.first_dense > 0 or own.every > 1):
        yield (
            f"share {config.share} with feed_forward.first_dense or every: blocks that share"
            " weights must all have experts"
        )
    if own.routing == "expert_choice" and config.causal:
        yield (
            "feed_forward.routing expert_choice with causal true: experts would choose tokens by "
            "later ones"
        )


def _of_latent(config: ModelConfig) -> Iterator[str]:
    position = config.position
    if not isinstance(position, Rope):
        yield f"attention latent with position {position.kind}: set position=rope"
    if config.unrotated:
        yield "position.pattern with attention latent: leave it out, each layer must be rotated"
    if isinstance(position, Rope) and position.dim is not None:
        yield "position.dim with attention latent: set attention.rotary_dim instead"
    if isinstance(config.residual, DeepNorm):
        yield "residual deepnorm with attention latent: no initial weights are known for it"
    if config.mup_base is not None:
        yield "mup_base with attention latent: no rates are known for its compressed dimensions"


def _of_rope(config: ModelConfig, rope: Rope) -> Iterator[str]:
    size, rotated = config.attention.head_dim, config.rotated
    if rope.dim is None and rotated % 2:
        yield f"attention.head_dim is {size}: position rope needs an even number"
    if not 2 <= rotated <= size or rotated % 2:
        yield f"position.dim is {rope.dim}: give an even number up to attention.head_dim ({size})"
    if rope.scaling is None:
        return
    if rope.scaling.all_dims > 0 and (
        rope.scaling.kind != "yarn" or not isinstance(config.attention, Latent)
    ):
        yield "position.scaling.all_dims: only yarn with attention latent has it"
    if rope.scaling.kind == "longrope":
        for name in ("short", "long"):
            if len(getattr(rope.scaling, name)) != rotated // 2:
                yield (
                    f"position.scaling longrope: {name} needs {rotated // 2} numbers, one "
                    "per rotated pair"
                )
    if rope.scaling.kind == "ntk" and rotated < 4:
        yield "position.scaling ntk needs position.dim over 2"


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Stack):
    """A transformer: a decoder, an encoder, or an encoder-decoder."""

    vocab: int = Field(ge=1)
    """Tokens of the vocabulary."""
    context: int = Field(256, ge=1)
    """Tokens of the longest row, in training and in generation."""
    mup_base: int | None = Field(None, ge=1)
    """Hidden size at which the learning rate was found. Initial weights, rates and the output then
    follow muP (Yang et al. 2022), so that the rate also fits other sizes with the same head_dim.
    Without a value muP is off."""
    zero_projections: bool = False
    """Start with zeros in the matrices that write to the residual stream, so that each block starts
    as the identity (Zhang et al. 2019, Fixup), and in a head that is not tied."""
    embedding: Embedding = Field(default_factory=Embedding)
    """The embedding."""
    head: Head = Field(default_factory=Head)
    """The output head."""
    encoder: Encoder | None = None
    """The encoder of an encoder-decoder. Without a value the model has no encoder."""
    generator: Generator | None = None
    """The model that replaces tokens in training, needed with head.replaced."""

    def __post_init__(self) -> None:
        refuse_any(problems(self))

    @property
    def trunk(self) -> ModelConfig:
        """The model without the parts that only training uses: the modules for later tokens (mtp),
        the head for hidden spans (boundary) and the generator."""
        return replace(self, head=replace(self.head, mtp=0, boundary=False), generator=None)

    @property
    def generator_config(self) -> ModelConfig | None:
        """The configuration of the generator, which replaces tokens in training, or None."""
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
                self.embedding, size=self.embedding_dim if self.embedding_dim != hidden else None
            ),
            head=replace(self.head, replaced=False),
            generator=None,
        )

    @property
    def form(self) -> str:
        """The form of the model: ``decoder``, ``encoder`` or ``encoder-decoder``."""
        if self.encoder is not None:
            return "encoder-decoder"
        return "decoder" if self.causal else "encoder"

    @property
    def writes(self) -> bool:
        """True if the model predicts each token from the tokens before."""
        return self.causal and self.head.task is None

    @property
    def fills(self) -> bool:
        """True if the model predicts hidden tokens from all others."""
        tokens = not self.head.replaced or self.generator is not None
        return self.form == "encoder" and self.head.task is None and tokens

    @property
    def described(self) -> str:
        """The kind of the model in words, for error messages about models that write no text."""
        return f"an {self.form}" if self.head.task is None else "a model with a head for a task"

    @property
    def head_shape(self) -> tuple[int, int]:
        """The numbers of outputs and inputs of the head. Outputs are labels or the vocabulary;
        there are 0 if the model only detects replaced tokens and has no generator."""
        if self.head.task is not None:
            return len(self.head.task.labels), self.hidden
        predicts = not self.head.replaced or self.generator is not None
        return self.vocab * predicts, self.embedding_dim if self.head.tied else self.hidden

    @property
    def encoder_config(self) -> ModelConfig:
        """The encoder of an encoder-decoder as a separate model."""
        assert self.encoder is not None
        layers, residual = self.encoder.layers, self.residual
        if isinstance(residual, DeepNorm):
            residual = residual.of_encoder(layers, self.layers)
        return replace(self, layers=layers, causal=False, encoder=None, residual=residual)

    @property
    def residual_scale(self) -> float:
        """Factor on the initial weights of matrices that write to the residual stream. For n such
        matrices it is 1 / sqrt(n) (Radford et al. 2019). Each layer has two of them, or three with
        cross-attention. With DeepNorm the factor is beta, with ``zero_projections`` 0."""
        if self.zero_projections:
            return 0.0
        if self.deepnorm_scales is not None:
            return self.deepnorm_scales[1]
        return float(((2 if self.encoder is None else 3) * self.layers) ** -0.5)

    @property
    def inner_scale(self) -> float:
        """Factor on the initial weights of attention's value matrix and the first feed-forward
        matrices: 1, or DeepNorm's beta."""
        return 1.0 if self.deepnorm_scales is None else self.deepnorm_scales[1]

    @property
    def deepnorm_scales(self) -> tuple[float, float] | None:
        if not isinstance(self.residual, DeepNorm):
            return None
        return self.residual.scales(self.layers, read=self.encoder is not None)

    @property
    def steps(self) -> list[tuple[int, Parts]]:
        """The order in which layers run, as pairs (layer, names of the parts that run)."""
        if isinstance(self.residual, Serial):
            return self.residual.steps(self.layers)
        return [(layer, ()) for layer in range(self.layers)]

    @property
    def width_ratio(self) -> float:
        """The hidden size divided by ``mup_base``; 1 without muP."""
        return 1.0 if self.mup_base is None else self.hidden / self.mup_base

    @property
    def sparse(self) -> list[int]:
        """The numbers of the layers that have experts."""
        own = self.feed_forward
        if not isinstance(own, Experts):
            return []
        return [layer for layer in range(self.layers) if own.at(layer)]

    @property
    def random(self) -> bool:
        """True if training draws random numbers."""
        own = self.feed_forward
        return self.dropout > 0 or (isinstance(own, Experts) and own.random)

    @property
    def embedding_dim(self) -> int:
        return self.embedding.size or self.hidden

    @property
    def position_dim(self) -> int:
        """The number of dimensions of the vectors that positions are added to."""
        return self.hidden if self.embedding.positions == "after" else self.embedding_dim

    @property
    def rotated(self) -> int:
        """The number of rotated dimensions of a head; 0 without rotary positions."""
        if not isinstance(self.position, Rope):
            return 0
        if isinstance(self.attention, Latent):
            return self.attention.rotary_dim
        return self.attention.head_dim if self.position.dim is None else self.position.dim

    @property
    def unrotated(self) -> list[int]:
        """The numbers of the layers whose queries and keys are not rotated."""
        marks = self.position.pattern if isinstance(self.position, Rope) else "N"
        return [layer for layer in range(self.layers) if marks[layer % len(marks)] == "N"]

    @property
    def patterns(self) -> list[AttentionPattern]:
        return [self.attention.pattern(layer) for layer in range(self.layers)]

    @property
    def windows(self) -> list[int | None]:
        """The window of each layer; None for a layer without a window."""
        return [pattern.window for pattern in self.patterns]
