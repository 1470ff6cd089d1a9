"""`llmcurate whatif`."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli.options import Json, Quiet, Sets, Workers


def whatif(
    run: Annotated[Path, typer.Argument(help="OUT of a finished run, or a refresh's HOME.")],
    sets: Sets = None,
    out: Annotated[
        Optional[Path],
        typer.Option("-o", "--out", help="A .html file; with --apply: a folder for the new run."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Make the run with these settings, in place or in -o.")
    ] = False,
    workers: Workers = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What other thresholds would have kept, counted from the scores that a run stored.

    Examples: llmcurate whatif out --set gopher_quality.min_words=80 -o whatif.html
    llmcurate whatif out --set gopher_quality.min_words=80 --apply -o out80
    """
    from curate.cli import whatif_commands as commands

    if apply:
        from curate.cli.options import how_of

        commands.apply_settings(run, tuple(sets or ()), how_of(out, workers, as_json, False, quiet))
        return

    commands.whatif(run, tuple(sets or ()), out, as_json)
