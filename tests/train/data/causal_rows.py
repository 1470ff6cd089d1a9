"""Rows as causal language modelling has them."""

from __future__ import annotations

from train.data.rows import Mixture, Rows
from train.objectives.causal import Causal
from train.objectives.example import Example, examples


def causal(rows: Rows | Mixture, numbers: list[int] | None = None) -> Example:
    """These rows, or all."""
    wanted = range(rows.count) if numbers is None else numbers
    return examples(Causal(), rows, [(number, 0) for number in wanted])
