"""`llmcurate search`."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli.groups import DEFAULT, DefaultGroup
from curate.cli.options import DryRun, Inputs, Json, Out, Quiet, Workers, how_of

search_app = typer.Typer(
    cls=DefaultGroup, rich_markup_mode=None, help="Find phrases in a corpus by its suffix arrays."
)


@search_app.command(DEFAULT, hidden=True)
def search(
    index: Annotated[
        Path, typer.Argument(help="OUT of a suffix-array dedup or of search build, or its index.")
    ],
    phrase: Annotated[Optional[str], typer.Argument(help="What to count and show.")] = None,
    longest: Annotated[
        Optional[str],
        typer.Option(metavar="TEXT", help="Show the longest passage that TEXT shares with it."),
    ] = None,
    file: Annotated[
        Optional[Path], typer.Option(help="The same for the text of a file.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(help="Occurrences to show.", min=0)] = 10,
    context: Annotated[int, typer.Option(help="Bytes to show around each.", min=0)] = 60,
    as_json: Json = False,
) -> None:
    """Count a phrase in a corpus and show where it stands: document, byte, text around it.

    Example: llmcurate search out "the quick brown fox"

    The longest passage that a text shares with the corpus: llmcurate search out --file essay.txt
    """
    from curate.cli.search_commands import run

    run(index, phrase, longest, file, limit, context, as_json)


@search_app.command("build")
def build(
    inputs: Inputs = None,
    out: Out = None,
    memory_mib: Annotated[int, typer.Option(help="Memory for sorting.", min=64)] = 2048,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Build the index of a corpus without dedup: five bytes a byte of text.

    Example: llmcurate search build corpus/ -o index
    """
    from curate.cli import commands

    steps = [("search_index", {"memory_mib": memory_mib})]
    how = how_of(out, workers, as_json, dry_run, quiet)
    commands.steps("search_index", steps, inputs or [], how)
