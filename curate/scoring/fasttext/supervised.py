"""The base of steps that apply a user's supervised fastText model, and the step `label`.

The meaning of labels depends on the model: WebOrganizer's topics and formats (Wettig et al. 2025),
distilled to fastText, or a model trained with `fasttext supervised`. `mix --by label.label` mixes
by label, and `quality_buckets` can rank within labels."""

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
    """Settings for training a classifier. The defaults of dim, minn, maxn, word_ngrams, loss and
    bucket are those in the header of lid.176."""

    dim: int = Field(16, ge=1)
    """Dimensions of the vectors."""
    minn: int = Field(2, ge=0)
    """Minimum characters of a character n-gram. Set it and maxn to 0 for none."""
    maxn: int = Field(4, ge=0)
    """Maximum characters of a character n-gram."""
    word_ngrams: int = Field(1, ge=1)
    """Words of the longest word n-gram."""
    loss: Literal["hs", "softmax", "ova"] = "hs"
    """The loss: hierarchical softmax (`hs`), `softmax`, or one-vs-all (`ova`)."""
    bucket: int = Field(2_000_000, ge=1)
    """Number of matrix rows for n-grams, which are assigned by hash."""
    epochs: int = Field(10, ge=1)
    """Passes over the training texts."""
    lr: float = Field(0.5, gt=0)
    """Learning rate at the start; it falls to 0 linearly."""
    min_count: int = Field(1, ge=1)
    """Minimum number of occurrences of a word in the vocabulary."""
    held_out: float = Field(0.05, ge=0, lt=1)
    """Share of the texts, chosen by hash, used for testing instead of training."""
    piece_chars: int = Field(0, ge=0)
    """Cut documents into pieces of this many characters; 0 leaves them whole."""
    quantize: bool = False
    """Write the compressed form, language.ftz, instead of language.bin."""
    cutoff: int = Field(0, ge=0)
    """Number of n-grams and words kept in a compressed model; 0 keeps all."""
    seed: int = Field(0, ge=0)
    """Seed of the training."""


class FastTextStep(Step, FromFiles):
    """The base of a step with a fastText model."""

    where_from: ClassVar[str] = ""  # hint on how to get a model

    model: str = Field(min_length=1)
    """The path of a supervised fastText model, .bin or .ftz."""
    model_sha256: str | None = None
    """The expected sha256 of the model file. Default: any."""

    def path(self) -> Path:
        """Return the path of the model file. Raises UsageError if it does not exist."""
        path = Path(self.model).expanduser()
        if not path.is_file():
            raise UsageError(
                f"{self.label}: no model at {self.model}: give --set {self.label}.model=PATH"
                f"{self.where_from}"
            )
        return path

    def labels(self) -> list[str]:
        """Return the labels without `__label__`. Raises UsageError if the file is not a model."""
        return list(read_header(self.path()).labels)

    def identity(self) -> Identity:
        """Return what decides the output. Raises UsageError for a missing or wrong model file."""
        self.labels()
        if self.model_sha256 and file_digest(self.path()) != self.model_sha256.lower():
            raise UsageError(f"{self.label}: the sha256 of {self.model} differs from model_sha256")
        facts = super().identity()
        facts.settings |= {"model_sha256": None}  # the model's content decides instead
        return facts

    def as_found(self) -> dict[str, str]:
        return {"model_sha256": file_digest(self.path())}

    def resources(self) -> list[str]:
        return [str(self.path())]


@step("label")
class Label(FastTextStep):
    """Labels every document with your own fastText model, and drops no documents.

    Columns: `label`, without `__label__`, and `score`, its probability. Both are null for a text
    without words, or if the probability is below `threshold`."""

    paper: ClassVar[str] = "Joulin et al. 2017 (fastText); Wettig et al. 2025 (WebOrganizer)"
    only_measures: ClassVar[bool] = True

    threshold: float = Field(0.0, ge=0, le=1)
    """Minimum probability of a label; below it the label is null."""
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
