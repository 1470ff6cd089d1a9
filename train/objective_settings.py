"""The settings of objectives: what a model learns from the text of a run. Each is a dataclass with
a ``kind``, and ``Objective`` is the union of all. The classes that compute objectives are in
train/objectives/ and train/lab/objectives/.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from llmcurate.base.settings import ByKind, dataclass
from train.model.config import TaskKind

Reads = Literal["auto", "first", "last"]
Form = Literal["auto", "encoder-decoder", "prefix", "causal"]


@dataclass(frozen=True, kw_only=True)
class Auto:
    """The model's usual objective. For a decoder it is ``causal``. For an encoder it is ``masked``,
    or the objective for segment pairs if it has a head for these. For a discriminator it is
    ``replaced``. For an encoder-decoder it is the one that ``encoder.learns`` names."""

    kind: Literal["auto"] = "auto"


@dataclass(frozen=True, kw_only=True)
class Task:
    """Predict labels of texts in JSONL with a task head (Devlin et al. 2019, section 4)."""

    kind: TaskKind
    """Labels to predict: of a text (`classify`) or of each word (`token`); the answer in a text
    (`span`); or the right one of several texts (`choice`)."""
    reads: Reads = "auto"
    """Token by which a text is classified: `first` or `last`. In a decoder only the last one sees
    the whole text. `auto` chooses by the model."""


@dataclass(frozen=True, kw_only=True)
class Chat:
    """Predict what the assistant says in the conversations of a JSONL file (Ouyang et al. 2022)."""

    kind: Literal["chat"] = "chat"


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Predict the target of each source in a JSONL file (Sutskever et al. 2014)."""

    kind: Literal["pairs"] = "pairs"
    form: Literal["auto", "decoder", "encoder-decoder"] = "auto"
    """Reader of the source: the decoder, or the encoder. `auto`: the model's."""
    start: int | None = None
    """Token with which a decoder begins a target. Default: the model's."""


RECORDS = (Task, Chat, Pairs)  # objectives that read a JSONL file instead of token shards


@dataclass(frozen=True, kw_only=True)
class Causal:
    """Predict each token from those before it (Radford et al. 2018)."""

    kind: Literal["causal"] = "causal"
    across: bool = False
    """Let a position also see the earlier documents in its row, as GPT-3 and in-context pretraining
    do (Brown et al. 2020, Shi et al. 2024)."""


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """Predict the rest of a text from its beginning, read in both directions (Liu et al. 2018)."""

    kind: Literal["prefix"] = "prefix"


@dataclass(frozen=True, kw_only=True)
class Masked:
    """Predict hidden tokens from all others (Devlin et al. 2019)."""

    kind: Literal["masked"] = "masked"
    rate: float = Field(0.15, gt=0, lt=1)
    """Share of the tokens that are hidden."""
    unit: Literal["token", "word", "span", "pmi"] = "token"
    """Unit that is hidden as a whole: a token, a word, a span of words (Joshi et al. 2020), or
    words that often occur together in the text (`pmi`, Levine et al. 2021)."""
    span: float = Field(3.8, ge=1, lt=5.5)
    """Mean number of words in a span; at most 10 in each."""
    collocations: float = Field(0.1, gt=0, le=1)
    """For `pmi`: share of the n-grams of each length (2 to 5 words) to use. They are the ones with
    the most associated words, among those that occur over ten times."""
    fixed: bool = False
    """Hide the same tokens in all epochs (BERT). False: draw them again in each epoch (RoBERTa)."""


@dataclass(frozen=True, kw_only=True)
class NextSentence(Masked):
    """Predict hidden tokens, and whether one segment follows the other (Devlin et al. 2019)."""

    kind: Literal["next-sentence"] = "next-sentence"  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class SentenceOrder(Masked):
    """Predict hidden tokens, and whether two segments are in order (Lan et al. 2020)."""

    kind: Literal["sentence-order"] = "sentence-order"  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class Replaced(Masked):
    """Predict hidden tokens, and which tokens a generator has replaced (Clark et al. 2020)."""

    kind: Literal["replaced"] = "replaced"  # type: ignore[assignment]
    weight: float = Field(50.0, gt=0)
    """Weight of the discriminator's loss, added to the generator's (appendix A of the paper:
    50)."""


@dataclass(frozen=True, kw_only=True)
class Denoiser:
    """Restore a damaged text. ``form`` says where a model reads the damaged text; with "auto", this
    follows from the kind of model."""

    form: Form = "auto"
    """Place of source and target: separate (`encoder-decoder`), or in one row, with the source read
    in both directions (`prefix`) or also predicted (`causal`). `auto` follows the model; for a
    decoder it is `prefix`."""


