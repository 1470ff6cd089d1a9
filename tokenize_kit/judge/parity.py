"""How unlike tokenizers, and languages within one, are: figures over the results of tallies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNITS = ("byte", "character", "text")


def gini(values: Sequence[float]) -> float | None:
    """Mean difference of all pairs over twice the mean: 0 where all are equal, towards 1 where one
    has everything. None for less than two values, or of nothing."""
    count, total = len(values), sum(values)
    if count < 2 or not total:
        return None
    ordered = enumerate(sorted(values), 1)
    return sum((2 * place - count - 1) * value for place, value in ordered) / (count * total)


def add_gini(result: dict[str, Any], others: str) -> None:
    """Puts `gini_a_byte`, `_character` and `_text` into a `Tally.result`: over its languages, each
    once however much text it has, of the tokens that a unit takes. others: the label that stands
    for many."""
    rows = [row for row in result.get("lang", ()) if row["label"] != others]
    for unit in UNITS:
        costs = [row[f"tokens_a_{unit}"] for row in rows]
        result[f"gini_a_{unit}"] = gini([cost for cost in costs if cost is not None])


def add_lengths(results: list[dict[str, Any]], baseline: int, groups: Sequence[str]) -> None:
    """Puts `nsl` into every result and its rows by group: its tokens over the baseline's on the
    same texts (normalised sequence length, Dagan et al. 2024). baseline: the number of a result."""
    own = results[baseline]
    for result in results:
        result["nsl"] = _over(result, own)
        for name in groups:
            by_label = {row["label"]: row for row in own[name]}
            for row in result[name]:
                row["nsl"] = _over(row, by_label[row["label"]])


def _over(row: dict[str, Any], own: dict[str, Any]) -> float | None:
    return row["tokens"] / own["tokens"] if own["tokens"] else None
