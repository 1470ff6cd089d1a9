"""The settings of objectives: what is learned from the text of a run.

Each is a dataclass with a ``kind``; ``Objective`` is the choice between them. What they do stands
in train/objectives/, in a class for each.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from llmcurate.base.settings import ByKind, dataclass
from train.model.config import TaskKind

Reads = Literal["auto", "first", "last"]
Form = Literal["auto", "encoder-decoder", "prefix", "causal"]


@dataclass(frozen=True, kw_only=True)
class Auto:
    """The model's own: of a decoder ``causal``, of an encoder ``masked``, or that of its head for
    pairs of segments, or of a discriminator ``replaced``.
    """

    kind: Literal["auto"] = "auto"


@dataclass(frozen=True, kw_only=True)
class Task:
    """Labels of texts in JSON lines, by a head of its own (Devlin et al. 2019, section 4)."""

    kind: TaskKind = Field(
        description="What has a label: a text, each of its words, or an answer in it."
    )
    reads: Reads = Field(
        "auto",
        description="Which token a text is classified by: the first, or the last, which alone has "
        "seen all of it in a decoder. `auto` is what suits the model.",
    )


@dataclass(frozen=True, kw_only=True)
class Causal:
    """Each token from those before it (Radford et al. 2018)."""

    kind: Literal["causal"] = "causal"
    across: bool = Field(
        False,
        description="A position sees the documents before it in its row too, as GPT-3 and "
        "in-context pretraining have it (Brown et al. 2020, Shi et al. 2024).",
    )


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """The rest of a text from its beginning, which is read both ways (Liu et al. 2018)."""

    kind: Literal["prefix"] = "prefix"


@dataclass(frozen=True, kw_only=True)
class Masked:
    """Hidden tokens from all others (Devlin et al. 2019)."""

    kind: Literal["masked"] = "masked"
    rate: float = Field(0.15, gt=0, lt=1, description="Share of the tokens that are hidden.")
    unit: Literal["token", "word", "span", "pmi"] = Field(
        "token",
        description="What is hidden as one: a token, a word, a span of words (Joshi et al. 2020), "
        "or words that go together by the text's own counts (`pmi`, Levine et al. 2021).",
    )
    span: float = Field(
        3.8, ge=1, lt=5.5, description="Words of a span in the mean; they are 10 at most."
    )
    collocations: float = Field(
        0.1,
        gt=0,
        le=1,
        description="Of `pmi`: of the n-grams of each length, 2 to 5 words, that occur over ten "
        "times the share whose words go together most.",
    )
    fixed: bool = Field(
        False,
        description="Whether all epochs hide the same tokens (BERT), or each epoch others "
        "(RoBERTa).",
    )


@dataclass(frozen=True, kw_only=True)
class NextSentence(Masked):
    """Hidden tokens, and whether two segments follow each other (Devlin et al. 2019)."""

    kind: Literal["next-sentence"] = "next-sentence"  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class SentenceOrder(Masked):
    """Hidden tokens, and whether two segments are in order (Lan et al. 2020)."""

    kind: Literal["sentence-order"] = "sentence-order"  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class Replaced(Masked):
    """Hidden tokens by a generator, and which tokens it has replaced (Clark et al. 2020)."""

    kind: Literal["replaced"] = "replaced"  # type: ignore[assignment]
    weight: float = Field(
        50.0,
        gt=0,
        description="Weight in the loss of telling replaced tokens apart, beside the generator's "
        "loss (appendix A of the paper: 50).",
    )


@dataclass(frozen=True, kw_only=True)
class Denoiser:
    """A damaged text, which is to be put right. ``form`` is settled by the model before a run."""

    form: Form = Field(
        "auto",
        description="Where source and target stand: apart, for an encoder-decoder, or in one row, "
        "the source read both ways (`prefix`) or learned too (`causal`). `auto` is the model's "
        "own, of a decoder `prefix`.",
    )


@dataclass(frozen=True, kw_only=True)
class Spans(Denoiser):
    """Hidden spans, by T5's sentinels (Raffel et al. 2020, 3.3.4)."""

    kind: Literal["spans"] = "spans"
    rate: float = Field(0.15, gt=0, lt=1, description="Share of the tokens that are hidden.")
    span: float | None = Field(
        3.0,
        ge=1,
        description="Tokens of a span in the mean. None: all are one span, the end of a text.",
    )
    unit: Literal["span", "token"] = Field(
        "span",
        description="What is drawn: spans, or each token by itself, of which those that lie "
        "together are one span.",
    )


