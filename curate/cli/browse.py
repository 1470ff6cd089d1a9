"""`llmcurate browse`."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer


def browse(
    run: Annotated[Path, typer.Argument(help="OUT of a finished run, or a refresh's HOME.")],
    port: Annotated[int, typer.Option(help="0: any that is free.", min=0, max=65535)] = 8765,
    static: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="Write a sample as one page instead.")
    ] = None,
    each: Annotated[
        int, typer.Option(help="--static: documents of each rule.", min=1, max=50)
    ] = 10,
) -> None:
    """Look at a run's documents in a browser: search, scores, cuts, copies side by side.

    Examples: llmcurate browse out  (a page for this computer alone, http://127.0.0.1:8765/)
    llmcurate browse out --static sample.html
    """
    from curate.cli import browse_commands as commands

    commands.browse(run, port, static, each)
