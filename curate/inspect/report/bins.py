"""Histograms of numeric columns: edges from a column's range, counts by streaming over files.

A histogram is {"scale", "edges", "counts"}: counts[i] documents have edges[i] <= value <
edges[i + 1] (the last edge included; with "open" all larger values too). Scale `log` means bins of
equal width in log10(1 + value).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from llmcurate.base.disk.process import in_order

BINS = 40
NEAR = 15  # a histogram ends at so many times a limit
BATCH_ROWS = 50_000


@dataclass
class Range:
    """What is known of a column after a first pass; values that are not finite do not count."""

    integer: bool
    count: int = 0
    least: float = math.inf
    most: float = -math.inf
    total: float = 0.0

    def add(self, values: np.ndarray) -> None:
        """Takes in finite values: float64[n]."""
        if len(values):
            self.count += len(values)
            self.least = min(self.least, float(values.min()))
            self.most = max(self.most, float(values.max()))
            self.total += float(values.sum())

    def join(self, other: Range) -> None:
        """Takes in what is known of other documents."""
        self.count += other.count
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)
        self.total += other.total


@dataclass
class Histogram:
    """Bins being filled."""

    edges: np.ndarray
    scale: str
    open: bool = False  # the last bin holds larger values too
    counts: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(len(self.edges) - 1, np.int64)

    def add(self, values: np.ndarray) -> None:
        """Takes in finite values: float64[n]; those outside go into the outermost bins."""
        if len(values):
            at = np.searchsorted(self.edges, values, "right") - 1
            self.counts += np.bincount(
                np.clip(at, 0, len(self.counts) - 1), minlength=len(self.counts)
            )

    def dump(self) -> dict[str, Any]:
        """As JSON values."""
        edges = [round(float(e), 6) for e in self.edges]
        more = {"open": True} if self.open else {}
        return {"scale": self.scale, "edges": edges, "counts": self.counts.tolist(), **more}


def edges_of(span: Range, thresholds: Iterable[float] = ()) -> Histogram:
    """Bins that hold the column's values and the thresholds drawn beside them."""
    limits = [t for t in thresholds if math.isfinite(t)]
    low, high = min([span.least, *limits]), max([span.most, *limits])
    if not (math.isfinite(low) and math.isfinite(high)):
        low, high = 0.0, 1.0
    # A limit that no value comes near (100,000 words) would squeeze the values into one bin.
    if limits and span.count and span.most > 0 and high > 20 * span.most:
        high = span.most
    if span.integer and high - low < BINS:
        return Histogram(np.arange(math.floor(low), math.ceil(high) + 2) - 0.5, "linear")
    if low >= 0 and high > 50 and high > 20 * max(low, 1):
        points = 10 ** np.linspace(math.log10(1 + low), math.log10(1 + high), BINS + 1) - 1
        if span.integer:
            points = np.unique(np.round(points)) - 0.5
            points[-1] = high + 0.5
        return Histogram(points, "log")
    if 0 <= low < high / 2:
        low = 0.0
    # A limit near 0 (1 % of the characters) would lie inside of the first bin.
    near = bool(limits) and low >= 0 and 0 < max(limits) < high / NEAR
    if near:
        high = NEAR * max(limits)
    step = _round_step((high - low) / BINS) if high > low else 1.0
    start = math.floor(low / step + 1e-9)
    stop = max(start + 1, math.ceil(high / step - 1e-9))
    return Histogram(np.arange(start, stop + 1) * step, "linear", near)


def _round_step(step: float) -> float:
    """The next 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= step * (1 - 1e-9))


def numeric_columns(schema: pa.Schema, hidden: Iterable[str] = ()) -> dict[str, bool]:
    """Numeric columns of a file: name -> whether it holds whole numbers."""
    skip = set(hidden)
    return {
        f.name: pa.types.is_integer(f.type)
        for f in schema
        if (pa.types.is_integer(f.type) or pa.types.is_floating(f.type)) and f.name not in skip
    }


def finite(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """float64[n]: the values that are neither null nor infinite nor not a number."""
    values = column.drop_null().to_numpy().astype(np.float64, copy=False)
    return values[np.isfinite(values)]


def columns_of(paths: Iterable[Path], names: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """The files' batches with those of the columns that a file has."""
    chosen = list(names)
    for path in paths:
        with pq.ParquetFile(path) as file:
            stored = set(file.schema_arrow.names)
            have = [name for name in chosen if name in stored]
            if have:
                yield from file.iter_batches(BATCH_ROWS, columns=have, use_threads=False)


def ranges(paths: Sequence[Path], columns: dict[str, bool], threads: int = 1) -> dict[str, Range]:
    """The range of each column over all files."""

    def of(path: Path) -> dict[str, Range]:
        spans = {name: Range(integer) for name, integer in columns.items()}
        for batch in columns_of([path], columns):
            for name in batch.schema.names:
                spans[name].add(finite(batch[name]))
        return spans

    joined = {name: Range(integer) for name, integer in columns.items()}
    for spans in in_order(of, paths, threads):
        for name, span in spans.items():
            joined[name].join(span)
    return joined


def fill(paths: Sequence[Path], bins: dict[str, list[Histogram]], threads: int = 1) -> None:
    """Counts the files' values into each column's histograms."""

    def of(path: Path) -> dict[str, list[Histogram]]:
        filled = {n: [Histogram(h.edges, h.scale) for h in own] for n, own in bins.items()}
        for batch in columns_of([path], bins):
            for name in batch.schema.names:
                values = finite(batch[name])
                for histogram in filled[name]:
                    histogram.add(values)
        return filled

    for filled in in_order(of, paths, threads):
        for name, own in filled.items():
            for histogram, counted in zip(bins[name], own, strict=True):
                histogram.counts += counted.counts
