"""What a Bloom dedup says of its filter: how full it is and how often it is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from curate.dedup.bloom import kernel
from curate.dedup.bloom.filter import PROBES, BloomFilter
from curate.dedup.bloom.ordered_pass import Tally

POINTS = 40


def _share(value: float) -> str:
    return f"{value:.4g}" if value else f"none of {PROBES:,}"


def _curve(bloom: BloomFilter, rate: float, what: str) -> dict[str, Any]:
    """The modelled rate while the last slice fills; those before it are as they are."""
    held = bloom.slices[:, kernel.INSERTED].astype(np.float64)
    most = max(bloom.slices[-1, kernel.CAPACITY], held[-1])
    x = np.linspace(0, float(most), POINTS)
    y = [bloom.modelled_rate([*held[:-1], last]) for last in x]
    return {
        "title": "False positives while the filter fills",
        "x_label": f"{what} in the filter",
        "y_label": f"share of new {what} taken for seen",
        "x": [float(v + held[:-1].sum()) for v in x],
        "y": y,
        "mark": [float(held.sum()), rate, "this run (measured)"],
    }


def report(
    bloom: BloomFilter, tally: Tally, before: int, what: str, expected: int | None
) -> dict[str, Any]:
    """Counts, notes and the curve for run.json. before: keys that earlier runs had inserted; what:
    the filter's keys in a word, such as `n-grams`."""
    asked = bloom.rate
    rate, fill, new = bloom.measured_rate(), bloom.fill(), bloom.inserted - before
    slices = len(bloom.slices)
    notes = [
        f"The filter holds {bloom.inserted:,} {what} ({new:,} of this run's {tally.keys:,}) in"
        f" {bloom.bytes:,} bytes; {fill:.1%} of its bits are set.",
        f"False positives: {asked:g} asked for a full filter, {_share(rate)} measured with"
        f" {PROBES:,} random keys, {bloom.modelled_rate():.4g} expected at this fill.",
        "A Bloom filter does not know where it has seen what: decisions name no partner.",
    ]
    if before:
        notes.append(f"{before:,} of its {what} are of earlier runs.")
    if expected is not None and tally.grown:
        notes.append(
            f"More than the {expected:,} {what} expected came: the filter has {slices} slices now"
            " and is larger and slower than one made for all of them."
        )
    removed = tally.documents + tally.passages
    return {
        "clusters": 0,
        "members": removed,
        "dropped": removed,
        "documents": tally.documents,
        "passages": tally.passages,
        "keys": tally.keys,
        "inserted": new,
        "slices": slices,
        "filter_bytes": bloom.bytes,
        "false_positives": rate,
        "fill": fill,
        "notes": notes,
        "curves": [_curve(bloom, rate, what)],
    }
