"""Scores of trained runs: a value for each scored item. Runs that are compared have the same items.
Modules of train/lab/scores add further scores."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from llmcurate.base.errors import UsageError
from llmcurate.base.index import modules_of
from train.config import TrainConfig
from train.data.shards import read_shards
from train.evaluate.judge import Values, document_nats
from train.model.config import ModelConfig


@dataclass(frozen=True)
class Items:
    """The items of a text to score, such as documents. ``sizes`` [items]: the size of each item,
    such as a document's bytes. ``sources``: the name of each item's source, or ""."""

    sizes: npt.NDArray[np.int64]
    sources: list[str]


class Score(ABC):
    """A score of trained runs; smaller is better. For a text, it is ``factor`` * sum(values) /
    sum(sizes) over the text's ``items``, in ``unit``, shown with ``digits`` after the point.
    ``reads``: what is scored: ``shards`` (folders of token shards), ``texts`` (JSONL files) or
    ``file`` (a file of the score's own kind). ``say``: a line for the report on how models are
    scored."""

    unit: ClassVar[str] = "bits per byte"
    factor: ClassVar[float] = 1 / math.log(2)
    digits: ClassVar[int] = 4
    reads: ClassVar[str] = "shards"
    say: str = ""

    @abstractmethod
    def check(self, name: str, model: ModelConfig, train: TrainConfig) -> None:
        """Raise ``UsageError`` if the score does not fit the model called ``name``."""

    @abstractmethod
    def items(self, path: Path) -> Items:
        """Return what is scored in ``path`` (a file or folder): items such as documents."""

    @abstractmethod
    def values(self, run: Path, texts: Mapping[str, Path], train: Mapping[str, Any]) -> Values:
        """Return {name of a text: the value of each of its items, such as documents}. Values that
        the folder ``run`` does not store are computed with the run's newest checkpoint. ``texts``:
        the path of each text. ``train``: the settings of the run's training."""


class Bytes(Score):
    """The negative log-likelihood of documents, in bits per byte."""

    def check(self, name: str, model: ModelConfig, train: TrainConfig) -> None:
        if model.form == "decoder":
            return
        raise UsageError(
            f"{name}: {model.described} assigns no likelihood to a text: give --score spans"
        )

    def items(self, path: Path) -> Items:
        shards = read_shards(path)
        assert shards.bytes is not None
        return Items(shards.bytes, shards.sources(list(range(shards.documents))))

    def values(self, run: Path, texts: Mapping[str, Path], train: Mapping[str, Any]) -> Values:
        how = {name: train[name] for name in ("precision", "device") if name in train}
        return document_nats(run, texts, context=train["context"], batch_rows=train["rows"], **how)


SCORES: dict[str, Callable[..., Score]] = {"bytes": Bytes}  # FILE stands for the path of a file


def score_of(name: str, steps: int = 1) -> Score:
    """Return the score called ``name``. If ``name`` is the path of a file, return the score after
    fine-tuning on the file for ``steps`` steps. Raises ``UsageError`` if ``name`` is neither."""
    modules_of("train.lab.scores")
    if name in SCORES:
        return SCORES[name]()
    if "FILE" not in SCORES or not Path(name).is_file():
        names = ", ".join(known for known in SCORES if known != "FILE")
        raise UsageError(f"--score {name}: give one of {names}, or the path of a JSONL file")
    return SCORES["FILE"](Path(name), steps)
