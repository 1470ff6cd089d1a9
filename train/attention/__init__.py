"""Attention as one function, ``attend(q, k, v, mask)``, with several back ends."""

from train.attention.backends import BACKENDS, Backend
from train.attention.choice import attend, check_name, prepare
from train.attention.context import ContextParallel, SharedMask
from train.attention.mask import (
    Alibi,
    Bias,
    Mask,
    Relation,
    Relative,
    of_keys,
    of_queries,
    positions_of,
)

__all__ = [
    "BACKENDS",
    "Alibi",
    "Backend",
    "Bias",
    "ContextParallel",
    "Mask",
    "Relation",
    "Relative",
    "SharedMask",
    "attend",
    "check_name",
    "of_keys",
    "of_queries",
    "positions_of",
    "prepare",
]
