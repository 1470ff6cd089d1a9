"""Points that laws are fitted to: parameters, tokens and loss of runs, from a sweep or a table."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llmcurate.base.errors import UsageError
from train.scaling.laws import PER_PAIR, Floats

NEEDED = ("parameters", "tokens", "loss")
REPEATED = 1.001  # epochs above which text is read again
# What is taken for a column that is not there.
OTHERWISE = {
    "flops": lambda row: PER_PAIR * row["parameters"] * row["tokens"],
    "unique_tokens": lambda row: row["tokens"],
    "non_embedding": lambda row: row["parameters"],
}


@dataclass(frozen=True, eq=False)
class Points:
    """[points] each. ``flops`` as counted, else 6ND; ``non_embedding``: Kaplan's N."""

    parameters: Floats
    tokens: Floats
    loss: Floats
    flops: Floats
    unique_tokens: Floats
    non_embedding: Floats

    def __len__(self) -> int:
        return len(self.loss)

    def take(self, index: npt.NDArray[Any]) -> Points:
        """Some of them, by number or mask."""
        return Points(**{name: values[index] for name, values in vars(self).items()})

    @property
    def repeated(self) -> npt.NDArray[np.bool_]:
        """Which read some of their text more than once."""
        return self.tokens > REPEATED * self.unique_tokens


@dataclass(frozen=True, eq=False)
class Curve:
    """The loss of one size along its training: ``flops`` and ``loss`` [steps]."""

    parameters: float
    flops: Floats
    loss: Floats


@dataclass(frozen=True, eq=False)
class Measured:
    """``points``, and the ``curves`` of their runs; of a table the rows of one size are a curve.
    ``about``: what a sweep says of itself.
    """

    points: Points
    curves: list[Curve]
    about: dict[str, Any]


def points_of(rows: Sequence[dict[str, Any]], source: str) -> Points:
    """Raises ``LlmcurateError`` that names the row and what it lacks."""
    columns: dict[str, list[float]] = {name: [] for name in (*NEEDED, *OTHERWISE)}
    for number, row in enumerate(rows, 1):
        values: dict[str, float] = {}
        for name in columns:
            cell = row.get(name)
            if cell in (None, "") and name in OTHERWISE:
                values[name] = OTHERWISE[name](values)
                continue
            try:
                values[name] = float(cell)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                values[name] = np.nan
            if not 0 < values[name] < np.inf:
                what = "nothing" if cell is None else repr(cell)
                raise UsageError(
                    f"{source}: {name} of point {number} is {what}; every point has"
                    f" {', '.join(NEEDED)}, above 0"
                )
        for name, value in values.items():
            columns[name].append(value)
    if len(rows) < 3:
        raise UsageError(f"{source}: a law needs 3 points or more, of several sizes")
    return Points(**{name: np.array(values) for name, values in columns.items()})


def read(path: Path) -> Measured:
    """A folder with sweep.json, such a file, a list of points as JSON, or a CSV file whose first
    line names the columns. Raises ``LlmcurateError``.
    """
    path = path / "sweep.json" if path.is_dir() else path
    about: dict[str, Any] = {}
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".csv":
            rows = list(csv.DictReader(text.splitlines()))
        else:
            content = json.loads(text)
            about = content if isinstance(content, dict) else {}
            rows = about.get("points", ()) if about else content
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError("no list of points in it")
    except (OSError, ValueError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UsageError(f"{path}: cannot be read ({reason})") from None
    points = points_of(rows, str(path))
    try:
        curves = [
            Curve(float(curve["parameters"]), *np.array(curve["losses"], float).T)
            for curve in about.get("curves", ())
        ]
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{path}: its curves cannot be read") from None
    for size in np.unique(points.parameters) if not curves else ():
        own = points.take(np.flatnonzero(points.parameters == size))
        order = np.argsort(own.flops)
        curves.append(Curve(float(size), own.flops[order], own.loss[order]))
    return Measured(points, curves, about)
