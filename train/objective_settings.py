"""The settings of objectives: what is learned from the text of a run.

Each is a dataclass with a ``kind``; ``Objective`` is the choice between them. What they do stands
in train/objectives/, in a class for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from llmcurate.base.settings import Setting, check, kind_of, refuse


@dataclass(frozen=True, kw_only=True)
class Auto:
    """The model's own: of a decoder ``causal``, of an encoder ``masked``, or that of its head for
    pairs of segments, or of a discriminator ``replaced``.
    """

    kind: Annotated[str, kind_of("auto", "The model's own objective.")] = "auto"


@dataclass(frozen=True, kw_only=True)
class Task:
    """Labels of texts in JSON lines, by a head of its own (Devlin et al. 2019, section 4)."""

    kind: Annotated[
        str,
        Setting(
            "What has a label: a text, each of its words, or an answer in it.",
            choices=("classify", "token", "span"),
        ),
    ]
    reads: Annotated[
        str,
        Setting(
            "Which token a text is classified by: the first, or the last, which alone has seen all "
            "of it in a decoder. `auto` is what suits the model.",
            choices=("auto", "first", "last"),
        ),
    ] = "auto"

    def __post_init__(self) -> None:
        check(self, "objective.")


@dataclass(frozen=True, kw_only=True)
class Causal:
    """Each token from those before it (Radford et al. 2018)."""

    kind: Annotated[str, kind_of("causal", "Each token from those before it.")] = "causal"
    across: Annotated[
        bool,
        Setting(
            "A position sees the documents before it in its row too, as GPT-3 and in-context "
            "pretraining have it (Brown et al. 2020, Shi et al. 2024)."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """The rest of a text from its beginning, which is read both ways (Liu et al. 2018)."""

    kind: Annotated[str, kind_of("prefix", "The rest of a text from its beginning.")] = "prefix"


@dataclass(frozen=True, kw_only=True)
class Masked:
    """Hidden tokens from all others (Devlin et al. 2019)."""

    kind: Annotated[str, kind_of("masked", "Hidden tokens from all others.")] = "masked"
    rate: Annotated[float, Setting("Share of the tokens that are hidden.", gt=0, lt=1)] = 0.15
    unit: Annotated[
        str,
        Setting(
            "What is hidden as one: a token, a word, a span of words (Joshi et al. 2020), or words "
            "that go together by the text's own counts (`pmi`, Levine et al. 2021).",
            choices=("token", "word", "span", "pmi"),
        ),
    ] = "token"
    span: Annotated[
        float, Setting("Words of a span in the mean; they are 10 at most.", ge=1, lt=5.5)
    ] = 3.8
    collocations: Annotated[
        float,
        Setting(
            "Of `pmi`: of the n-grams of each length, 2 to 5 words, that occur over ten times the "
            "share whose words go together most.",
            gt=0,
            le=1,
        ),
    ] = 0.1
    fixed: Annotated[
        bool,
        Setting("Whether all epochs hide the same tokens (BERT), or each epoch others (RoBERTa)."),
    ] = False

    def __post_init__(self) -> None:
        check(self, "objective.")


@dataclass(frozen=True, kw_only=True)
class NextSentence(Masked):
    """Hidden tokens, and whether two segments follow each other (Devlin et al. 2019)."""

    kind: Annotated[
        str, kind_of("next-sentence", "Hidden tokens, and whether two segments are of one text.")
    ] = "next-sentence"


@dataclass(frozen=True, kw_only=True)
class SentenceOrder(Masked):
    """Hidden tokens, and whether two segments are in order (Lan et al. 2020)."""

    kind: Annotated[
        str, kind_of("sentence-order", "Hidden tokens, and whether two segments are in order.")
    ] = "sentence-order"


@dataclass(frozen=True, kw_only=True)
class Replaced(Masked):
    """Hidden tokens by a generator, and which tokens it has replaced (Clark et al. 2020)."""

    kind: Annotated[
        str, kind_of("replaced", "Hidden tokens, and which a generator has replaced.")
    ] = "replaced"
    weight: Annotated[
        float,
        Setting(
            "Weight in the loss of telling replaced tokens apart, beside the generator's loss "
            "(appendix A of the paper: 50).",
            gt=0,
        ),
    ] = 50.0


@dataclass(frozen=True, kw_only=True)
class Denoiser:
    """A damaged text, which is to be put right. ``form`` is settled by the model before a run."""

    form: Annotated[
        str,
        Setting(
            "Where source and target stand: apart, for an encoder-decoder, or in one row, the "
            "source read both ways (`prefix`) or learned too (`causal`). `auto` is the model's "
            "own, of a decoder `prefix`.",
            choices=("auto", "encoder-decoder", "prefix", "causal"),
        ),
    ] = "auto"

    def __post_init__(self) -> None:
        check(self, "objective.")


@dataclass(frozen=True, kw_only=True)
class Spans(Denoiser):
    """Hidden spans, by T5's sentinels (Raffel et al. 2020, 3.3.4)."""

    kind: Annotated[str, kind_of("spans", "Hidden spans, by their sentinels.")] = "spans"
    rate: Annotated[float, Setting("Share of the tokens that are hidden.", gt=0, lt=1)] = 0.15
    span: Annotated[
        float | None,
        Setting("Tokens of a span in the mean. None: all are one span, the end of a text.", ge=1),
    ] = 3.0
    unit: Annotated[
        str,
        Setting(
            "What is drawn: spans, or each token by itself, of which those that lie together are "
            "one span.",
            choices=("span", "token"),
        ),
    ] = "span"


