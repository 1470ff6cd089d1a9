"""Learning rates as pure functions of the step, so that a resume has nothing to restore.

Every schedule rises linearly over ``warmup`` steps, never from 0, to ``lr``. What follows is a
share of ``lr``, from 1 down to ``lr_floor``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from llmcurate.base.errors import UsageError
from train.config import TrainConfig, locate, stages_of


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """``share(config, step)``: of ``lr``, at a step after the warm-up. ``settled(config)``: the
    rates of that many first steps do not depend on how many steps there are in all.
    """

    share: Callable[[TrainConfig, int], float]
    settled: Callable[[TrainConfig], float]


def learning_rate(config: TrainConfig, step: int) -> float:
    """The rate of step 0, 1, ...; in a run of stages that of the run's schedule, or of the one that
    the step's stage has for itself.
    """
    if config.stages:
        number, inside = locate(config, step)
        stage = config.stages[number]
        if stage.scheduled:
            config, step = stages_of(config)[number], inside
        elif stage.lr is not None:
            config = dataclasses.replace(config, lr=stage.lr)
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    return config.lr * schedule(config.schedule).share(config, step)


def schedule(name: str) -> Schedule:
    if name not in SCHEDULES:
        raise UsageError(f"schedule {name!r}: choose one of {', '.join(SCHEDULES)}")
    return SCHEDULES[name]


def decay_begins(config: TrainConfig) -> int:
    """The first step of WSD's decay, which takes the last ``decay`` of the steps."""
    return max(config.warmup, config.steps - max(1, round(config.decay * config.steps)))


def _passed(config: TrainConfig, step: int, begin: int) -> float:
    """How much of the way from ``begin`` to the end lies behind after ``step``; 1 at the last step,
    but 0 in a run of one, whose rate is not to be 0.
    """
    if config.steps == 1:
        return 0.0
    return min(1.0, (step - begin + 1) / max(1, config.steps - begin))


def _cosine(config: TrainConfig, step: int) -> float:
    """Loshchilov and Hutter 2017, one period."""
    floor = config.lr_floor
    return floor + (1 - floor) * 0.5 * (
        1 + math.cos(math.pi * _passed(config, step, config.warmup))
    )


def _linear(config: TrainConfig, step: int) -> float:
    return 1 - (1 - config.lr_floor) * _passed(config, step, config.warmup)


def _wsd(fall: Callable[[float], float]) -> Callable[[TrainConfig, int], float]:
    """Warm-up, stable, decay (Hu et al. 2024)."""

    def share(config: TrainConfig, step: int) -> float:
        begin = decay_begins(config)
        if step < begin:
            return 1.0
        return config.lr_floor + (1 - config.lr_floor) * fall(_passed(config, step, begin))

    return share


def _inverse_sqrt(config: TrainConfig, step: int) -> float:
    """Vaswani et al. 2017: 1 / sqrt(step), 1 at the end of the warm-up."""
    return max(config.lr_floor, math.sqrt(max(1, config.warmup) / (step + 1)))


def _warmup(config: TrainConfig) -> float:
    return config.warmup


def _always(config: TrainConfig) -> float:
    return math.inf


SCHEDULES: dict[str, Schedule] = {
    "cosine": Schedule(share=_cosine, settled=_warmup),
    "wsd": Schedule(share=_wsd(lambda done: 1 - done), settled=decay_begins),
    # Hägele et al. 2024: better than the straight line at equal length.
    "wsd-sqrt": Schedule(share=_wsd(lambda done: 1 - math.sqrt(done)), settled=decay_begins),
    "linear": Schedule(share=_linear, settled=_warmup),
    "inverse-sqrt": Schedule(share=_inverse_sqrt, settled=_always),
    "constant": Schedule(share=lambda config, step: 1.0, settled=_always),
}
