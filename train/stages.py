"""What a run's text comes from, and the stretches that it may be cut into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from llmcurate.base.errors import UsageError
from llmcurate.base.settings import Setting, check
from train.model.position_settings import RopeScaling


@dataclass(frozen=True, kw_only=True)
class Source:
    """A folder of shards and its part of the training text, by one of ``weight``, ``tokens`` and
    ``epochs`` at most. With none, a source has the part that its size gives it.
    """

    shards: Annotated[str, Setting("Folder of the token shards.")]
    name: Annotated[
        str | None,
        Setting("Name in the summary. Without a value it is that of the folder."),
    ] = None
    weight: Annotated[
        float | None, Setting("Weight relative to the weights of the other sources.", gt=0)
    ] = None
    tokens: Annotated[
        int | None, Setting("Tokens that the run, or its stage, takes of the source.", ge=1)
    ] = None
    epochs: Annotated[
        float | None, Setting("Epochs of the source in the run, or in its stage.", gt=0)
    ] = None

    def __post_init__(self) -> None:
        amounts = [
            name for name in ("weight", "tokens", "epochs") if getattr(self, name) is not None
        ]
        if len(amounts) > 1:
            raise UsageError(f"source {self.label}: give {' or '.join(amounts)}")
        check(self, f"source {self.label}: ")

    @property
    def label(self) -> str:
        return self.name or self.shards.rstrip("/").rsplit("/", 1)[-1]


_SAME = "Without a value it is that of the run."


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stretch of the run, with what differs in it from the run's own settings. The run's schedule
    and warm-up go on over all stages; a stage that has a ``schedule``, ``warmup``, ``decay`` or
    ``lr_floor`` of its own follows that, over its own steps.
    """

    steps: Annotated[int, Setting("Number of steps of the stage.", ge=1)]
    name: Annotated[
        str | None, Setting("Name in the summary. Without a value it is `stage 1` and so on.")
    ] = None
    context: Annotated[int | None, Setting(f"Tokens in a row. {_SAME}", ge=1)] = None
    rows: Annotated[int | None, Setting(f"Rows in the batch of a step. {_SAME}", ge=1)] = None
    packing: Annotated[str | None, Setting(f"How documents fill rows. {_SAME}")] = None
    lr: Annotated[float | None, Setting(f"Learning rate after warm-up. {_SAME}", gt=0)] = None
    lr_floor: Annotated[
        float | None, Setting(f"Share of the learning rate at the end. {_SAME}", ge=0, le=1)
    ] = None
    schedule: Annotated[str | None, Setting(f"Schedule of the learning rate. {_SAME}")] = None
    warmup: Annotated[
        int | None,
        Setting(
            "Steps of warm-up of a schedule of its own. Without a value 0, in the first stage that "
            "of the run.",
            ge=0,
        ),
    ] = None
    decay: Annotated[
        float | None,
        Setting(f"Share of the steps over which the schedule wsd falls. {_SAME}", ge=0, le=1),
    ] = None
    sources: Annotated[
        tuple[Source, ...], Setting("Sources of the stage. Without any they are those of the run.")
    ] = ()
    theta: Annotated[
        float | None,
        Setting("Base of the rotary frequencies from here on. Without a value it stays.", gt=0),
    ] = None
    scaling: Annotated[
        RopeScaling | None,
        Setting("How rotary positions are stretched from here on. Without a value as before."),
    ] = None

    def __post_init__(self) -> None:
        check(self, f"stage {self.name or ''}: ")

    @property
    def scheduled(self) -> bool:
        """Whether it has a schedule of its own."""
        own = (self.schedule, self.warmup, self.decay, self.lr_floor)
        return any(value is not None for value in own)