@dataclass(frozen=True, kw_only=True)
class Spans(Denoiser):
    """Predict hidden spans, marked by T5's sentinels (Raffel et al. 2020, 3.3.4)."""

    kind: Literal["spans"] = "spans"
    rate: float = Field(0.15, gt=0, lt=1)
    """Share of the tokens that are hidden."""
    span: float | None = Field(3.0, ge=1)
    """Mean tokens of a span. None: one span, the end of a text."""
    unit: Literal["span", "token"] = "span"
    """Unit that is drawn: spans, or single tokens, which form a span if they are adjacent."""


@dataclass(frozen=True, kw_only=True)
class BertStyle(Denoiser):
    """Predict the whole text from a copy with masked or random tokens (Raffel et al. 2020)."""

    kind: Literal["bert-style"] = "bert-style"
    rate: float = Field(0.15, gt=0, lt=1)
    """Share of the tokens that are hidden."""
    random: float = Field(0.1, ge=0, le=1)
    """Share of the hidden tokens that random tokens replace."""


@dataclass(frozen=True, kw_only=True)
class MassStyle(BertStyle):
    """Predict the whole text from a copy with masked tokens (Song et al. 2019, in T5's form)."""

    kind: Literal["mass-style"] = "mass-style"  # type: ignore[assignment]
    random: float = Field(0.0, ge=0, le=1)
    """Share of the hidden tokens that random tokens replace."""


@dataclass(frozen=True, kw_only=True)
class DroppedTokens(Denoiser):
    """Predict the tokens dropped from a text, in their order (Raffel et al. 2020, table 3)."""

    kind: Literal["dropped-tokens"] = "dropped-tokens"
    rate: float = Field(0.15, gt=0, lt=1)
    """Share of the tokens that are hidden."""


@dataclass(frozen=True, kw_only=True)
class Deshuffling(Denoiser):
    """Predict a text from its tokens in random order (Liu et al. 2019, in T5's form)."""

    kind: Literal["deshuffling"] = "deshuffling"


@dataclass(frozen=True, kw_only=True)
class Continuation(Denoiser):
    """Predict the rest of a text, the target, from its beginning, the source. The beginning's
    length is drawn from the uniform distribution (Raffel et al. 2020, 3.2.1)."""

    kind: Literal["continuation"] = "continuation"


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A denoiser of UL2: its spans, and the special token that begins the damaged texts."""

    mode: Literal["R", "S", "X"]
    """R, regular; X, extreme: a large share or long spans; S, sequential: the end of a text."""
    rate: float = Field(gt=0, lt=1)
    """Share of the tokens that are hidden."""
    span: float | None = Field(ge=1)
    """Mean tokens of a span. None: one span, the end of a text."""
    weight: float = Field(1.0, gt=0)
    """Weight among the denoisers."""


@dataclass(frozen=True, kw_only=True)
class Ul2(Denoiser):
    """A mixture of denoisers, one drawn for each piece of text (Tay et al. 2022, 3.1, table 1)."""

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
    )
    """The denoisers. Without a value the paper's seven, with equal weights."""


Noise = Literal["permutation", "rotation", "deletion", "infilling", "masking"]


@dataclass(frozen=True, kw_only=True)
class Bart(Denoiser):
    """Predict the whole text from a copy damaged in several ways (Lewis et al. 2020, 2.2)."""

    kind: Literal["bart"] = "bart"
    noises: tuple[Noise, ...] = Field(("permutation", "infilling"), min_length=1)
    """Damages to a text, in order, from permutation, rotation, deletion, infilling, masking."""
    rate: float = Field(0.3, gt=0, lt=1)
    """Share of the tokens that deletion, infilling and masking each hide."""
    span: float = Field(3.0, gt=0)
    """Mean span length in `infilling`, of a Poisson distribution."""


@dataclass(frozen=True, kw_only=True)
class FillInTheMiddle:
    """Predict a text whose middle part is moved to the end (Bavarian et al. 2022)."""

    kind: Literal["fim"] = "fim"
    rate: float = Field(0.5, ge=0, le=1)
    """Share of the pieces of text whose middle is moved to the end."""
    spm: float = Field(0.5, ge=0, le=1)
    """Share of these pieces that start with the suffix instead of the prefix."""


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
    | FillInTheMiddle
    | Chat
    | Pairs,
    ByKind(),
]
