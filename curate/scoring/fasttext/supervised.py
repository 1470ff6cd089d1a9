"""The ground of steps that apply a supervised fastText model of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from curate.scoring.fasttext.model_file import read_header
from curate.steps.contracts import Step
from llmcurate.base.disk.files import file_digest
from llmcurate.base.errors import UsageError


class FastTextStep(Step):
    """Such a step: the model's path and content, by which its stage is named.

    `where_from`: how to come by a model, for the message that there is none.
    """

    where_from: ClassVar[str] = ""

    model: str = Field(
        min_length=1, description="The path of a supervised fastText model, .bin or .ftz."
    )
    model_sha256: str | None = Field(
        None, description="The sha256 that the model's file must have; none: any."
    )

    def path(self) -> Path:
        """The model's file; UsageError where there is none."""
        path = Path(self.model).expanduser()
        if not path.is_file():
            raise UsageError(
                f"{self.label}: no model at {self.model}: give --set {self.label}.model=PATH"
                f"{self.where_from}"
            )
        return path

    def labels(self) -> list[str]:
        """The model's labels, without `__label__`; UsageError where the file is no model."""
        return list(read_header(self.path()).labels)

    def identity(self) -> dict[str, Any]:
        """UsageError where the model is not there, or another than the one meant."""
        self.labels()
        if self.model_sha256 and file_digest(self.path()) != self.model_sha256.lower():
            raise UsageError(f"{self.label}: {self.model} has another sha256 than model_sha256")
        facts = super().identity()
        facts["settings"] |= {"model_sha256": None}  # the content counts
        return facts

    def resolved(self) -> dict[str, Any]:
        """The settings as given, and what the model was."""
        return super().resolved() | {"model_sha256": file_digest(self.path())}

    def resources(self) -> list[str]:
        return [str(self.path())]
