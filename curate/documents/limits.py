"""Limits: which column a rule compares with which setting, and on which side it drops.

A step that decides by limits measures, annotates and then calls `decide`, which reads nothing but
those columns and the language. So the same columns, stored with a run, say what other settings
would have kept (`llmcurate whatif`), by the very code that decided in the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow.compute as pc

if TYPE_CHECKING:
    from curate.documents.documents import Documents


@dataclass(frozen=True)
class Langs:
    """The column `lang`. names: its labels; at: int[rows], an index into them, -1 for none."""

    names: Sequence[str | None]
    at: np.ndarray

    def __getitem__(self, rows: slice | np.ndarray) -> Langs:
        return Langs(self.names, self.at[rows])


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
    by_lang: ClassVar[bool] = False  # whether it differs by language (steps/profiled.py)

    @property
    def on(self) -> bool:
        """Return whether the rule judges any document."""
        return self.threshold is not None

    def of(self, label: str | None) -> float | None:
        """The threshold for documents with a label of a language."""
        return self.threshold

    def thresholds(self, langs: Langs) -> float | np.ndarray:
        """The threshold of each row: float64[rows], or one number for all; NaN where it is off."""
        return np.nan if self.threshold is None else self.threshold

    def over(self, values: np.ndarray, threshold: float | np.ndarray) -> np.ndarray:
        """bool[rows]: which values are beyond a threshold, or each beyond its own; NaN is not."""
        mask: np.ndarray
        if self.above:
            mask = values >= threshold if self.closed else values > threshold
        else:
            mask = values <= threshold if self.closed else values < threshold
        return mask


Columns = Callable[[str], np.ndarray]


def marks(limits: Iterable[Limit], column: Columns, langs: Langs) -> dict[str, np.ndarray]:
    """rule -> bool[rows], for the rules that are on; column: gives a column's number[rows]."""
    masks: dict[str, np.ndarray] = {}
    for limit in limits:
        if not limit.on:
            continue
        mask = limit.over(column(limit.column), limit.thresholds(langs))
        if limit.only is not None:
            mask = mask & (column(limit.only) > 0)
        if limit.unless in masks:
            mask = mask & ~masks[limit.unless]
        masks[limit.rule] = mask
    return masks


def langs_of(docs: Documents) -> Langs:
    """The languages of a batch."""
    coded = docs.table["lang"].combine_chunks().dictionary_encode()
    at = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)
    return Langs(coded.dictionary.to_pylist(), at.astype(np.int64))


def decide(docs: Documents, limits: Iterable[Limit]) -> Documents:
    """The batch after the rules of a step that has annotated its columns."""
    chosen, langs = list(limits), langs_of(docs)

    def column(name: str) -> np.ndarray:
        values: np.ndarray = docs.table[f"{docs.step}.{name}"].to_numpy()
        return values

    for rule, mask in marks(chosen, column, langs).items():
        limit = next(x for x in chosen if x.rule == rule)
        detail = None if limit.detail is None else [limit.detail] * len(docs)
        docs = docs.drop(mask, rule, column(limit.column), limit.thresholds(langs), detail)
    return docs
