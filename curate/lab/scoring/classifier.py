"""Filter by the scores of a model that classifies texts, such as FineWeb-Edu's classifier.

Source: Penedo et al. 2024 (FineWeb), section 4; huggingface/cosmopedia, classification: the model
scores the first 512 tokens of a text; `int_score` is the score, clipped to 0 to 5 and rounded;
documents of 3 and more are kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, PrivateAttr

from curate.corpus.decisions import COLUMNS, ROWS, Decided, completed, even_tables
from curate.corpus.sketches import Sketches
from curate.documents.documents import NUMBER, Documents
from curate.documents.limits import Limit, decide
from curate.fetch.download import OFFLINE
from curate.lab.scoring.sequence_model import (
    Head,
    SequenceModel,
    downloaded_folder,
    model_files,
    read_head,
)
from curate.steps.contracts import CorpusStep, FromFiles, Identity, step
from llmcurate.base.errors import UsageError

SCHEMA = pa.schema([*COLUMNS, ("outputs", pa.list_(pa.float32()))])
LOW, HIGH = 0, 5  # of FineWeb-Edu's int_score
LimitOfScore = Annotated[float, Field(ge=-1e6, le=1e6)]


@step("classifier")
class Classifier(CorpusStep, FromFiles):
    """Scores documents by a sequence classification model, and drops those outside limits.

    Columns: `score`, and `int_score`, the score clipped to 0 to 5 and rounded, as in FineWeb-Edu.
    Both are null for an empty text.
    """

    paper: ClassVar[str] = "Penedo et al. 2024 (FineWeb-Edu), section 4"
    in_tasks: ClassVar[bool] = True
    # Sketches are the outputs for all labels, so another label or limit needs no new ones.
    after_sketches: ClassVar[frozenset[str]] = frozenset(
        {"score_label", "threshold", "least", "most"}
    )

    model: str = Field(min_length=1)
    """A folder with config.json, tokenizer.json and model.onnx (or onnx/model.onnx) or
    *.safetensors, or a model on the Hugging Face hub: ORG/NAME or ORG/NAME@REVISION."""
    max_tokens: int = Field(512, ge=8, le=131_072)
    """The most tokens of a document that the model reads (FineWeb-Edu: 512)."""
    batch_size: int | None = Field(None, ge=1, le=4096)
    """Texts of similar length that the model reads together. Default: 32 on a GPU, else 1. Another
    value changes the last digits of scores."""
    score_label: str | None = None
    """The label whose score counts, if the model has several."""
    threshold: LimitOfScore | None = None
    """Documents with a lower int_score are dropped (FineWeb-Edu: 3)."""
    least: LimitOfScore | None = None
    """Documents with a lower score are dropped."""
    most: LimitOfScore | None = None
    """Documents with a higher score are dropped."""
    _model: SequenceModel | None = PrivateAttr(default=None)
    _head: Head | None = PrivateAttr(default=None)

    @property
    def shared_key_column(self) -> str | None:
        return ""

    @property
    def obstacle(self) -> str | None:
        return None

    @property
    def _what(self) -> str:
        return f"{self.label}: model {self.model}"

    def _folder(self) -> Path:
        return downloaded_folder(self.model, self._what)

    def identity(self) -> Identity:
        """Return what identifies the step: its settings. The value of `model` is the model's local
        folder, even if the user gave a name on the hub, so that workers read this folder. Raises
        UsageError if the model is missing or damaged, or does not have the label `score_label`."""
        self.open()
        identity = super().identity()
        identity.settings |= {"model": str(self._folder())}
        return identity

    def to_fetch(self) -> list[str]:
        local = Path(self.model).expanduser().is_dir() or os.environ.get(OFFLINE)
        return [] if local else [f"hf://{self.model}"]

    def resources(self) -> list[str]:
        return [str(path) for path in model_files(self._folder(), self._what)]

    def open(self) -> None:
        """Read the labels of the model. Its weights are loaded when the first text is scored."""
        head = read_head(self._folder(), self._what)
        if (len(head.labels) > 1 or self.score_label) and self.score_label not in head.labels:
            label = "not set" if self.score_label is None else f"{self.score_label!r}"
            raise UsageError(
                f"{self._what}: score_label is {label}: choose one of {', '.join(head.labels[:8])}"
            )
        self._head = head

    def sketch(self, docs: Documents) -> pa.Table:
        texts = docs.text.to_pylist()
        filled = np.array([bool(text and text.strip()) for text in texts], np.bool_)
        outputs = np.full(len(docs), None, object)
        if filled.any():
            if self._model is None:
                limits = self.max_tokens, self.batch_size
                self._model = SequenceModel(self._folder(), *limits, self._what)
            values = self._model.outputs([texts[row] for row in np.flatnonzero(filled)])
            for row, numbers in zip(np.flatnonzero(filled), values.tolist(), strict=True):
                outputs[row] = numbers
        return pa.table({"outputs": pa.array(outputs.tolist(), SCHEMA.field("outputs").type)})

    def resolve(self, sketches: Sketches) -> Decided:
        """Write the model's outputs unchanged. The method `apply` compares them with the limits
        later."""

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in sketches.batches(["outputs"], ROWS):
                columns = {name: batch[name] for name in batch.schema.names}
                columns["drop"] = pa.repeat(pa.scalar(False), len(batch))
                yield completed(SCHEMA, len(batch), columns)

        with pq.ParquetWriter(sketches.decisions, SCHEMA) as writer:
            for table in even_tables(rows(), ROWS):
                writer.write_table(table)
        return Decided({})

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        if self._head is None:
            self.open()
        assert self._head is not None
        labels = self._head.labels
        at = np.searchsorted(decisions["n"].to_numpy(), docs.table[NUMBER].to_numpy())
        lists = decisions["outputs"].combine_chunks().take(pa.array(at))
        filled = lists.is_valid().to_numpy(zero_copy_only=False)
        outputs = lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, len(labels))
        score = np.full(len(docs), np.nan)
        label = labels.index(self.score_label) if self.score_label else 0
        score[filled] = self._head.scores(outputs)[:, label]
        # Rounds half to even, as Python's round, which FineWeb-Edu uses.
        whole = np.round(np.clip(score, LOW, HIGH))
        for name, values in (("score", score), ("int_score", whole)):
            docs = docs.annotate(name, pa.array(values, pa.float64(), from_pandas=True))
        docs = decide(docs, self.limits())
        needed = self.threshold is not None or self.least is not None
        return docs.drop(~filled & needed, "no_text")

    def limits(self) -> list[Limit]:
        return [
            Limit("low_int_score", "int_score", "threshold", self.threshold, above=False),
            Limit("low_score", "score", "least", self.least, above=False),
            Limit("high_score", "score", "most", self.most, above=True),
        ]
