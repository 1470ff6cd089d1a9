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
    pairs of segments, or of a discriminator ``replaced``.
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


Objective = Auto | Causal | Prefix | Masked | NextSentence | SentenceOrder | Replaced
