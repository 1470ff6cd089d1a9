"""What computing and storing cost: defaults with their source, and what the user says instead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from math import isfinite

from curate.errors import UsageError


@dataclass(frozen=True)
class Prices:
    """USD. Defaults: AWS, us-east-1, list prices without discount, 2025; spot prices are a third.

    cpu_hour: a c5.4xlarge, 0.68 an hour for 16 vCPU (AWS, "Spot price per unit hour example", EC2
    Auto Scaling guide); put, get: 1,000 requests to S3 Standard; gb_month: 10^9 bytes there for a
    month (https://aws.amazon.com/s3/pricing/); months: how long what a run writes is kept.
    """

    cpu_hour: float = 0.0425
    put: float = 0.005
    get: float = 0.0004
    gb_month: float = 0.023
    months: float = 1.0


def parse_prices(given: Iterable[str]) -> Prices:
    """The defaults with `cpu_hour=0.02` and such. UsageError names the nearest key."""
    known = [f.name for f in fields(Prices)]
    found: dict[str, float] = {}
    for one in (part for text in given for part in text.split(",")):
        key, _, value = one.partition("=")
        key = key.strip().replace("-", "_")
        if key not in known:
            near = get_close_matches(key, known, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise UsageError(f"--price {one}: unknown price {key!r}; {hint}")
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not (isfinite(number) and number >= 0):
            raise UsageError(f"--price {one}: give a number from 0 on, such as {key}=0.02")
        found[key] = number
    return replace(Prices(), **found)
