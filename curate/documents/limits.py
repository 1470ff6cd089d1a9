"""Limits: rules that compare a column of a step with a setting. `decide` reads only these columns
and the language, so that `llmcurate whatif` can apply other settings to the stored columns of a run
with the same code."""

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
    """The column `lang`. names: distinct labels; at: int[rows], indexes into `names` (null: -1)."""

    names: Sequence[str | None]
    at: np.ndarray

    def __getitem__(self, rows: slice | np.ndarray) -> Langs:
        return Langs(self.names, self.at[rows])


@dataclass(frozen=True)
class Limit:
    """A rule that compares `column` (named without the step) with `threshold`.

    setting: the step's key that holds the threshold, `key.entry` for an entry of a mapping, empty
    if the threshold is fixed. threshold: None if the rule is off. above: True drops larger values,
    False smaller ones; closed: True drops values equal to the threshold, too. only: a column that
    must be above 0 for the rule to apply. unless: an earlier rule of the step, whose documents this
    rule skips. detail: the text of the reason.
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
    by_lang: ClassVar[bool] = (
        False  # True if the threshold depends on the language (steps/profiled.py)
    )

    @property
    def on(self) -> bool:
        """True if the rule judges any document."""
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
    """Return {rule: bool[rows]} for rules that are on. `column` maps a name to number[rows]."""
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
