"""How long a run still takes, at its own pace."""

from __future__ import annotations

import time

from train.config import TrainConfig
from train.measure.accounting import run_cost
from train.model.config import ModelConfig


class Pace:
    """Seconds that are left of a run, from step ``done`` on.

    The pace is that since the first figures came: what comes before them, as compilation, is done
    once. It counts operations, since stages differ in the length of their rows, and whatever the
    clock does, evaluations and checkpoints too.
    """

    def __init__(self, model: ModelConfig, train: TrainConfig, done: int) -> None:
        self._model, self._train = model, train
        self._began = time.perf_counter(), self._work(done)
        self._settled = False

    def left(self, done: int) -> float:
        """At the moment, after ``done`` steps."""
        (then, before), now, work = self._began, time.perf_counter(), self._work(done)
        if not self._settled:
            self._began, self._settled = (now, work), True
        return work * (now - then) / (before - work) if work else 0.0

    def _work(self, done: int) -> float:
        """Operations of the steps after ``done``."""
        return run_cost(self._model, self._train, done)[1]
