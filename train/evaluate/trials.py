"""Trials: runs of training that are compared, and what is read from them.

A trial is a run as ``pretrain`` makes it, in OUT/NAME/seed-0/ and so on: what is finished is not
done again, and what was stopped goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from llmcurate.base.errors import LlmcurateError
from train.config import TrainConfig
from train.evaluate.paired import interval_of_mean
from train.loop.pretrain import pretrain
from train.runs.metrics import read_lines

POINTS = 100  # of a curve


@dataclass(frozen=True, kw_only=True)
class Trial:
    """``name``: of what is compared, and of its folder. ``shards``: None where the settings have
    sources. ``model``: a preset, or the folder of a
    trained model; ``changes``: its settings by dotted names.
    """

    name: str
    shards: Path | None
    train: TrainConfig
    model: str = "tiny"
    changes: dict[str, Any] = field(default_factory=dict)

    def folder(self, out: Path) -> Path:
        """Where its run lies."""
        return out / self.name / f"seed-{self.train.seed}"


def run_trial(
    trial: Trial, out: Path, on_progress: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Train it: the run's ``seed``, ``folder`` and ``summary``. Raises ``LlmcurateError`` with the
    trial's name.
    """
    folder = trial.folder(out)
    try:
        summary = pretrain(
            trial.shards,
            folder,
            model=trial.model,
            changes=trial.changes,
            train=trial.train,
            on_progress=on_progress,
        )
    except LlmcurateError as error:
        line = f"{trial.name}, seed {trial.train.seed}: {error}"
        raise type(error)(line) from error
    return {"seed": trial.train.seed, "folder": folder, "summary": summary}


def mean(values: list[Any]) -> dict[str, Any] | None:
    """The mean over seeds, its interval and the values; None where one is not known."""
    if None in values:
        return None
    return {"mean": float(np.mean(values)), "interval": interval_of_mean(values), "values": values}


def loss_curve(folders: list[Path], tokens: int) -> list[tuple[int, float]]:
    """(tokens read, loss), the mean over runs and over as many steps as there are to a point.
    ``tokens``: of a step.
    """
    columns = []
    for folder in folders:
        lines = read_lines(folder / "metrics.jsonl")
        losses = [line["loss"] if line.get("loss") is not None else np.nan for line in lines]
        columns.append(losses)
    steps = min(map(len, columns))
    losses = np.nanmean([column[:steps] for column in columns], axis=0)
    stride = -(-steps // POINTS)
    starts = range(0, steps, stride)
    return [
        (min(at + stride, steps) * tokens, float(np.nanmean(losses[at : at + stride])))
        for at in starts
    ]


def text_curve(folders: list[Path], texts: list[str], tokens: int) -> list[tuple[int, float]]:
    """(tokens read, bits a byte of all these texts together), the mean over the runs that were
    scored there.
    """
    points: dict[int, list[float]] = {}
    for folder in folders:
        for line in read_lines(folder / "metrics.jsonl"):
            scores = [line.get("eval", {}).get(name) for name in texts]
            if scores and None not in scores and all(score["bytes"] for score in scores):
                bits = sum(score["bits_per_byte"] * score["bytes"] for score in scores)
                total = sum(score["bytes"] for score in scores)
                points.setdefault(line["step"] * tokens, []).append(bits / total)
    return [(at, float(np.mean(values))) for at, values in sorted(points.items())]
