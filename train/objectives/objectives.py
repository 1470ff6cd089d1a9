"""The objectives by name. To add one, write its file and put it here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from train.config import TrainConfig
from train.data.feed import Feed
from train.data.rows import Takes
from train.data.vocabulary import Vocabulary
from train.errors import TrainError
from train.model.config import ModelConfig
from train.objectives.causal import Causal
from train.objectives.example import Objective
from train.objectives.masked import Masked
from train.objectives.pairs import Pairs
from train.objectives.prefix import Prefix
from train.objectives.replaced import Replaced

_Make = Callable[[TrainConfig, Vocabulary], Objective]
DECODERS: dict[str, _Make] = {
    "causal": lambda settings, tokens: Causal(),
    "prefix": lambda settings, tokens: Prefix(),
}
ENCODERS: dict[str, _Make] = {
    "masked": Masked,
    "next-sentence": partial(Pairs, next=True),
    "sentence-order": partial(Pairs, next=False),
    "replaced": Replaced,
}
OBJECTIVES = DECODERS | ENCODERS
# Special tokens that an objective needs, by their roles, and the positions that its pieces take.
ROLES = {
    "masked": Masked.needs,
    "next-sentence": Pairs.needs,
    "sentence-order": Pairs.needs,
    "replaced": Replaced.needs,
}
TAKES: dict[str, Takes] = {"next-sentence": Pairs.takes, "sentence-order": Pairs.takes}
_OF_PAIRS = {"none": "masked", "next": "next-sentence", "order": "sentence-order"}


def name_for(model: ModelConfig, asked: str) -> str:
    """The objective that is meant for a model; raises ``TrainError`` where it cannot learn it."""
    if model.head.replaced and model.generator is None:
        raise TrainError(
            "head.replaced without generator: nothing would replace tokens; set generator.smaller",
            exit_code=2,
        )
    if asked == "auto" and model.generator is not None:
        return "replaced"
    if asked == "auto":
        return "causal" if model.causal else _OF_PAIRS[model.head.pair]
    suited = list(DECODERS) if model.causal else ["masked"]
    if model.generator is not None:
        suited = ["replaced"]
    if model.head.pair != "none":
        suited.append(_OF_PAIRS[model.head.pair])
    if asked not in suited:
        why = " for this model" if asked in OBJECTIVES else ""
        raise TrainError(
            f"objective {asked!r}{why}: choose one of auto, {', '.join(suited)}", exit_code=2
        )
    return asked


def objective(settings: TrainConfig, tokens: Vocabulary) -> Objective:
    """The objective of a run, whose settings name it."""
    return OBJECTIVES[settings.objective](settings, tokens)


def feed_of(shards: Path | None, settings: TrainConfig) -> Feed:
    """The feed of a run, as its objective reads it."""
    name = settings.objective
    return Feed(shards, settings, ROLES.get(name, ()), TAKES.get(name))


def both_ways(name: str) -> bool:
    """Whether a model that learned by this objective reads a prompt both ways in generation."""
    return name == "prefix" and Prefix.both_ways
