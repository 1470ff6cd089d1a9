"""The optimisers by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from train.config import TrainConfig
from train.errors import TrainError
from train.optim.adafactor import adafactor
from train.optim.adamw import adamw
from train.optim.groups import Groups, group
from train.optim.lion import lion
from train.optim.muon import muon
from train.optim.part import Optimizers, Part

OPTIMIZERS: dict[str, Callable[[Groups, TrainConfig], list[Part]]] = {
    "adamw": adamw,
    "muon": muon,
    "adafactor": adafactor,
    "lion": lion,
}


def optimizers(model: nn.Module, config: TrainConfig) -> Optimizers:
    """The optimisers of all of a model's weights."""
    check(config.optimizer)
    return Optimizers(OPTIMIZERS[config.optimizer](group(model), config))


def check(name: str) -> None:
    if name not in OPTIMIZERS:
        raise TrainError(f"optimizer {name!r}: choose one of {', '.join(OPTIMIZERS)}", exit_code=2)
