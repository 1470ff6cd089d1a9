"""Design of a mix: the amount of each group and of each of its strata, from sizes and settings.

A group is what weights are given to: a source, or a value of the column `by`. A stratum is a part
of a group with its own number of epochs: a bucket of scores. Sizes are whole numbers of one unit.
`Strata` says of each document which one it is of, if any.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from llmcurate.base.errors import UsageError


@dataclass(frozen=True)
class Row:
    """One source of a published table. percent: of the tokens that were sampled; epochs: how often
    the source was read; disk_gb: its size in the paper."""

    percent: str
    epochs: str
    disk_gb: int

    def unique(self, total: int) -> Fraction:
        """Its tokens, as share and epochs imply them: the paper does not print them."""
        return Fraction(self.percent) / 100 * total / Fraction(self.epochs)


# Touvron et al. 2023 (LLaMA), table 1; the epochs are of a run of 1.4 T tokens.
LLAMA1_TOKENS = 1_400_000_000_000
LLAMA1 = {
    "commoncrawl": Row("67.0", "1.10", 3300),
    "c4": Row("15.0", "1.06", 783),
    "github": Row("4.5", "0.64", 328),
    "wikipedia": Row("4.5", "2.45", 83),
    "books": Row("4.5", "2.23", 85),
    "arxiv": Row("2.5", "1.06", 92),
    "stackexchange": Row("2.0", "1.03", 78),
}
PRESETS = {"llama1": LLAMA1}


def preset_weights(preset: str) -> dict[str, Fraction]:
    """The shares of a preset by source."""
    return {name: Fraction(row.percent) for name, row in PRESETS[preset].items()}


# All shares are fractions, and ties go by name: no order of arrival and no rounding of sums
# decides. train/data/rows.py halves a list to know, without state, what the first n rows of a run
# hold; here the whole is known, so the largest remainders get what rounding down leaves (Hamilton's
# way, every quota within 1 of its share, for any number of sources).

Exact = Mapping[str, Fraction]
Whole = Mapping[str, int]


def quotas(shares: Mapping[str, Fraction | int], total: int) -> dict[str, int]:
    """`total` in whole numbers by shares (not all 0): the sum is `total`, each is its share of it
    rounded down or up."""
    whole = Fraction(sum(shares.values()))
    exact = {name: share * total / whole for name, share in shares.items()}
    quota = {name: int(value) for name, value in exact.items()}
    rest = total - sum(quota.values())
    for name in sorted(exact, key=lambda name: (quota[name] - exact[name], name))[:rest]:
        quota[name] += 1
    return quota


def tempered(sizes: Whole, alpha: float) -> dict[str, Fraction]:
    """Weights of size ** alpha: 1 is proportional, 0 uniform; mT5 (Xue et al. 2021) and XLM-R
    (Conneau et al. 2020) take 0.3. A source of size 0 gets 0."""
    largest = max(sizes.values(), default=0)
    return {
        name: Fraction((size / largest) ** alpha) if size else Fraction(0)
        for name, size in sizes.items()
    }


def clamped(
    weights: Mapping[str, Fraction], total: Fraction, low: Exact, high: Exact
) -> dict[str, Fraction]:
    """Amounts in proportion to the weights wherever bounds allow, adding up to `total`.

    Each is scale * weight, raised to its low and cut to its high (absent: none), with the one
    scale at which they add up. Where no scale does, the amounts at the nearest end: all lows, or
    all highs; the caller compares the sum. With equal weights and high = cap * size this is UniMax
    (Chung et al. 2023, algorithm 1).
    """

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
        slope = add(before + 1) - base  # a line from here on
    if slope == 0:
        return at(before) if base == total else at(None)
    return at(before + (total - base) / slope)


POLICIES = ("proportional", "temperature", "unimax")
Key = tuple[str, int]  # group, bucket of scores


@dataclass(frozen=True)
class Request:
    """The settings of a mix. weights: a policy, a preset or numbers by group; total: of the unit,
    None: as much as there is; amounts, epochs: of a group, in place of weights; floors, caps:
    shares of the mix; buckets: epochs of each bucket of scores before all are scaled, None: no
    buckets; curve: the same by a power from 0 on that follows from the amount of the group."""

    weights: str | Mapping[str, float] = "proportional"
    alpha: float = 0.3
    total: int | None = None
    amounts: Mapping[str, int] = field(default_factory=dict)
    epochs: Mapping[str, float] = field(default_factory=dict)
    floors: Mapping[str, float] = field(default_factory=dict)
    caps: Mapping[str, float] = field(default_factory=dict)
    max_epochs: float = 4.0
    buckets: tuple[float, ...] | None = None
    curve: Callable[[float], list[float]] | None = None


@dataclass(frozen=True)
class Design:
    """amounts: of each group; strata: the quota of each stratum; refused: why it cannot be had as
    asked, None where it can: then it is the nearest mix that can."""

    amounts: dict[str, int]
    strata: dict[Key, int]
    refused: str | None = None


def exact(number: float | int | str) -> Fraction:
    """The number as people write it: 0.1 is a tenth."""
    return Fraction(str(number))


def design(sizes: Mapping[Key, int], request: Request) -> Design:
    """The mix of strata of these sizes. UsageError where the request names what is not there."""
    by_bucket = request.buckets if request.curve is None else None
    times = {key: exact(by_bucket[key[1]]) if by_bucket else Fraction(1) for key in sizes}
    groups = sorted({group for group, _ in sizes})
    check(groups, request)
    # Of one reading of a group, buckets as often as asked.
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
    if request.curve is not None:
        flat = request.curve(0.0)
        capacity = {g: Fraction(int(_reached(sizes, g, flat))) for g in groups}
    if request.amounts or request.epochs:
        plan = _by_group(groups, effective, capacity, request)
    else:
        plan = _shared(groups, effective, capacity, request)
    strata: dict[Key, int] = dict.fromkeys(sizes, 0)
    for group, amount in plan.amounts.items():
        if request.curve is not None:
            epochs = _on_curve(sizes, group, amount, request.curve)
            times |= {key: exact(epochs[key[1]]) for key in sizes if key[0] == group}
        buckets = {str(b): times[g, b] * n for (g, b), n in sizes.items() if g == group}
        if amount and any(buckets.values()):
            for bucket, quota in quotas(buckets, amount).items():
                strata[group, int(bucket)] = quota
    return Design(plan.amounts, strata, plan.refused)


MOST_POWER = 64.0  # of a curve: all but the very best is left out


def _reached(sizes: Mapping[Key, int], group: str, epochs: list[float]) -> float:
    return sum(n * epochs[b] for (g, b), n in sorted(sizes.items()) if g == group)


def _on_curve(
    sizes: Mapping[Key, int], group: str, amount: int, curve: Callable[[float], list[float]]
) -> list[float]:
    low, high = 0.0, MOST_POWER
    for _ in range(50):
        middle = (low + high) / 2
        if _reached(sizes, group, curve(middle)) > amount:
            low = middle
        else:
            high = middle
    return curve(round(high, 9))


def check(groups: list[str], request: Request) -> None:
    """UsageError where the request names a group that is not there."""
    named = {"amounts": request.amounts, "epochs": request.epochs}
    named |= {"floors": request.floors, "caps": request.caps}
    if not isinstance(request.weights, str):
        named["weights"] = request.weights
    for setting, values in named.items():
        for name in values:
            if name not in groups:
                there = ", ".join(groups)[:300]
                raise UsageError(f"mix: {setting} names {name!r}; there is {there}")


def _by_group(
    groups: list[str],
    effective: Mapping[str, Fraction],
    capacity: Mapping[str, Fraction],
    request: Request,
) -> Design:
    if both := sorted(set(request.amounts) & set(request.epochs)):
        raise UsageError(f"mix: {both[0]}: give an amount or epochs")
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
        raise UsageError("mix: there is nothing to mix: no source with a weight has any text")
    total = request.total
    if total is None:
        total = int(sum(effective[g] for g in groups if weights[g]))
    low = {g: exact(v) * total for g, v in request.floors.items()}
    high = {g: exact(v) * total for g, v in request.caps.items()}
    _possible(request, weights)
    bounded = {g: min(high.get(g, capacity[g]), capacity[g]) for g in groups}
    reachable = {g: min(v, capacity[g]) for g, v in low.items()}
    # UniMax looks at what there is before it shares: its cap is a part of the policy.
    first = bounded if even else high
    ideal = clamped(weights, Fraction(total), low, first)
    nearest = clamped(weights, Fraction(total), reachable, bounded)
    amounts = _whole(ideal, total)
    return _within(amounts, capacity, request, _whole(nearest, total), total)


def _whole(amounts: Mapping[str, Fraction], total: int) -> dict[str, int]:
    """Whole numbers that add up to the total, or to what the amounts come to below it."""
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
                f"mix: {request.weights} has a source {missing[0]!r}; name yours so, as"
                f" {missing[0]}=FOLDER, or give weights by hand (it has {', '.join(table)})"
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
            f"it asks for {amounts[g]:,} of {g}, of which {request.max_epochs:g} epochs give"
            f" {most:,}"
        )
    else:
        why = f"all there is gives {sum(amounts.values()):,} of {total:,} within its bounds"
    return Design(nearest, {}, why)


NONE = "none"  # of documents without a value in the column that groups are made by
MOST_GROUPS = 10_000


@dataclass
class Strata:
    """Numbers strata in the order in which they are met. by: column of groups, None: sources;
    column, edges: of scores: bucket i holds edges[i - 1] <= score < edges[i], the last bucket
    documents without a score; since, until: dates, the first is in, the second is not."""

    by: str | None = None
    column: str | None = None
    edges: tuple[float, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    undated: bool = True
    keys: dict[Key, int] = field(default_factory=dict)
    outside: dict[str, Counter[str]] = field(default_factory=dict)  # source -> reason -> documents

    def of(self, source: str, batch: pa.RecordBatch) -> np.ndarray:
        """int32[rows]: the number of each row's stratum; -1: it stays out of the mix."""
        buckets = self._buckets(batch)
        groups, names = self._groups(source, batch)
        pair = groups.astype(np.int64) * (len(self.edges) + 2) + buckets
        values, inverse = np.unique(pair, return_inverse=True)
        numbers = []
        for value in values.tolist():
            group, bucket = divmod(value, len(self.edges) + 2)
            numbers.append(self.keys.setdefault((names[group], bucket), len(self.keys)))
        if len(self.keys) > MOST_GROUPS * (len(self.edges) + 2):
            raise UsageError(f"mix: {self.by} has more than {MOST_GROUPS:,} values: take another")
        strata = np.array(numbers, np.int32)[inverse.reshape(-1)]
        return self._dated(source, batch, strata)

    def begin(self) -> None:
        """Counts what stays out anew."""
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
            raise UsageError(f"mix: the column {self.by!r} holds {column.type}, no names")
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
                f"mix: the column {self.column!r} holds {column.type}, no scores"
            ) from None
        buckets = np.searchsorted(np.array(self.edges), scores, side="right")
        buckets[np.isnan(scores)] = len(self.edges) + 1
        return buckets

    def _dated(self, source: str, batch: pa.RecordBatch, strata: np.ndarray) -> np.ndarray:
        if self.since is None and self.until is None:
            return strata
        dates = batch["date"]
        stays = self.outside.setdefault(source, Counter())
        null = dates.is_null().to_numpy(zero_copy_only=False)
        marks: list[tuple[str, Any]] = []
        if self.since is not None:
            early = pc.less(dates, pa.scalar(self.since, dates.type))
            marks.append(("before the window", early))
        if self.until is not None:
            late = pc.greater_equal(dates, pa.scalar(self.until, dates.type))
            marks.append(("after the window", late))
        if not self.undated:
            marks.append(("without a date", pa.array(null)))
        for reason, mask in marks:
            out = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
            if out.any():
                stays[reason] += int(out.sum())
                strata = np.where(out, np.int32(-1), strata)
        return strata


def moment(text: str | None, setting: str) -> datetime | None:
    """A date of the settings in UTC; UsageError for what is none."""
    if text is None:
        return None
    try:
        value = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(f"mix: {setting} {text!r} is no date; write 2024-01-31") from None
    return value if value.tzinfo else value.replace(tzinfo=timezone.utc)
