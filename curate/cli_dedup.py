"""`llmcurate dedup`."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from curate.cli_group import DEFAULT, DefaultGroup
from curate.cli_options import DryRun, Inputs, Json, Out, Quiet, Workers, how_of

dedup_app = typer.Typer(cls=DefaultGroup, rich_markup_mode=None, help="Keep one of each copy.")


@dedup_app.command(DEFAULT, hidden=True)
def dedup(
    inputs: Inputs = None,
    out: Out = None,
    method: Annotated[str, typer.Option(help="How copies are found: exact or minhash.")] = "exact",
    key: Annotated[str, typer.Option(help="What is compared: text or url.")] = "text",
    survivor: Annotated[
        str, typer.Option(help="longest, newest, first, best:COLUMN or prefer-source:A,B.")
    ] = "longest",
    normalize: Annotated[
        Optional[bool],  # noqa: UP045
        typer.Option(help="Compare normal forms (text: case and spaces; url: as C4 does)."),
    ] = None,
    preset: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Bands and rows of fineweb (default), lee2022, refinedweb or dclm."),
    ] = None,
    bands: Annotated[Optional[int], typer.Option(help="Bands of a signature.")] = None,  # noqa: UP045
    rows: Annotated[Optional[int], typer.Option(help="Rows of a band.")] = None,  # noqa: UP045
    verify: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Least exact Jaccard similarity of a match."),
    ] = None,
    ngram: Annotated[Optional[int], typer.Option(help="Units a shingle: 5 words.")] = None,  # noqa: UP045
    shingle: Annotated[Optional[str], typer.Option(help="word, char or byte.")] = None,  # noqa: UP045
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Keep one document of each set of copies; decisions.parquet says which and why.

    Example: llmcurate dedup corpus/ -o out --method exact --key url --survivor newest

    Near duplicates: llmcurate dedup corpus/ -o out --method minhash --verify 0.8
    """
    from curate import commands

    how = how_of(out, workers, as_json, dry_run, quiet)
    near = {"preset": preset, "bands": bands, "rows": rows, "verify": verify}
    near |= {"ngram": ngram, "shingle": shingle}
    near = {name: value for name, value in near.items() if value is not None}
    commands.dedup(method, key, survivor, normalize, near, inputs or [], how)
