"""The settings of what stands before a stack and behind it: the embedding and the heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from llmcurate.base.settings import Setting, check
from train.model.task_settings import Task


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
            le=100,
        ),
    ] = 0

    def __post_init__(self) -> None:
        check(self, "head.")
