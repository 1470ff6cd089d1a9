"""The settings of a head for a task, which a trained model gets in place of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from llmcurate.base.settings import Setting, check, refuse

SPAN = ("start", "end")  # what is said of each token


@dataclass(frozen=True, kw_only=True)
class Task:
    """A head that tells labels apart (Devlin et al. 2019, section 4)."""

    kind: Annotated[
        str,
        Setting(
            "What has a label: the text (classify), each word (token), or the first and the last "
            "token of an answer (span).",
            choices=("classify", "token", "span"),
        ),
    ]
    labels: Annotated[
        tuple[str, ...], Setting("The labels by number; of a span they are start and end.")
    ]
    before: Annotated[
        str,
        Setting(
            "What stands before its matrix: nothing; pool, a layer with tanh (BERT); or transform, "
            "that of the head that predicts tokens (ModernBERT).",
            choices=("nothing", "pool", "transform"),
        ),
    ] = "nothing"

    def __post_init__(self) -> None:
        check(self, "head.task.")
        refuse(
            len(set(self.labels)) != len(self.labels) or len(self.labels) < 2,
            "head.task.labels: two different ones at least, each once",
        )
        refuse(
            self.kind == "span" and self.labels != SPAN,
            f"head.task.labels with head.task.kind span: they are {' and '.join(SPAN)}",
        )
