"""The ground of steps that apply a supervised fastText model of the user's, and the step `label`.

What the best label means is the model's: WebOrganizer's topics and formats (Wettig et al. 2025),
once distilled to fastText, as well as one trained by `fasttext supervised`. `mix --by label.label`
mixes by it, and `quality_buckets` ranks within it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PrivateAttr

from curate.documents.documents import Documents
from curate.scoring.fasttext.model_file import read_header
from curate.steps.contracts import FromFiles, Identity, Step, step
from llmcurate.base.disk.files import file_digest
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import dataclass


@dataclass(frozen=True)
class Training:
    """How to train a classifier. dim, minn, maxn, word_ngrams, loss and bucket are by default those
    of lid.176, as its header says."""

    dim: int = Field(16, ge=1, description="Dimensions of the vectors.")
    minn: int = Field(
        2,
        ge=0,
        description=(
            "Characters of the shortest character n-gram; 0 together with maxn 0 means none."
        ),
    )
    maxn: int = Field(4, ge=0, description="Characters of the longest character n-gram.")
    word_ngrams: int = Field(1, ge=1, description="Words of the longest word n-gram.")
    loss: Literal["hs", "softmax", "ova"] = Field(
        "hs",
        description="The loss: hierarchical softmax (`hs`), `softmax`, or one against all (`ova`).",
    )
    bucket: int = Field(
        2_000_000, ge=1, description="Rows of the matrix that n-grams share by hash."
    )
    epochs: int = Field(10, ge=1, description="Passes over the training texts.")
    lr: float = Field(0.5, gt=0, description="Learning rate at the start; it falls to 0 linearly.")
    min_count: int = Field(
        1, ge=1, description="Least number of occurrences of a word in the vocabulary."
    )
    held_out: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="Share of the texts, by hash, that the model is tested on and not trained on.",
    )
    piece_chars: int = Field(
        0,
        ge=0,
        description="Characters of the pieces that documents are cut into; 0 leaves them whole.",
    )
    quantize: bool = Field(
        False, description="Write the compressed form, language.ftz, instead of language.bin."
    )
    cutoff: int = Field(
        0,
        ge=0,
        description="Number of n-grams and words that a compressed model keeps; 0 keeps all.",
    )
    seed: int = Field(0, ge=0, description="Seed of the training.")


class FastTextStep(Step, FromFiles):
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

    def identity(self) -> Identity:
        """UsageError where the model is not there, or another than the one meant."""
        self.labels()
        if self.model_sha256 and file_digest(self.path()) != self.model_sha256.lower():
            raise UsageError(f"{self.label}: {self.model} has another sha256 than model_sha256")
        facts = super().identity()
        facts.settings |= {"model_sha256": None}  # the content counts
        return facts

    def as_found(self) -> dict[str, str]:
        return {"model_sha256": file_digest(self.path())}

    def resources(self) -> list[str]:
        return [str(self.path())]


@step("label")
class Label(FastTextStep):
    """Labels every document with a fastText model of one's own; drops none.

    Columns: `label`, without `__label__`, and `score`, its probability; both null for a text
    without any word, and where the probability is below `threshold`.
    """

    paper: ClassVar[str] = "Joulin et al. 2017 (fastText); Wettig et al. 2025 (WebOrganizer)"
    only_measures: ClassVar[bool] = True

    threshold: float = Field(
        0.0, ge=0, le=1, description="Least probability of a label; below it there is none."
    )
    _model: Any = PrivateAttr(default=None)

    def open(self) -> None:
        from curate.scoring.language.model import Model

        self._model = Model(self.path())

    def apply(self, docs: Documents) -> Documents:
        from curate.scoring.quality.model import quality_lines

        if self._model is None:
            self.open()
        codes, scores = self._model.best(*quality_lines(*docs.buffers()))
        none = (codes < 0) | (scores < self.threshold)
        names = pa.array(self._model.labels, pa.string())
        label = names.take(pa.array(codes, mask=none))
        docs = docs.annotate("label", label)
        return docs.annotate("score", pa.array(scores.astype(np.float64), mask=none))
