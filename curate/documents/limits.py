"""Limits: rules that compare a figure of each document, stored by a step as a column, with a
setting. `decide` reads only such columns and the language. So `llmcurate whatif` can use `decide`
to apply other settings to the stored columns of a run."""

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
    """The language labels of a batch, coded as indexes."""

    names: Sequence[str | None]  # the distinct labels
    at: np.ndarray  # int[rows], indexes into `names`; -1 for null

    def __getitem__(self, rows: slice | np.ndarray) -> Langs:
        return Langs(self.names, self.at[rows])


@dataclass(frozen=True)
class Limit:
    """A rule that drops documents whose value in a column lies beyond a threshold."""

    rule: str
    column: str  # its name without the step
    setting: str  # the threshold's key, `key` or `key.entry`; "" if it is fixed
    threshold: float | None  # None if the rule is off
    above: bool  # True: drop larger values; False: drop smaller ones
    closed: bool = False  # True: also drop values equal to the threshold
    only: str | None = None  # the rule applies only where this column is above 0
    unless: str | None = None  # the rule skips documents of this earlier rule
    detail: str | None = None  # the text of the reason
    by_lang: ClassVar[bool] = (
        False  # True if the threshold depends on the language (steps/profiled.py)
    )

    @property
    def on(self) -> bool:
        """True if the rule is in use: it has a threshold."""
        return self.threshold is not None

    def of(self, label: str | None) -> float | None:
        """Return the threshold for documents with this language label."""
        return self.threshold

    def thresholds(self, langs: Langs) -> float | np.ndarray:
        """Return the thresholds of the rows (float64[rows], or one number for all); NaN: off."""
        return np.nan if self.threshold is None else self.threshold

    def over(self, values: np.ndarray, threshold: float | np.ndarray) -> np.ndarray:
        """Return bool[rows]: True where a value is beyond the threshold (one for all, or one per
        row), False where the value is NaN."""
        mask: np.ndarray
        if self.above:
            mask = values >= threshold if self.closed else values > threshold
        else:
            mask = values <= threshold if self.closed else values < threshold
        return mask


Columns = Callable[[str], np.ndarray]


def marks(limits: Iterable[Limit], column: Columns, langs: Langs) -> dict[str, np.ndarray]:
    """Return {rule: bool[rows]}, True for documents to drop. Rules that are off have no entry.
    `column` maps a name to number[rows]."""
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
    coded = docs.table["lang"].combine_chunks().dictionary_encode()
    at = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)
    return Langs(coded.dictionary.to_pylist(), at.astype(np.int64))


def decide(docs: Documents, limits: Iterable[Limit]) -> Documents:
    """Apply a step's rules to a batch that already has the step's columns. Return the batch."""
    chosen, langs = list(limits), langs_of(docs)

    def column(name: str) -> np.ndarray:
        values: np.ndarray = docs.table[f"{docs.step}.{name}"].to_numpy()
        return values

    for rule, mask in marks(chosen, column, langs).items():
        limit = next(x for x in chosen if x.rule == rule)
        detail = None if limit.detail is None else [limit.detail] * len(docs)
        docs = docs.drop(mask, rule, column(limit.column), limit.thresholds(langs), detail)
    return docs
