"""What a model with a head for a task says of texts in JSON lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llmcurate.base.errors import UsageError
from llmcurate.base.messages import json_values
from train.data.vocabulary import Vocabulary
from train.evaluate.judge import opened
from train.lab.objectives.labels import Labelled as Objective
from train.lab.tasks.labelled import Labelled, read_lines
from train.lab.tasks.task_scores import Answer, Label, agreement, predictions, said
from train.loop.distributed import Ranks
from train.loop.evaluate import Scoring
from train.model.config import ModelConfig
from train.objective_settings import Reads, Task
from train.runs.checkpoint import load_plan, newest

LONGEST = 512  # tokens that a model of transformers reads at once


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """``lines``: those of the file, each with its ``prediction``; ``figures``: their agreement with
    labels, where the file has them.
    """

    lines: list[dict[str, Any]]
    figures: dict[str, float]


def predict(
    folder: Path,
    path: Path,
    *,
    context: int | None = None,
    batch_rows: int = 8,
    precision: str = "auto",
    device: str = "auto",
) -> Predicted:
    """Apply the model in ``folder``, ours or as transformers saves it, to a file of its task.
    ``context``: tokens read at once, by default as many as in training. Raises ``LlmcurateError``.
    """
    judged = opened(folder, device=device)
    config = judged.model.config
    task = config.head.task
    if task is None:
        raise UsageError(f"{folder}: has no head for a task: train it with --task")
    width = _context(folder, config) if context is None else context
    if width > config.context:
        raise UsageError(f"context is {width}, the model's is {config.context}: give that or less")
    settings = Task(kind=task.kind, reads=_reads(folder, config))
    lines = [line.values for line in read_lines(path)]
    named = {"classify": "label", "token": "labels", "span": "answer"}[task.kind]
    labelled = bool(lines) and named in lines[0]  # the others must have it then
    data = Labelled(
        path, settings, judged.tokenizer_file, width, names=task.labels, labelled=labelled
    )
    if data.shards.vocab_size > config.vocab:
        raise UsageError(f"{judged.tokenizer_file}: has more tokens than the model")
    place = judged.model.embedding.weight.device
    how = Scoring(Ranks(device=place), batch_rows, precision)
    windows = np.arange(len(data.windows))
    objective = Objective(settings, Vocabulary(size=data.shards.vocab_size))
    predicted = predictions(data, windows, said(judged.model, data, windows, objective, how))
    for sample, of_sample in predicted.items():
        lines[sample]["prediction"] = json_values(_shown(task.kind, of_sample))
    figures: dict[str, float] = {"samples": len(lines), "context": width}
    return Predicted(
        lines=lines, figures=figures | (agreement(data, predicted) if labelled else {})
    )


@dataclass(frozen=True)
class Words:
    """What is said of each word."""

    labels: list[str]
    probabilities: list[float]


def _shown(kind: str, said: Answer | list[Label]) -> Answer | Label | Words:
    if isinstance(said, Answer):
        return said
    if kind != "token":
        return said[0]
    return Words([one.label for one in said], [one.probability for one in said])


def _reads(folder: Path, config: ModelConfig) -> Reads:
    """Which token a text is classified by: as in training, or what suits the model."""
    checkpoint = newest(folder / "checkpoints")
    if checkpoint is not None:
        objective = load_plan(checkpoint).train.objective
        if isinstance(objective, Task) and objective.reads != "auto":
            return objective.reads
    return "last" if config.causal else "first"


def _context(folder: Path, config: ModelConfig) -> int:
    checkpoint = newest(folder / "checkpoints")
    if checkpoint is None:
        return min(config.context, LONGEST)
    return min(config.context, load_plan(checkpoint).train.context)
