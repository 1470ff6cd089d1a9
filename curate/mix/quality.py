"""Epochs by buckets of a score: stated one by one, by a publication, or by an upsampling curve."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from llmcurate.base.errors import UsageError

# By how many copies a document stood for, how often it stands in the mix: FineWeb2's README
# (Penedo et al. 2025), whose largest clusters are taken for boilerplate.
PRESETS_OF_QUALITY: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "fineweb2": ((2.0, 3.0, 5.0, 100.0, 1000.0), (1.0, 2.0, 3.0, 5.0, 8.0, 1.0))
}


class Curve(BaseModel):
    """An upsampling curve over buckets of equal size, the worst first: nothing of the worst share
    `discard`, and above it most * ((x - discard) / (1 - discard)) ** power epochs at percentile x.
    The power follows from the amount: the more text a group must give, the flatter."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    buckets: int = Field(20, ge=2, le=1000, description="Number of buckets in the column.")
    # Olmo 3 (2025): at most 7 times, the worst 40 % left out.
    most: float = Field(
        7.0, gt=0, description="Epochs at the top of the curve (7 in Dolma 3; Olmo 3, 2025)."
    )
    discard: float = Field(
        0.4,
        ge=0,
        lt=1,
        description="Share of the documents, the worst, that stays out (0.4 in Dolma 3).",
    )

    def epochs(self, power: float) -> list[float]:
        """Of each bucket, the mean of the curve over its percentiles."""

        def area(x: float) -> float:  # under the curve, up to percentile x
            above = max(0.0, (x - self.discard) / (1 - self.discard))
            return self.most * (1 - self.discard) * above ** (power + 1) / (power + 1)

        edges = [bucket / self.buckets for bucket in range(self.buckets + 1)]
        return [round((area(b) - area(a)) * self.buckets, 9) for a, b in pairwise(edges)]


class Quality(BaseModel):
    """Epochs by buckets of a score: epochs[i] where edges[i - 1] <= score < edges[i]."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str = Field(min_length=1, description="The column that holds the score of a document.")
    preset: Literal["fineweb2"] | None = Field(
        None,
        description=(
            "Edges and epochs of a publication: `fineweb2`, for a column of the sizes of clusters "
            "of near-duplicates (Penedo et al. 2025)."
        ),
    )
    curve: Curve | None = Field(
        None,
        description="Upsampling curve in place of edges and epochs, for a column of buckets.",
    )
    edges: tuple[float, ...] = Field(
        (),
        description=(
            "Scores that separate the buckets, ascending: bucket i holds scores from edge i"
            " - 1 up to, but not including, edge i."
        ),
    )
    epochs: tuple[float, ...] = Field(
        (),
        description=(
            "Epochs of each bucket, one more than there are edges; all are scaled together "
            "to the amount of their group."
        ),
    )
    missing: float = Field(1.0, ge=0, description="Epochs of documents without a score.")

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, values: Any) -> Any:
        """Edges, and epochs where no amount decides them, of a preset or a curve."""
        if not isinstance(values, dict):
            return values
        named = [name for name in ("preset", "curve") if values.get(name) is not None]
        if not named:
            return values
        preset = PRESETS_OF_QUALITY.get(str(values.get("preset")))
        if preset is None and named == ["preset"]:
            return values  # the field says what there is
        if preset is None:
            curve = Curve.model_validate(values["curve"])
            preset = (tuple(map(float, range(1, curve.buckets))), tuple(curve.epochs(1.0)))
        derived = dict(zip(("edges", "epochs"), preset, strict=True))
        # OUT/recipe.yaml has them beside what they follow from.
        stated = {name: values[name] for name in derived if values.get(name)}
        other = any(
            not isinstance(value, (list, tuple)) or tuple(value) != derived[name]
            for name, value in stated.items()
        )
        if len(named) == 2 or other:
            raise ValueError("preset, curve, or edges with epochs: give one of them")
        return {**values, **derived}

    @model_validator(mode="after")
    def _fitting(self) -> Quality:
        if not self.edges:
            raise ValueError("give edges with epochs, a preset, or a curve")
        if list(self.edges) != sorted(set(self.edges)) or not all(map(math.isfinite, self.edges)):
            raise ValueError("edges must ascend")
        if len(self.epochs) != len(self.edges) + 1:
            raise ValueError(
                f"{len(self.edges)} edges make {len(self.edges) + 1} buckets of epochs"
            )
        if not all(0 <= e < math.inf for e in self.epochs) or not any(self.epochs):
            raise ValueError("epochs are 0 or more, and not all 0")
        return self

    @property
    def labels(self) -> list[str]:
        """A name of each bucket, that of documents without a score last."""
        edges = [f"{e:g}" for e in self.edges]
        inner = [f"{a} to {b}" for a, b in pairwise(edges)]
        return [f"below {edges[0]}", *inner, f"from {edges[-1]}", "no score"]


def buckets(text: str) -> dict[str, Any]:
    """`score:0.2,0.8:0,1,3` as column, edges and epochs; `COLUMN:fineweb2`, a preset; and
    `COLUMN:curve`, an upsampling curve."""
    rest, _, epochs = text.rpartition(":")
    if rest and epochs == "curve":
        return {"column": rest, "curve": {}}
    if rest and epochs in PRESETS_OF_QUALITY:
        return {"column": rest, "preset": epochs}
    column, _, edges = rest.rpartition(":")
    try:
        return {
            "column": column,
            "edges": [float(e) for e in edges.split(",")],
            "epochs": [float(e) for e in epochs.split(",")],
        }
    except ValueError:
        raise UsageError(
            f"mix: quality {text!r} is no COLUMN:EDGES:EPOCHS, as in score:0.2,0.8:0,1,3,"
            f" COLUMN:{' or COLUMN:'.join(PRESETS_OF_QUALITY)} or COLUMN:curve"
        ) from None
