"""Filter documents by the value of an input column, such as votes, stars or a subset."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, PrivateAttr, model_validator

from curate.documents.documents import Documents
from curate.documents.limits import Limit, decide
from curate.steps.contracts import FromFiles, Step, step
from curate.text.languages import matches_label
from llmcurate.base.disk.files import read_text
from llmcurate.base.errors import UsageError

FARTHEST = 1e18  # the largest limit allowed


@step("column_filter")
class ColumnFilter(Step, FromFiles):
    """Drops documents by a column: numbers outside limits, or values that are (or are not) in a
    list. With the setting `min` or `max`, the output column `value` has each document's number."""

    only_measures: ClassVar[bool] = True

    column: str = Field(min_length=1)
    """The column to filter by."""
    min: float | None = Field(None, ge=-FARTHEST, le=FARTHEST)
    """Documents with a smaller number are dropped. Without a value there is no lower limit."""
    max: float | None = Field(None, ge=-FARTHEST, le=FARTHEST)
    """Documents with a larger number are dropped. Without a value there is no upper limit."""
    keep: tuple[str, ...] = ()
    """Values, or @FILE for a file with one value per line: documents with any other value are
    dropped."""
    drop: tuple[str, ...] = ()
    """Values, or @FILE for a file with one value per line: documents with one of them are
    dropped."""
    missing: Literal["drop", "keep"] = "drop"
    """Drop or keep documents without a value. With min or max, values that are not numbers count as
    missing."""
    _lists: dict[str, pa.Array] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _ordered(self) -> ColumnFilter:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}: nothing would be kept")
        return self

    @property
    def numeric(self) -> bool:
        """Return True if the column is read as numbers."""
        return self.min is not None or self.max is not None

    def resources(self) -> list[str]:
        return [name[1:] for name in (*self.keep, *self.drop) if name.startswith("@")]

    def notes(self) -> list[str]:
        idle = not (self.numeric or self.keep or self.drop)
        return [f"{self.label}: no limit and no list was given, so nothing is dropped"] * idle

    def limits(self) -> list[Limit]:
        if not self.numeric:
            return []
        return [
            Limit("too_low", "value", "min", self.min, above=False, detail=self.column),
            Limit("too_high", "value", "max", self.max, above=True, detail=self.column),
        ]

    def open(self) -> None:
        for key in ("keep", "drop"):
            values: list[str] = []
            for name in getattr(self, key):
                if name.startswith("@"):
                    lines = read_text(Path(name[1:])).splitlines()
                    values += [line.strip() for line in lines if line.strip()]
                else:
                    values.append(name)
            self._lists[key] = pa.array(values, pa.string())

    def apply(self, docs: Documents) -> Documents:
        if self.column not in docs.table.column_names:
            columns = ", ".join(n for n in docs.table.column_names if not n.startswith("_"))
            raise UsageError(
                f"{self.label}: the input has no column {self.column!r}; it has {columns}"
            )
        if not self._lists:
            self.open()
        column: Any = docs.table[self.column].combine_chunks()
        absent = column.is_null().to_numpy(zero_copy_only=False)
        texts = pc.cast(column, pa.string()) if not pa.types.is_nested(column.type) else column
        if self.numeric:
            numbers = np.array([_number(v) for v in texts.to_pylist()])
            absent = absent | np.isnan(numbers)
            docs = decide(docs.annotate("value", numbers), self.limits())
        for key, rule in (("keep", "not_listed"), ("drop", "listed")):
            if getattr(self, key):
                listed = self._lists[key]
                if self.column == "lang":  # one language may have several labels: en, eng_Latn
                    names, labels = listed.to_pylist(), texts.unique().drop_null().to_pylist()
                    alike = [x for x in labels if any(matches_label(name, x) for name in names)]
                    listed = pa.array(alike, pa.string())
                hit = pc.is_in(texts, value_set=listed).to_numpy(zero_copy_only=False)
                mask = ~hit & ~absent if key == "keep" else hit
                docs = docs.drop(mask, rule, detail=texts.to_pylist())
        return docs.drop(absent, "missing") if self.missing == "drop" else docs


def _number(value: str | None) -> float:
    try:
        return float(value) if value is not None else np.nan
    except ValueError:
        return np.nan