_HIDDEN = Setting("Share of the tokens that are hidden.", gt=0, lt=1)


@dataclass(frozen=True, kw_only=True)
class BertStyle(Denoiser):
    """The whole text from one with tokens behind a mask, or exchanged for random ones (Raffel et
    al. 2020, table 3).
    """

    kind: Annotated[
        str, kind_of("bert-style", "The whole text, of which tokens are masked or random.")
    ] = "bert-style"
    rate: Annotated[float, _HIDDEN] = 0.15
    random: Annotated[
        float, Setting("Share of the hidden tokens that are random ones.", ge=0, le=1)
    ] = 0.1


@dataclass(frozen=True, kw_only=True)
class MassStyle(BertStyle):
    """As ``BertStyle``, with masks alone (Song et al. 2019, in T5's form)."""

    kind: Annotated[str, kind_of("mass-style", "The whole text, of which tokens are masked.")] = (
        "mass-style"
    )
    random: Annotated[
        float, Setting("Share of the hidden tokens that are random ones.", ge=0, le=1)
    ] = 0.0


@dataclass(frozen=True, kw_only=True)
class DroppedTokens(Denoiser):
    """The tokens that a text lacks, in their order (Raffel et al. 2020, table 3)."""

    kind: Annotated[str, kind_of("dropped-tokens", "The tokens that a text lacks.")] = (
        "dropped-tokens"
    )
    rate: Annotated[float, _HIDDEN] = 0.15


@dataclass(frozen=True, kw_only=True)
class Deshuffling(Denoiser):
    """A text from its tokens in any order (Liu et al. 2019, in T5's form)."""

    kind: Annotated[str, kind_of("deshuffling", "A text from its tokens in any order.")] = (
        "deshuffling"
    )


@dataclass(frozen=True, kw_only=True)
class Continuation(Denoiser):
    """The rest of a text from its beginning, of a length drawn evenly: prefix language modelling
    with a source of its own (Raffel et al. 2020, 3.2.1).
    """

    kind: Annotated[str, kind_of("continuation", "The rest of a text from its beginning.")] = (
        "continuation"
    )


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A denoiser of UL2's: spans of its own, and the token that says so before the source."""

    mode: Annotated[
        str,
        Setting(
            "R, regular; X, extreme: much is hidden, or long spans; S, sequential: the end of a "
            "text.",
            choices=("R", "S", "X"),
        ),
    ]
    rate: Annotated[float, _HIDDEN]
    span: Annotated[
        float | None, Setting("Tokens of a span in the mean. None: one span, the end.", ge=1)
    ]
    weight: Annotated[float, Setting("Weight among the denoisers.", gt=0)] = 1.0

    def __post_init__(self) -> None:
        check(self, "objective.denoisers: ")


@dataclass(frozen=True, kw_only=True)
class Ul2(Denoiser):
    """A mixture of denoisers (Tay et al. 2022, 3.1 and table 1), of which each piece draws one."""

    kind: Annotated[str, kind_of("ul2", "Hidden spans, few or many, long or short.")] = "ul2"
    denoisers: Annotated[
        tuple[Mode, ...], Setting("The denoisers. Without a value the paper's seven, evenly.")
    ] = (
        Mode(mode="R", rate=0.15, span=3.0),
        Mode(mode="R", rate=0.15, span=8.0),
        Mode(mode="S", rate=0.25, span=None),
        Mode(mode="X", rate=0.5, span=3.0),
        Mode(mode="X", rate=0.5, span=8.0),
        Mode(mode="X", rate=0.15, span=64.0),
        Mode(mode="X", rate=0.5, span=64.0),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(not self.denoisers, "objective.denoisers is empty: give one at least")


NOISES = ("permutation", "rotation", "deletion", "infilling", "masking")


@dataclass(frozen=True, kw_only=True)
class Bart(Denoiser):
    """The whole text from one that is damaged in several ways (Lewis et al. 2020, 2.2)."""

    kind: Annotated[str, kind_of("bart", "The whole text, damaged in several ways.")] = "bart"
    noises: Annotated[
        tuple[str, ...],
        Setting(f"What is done to a text, in this order: of {', '.join(NOISES)}."),
    ] = ("permutation", "infilling")
    rate: Annotated[
        float, Setting("Share of the tokens that each of the last three hides.", gt=0, lt=1)
    ] = 0.3
    span: Annotated[
        float, Setting("Mean of the Poisson distribution of spans in `infilling`.", gt=0)
    ] = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for noise in self.noises:
            refuse(
                noise not in NOISES,
                f"objective.noises has {noise!r}: choose of {', '.join(NOISES)}",
            )
        refuse(not self.noises, f"objective.noises is empty: choose of {', '.join(NOISES)}")


@dataclass(frozen=True, kw_only=True)
class FillInTheMiddle:
    """Text of which a middle stands last (Bavarian et al. 2022)."""

    kind: Annotated[str, kind_of("fim", "Causal, with the middle of some texts last.")] = "fim"
    rate: Annotated[
        float, Setting("Share of the pieces of text whose middle stands last.", ge=0, le=1)
    ] = 0.5
    spm: Annotated[
        float, Setting("Share of these that begin with the suffix, not the prefix.", ge=0, le=1)
    ] = 0.5

    def __post_init__(self) -> None:
        check(self, "objective.")


Objective = (
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
    | FillInTheMiddle
)
