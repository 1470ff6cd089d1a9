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
    """The scored items of a text. ``sizes`` [items]: the amounts that sums of values are divided
    by, such as the bytes of each document; ``sources``: the name of each item's source, or ""."""

    sizes: npt.NDArray[np.int64]
    sources: list[str]


class Score(ABC):
    """A score of trained runs; smaller is better. It is ``factor`` * sum(values) / sum(sizes), in
    ``unit``, shown with ``digits`` after the point. ``reads``: ``shards`` if folders of token
    shards are scored, ``texts`` for JSONL files, ``file`` for a file of the score's own. ``say``: a
    line for the report on how models are scored."""

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
        """Return the items of a text."""

    @abstractmethod
    def values(self, run: Path, texts: Mapping[str, Path], train: Mapping[str, Any]) -> Values:
        """Return the value of each item, by text. The run's newest checkpoint computes the values
        that the run's folder does not store. ``train``: the settings of the run's training."""


class Bytes(Score):
    """The nats of documents, as bits per byte."""

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
    """Return the score called ``name``, or if that is the path of a file, the score for the file.
    ``steps``: the steps of fine-tuning on the file. Raises ``UsageError`` for an unknown name."""
    modules_of("train.lab.scores")
    if name in SCORES:
        return SCORES[name]()
    if "FILE" not in SCORES or not Path(name).is_file():
        names = ", ".join(known for known in SCORES if known != "FILE")
        raise UsageError(f"--score {name}: give one of {names}, or the path of a JSONL file")
    return SCORES["FILE"](Path(name), steps)
