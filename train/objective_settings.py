"""The settings of objectives: what is learned from the text of a run.

Each is a dataclass with a ``kind``; ``Objective`` is the choice between them. What they do stands
in train/objectives/, in a class for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from train.settings import Setting, check, kind_of


@dataclass(frozen=True, kw_only=True)
class Auto:
    """The model's own: of a decoder ``causal``, of an encoder ``masked``, or that of its head for
    pairs of segments.
    """

    kind: Annotated[str, kind_of("auto", "The model's own objective.")] = "auto"


@dataclass(frozen=True, kw_only=True)
class Causal:
    """Each token from those before it (Radford et al. 2018)."""

    kind: Annotated[str, kind_of("causal", "Each token from those before it.")] = "causal"


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
            "What is hidden as one: a token, a word, or a span of words (Joshi et al. 2020).",
            choices=("token", "word", "span"),
        ),
    ] = "token"
    span: Annotated[
        float, Setting("Words of a span in the mean; they are 10 at most.", ge=1, lt=5.5)
    ] = 3.8
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
    span: Annotated[float, Setting("Tokens of a span in the mean.", ge=1)] = 3.0
    unit: Annotated[
        str,
        Setting(
            "What is drawn: spans, or each token by itself, of which those that lie together are "
            "one span.",
            choices=("span", "token"),
        ),
    ] = "span"


Objective = Auto | Causal | Prefix | Masked | NextSentence | SentenceOrder | Spans
