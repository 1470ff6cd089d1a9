"""The objectives by name. To add one, write its file and put it here."""

from __future__ import annotations

from train.errors import TrainError
from train.objectives.causal import Causal
from train.objectives.example import Objective
from train.objectives.prefix import Prefix

OBJECTIVES: dict[str, Objective] = {one.name: one for one in (Causal(), Prefix())}


def objective(name: str) -> Objective:
    """The objective of that name; raises ``TrainError``."""
    if name not in OBJECTIVES:
        raise TrainError(f"objective {name!r}: choose one of {', '.join(OBJECTIVES)}", exit_code=2)
    return OBJECTIVES[name]
