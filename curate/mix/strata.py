"""Strata of a mix: the group and the bucket of scores of each document, or none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.mix.design import Key
from llmcurate.base.errors import UsageError

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
