"""The settings of what stands before a stack and behind it: the embedding and the heads."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from llmcurate.base.settings import dataclass, refuse

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
