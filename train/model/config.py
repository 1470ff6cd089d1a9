"""The shape of a model: a stack of blocks with an embedding and a head. Choices combine freely, but
for those that ``checks.py`` refuses.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from llmcurate.base.settings import dataclass
from train.model.attention_settings import Grouped, Latent, Sight
from train.model.checks import check_together
from train.model.feed_forward_settings import Experts
from train.model.head_settings import Embedding, Head
from train.model.position_settings import (
    Rope,
)
from train.model.stack_settings import (
    DeepNorm,
    Encoder,
    Generator,
    Parts,
    Serial,
    Stack,
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


def gated_width(hidden: int, multiple: int = 256, ratio: float = 4.0) -> int:
    """The width of a gated feed-forward that costs what a plain one of ``ratio * hidden`` does: 2/3
    of it (Shazeer 2020), rounded up to a multiple as LLaMA does.
    """
    width = int(2 * ratio * hidden / 3)
    return -(-width // multiple) * multiple
