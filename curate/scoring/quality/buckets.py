"""The step `quality_buckets`: scores of several kinds as percentiles, combined, in buckets.

Nemotron-CC (Su et al. 2024) ranks a corpus by each of its classifiers, takes the best of a
document's ranks, and reads it off in twentieths; Dolma 3 (Olmo 3, 2025) samples twentieths by a
curve, topic by topic. How it is decided stands in percentiles.py.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator, model_validator

from curate.corpus.sketches import Sketches
from curate.documents.documents import NUMBER, Documents
from curate.steps.contracts import CorpusStep
from llmcurate.base.disk.parquet_writer import one_array
from llmcurate.base.errors import UsageError

MOST_SCORES = 8  # every set of scores is tried for weights
NONE = "none"  # of documents without a value in the column `by`


class QualityBuckets(CorpusStep):
    """Puts documents into buckets of equal size by percentiles of their scores; drops none.

    Columns: `bucket`, 0 for the worst, and `percentile`, the combined one, from 0 to 99.9; null for
    a document without any score.
    """

    name: ClassVar[str] = "quality_buckets"
    paper: ClassVar[str] = "Su et al. 2024 (Nemotron-CC); Olmo 3 (2025), Dolma 3"
    decided_by: ClassVar[str | None] = "curate.scoring.quality.percentiles"
    in_tasks: ClassVar[bool] = True

    scores: tuple[str, ...] = Field(
        min_length=1,
        max_length=MOST_SCORES,
        description=(
            "Columns that hold the scores, such as quality.score; a minus before the name says "
            "that less is better, as in -perplexity.perplexity."
        ),
    )
    combine: Literal["mean", "max", "learned"] = Field(
        "mean",
        description=(
            "How the percentiles of a document become one: their `mean`, the `max` "
            "(Nemotron-CC), or a mean whose weights are `learned` from the column `target`."
        ),
    )
    weights: tuple[float, ...] = Field(
        (),
        description="Weights of the scores in the mean, in their order; without any all are equal.",
    )
    target: str | None = Field(
        None,
        description=(
            "Column of the numbers that weights are learned from; documents without one teach "
            "nothing."
        ),
    )
    by: str | None = Field(
        None,
        description=(
            "Column whose values have percentiles of their own, such as label.label (Dolma 3: "
            "topics). Without a value the whole corpus is ranked together."
        ),
    )
    buckets: int = Field(20, ge=2, le=1000, description="Number of buckets.")
    equal: bool = Field(
        True,
        description=(
            "Whether buckets hold equally many documents; otherwise they are equal parts of the "
            "combined percentile, as Nemotron-CC has them."
        ),
    )

    @field_validator("scores", mode="before")
    @classmethod
    def _one_is_a_list_too(cls, value: Any) -> Any:
        return tuple(value.split(",")) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fitting(self) -> QualityBuckets:
        if len(set(self.scores)) < len(self.scores):
            raise ValueError("scores: a column stands twice")
        if (self.combine == "learned") != (self.target is not None):
            raise ValueError("combine: learned needs target, and target combine: learned")
        if self.weights and self.combine != "mean":
            raise ValueError("weights: need combine: mean")
        if self.weights and len(self.weights) != len(self.scores):
            raise ValueError(f"weights: give {len(self.scores)}, one a score")
        if any(not 0 <= w < float("inf") for w in self.weights) or (
            self.weights and not any(self.weights)
        ):
            raise ValueError("weights: numbers of 0 or more, and not all 0")
        return self

    def sketch_identity(self) -> dict[str, Any]:
        """The columns alone: how they are combined is for `resolve`."""
        identity = self.identity()
        names = ("scores", "target", "by")
        settings = {name: identity["settings"][name] for name in names}
        return identity | {"settings": settings}

    def sketch(self, docs: Documents) -> pa.Table:
        columns = {f"score{k}": _numbers(docs, self.label, c) for k, c in enumerate(self.scores)}
        if self.target is not None:
            columns["target"] = _numbers(docs, self.label, self.target)
        if self.by is not None:
            names = _column(docs, self.label, self.by).cast(pa.string())
            columns["lang"] = pc.fill_null(names, NONE)
        return pa.table(columns)

    def resolve(self, sketches: Sketches) -> dict[str, Any]:
        from curate.scoring.quality.percentiles import resolve

        return resolve(self, sketches)

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        rows = np.searchsorted(decisions["n"].to_numpy(), docs.table[NUMBER].to_numpy())
        for name in ("percentile", "bucket"):
            docs = docs.annotate(name, one_array(decisions[name]).take(pa.array(rows)))
        return docs


def _column(docs: Documents, label: str, name: str) -> pa.Array:
    if name not in docs.table.column_names:
        have = ", ".join(n for n in docs.table.column_names if not n.startswith("_"))
        raise UsageError(f"{label}: no column {name!r} (have: {have})")
    return one_array(docs.table[name])


def _numbers(docs: Documents, label: str, name: str) -> pa.Array:
    """float64[rows]; NaN: none. A minus before a name turns the order around."""
    turned = name.startswith("-") and name not in docs.table.column_names
    column = _column(docs, label, name[1:] if turned else name)
    try:
        values = pc.fill_null(column.cast(pa.float64()), np.nan)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise UsageError(f"{label}: the column {name!r} holds {column.type}, no numbers") from None
    return pc.negate(values) if turned else values
