"""The options of a forecast, which `--dry-run` prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

if TYPE_CHECKING:
    from curate.api import How

Sample = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        metavar="RUN", help="--dry-run: take figures from this run, say over 1 % of the input."
    ),
]
AsIf = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="SIZE", help="--dry-run: as if the input, which may be left out, had 100TB, say."
    ),
]
Price = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        metavar="KEY=USD",
        help="--dry-run: cpu_hour, put, get (1,000 of them), gb_month, months; repeatable.",
    ),
]


def scaled_how(how: How, sample: Path | None, as_if: str | None, price: list[str] | None) -> How:
    """How to run, with what its forecast is made of."""
    if sample is None and as_if is None and not price:
        return how
    from curate.api import Scale
    from curate.disk.units import parse_size
    from curate.errors import UsageError

    if not how.dry_run:
        given = "--sample" if sample else "--as-if" if as_if else "--price"
        raise UsageError(f"{given} says what a forecast is made of: add --dry-run")
    size = parse_size(as_if) if as_if is not None else None
    return replace(how, scale=Scale(sample, size, tuple(price or ())))