_HIDDEN = Field(gt=0, lt=1, description="Share of the tokens that are hidden.")


@dataclass(frozen=True, kw_only=True)
class BertStyle(Denoiser):
    """The whole text from one with tokens behind a mask, or exchanged for random ones (Raffel et
    al. 2020, table 3).
    """

    kind: Literal["bert-style"] = "bert-style"
    rate: Annotated[float, _HIDDEN] = 0.15
    random: float = Field(
        0.1, ge=0, le=1, description="Share of the hidden tokens that are random ones."
    )


@dataclass(frozen=True, kw_only=True)
class MassStyle(BertStyle):
    """As ``BertStyle``, with masks alone (Song et al. 2019, in T5's form)."""

    kind: Literal["mass-style"] = "mass-style"  # type: ignore[assignment]
    random: float = Field(
        0.0, ge=0, le=1, description="Share of the hidden tokens that are random ones."
    )


@dataclass(frozen=True, kw_only=True)
class DroppedTokens(Denoiser):
    """The tokens that a text lacks, in their order (Raffel et al. 2020, table 3)."""

    kind: Literal["dropped-tokens"] = "dropped-tokens"
    rate: Annotated[float, _HIDDEN] = 0.15


@dataclass(frozen=True, kw_only=True)
class Deshuffling(Denoiser):
    """A text from its tokens in any order (Liu et al. 2019, in T5's form)."""

    kind: Literal["deshuffling"] = "deshuffling"


@dataclass(frozen=True, kw_only=True)
class Continuation(Denoiser):
    """The rest of a text from its beginning, of a length drawn evenly: prefix language modelling
    with a source of its own (Raffel et al. 2020, 3.2.1).
    """

    kind: Literal["continuation"] = "continuation"


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A denoiser of UL2's: spans of its own, and the token that says so before the source."""

    mode: Literal["R", "S", "X"] = Field(
        description="R, regular; X, extreme: much is hidden, or long spans; S, sequential: the "
        "end of a text."
    )
    rate: Annotated[float, _HIDDEN]
    span: float | None = Field(
        ge=1, description="Tokens of a span in the mean. None: one span, the end."
    )
    weight: float = Field(1.0, gt=0, description="Weight among the denoisers.")


@dataclass(frozen=True, kw_only=True)
class Ul2(Denoiser):
    """A mixture of denoisers (Tay et al. 2022, 3.1 and table 1), of which each piece draws one."""

    kind: Literal["ul2"] = "ul2"
    denoisers: tuple[Mode, ...] = Field(
        (
            Mode(mode="R", rate=0.15, span=3.0),
            Mode(mode="R", rate=0.15, span=8.0),
            Mode(mode="S", rate=0.25, span=None),
            Mode(mode="X", rate=0.5, span=3.0),
            Mode(mode="X", rate=0.5, span=8.0),
            Mode(mode="X", rate=0.15, span=64.0),
            Mode(mode="X", rate=0.5, span=64.0),
        ),
        min_length=1,
        description="The denoisers. Without a value the paper's seven, evenly.",
    )


Noise = Literal["permutation", "rotation", "deletion", "infilling", "masking"]


@dataclass(frozen=True, kw_only=True)
class Bart(Denoiser):
    """The whole text from one that is damaged in several ways (Lewis et al. 2020, 2.2)."""

    kind: Literal["bart"] = "bart"
    noises: tuple[Noise, ...] = Field(
        ("permutation", "infilling"),
        min_length=1,
        description=f"What is done to a text, in this order: of {', '.join(get_args(Noise))}.",
    )
    rate: float = Field(
        0.3, gt=0, lt=1, description="Share of the tokens that each of the last three hides."
    )
    span: float = Field(
        3.0, gt=0, description="Mean of the Poisson distribution of spans in `infilling`."
    )


@dataclass(frozen=True, kw_only=True)
class FillInTheMiddle:
    """Text of which a middle stands last (Bavarian et al. 2022)."""

    kind: Literal["fim"] = "fim"
    rate: float = Field(
        0.5, ge=0, le=1, description="Share of the pieces of text whose middle stands last."
    )
    spm: float = Field(
        0.5, ge=0, le=1, description="Share of these that begin with the suffix, not the prefix."
    )


Objective = Annotated[
    Auto
    | Task
    | Causal
    | Prefix
    | Masked
    | NextSentence
    | SentenceOrder
    | Replaced
    | Spans
    | BertStyle
    | MassStyle
    | DroppedTokens
    | Deshuffling
    | Continuation
    | Bart
    | Ul2
    | FillInTheMiddle,
    ByKind(),
]
