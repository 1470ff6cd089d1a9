"""Upcycling: a dense model as a mixture of experts, each a copy of its feed-forward.

With the weights of a token's experts summing to one the mixture computes what the dense model did,
until training tells the copies apart (Komatsuzaki et al. 2023, section 2.2).
"""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

from train.errors import TrainError
from train.model.config import ModelConfig
from train.model.feed_forward_settings import Dense, Experts

_BLOCK = r"(?:stack\.blocks\.(?P<block>\d+)|mtp\.(?P<ahead>\d+)\.block)\.feed_forward\."
_MATRIX = re.compile(rf"(?P<matrix>{_BLOCK}(?:gate|up|down))\.weight")
_ROUTER = re.compile(rf"{_BLOCK}router\.")


def check_upcycling(old: Dense | Experts, own: Dense | Experts) -> None:
    """Raise ``TrainError`` where ``own`` cannot be such experts in place of ``old``."""
    assert isinstance(old, Dense) and isinstance(own, Experts)
    same: dict[str, tuple[Any, Any]] = {
        "width": (own.width, old.width),
        "dense_width": (own.dense_width or own.width, old.width),
        "activation": (own.activation, old.activation),
        "shared_width": (own.shared_width, 0),
        "scale": (own.scale, 1.0),
    }
    if own.routing != "hash":  # there each weight is 1
        same["routing"], same["normalise"] = (own.routing, "top_k"), (own.normalise, True)
    for name, (value, wanted) in same.items():
        if value != wanted:
            raise TrainError(
                f"feed_forward.{name} is {value}: experts that are copies of the dense "
                f"feed-forward, and together compute what it did, need {wanted}",
                exit_code=2,
            )
    if old.bias:
        raise TrainError(
            "feed_forward=experts: the dense feed-forward has biases, experts have none",
            exit_code=2,
        )


def upcycled(name: str, weight: Tensor, config: ModelConfig) -> tuple[str, Tensor]:
    """A weight of the dense model, as the mixture of ``config`` has it."""
    own, matrix = config.feed_forward, _MATRIX.fullmatch(name)
    assert isinstance(own, Experts)
    if matrix is None:
        return name, weight
    ahead = matrix["ahead"] is not None
    layer = config.layers + int(matrix["ahead"]) if ahead else int(matrix["block"]) * config.share
    if not own.at(layer):
        return name, weight
    return matrix["matrix"], weight.expand(own.count, -1, -1).contiguous()


def of_router(name: str) -> bool:
    """Whether a weight has nothing in the dense model that it comes from."""
    return _ROUTER.match(name) is not None
