"""Limits: which column a rule compares with which setting, and on which side it drops.

A step that decides by limits measures, annotates and then calls `decide`, which reads nothing but
those columns. So the same columns, stored with a run, say what other settings would have kept
(`llmcurate whatif`), by the very code that decided in the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from curate.documents.documents import Documents
    from curate.steps.contracts import Settings


@dataclass(frozen=True)
class Limit:
    """One rule: `column` (without the step's name) against `threshold`.

    setting: the key of the step that holds the threshold, `key.entry` for an entry of a mapping,
    empty where it is fixed. threshold: None where the rule is off. above: drops what is larger,
    else what is smaller; closed: drops the threshold itself too. only: a column that must be above
    0 for the rule to judge a document. unless: a rule of the same step, earlier in its list, whose
    documents this one leaves alone. detail: what the reason says.
    """

    rule: str
    column: str
    setting: str
    threshold: float | None
    above: bool
    closed: bool = False
    only: str | None = None
    unless: str | None = None
    detail: str | None = None

    def over(self, values: np.ndarray, threshold: float) -> np.ndarray:
        """bool[rows]: which values are beyond a threshold; NaN is not."""
        mask: np.ndarray
        if self.above:
            mask = values >= threshold if self.closed else values > threshold
        else:
            mask = values <= threshold if self.closed else values < threshold
        return mask


Columns = Callable[[str], np.ndarray]


def marks(limits: Iterable[Limit], column: Columns) -> dict[str, np.ndarray]:
    """rule -> bool[rows], for the rules that are on; column: gives a column's number[rows]."""
    masks: dict[str, np.ndarray] = {}
    for limit in limits:
        if limit.threshold is None:
            continue
        mask = limit.over(column(limit.column), limit.threshold)
        if limit.only is not None:
            mask = mask & (column(limit.only) > 0)
        if limit.unless in masks:
            mask = mask & ~masks[limit.unless]
        masks[limit.rule] = mask
    return masks


def decide(docs: Documents, limits: Iterable[Limit]) -> Documents:
    """The batch after the rules of a step that has annotated its columns."""
    chosen = list(limits)

    def column(name: str) -> np.ndarray:
        values: np.ndarray = docs.table[f"{docs.step}.{name}"].to_numpy()
        return values

    for rule, mask in marks(chosen, column).items():
        limit = next(x for x in chosen if x.rule == rule)
        detail = None if limit.detail is None else [limit.detail] * len(docs)
        docs = docs.drop(mask, rule, column(limit.column), limit.threshold, detail)
    return docs


def columns_of(steps: Iterable[Settings]) -> dict[str, str]:
    """`step.rule` to the `step.column` that it looks at, of all limits of these steps."""
    return {f"{s.label}.{x.rule}": f"{s.label}.{x.column}" for s in steps for x in s.limits()}
