"""Models that classify texts: their files, their labels, and their outputs for batches of texts.

The last bits of an output depend on the shape of its batch. So that no score depends on other
texts, a batch has a fixed shape: texts are padded to a length that follows from their own, and a
batch that is not full gets copies of its last text. A batch of one text has no padding.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, Field, ValidationError, field_validator

from curate.engines.worker import beat_again
from curate.fetch.hub import model_folder
from curate.lab.pretrained import Pretrained, most_tokens
from curate.text.onnx import TOKENIZER, OnnxText, onnx_file, onnx_files
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import problem

CONFIG = "config.json"
SAFETENSORS = "*.safetensors"
HEAD = "ForSequenceClassification"
ON_GPU, ON_PROCESSOR = 32, 1  # texts per batch; long texts gain nothing on a processor


class Head(BaseModel):
    """The settings that are read from a model's config.json. As in transformers, which has the same
    defaults, a model with one label and no problem_type is a regression."""

    architectures: list[str]
    id2label: dict[int, str] = {0: "LABEL_0", 1: "LABEL_1"}
    problem_type: (
        Literal["regression", "single_label_classification", "multi_label_classification"] | None
    ) = None
    pad_token_id: int | None = None
    model_type: str = ""
    max_position_embeddings: int | None = Field(None, ge=8)

    @field_validator("architectures")
    @classmethod
    def _classifies(cls, names: list[str]) -> list[str]:
        if not any(name.endswith(HEAD) for name in names):
            raise ValueError(f"{', '.join(names[:3])} has no head that classifies texts ({HEAD})")
        return names

    @field_validator("id2label")
    @classmethod
    def _numbered(cls, labels: dict[int, str]) -> dict[int, str]:
        if sorted(labels) != [*range(max(1, len(labels)))]:
            raise ValueError("the labels must be numbered from 0")
        return dict(sorted(labels.items()))

    @property
    def labels(self) -> list[str]:
        return [*self.id2label.values()]

    def scores(self, outputs: np.ndarray) -> np.ndarray:
        """Return the scores of outputs, float64[texts, labels], as the pipeline of transformers
        does. These are the outputs themselves for a regression, their sigmoid if a text can have
        several labels, and their softmax otherwise."""
        values = outputs.astype(np.float64)
        if self.problem_type == "multi_label_classification":
            return np.asarray(0.5 * (1 + np.tanh(values / 2)))  # the sigmoid, without overflow
        if self.problem_type == "regression" or (
            self.problem_type is None and len(self.labels) < 2
        ):
            return values
        powers = np.exp(values - values.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def read_head(folder: Path, what: str) -> Head:
    """Return what config.json says about a model that classifies texts. Raises UsageError,
    beginning with `what`, if the file is missing, damaged or about another kind of model."""
    try:
        return Head.model_validate(json.loads((folder / CONFIG).read_bytes()))
    except ValidationError as error:
        raise UsageError(f"{what}: {CONFIG}: {problem(error)}") from None
    except (OSError, ValueError):
        raise UsageError(f"{what}: {CONFIG} is missing or damaged") from None


def downloaded_folder(model: str, what: str) -> Path:
    """Return the folder of a model: a local folder, or a folder in the hub's cache. Safetensors are
    downloaded if transformers is installed and the model has them, else ONNX files."""
    onnx = ["model.onnx*", "onnx/model.onnx*"]
    for weights in ([SAFETENSORS], onnx) if find_spec("transformers") else (onnx,):
        folder = model_folder(model, what, [CONFIG, TOKENIZER, *weights])
        if weights == onnx or any(folder.glob(SAFETENSORS)):
            break
    return folder


def model_files(folder: Path, what: str) -> list[Path]:
    """Return all files in a folder on which the outputs depend. Raises UsageError, beginning with
    `what`, if one of these files or the library that runs them is missing."""
    if onnx_file(folder) is not None:
        return [*onnx_files(folder, what), folder / CONFIG]
    weights = sorted(folder.glob(SAFETENSORS))
    if not weights:
        raise UsageError(f"{what}: neither {SAFETENSORS} nor model.onnx exists")
    if not (folder / TOKENIZER).is_file():
        raise UsageError(f"{what}: {TOKENIZER} is missing")
    if find_spec("transformers") is None or find_spec("torch") is None:
        raise UsageError(f"{what}: it needs pip install 'llmcurate[transformers]'")
    return [*weights, folder / CONFIG, folder / TOKENIZER]


class SequenceModel:
    """A loaded model. `batch_size` is the number of texts per batch, or None for 32 on a GPU and 1
    on a CPU."""

    def __init__(self, folder: Path, max_tokens: int, batch_size: int | None, what: str) -> None:
        self.head, self._what = read_head(folder, what), what
        self._model: OnnxText | Pretrained
        if onnx_file(folder) is not None:
            self._model = OnnxText(folder, most_tokens(self.head, max_tokens), what, gpu=True)
        else:
            self._model = Pretrained(folder, f"AutoModel{HEAD}", max_tokens, what, gpu=True)
            if self._model.missing:
                raise UsageError(f"{what}: {SAFETENSORS} lack {self._model.missing[0]}")
        self._rows = batch_size or (ON_GPU if self._model.on_gpu else ON_PROCESSOR)

    def outputs(self, texts: list[str]) -> np.ndarray:
        """Return float32[texts, labels]: the outputs of the model, without softmax or sigmoid."""
        tokens = [self._model.starts.ids(text) for text in texts]
        lengths = np.array([self._padded(len(ids)) for ids in tokens], np.int64)
        outputs = np.empty((len(texts), len(self.head.labels)), np.float32)
        for length in np.unique(lengths).tolist():
            same = np.flatnonzero(lengths == length)
            for start in range(0, len(same), self._rows):
                rows = same[start : start + self._rows]
                outputs[rows] = self._batch([tokens[row] for row in rows], length)
                beat_again()
        return outputs

    def _padded(self, tokens: int) -> int:
        """Return the length to which a text is padded, in tokens: a multiple of 8. Above 32 tokens,
        it is at most a quarter more than the text's own length."""
        step = max(8, (1 << (tokens - 1).bit_length()) // 8)
        most = self._model.starts.max_tokens
        return tokens if self._rows == 1 else min(-(-tokens // step) * step, most)

    def _batch(self, tokens: list[list[int]], length: int) -> np.ndarray:
        ids = np.full((self._rows, length), self.head.pad_token_id or 0, np.int64)
        mask = np.zeros_like(ids)
        for row in range(self._rows):
            own = tokens[min(row, len(tokens) - 1)]
            ids[row, : len(own)], mask[row, : len(own)] = own, 1
        outputs = self._model.run_batch(ids, mask)
        if outputs.shape != (self._rows, len(self.head.labels)):
            labels = counted(len(self.head.labels), "label")
            raise UsageError(
                f"{self._what}: {CONFIG}: id2label has {labels}, but the model"
                f" returns {[*outputs.shape]} values for {counted(self._rows, 'text')}"
            )
        return outputs[: len(tokens)]
