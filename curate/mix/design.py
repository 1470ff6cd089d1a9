"""Design a mix: compute the amount of each group and each stratum from sizes and settings.

Weights apply to groups: a group is a source, or a value of the column `by`. A stratum is the part
of a group whose scores lie in one bucket; each stratum has a separate number of epochs. All sizes
are integers in one unit (tokens, bytes or documents). `Strata` assigns documents to strata.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.mix.published import PRESETS, preset_weights
from llmcurate.base.errors import UsageError

# Shares are exact fractions and ties are broken by name, so the result does not depend on the order
# of the sources or on rounded sums. The remainder after rounding down goes to the largest fractions
# (Hamilton's method): every quota is within 1 of its share.

Exact = Mapping[str, Fraction]
Whole = Mapping[str, int]


def quotas(shares: Mapping[str, Fraction | int], total: int) -> dict[str, int]:
    """Divide `total` into integers in proportion to `shares`, which must not all be 0. The quotas
    add up to `total`; each quota is the exact share rounded down or up."""
    whole = Fraction(sum(shares.values()))
    exact = {name: share * total / whole for name, share in shares.items()}
    quota = {name: int(value) for name, value in exact.items()}
    remainder = total - sum(quota.values())
    for name in sorted(exact, key=lambda name: (quota[name] - exact[name], name))[:remainder]:
        quota[name] += 1
    return quota


def tempered(sizes: Whole, alpha: float) -> dict[str, Fraction]:
    """Return weights in proportion to size ** alpha, 1 for the largest source and 0 for empty ones.
    With alpha 1 they are proportional to size, with 0 equal; mT5 (Xue et al. 2021) and XLM-R
    (Conneau et al. 2020) use 0.3."""
    largest = max(sizes.values(), default=0)
    return {
        name: Fraction((size / largest) ** alpha) if size else Fraction(0)
        for name, size in sizes.items()
    }


def clamped(
    weights: Mapping[str, Fraction], total: Fraction, low: Exact, high: Exact
) -> dict[str, Fraction]:
    """Return amounts proportional to the weights within bounds, with the sum `total` if possible.
    All amounts are weight * scale with the same scale, but raised to the bound in `low` and cut to
    the bound in `high`. A name without a bound is not limited. If no scale reaches `total`, all
    amounts are at their lower or all at their upper bounds, so callers must check the sum. With
    equal weights and high = cap * size this is UniMax (Chung et al. 2023, algorithm 1)."""

    def at(scale: Fraction | None) -> dict[str, Fraction]:
        amounts = {}
        for name, weight in weights.items():
            floor = low.get(name, Fraction(0))
            if scale is None:  # beyond the last bound
                value = high[name] if weight and name in high else floor
            else:
                value = max(scale * weight, floor)
                value = min(value, high[name]) if name in high else value
            amounts[name] = value
        return amounts

    def add(scale: Fraction) -> Fraction:
        return Fraction(sum(at(scale).values()))

    bends = sorted(
        {bound[n] / w for bound in (low, high) for n, w in weights.items() if w and n in bound}
    )
    above = bisect_left(bends, total, key=add)
    if total <= add(Fraction(0)):
        return at(Fraction(0))
    before = bends[above - 1] if above else Fraction(0)
    base = add(before)
    if above < len(bends):
        after = bends[above]
        slope = (add(after) - base) / (after - before) if after > before else Fraction(0)
    else:
        slope = add(before + 1) - base  # linear from here on
    if slope == 0:
        return at(before) if base == total else at(None)
    return at(before + (total - base) / slope)


POLICIES = ("proportional", "temperature", "unimax")
Key = tuple[str, int]  # group, bucket of scores


@dataclass(frozen=True)
class Request:
    """The settings of a mix. `weights` are not used if amounts or epochs of groups are given."""

    weights: str | Mapping[str, float] = "proportional"  # policy, preset, or number per group
    alpha: float = 0.3
    total: int | None = None  # size of the mix; None for the size of the sources
    amounts: Mapping[str, int] = field(default_factory=dict)
    epochs: Mapping[str, float] = field(default_factory=dict)
    floors: Mapping[str, float] = field(default_factory=dict)  # smallest share in the mix
    caps: Mapping[str, float] = field(default_factory=dict)  # largest share in the mix
    max_epochs: float = 4.0
    buckets: tuple[float, ...] | None = None  # relative epochs per score bucket


@dataclass(frozen=True)
class Design:
    """A designed mix. All amounts are numbers of tokens, bytes or documents (the mix's unit)."""

    amounts: dict[str, int]  # per group
    strata: dict[Key, int]  # per stratum
    refused: str | None = None  # why the request is impossible; the mix is then the nearest one


def exact(number: float | int | str) -> Fraction:
    """Return a number as the exact fraction of its decimal text: 0.1 becomes 1/10."""
    return Fraction(str(number))


def design(sizes: Mapping[Key, int], request: Request) -> Design:
    """Return the mix that a request gives for strata of these sizes. Raises UsageError if the
    request names a group that does not exist or has contradicting bounds."""
    by_bucket = request.buckets
    times = {key: exact(by_bucket[key[1]]) if by_bucket else Fraction(1) for key in sizes}
    groups = sorted({group for group, _ in sizes})
    check(groups, request)
    # The size of one epoch of each group, with buckets repeated by their relative epochs.
    effective = {g: Fraction(0) for g in groups}
    most = {g: Fraction(0) for g in groups}
    for key, size in sizes.items():
        effective[key[0]] += times[key] * size
        if size:
            most[key[0]] = max(most[key[0]], times[key])
    cap = exact(request.max_epochs)
    capacity = {
        g: Fraction(int(cap * effective[g] / most[g])) if most[g] else Fraction(0) for g in groups
    }
    if request.amounts or request.epochs:
        plan = _by_group(groups, effective, capacity, request)
    else:
        plan = _shared(groups, effective, capacity, request)
    strata: dict[Key, int] = dict.fromkeys(sizes, 0)
    for group, amount in plan.amounts.items():
        buckets = {str(b): times[g, b] * n for (g, b), n in sizes.items() if g == group}
        if amount and any(buckets.values()):
            for bucket, quota in quotas(buckets, amount).items():
                strata[group, int(bucket)] = quota
    return Design(plan.amounts, strata, plan.refused)


def check(groups: list[str], request: Request) -> None:
    """Raise UsageError if the request names a group that does not exist."""
    named = {"amounts": request.amounts, "epochs": request.epochs}
    named |= {"floors": request.floors, "caps": request.caps}
    if not isinstance(request.weights, str):
        named["weights"] = request.weights
    for setting, values in named.items():
        for name in values:
            if name not in groups:
                known = ", ".join(groups)[:300]
                raise UsageError(f"mix: {setting} names {name!r}; the names are {known}")


def _by_group(
    groups: list[str],
    effective: Mapping[str, Fraction],
    capacity: Mapping[str, Fraction],
    request: Request,
) -> Design:
    if both := sorted(set(request.amounts) & set(request.epochs)):
        raise UsageError(f"mix: {both[0]}: give an amount or epochs, not both")
    amounts = {
        g: int(request.amounts[g])
        if g in request.amounts
        else round(exact(request.epochs.get(g, 1)) * effective[g])
        for g in groups
    }
    return _within(
        amounts, capacity, request, {g: min(a, int(capacity[g])) for g, a in amounts.items()}
    )


def _shared(
    groups: list[str],
    effective: Mapping[str, Fraction],
    capacity: Mapping[str, Fraction],
    request: Request,
) -> Design:
    weights, even = _weights(groups, effective, request)
    if not any(weights.values()):
        raise UsageError("mix: no source with a weight has any text")
    total = request.total
    if total is None:
        total = int(sum(effective[g] for g in groups if weights[g]))
    low = {g: exact(v) * total for g, v in request.floors.items()}
    high = {g: exact(v) * total for g, v in request.caps.items()}
    _possible(request, weights)
    bounded = {g: min(high.get(g, capacity[g]), capacity[g]) for g in groups}
    reachable = {g: min(v, capacity[g]) for g, v in low.items()}
    # UniMax applies the capacity of the sources first: the cap is part of the policy.
    first = bounded if even else high
    ideal = clamped(weights, Fraction(total), low, first)
    nearest = clamped(weights, Fraction(total), reachable, bounded)
    amounts = _whole(ideal, total)
    return _within(amounts, capacity, request, _whole(nearest, total), total)


def _whole(amounts: Mapping[str, Fraction], total: int) -> dict[str, int]:
    reached = min(total, int(sum(amounts.values())))
    if not reached:
        return dict.fromkeys(amounts, 0)
    return quotas(amounts, reached)


def _weights(
    groups: list[str], effective: Mapping[str, Fraction], request: Request
) -> tuple[dict[str, Fraction], bool]:
    sizes = {g: int(effective[g]) for g in groups}
    if not isinstance(request.weights, str):
        return {g: exact(request.weights.get(g, 0)) for g in groups}, False
    if request.weights in PRESETS:
        table = preset_weights(request.weights)
        by_lower = {g.lower(): g for g in groups}
        if missing := [name for name in table if name not in by_lower]:
            raise UsageError(
                f"mix: {request.weights} needs a source named {missing[0]!r}; write"
                f" {missing[0]}=FOLDER, or give weights as numbers (its sources:"
                f" {', '.join(table)})"
            )
        return {g: table.get(g.lower(), Fraction(0)) for g in groups}, False
    if request.weights == "unimax":
        return {g: Fraction(int(sizes[g] > 0)) for g in groups}, True
    return tempered(sizes, request.alpha if request.weights == "temperature" else 1.0), False


def _possible(request: Request, weights: Mapping[str, Fraction]) -> None:
    for name, floor in request.floors.items():
        if floor > request.caps.get(name, 1):
            raise UsageError(f"mix: the floor of {name} is above its cap")
    if sum(map(exact, request.floors.values())) > 1:
        raise UsageError("mix: the floors add up to more than 1")
    named = [g for g, w in weights.items() if w]
    if all(g in request.caps for g in named) and sum(exact(request.caps[g]) for g in named) < 1:
        raise UsageError("mix: the caps of all sources add up to less than 1")


def _within(
    amounts: dict[str, int],
    capacity: Mapping[str, Fraction],
    request: Request,
    nearest: dict[str, int],
    total: int | None = None,
) -> Design:
    over = [g for g, amount in amounts.items() if amount > capacity[g]]
    if not over and (total is None or sum(amounts.values()) >= total):
        return Design(amounts, {})
    if over:
        g = max(over, key=lambda g: (amounts[g] - capacity[g], g))
        most = int(capacity[g])
        why = (
            f"it asks for {amounts[g]:,} of {g}, but {request.max_epochs:g} epochs give only"
            f" {most:,}"
        )
    else:
        why = f"the sources give only {sum(amounts.values()):,} of {total:,} within the bounds"
    return Design(nearest, {}, why)


NONE = "none"  # group of documents without a value in the column `by`
MOST_GROUPS = 10_000


@dataclass
class Strata:
    """Assigns documents to strata, numbered in the order of their first document. A stratum is a
    group and a score bucket. Bucket i holds edges[i - 1] <= score < edges[i]; one more bucket, the
    last, holds documents without a score."""

    by: str | None = None  # column of the groups; None if sources are groups
    column: str | None = None  # with the scores
    edges: tuple[float, ...] = ()
    since: datetime | None = None  # earlier documents are left out
    until: datetime | None = None  # documents from this time on are left out
    undated: bool = True  # False to leave out documents without a date
    keys: dict[Key, int] = field(default_factory=dict)  # stratum -> its number
    outside: dict[str, Counter[str]] = field(default_factory=dict)  # source -> reason -> documents

    def of(self, source: str, batch: pa.RecordBatch) -> np.ndarray:
        """Return int32[rows]: the stratum number of each row, -1 for rows left out of the mix."""
        buckets = self._buckets(batch)
        groups, names = self._groups(source, batch)
        pair = groups.astype(np.int64) * (len(self.edges) + 2) + buckets
        values, inverse = np.unique(pair, return_inverse=True)
        numbers = []
        for value in values.tolist():
            group, bucket = divmod(value, len(self.edges) + 2)
            numbers.append(self.keys.setdefault((names[group], bucket), len(self.keys)))
        if len(self.keys) > MOST_GROUPS * (len(self.edges) + 2):
            raise UsageError(f"mix: {self.by} has more than {MOST_GROUPS:,} values: choose another")
        strata = np.array(numbers, np.int32)[inverse.reshape(-1)]
        return self._dated(source, batch, strata)

    def begin(self) -> None:
        self.outside = {}

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        if name not in batch.schema.names:
            raise UsageError(
                f"mix: the documents have no column {name!r}; they have"
                f" {', '.join(batch.schema.names)[:300]}"
            )
        return batch[name]

    def _groups(self, source: str, batch: pa.RecordBatch) -> tuple[np.ndarray, list[str]]:
        if self.by is None:
            return np.zeros(batch.num_rows, np.int32), [source]
        column = self._column(batch, self.by)
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            raise UsageError(f"mix: the column {self.by!r} holds {column.type}, not names")
        encoded = pc.fill_null(column.cast(pa.string()), NONE).dictionary_encode()
        return encoded.indices.to_numpy(), [v or NONE for v in encoded.dictionary.to_pylist()]

    def _buckets(self, batch: pa.RecordBatch) -> np.ndarray:
        if self.column is None:
            return np.zeros(batch.num_rows, np.int64)
        column = self._column(batch, self.column)
        try:
            scores = pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise UsageError(
                f"mix: the column {self.column!r} holds {column.type}, not scores"
            ) from None
        buckets = np.searchsorted(np.array(self.edges), scores, side="right")
        buckets[np.isnan(scores)] = len(self.edges) + 1
        return buckets

    def _dated(self, source: str, batch: pa.RecordBatch, strata: np.ndarray) -> np.ndarray:
        if self.since is None and self.until is None:
            return strata
        dates = batch["date"]
        left_out = self.outside.setdefault(source, Counter())
        null = dates.is_null().to_numpy(zero_copy_only=False)
        masks: list[tuple[str, Any]] = []
        if self.since is not None:
            early = pc.less(dates, pa.scalar(self.since, dates.type))
            masks.append(("before the window", early))
        if self.until is not None:
            late = pc.greater_equal(dates, pa.scalar(self.until, dates.type))
            masks.append(("after the window", late))
        if not self.undated:
            masks.append(("without a date", pa.array(null)))
        for reason, mask in masks:
            out = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
            if out.any():
                left_out[reason] += int(out.sum())
                strata = np.where(out, np.int32(-1), strata)
        return strata


def moment(text: str | None, setting: str) -> datetime | None:
    """Parse the date in a setting as UTC. Raises UsageError if the text is not a date."""
    if text is None:
        return None
    try:
        value = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(f"mix: {setting} {text!r} is not a date; write it as 2024-01-31") from None
    return value if value.tzinfo else value.replace(tzinfo=timezone.utc)
