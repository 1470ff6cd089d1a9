"""A run in stages: which stage a step belongs to is a function of the step and the settings."""

from __future__ import annotations

import dataclasses
import functools

from train.loop.config import TrainConfig


@functools.lru_cache(maxsize=16)
def stages_of(config: TrainConfig) -> tuple[TrainConfig, ...]:
    """The settings of each stage, ``steps`` those of the stage; of a run without, its own."""
    if not config.stages:
        return (config,)
    found = []
    for number, stage in enumerate(config.stages):
        given = {
            field.name: value
            for field in dataclasses.fields(stage)
            if field.name != "name" and (value := getattr(stage, field.name)) not in (None, ())
        }
        first = {"warmup": config.warmup if number == 0 else 0}
        found.append(dataclasses.replace(config, **(first | given), stages=()))
    return tuple(found)


def locate(config: TrainConfig, step: int) -> tuple[int, int]:
    """(stage, step within it) of a step of the run, all from 0; a step after the last is one of
    the last stage."""
    stages = stages_of(config)
    for number, stage in enumerate(stages):
        if step < stage.steps or number == len(stages) - 1:
            break
        step -= stage.steps
    return number, step


def names(config: TrainConfig) -> list[str]:
    """What the stages are called: by number where they have no name."""
    given = [stage.name for stage in config.stages] or [None]
    return [name or f"stage {number + 1}" for number, name in enumerate(given)]
