"""`llmcurate whatif`."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli_options import Json, Sets


def whatif(
    run: Annotated[Path, typer.Argument(help="OUT of a finished run.")],
    sets: Sets = None,
    out: Annotated[
        Optional[Path], typer.Option("-o", "--out", help="Also write a page: a .html file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What other thresholds would have kept, counted from the scores that a run stored.

    Example: llmcurate whatif out --set gopher_quality.min_words=80 -o whatif.html
    """
    from curate.whatif import commands

    commands.whatif(run, tuple(sets or ()), out, as_json)
