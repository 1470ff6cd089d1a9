"""Learning rates as functions of the step, so a resumed run needs no stored state. In each schedule
the rate rises linearly over ``warmup`` steps to ``lr``, starting above 0. After that the rate is
``lr`` times a share that falls from 1 to ``lr_floor``.
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
    """The learning rate after the warm-up. ``share(config, step)``: share of ``lr`` at a step.
    ``fixed_steps(config)``: number of first steps whose rates do not depend on the run's length.
    """

    share: Callable[[TrainConfig, int], float]
    fixed_steps: Callable[[TrainConfig], float]


def learning_rate(config: TrainConfig, step: int) -> float:
    """Return the rate of a step (the first is 0) by the schedule of its stage or of the run."""
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
    """Return the first step of WSD's decay, which takes the share ``decay`` of all steps."""
    return max(config.warmup, config.steps - max(1, round(config.decay * config.steps)))


def _progress(config: TrainConfig, step: int, begin: int) -> float:
    if config.steps == 1:
        return 0.0  # the only step must not have the last rate, which may be 0
    return min(1.0, (step - begin + 1) / max(1, config.steps - begin))


def _cosine(config: TrainConfig, step: int) -> float:
    floor = config.lr_floor
    return floor + (1 - floor) * 0.5 * (
        1 + math.cos(math.pi * _progress(config, step, config.warmup))
    )


def _linear(config: TrainConfig, step: int) -> float:
    return 1 - (1 - config.lr_floor) * _progress(config, step, config.warmup)


def _wsd(fall: Callable[[float], float]) -> Callable[[TrainConfig, int], float]:
    def share(config: TrainConfig, step: int) -> float:
        begin = decay_begins(config)
        if step < begin:
            return 1.0
        return config.lr_floor + (1 - config.lr_floor) * fall(_progress(config, step, begin))

    return share


def _inverse_sqrt(config: TrainConfig, step: int) -> float:
    return max(config.lr_floor, math.sqrt(max(1, config.warmup) / (step + 1)))


SCHEDULES: dict[str, Schedule] = {
    # Loshchilov and Hutter 2017, one period.
    "cosine": Schedule(share=_cosine, fixed_steps=lambda config: config.warmup),
    # Warm-up, stable, decay (Hu et al. 2024).
    "wsd": Schedule(share=_wsd(lambda done: 1 - done), fixed_steps=decay_begins),
    # Hägele et al. 2024: better than a linear decay of the same length.
    "wsd-sqrt": Schedule(share=_wsd(lambda done: 1 - math.sqrt(done)), fixed_steps=decay_begins),
    "linear": Schedule(share=_linear, fixed_steps=lambda config: config.warmup),
    # Vaswani et al. 2017: 1 / sqrt(step), 1 at the end of the warm-up.
    "inverse-sqrt": Schedule(share=_inverse_sqrt, fixed_steps=lambda config: math.inf),
    "constant": Schedule(share=lambda config, step: 1.0, fixed_steps=lambda config: math.inf),
}
