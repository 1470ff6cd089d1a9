"""The plan of a run, and how two plans differ."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmcurate.base.disk.files import text_digest
from llmcurate.base.settings import flatten, to_dict
from train.config import TrainConfig, locate, model_at
from train.model.config import ModelConfig
from train.objective_settings import Auto, Objective
from train.optim.schedules import schedule

VERSION = 4  # of plans and checkpoints


@dataclass(frozen=True, kw_only=True)
class Start:
    """A model that training starts from, or a teacher. ``digest``: SHA-256 of the digests of the
    weight files, so that it does not depend on the folder's name. ``tokenizer``: path of the
    tokenizer.json. ``objective``: the one that the model was trained with; ``Auto`` if unknown."""

    folder: Path
    config: ModelConfig
    digest: str
    tokenizer: Path
    objective: Objective = field(default_factory=Auto)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The settings and inputs that decide the result of a run. ``shards``: fingerprint of the
    shards. ``weights``: digest of the weights that the run starts from, empty if they are random.
    ``teacher``: digest of a teacher's weights. ``start``: the model that the run starts from.
    ``teacher_start``: the teacher. These two are None if the run has no such model."""

    model: ModelConfig
    train: TrainConfig
    shards: str
    weights: str = ""
    teacher: str = ""
    start: Start | None = field(default=None, compare=False)
    teacher_start: Start | None = field(default=None, compare=False)

    def model_at(self, step: int) -> ModelConfig:
        stage, _ = locate(self.train, max(0, step - 1))
        return model_at(self.model, self.train, stage)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "model": to_dict(self.model),
            "train": to_dict(self.train),
            "shards": self.shards,
            **({"weights": self.weights} if self.weights else {}),
            **({"teacher": self.teacher} if self.teacher else {}),
        }

    def differences(self, other: Plan) -> list[str]:
        """Return the differences that change the result, as "name: own value, not other's"."""
        pairs: list[tuple[str, Any, Any]] = [
            ("shards", self.shards[:12], other.shards[:12]),
            ("teacher's weights", self.teacher[:12] or "none", other.teacher[:12] or "none"),
            ("first weights", self.weights[:12] or "random", other.weights[:12] or "random"),
        ]
        for current, earlier in ((self.model, other.model), (self.train, other.train)):
            ours, others = (
                flatten(without_folders(to_dict(config))) for config in (current, earlier)
            )
            pairs += [(name, ours.get(name), others.get(name)) for name in ours | others]
        return [
            f"{name}: {_short(a)}, not {_short(b)}"
            for name, a, b in pairs
            if a != b and name.partition(".")[0] not in TrainConfig.FREE and name != "steps"
        ]

    def shared_steps(self, other: Plan) -> float:
        """Return how many steps, counted from the first, have the same learning rates in this plan
        and in ``other``. The plans may differ only in their numbers of steps. If these are equal
        too, the result is infinity."""
        if self.train.steps == other.train.steps:
            return math.inf
        ours, theirs = self.train, other.train
        fixed_steps = schedule(ours.schedule).fixed_steps
        return min(fixed_steps(ours), fixed_steps(theirs), ours.steps)


def _short(value: Any) -> Any:
    long = isinstance(value, str) and "\n" in value
    return text_digest(value)[:12] if long else value


def without_folders(settings: Any) -> Any:
    """Return settings without the folders of sources: only the content of a folder matters."""
    if isinstance(settings, (list, tuple)):
        return [without_folders(value) for value in settings]
    if not isinstance(settings, dict):
        return settings
    return {name: without_folders(value) for name, value in settings.items() if name != "shards"}
