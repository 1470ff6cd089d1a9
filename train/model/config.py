"""The shape of a model: the choices of the transformer family, but for positions.

A model is a stack of blocks with an embedding and a head. What combines is allowed; what does not
is refused in one line that names both choices.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from train.model.attention_settings import Grouped, Latent, Sight
from train.model.feed_forward_settings import Dense, Experts
from train.model.plugin_settings import OwnAttention, OwnFeedForward, OwnPosition
from train.model.position_settings import (
    Clipped,
    Disentangled,
    Position,
    Rope,
)
from train.model.residual_settings import (
    DeepNorm,
    Parallel,
    Parts,
    Residual,
    Serial,
)
from train.model.task_settings import Task
from train.settings import Setting, check, refuse

NORMS = ("rms", "layer", "layer_no_bias", "layer_plain")
PLACES = ("pre", "post", "sandwich", "none")


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
            "sandwich, before and after each part (Ding et al. 2021); none in the stack (ReZero).",
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
        refuse(
            not self.first and self.place != "pre",
            f"norm.first false with norm.place {self.place}: only a norm before can be left out",
        )


Attention = Grouped | Latent | OwnAttention
FeedForward = Dense | Experts | OwnFeedForward


AnyPosition = Position | OwnPosition


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
    task: Annotated[
        Task | None, Setting("A head for a task, in place of the one that predicts tokens.")
    ] = None
    replaced: Annotated[
        bool,
        Setting(
            "Whether the model tells of each token if it was replaced, and predicts none (ELECTRA)."
        ),
    ] = False
    boundary: Annotated[
        bool,
        Setting(
            "A second head, in training, which predicts the tokens of a hidden span from the two "
            "beside it (SpanBERT)."
        ),
    ] = False
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
class Generator:
    """A smaller masked model on the same embedding, trained beside a discriminator, whose tokens
    it replaces (ELECTRA, Clark et al. 2020).
    """

    smaller: Annotated[
        int,
        Setting(
            "How many times fewer heads, and hidden and feed-forward dimensions, it has than the "
            "discriminator (section 3.2 of the paper: 2 to 4).",
            ge=1,
        ),
    ] = 4

    def __post_init__(self) -> None:
        check(self, "generator.")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Blocks on a residual stream. The defaults are LLaMA's choices (Touvron et al. 2023)."""

    layers: Annotated[int, Setting("Number of blocks.", ge=1)]
    hidden: Annotated[int, Setting("Dimensions of the residual stream.", ge=1)]
    attention: Annotated[Attention, Setting("How tokens look at each other.")]
    feed_forward: Annotated[FeedForward, Setting("What is done to each token.")]
    norm: Annotated[Norm, Setting("The norms.")] = field(default_factory=Norm)
    causal: Annotated[
        bool, Setting("Whether a token sees those before it alone; in an encoder it sees all.")
    ] = True
    share: Annotated[
        int,
        Setting("Blocks in a row that have the same weights (ALBERT: as many as layers).", ge=1),
    ] = 1
    residual: Annotated[Residual, Setting("How parts are joined to the stream.")] = field(
        default_factory=Serial
    )
    position: Annotated[Position | OwnPosition, Setting("How a token's position is known.")] = (
        field(default_factory=Rope)
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
class Encoder:
    """A second stack, which reads a source both ways; all else is as in the decoder, whose blocks
    look at what it makes of it (Vaswani et al. 2017).
    """

    layers: Annotated[int, Setting("Number of its blocks.", ge=1)]
    shared: Annotated[
        bool,
        Setting(
            "Whether its blocks have the same weights as the decoder's, but for cross-attention "
            "(Raffel et al. 2020, section 3.2)."
        ),
    ] = False
    start: Annotated[
        int | None,
        Setting(
            "Id of the token that decoding begins with. Without a value it is the end of text, as "
            "in training here and in BART; T5 was trained with its padding, 0.",
            ge=0,
        ),
    ] = None

    learns: Annotated[
        str,
        Setting(
            "The objective that is its own: spans (T5's) or bart (BART's).",
            choices=("spans", "bart"),
        ),
    ] = "spans"

    def __post_init__(self) -> None:
        check(self, "encoder.")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Stack):
    """A transformer: a decoder, or an encoder, or a decoder with an encoder."""

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
    encoder: Annotated[
        Encoder | None, Setting("The encoder of an encoder-decoder. Without a value there is none.")
    ] = None
    generator: Annotated[
        Generator | None, Setting("What replaces tokens in training, where head.replaced is true.")
    ] = None

    def __post_init__(self) -> None:
        check(self)
        if self.encoder is not None:
            self._check_encoder(self.encoder)
        refuse(
            isinstance(self.residual, Parallel) and self.norm.place != "pre",
            f"residual parallel with norm.place {self.norm.place}: a parallel block has its norms "
            "before",
        )
        if isinstance(self.residual, Serial):
            self._check_serial(self.residual)
        refuse(
            self.layers % self.share != 0,
            f"share is {self.share}: it must divide layers ({self.layers})",
        )
        refuse(
            self.head.task is not None
            and (
                self.head.pair != "none"
                or self.head.replaced
                or self.head.boundary
                or self.encoder is not None
            ),
            "head.task with head.pair, head.replaced, head.boundary or encoder: it follows one "
            "stack, alone",
        )
        refuse(
            self.causal and self.head.pair != "none",
            f"head.pair {self.head.pair} with causal true: a decoder has no such head",
        )
        for name, other in {
            "causal false": not self.causal,
            "mup_base": self.mup_base is not None,
            "embedding.size": self.embedding.size is not None,
            "head.task": self.head.task is not None,
        }.items():
            refuse(
                self.head.mtp > 0 and other,
                f"head.mtp {self.head.mtp} with {name}: it follows a decoder without that",
            )
        if isinstance(self.attention, Grouped) and self.causal:
            own = self.attention
            for name, used in (
                ("globals", own.globals),
                ("random", own.random),
                ("block", own.block > 1),
            ):
                refuse(
                    bool(used),
                    f"attention.{name} with causal true: it is an encoder's; a decoder has "
                    "windows, dilations and sinks",
                )
        refuse(
            self.head.boundary and (self.causal or self.head.replaced),
            "head.boundary with causal true or head.replaced: it reads what an encoder predicts by",
        )
        refuse(
            self.head.replaced and (self.causal or self.head.pair != "none"),
            "head.replaced with causal true or head.pair: a discriminator is an encoder without it",
        )
        if self.generator is not None:
            self._check_generator(self.generator)
        if isinstance(self.feed_forward, Experts):
            self._check_experts(self.feed_forward)
        if isinstance(self.attention, Latent):
            self._check_latent()
        if isinstance(self.position, Rope):
            self._check_rope(self.position)
        refuse(
            isinstance(self.position, (Clipped, Disentangled))
            and not isinstance(self.attention, Grouped),
            f"position {self.position.kind} with attention {self.attention.kind}: it is a part of "
            "grouped attention",
        )

    def _check_generator(self, own: Generator) -> None:
        refuse(not self.head.replaced, "generator without head.replaced: set that to true")
        for name, other in {
            "attention latent": isinstance(self.attention, Latent),
            "feed_forward experts": isinstance(self.feed_forward, Experts),
            "embedding.positions after": self.embedding.positions == "after",
            "head.tied false": not self.head.tied,
            "mup_base": self.mup_base is not None,
        }.items():
            refuse(other, f"generator with {name}: leave one of them out")
        for name, size in {
            "hidden": self.hidden,
            "attention.heads": self.attention.heads,
            "attention.kv_heads": self.attention.kv_heads,
            "feed_forward.width": self.feed_forward.width,
        }.items():
            refuse(
                size % own.smaller != 0,
                f"generator.smaller is {own.smaller}: it must divide {name} ({size})",
            )

    def _check_encoder(self, own: Encoder) -> None:
        for name, other in {
            "causal false": not self.causal,
            "attention latent": isinstance(self.attention, Latent),
            "feed_forward experts": isinstance(self.feed_forward, Experts),
            "residual parallel": isinstance(self.residual, Parallel),
            "mup_base": self.mup_base is not None,
            f"head.mtp {self.head.mtp}": self.head.mtp > 0,
        }.items():
            refuse(other, f"encoder with {name}: an encoder-decoder is built without that")
        refuse(
            own.shared and own.layers != self.layers,
            f"encoder.shared with encoder.layers {own.layers} and layers {self.layers}: give both "
            "as many",
        )
        refuse(
            own.layers % self.share != 0,
            f"share is {self.share}: it must divide encoder.layers ({own.layers}) too",
        )

    def _check_serial(self, own: Serial) -> None:
        refuse(
            own.sandwich > 0 and own.sandwich >= self.layers,
            f"residual.sandwich is {own.sandwich}: give less than layers ({self.layers})",
        )
        deep, place = isinstance(own, DeepNorm), self.norm.place
        refuse(
            deep and place != "post",
            f"residual deepnorm with norm.place {place}: its norms come after the sum, give post",
        )
        refuse(
            deep and self.encoder is not None and self.encoder.shared,
            "residual deepnorm with encoder.shared: encoder and decoder have numbers of their own",
        )

    def _check_experts(self, own: Experts) -> None:
        last = self.layers // own.every * own.every - 1  # that may have experts
        refuse(
            last < own.first_dense,
            f"feed_forward.first_dense {own.first_dense} and every {own.every} leave no layer of "
            f"{self.layers} with experts",
        )
        refuse(
            self.share > 1 and (own.first_dense > 0 or own.every > 1),
            f"share {self.share} with feed_forward.first_dense or every: shared blocks are alike",
        )
        refuse(
            own.routing == "expert_choice" and self.causal,
            "feed_forward.routing expert_choice with causal true: experts would choose by tokens "
            "that come later",
        )

    def _check_latent(self) -> None:
        position = self.position
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
            isinstance(self.residual, DeepNorm),
            "residual deepnorm with attention latent: its first values are not known there",
        )
        refuse(
            self.mup_base is not None,
            "mup_base with attention latent: no rates are known for its compressed dimensions",
        )

    def _check_rope(self, rope: Rope) -> None:
        size, rotated = self.attention.head_dim, self.rotated
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
            and (rope.scaling.kind != "yarn" or not isinstance(self.attention, Latent)),
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


def gated_width(hidden: int, multiple: int = 256, ratio: float = 4.0) -> int:
    """The width of a gated feed-forward that costs what a plain one of ``ratio * hidden`` does: 2/3
    of it (Shazeer 2020), rounded up to a multiple as LLaMA does.
    """
    width = int(2 * ratio * hidden / 3)
    return -(-width // multiple) * multiple
