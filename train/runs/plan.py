"""The plan of a run, and how two plans differ."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmcurate.base.disk.files import text_digest
from llmcurate.base.settings import flat, to_dict
from train.config import TrainConfig, locate, model_at
from train.model.config import ModelConfig
from train.objective_settings import Auto, Objective
from train.optim.schedules import schedule

VERSION = 4  # of plans and checkpoints


@dataclass(frozen=True, kw_only=True)
class Start:
    """``digest``: SHA-256 over those of the weights' files, which decide the result, wherever they
    lie. ``tokenizer``: where its tokenizer.json is, if it has one. ``objective``: what it learned,
    ``Auto`` where that is not known.
    """

    folder: Path
    config: ModelConfig
    digest: str
    tokenizer: Path
    objective: Objective = field(default_factory=Auto)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run is: its model, how it trains, the fingerprint of the shards, and the digest of the
    weights that it starts from, if they are not random, and of a teacher's. ``start`` and
    ``teaches`` say where these lie.
    """

    model: ModelConfig
    train: TrainConfig
    shards: str
    weights: str = ""
    teacher: str = ""
    start: Start | None = field(default=None, compare=False)
    teaches: Start | None = field(default=None, compare=False)

    def model_at(self, step: int) -> ModelConfig:
        """The model after so many steps."""
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
        """Settings that decide the result and differ, as "name: ours, not theirs"."""
        pairs: list[tuple[str, Any, Any]] = [
            ("shards", self.shards[:12], other.shards[:12]),
            ("teacher's weights", self.teacher[:12] or "none", other.teacher[:12] or "none"),
            ("first weights", self.weights[:12] or "random", other.weights[:12] or "random"),
        ]
        for current, earlier in ((self.model, other.model), (self.train, other.train)):
            ours, others = (flat(placeless(to_dict(config))) for config in (current, earlier))
            pairs += [(name, ours.get(name), others.get(name)) for name in ours | others]
        return [
            f"{name}: {_short(a)}, not {_short(b)}"
            for name, a, b in pairs
            if a != b and name.partition(".")[0] not in TrainConfig.FREE and name != "steps"
        ]

    def settled(self, other: Plan) -> float:
        """How many first steps of this plan are those of ``other``, which may differ in the number
        of steps alone: all, or those whose learning rate does not depend on that number.
        """
        if self.train.steps == other.train.steps:
            return math.inf
        ours, theirs = self.train, other.train
        settled = schedule(ours.schedule).settled
        return min(settled(ours), settled(theirs), ours.steps)


def _short(value: Any) -> Any:
    """A value to show; of a file's text its digest."""
    long = isinstance(value, str) and "\n" in value
    return text_digest(value)[:12] if long else value


def placeless(settings: Any) -> Any:
    """Without the folders of sources: what is in them decides, not where they lie."""
    if isinstance(settings, (list, tuple)):
        return [placeless(value) for value in settings]
    if not isinstance(settings, dict):
        return settings
    return {name: placeless(value) for name, value in settings.items() if name != "shards"}
