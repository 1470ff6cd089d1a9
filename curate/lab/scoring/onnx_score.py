"""Filter by the score of an ONNX model, such as FineWeb-Edu's classifier.

Source: Penedo et al. 2024 (FineWeb), section 4; huggingface/cosmopedia, classification: the model
scores the first 512 tokens of a text; `int_score` is the score, clipped to 0 to 5 and rounded;
documents of 3 and more are kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, PrivateAttr

from curate.documents.documents import Documents
from curate.documents.limits import Limit, decide
from curate.steps.contracts import FromFiles, Step, step
from curate.text.onnx import OnnxText, onnx_files
from llmcurate.base.errors import UsageError

MOST = 1e6  # the largest limit of a score


@step("onnx_score")
class OnnxScore(Step, FromFiles):
    """Drops documents that an ONNX model scores too low.

    Columns: `score`, the model's number; `int_score`, the score clipped to `low` and `high` and
    rounded, as in FineWeb-Edu. Both are null for an empty text.
    """

    paper: ClassVar[str] = "Penedo et al. 2024 (FineWeb-Edu), section 4"
    only_measures: ClassVar[bool] = True

    model: str = Field(
        min_length=1,
        description="The folder with model.onnx (or onnx/model.onnx) and tokenizer.json.",
    )
    max_tokens: int = Field(
        512,
        ge=8,
        le=131_072,
        description="The most tokens of a document that the model reads (FineWeb-Edu: 512).",
    )
    output: int = Field(
        0,
        ge=0,
        description="The index of the score, if the model's output has several numbers.",
    )
    low: float = Field(
        0, ge=-MOST, le=MOST, description="The lowest integer score; lower scores are raised to it."
    )
    high: float = Field(
        5,
        ge=-MOST,
        le=MOST,
        description="The highest integer score; higher ones are lowered to it.",
    )
    threshold: float | None = Field(
        None,
        ge=-MOST,
        le=MOST,
        description="Documents with a lower integer score are dropped (FineWeb-Edu: 3). None: no"
        " limit.",
    )
    _model: OnnxText | None = PrivateAttr(default=None)

    def resources(self) -> list[str]:
        folder = Path(self.model)
        if not folder.is_dir():
            raise UsageError(
                f"{self.label}: no folder {self.model}: give --set {self.label}.model=FOLDER with"
                " model.onnx and tokenizer.json, for example HuggingFaceFW/fineweb-edu-classifier"
                " exported by optimum-cli export onnx"
            )
        return [str(path) for path in onnx_files(folder, f"{self.label}: {folder}")]

    def open(self) -> None:
        self.resources()
        self._model = OnnxText(Path(self.model), self.max_tokens, f"{self.label}: {self.model}")

    def apply(self, docs: Documents) -> Documents:
        if self._model is None:
            self.open()
        assert self._model is not None
        score = np.full(len(docs), np.nan)
        for row, text in enumerate(docs.text.to_pylist()):
            if text and text.strip():
                numbers = self._model.run(text)[0].reshape(-1)
                if self.output >= len(numbers):
                    raise UsageError(
                        f"{self.label}: {self.model} returns {len(numbers)} numbers per text:"
                        f" output must be below that, not {self.output}"
                    )
                score[row] = numbers[self.output]
        # Rounds half to even, as Python's round, which FineWeb-Edu uses.
        whole = np.round(np.clip(score, self.low, self.high))
        for name, values in (("score", score), ("int_score", whole)):
            docs = docs.annotate(name, pa.array(values, pa.float64(), from_pandas=True))
        docs = decide(docs, self.limits())
        none = np.isnan(score) & (self.threshold is not None)
        return docs.drop(none, "no_text")

    def limits(self) -> list[Limit]:
        return [Limit("low_score", "int_score", "threshold", self.threshold, above=False)]
