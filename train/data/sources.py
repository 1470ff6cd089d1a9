"""Settings of what a run trains on: sources and how much of each."""

from __future__ import annotations

import math
from dataclasses import dataclass

from train.errors import TrainError


@dataclass(frozen=True, kw_only=True)
class Source:
    """A folder of shards and its part of the training text.

    At most one of ``weight`` (relative to the other sources' weights), ``tokens`` and ``epochs``
    (how much is taken in the run, or in its stage); with none, a source has the part that its size
    gives it. ``name`` is what the summary calls it; the folder's name by default.
    """

    shards: str
    name: str | None = None
    weight: float | None = None
    tokens: int | None = None
    epochs: float | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("weight", "tokens", "epochs") if getattr(self, name) is not None]
        if len(given) > 1:
            raise TrainError(f"source {self.label}: give {' or '.join(given)}", exit_code=2)
        for name in given:
            if not 0 < getattr(self, name) < math.inf:
                value = getattr(self, name)
                raise TrainError(
                    f"source {self.label}: {name} is {value}: it must be over 0 and finite",
                    exit_code=2,
                )

    @property
    def label(self) -> str:
        return self.name or self.shards.rstrip("/").rsplit("/", 1)[-1]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stretch of the run, with what differs in it from the run's own settings.

    ``warmup`` is 0 after the first stage unless given. A schedule goes over the stage's own steps.
    """

    steps: int
    name: str | None = None
    context: int | None = None
    rows: int | None = None
    packing: str | None = None
    lr: float | None = None
    lr_floor: float | None = None
    schedule: str | None = None
    warmup: int | None = None
    decay: float | None = None
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise TrainError(f"stage {self.name or ''}: steps is {self.steps}: give 1 or more")
