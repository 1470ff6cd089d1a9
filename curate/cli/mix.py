"""`llmcurate mix`."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from typing import Annotated, Optional

import typer

from curate.cli.options import Json, Out, Quiet, Sets, Workers, how_of

Pairs = Optional[list[str]]


def mix(
    inputs: Annotated[
        Optional[list[str]],
        typer.Argument(
            metavar="[NAME=]IN...",
            help="Runs' folders, files or folders of documents; in a workspace: the newest corpus.",
        ),
    ] = None,
    out: Out = None,
    weights: Annotated[
        str,
        typer.Option(
            help="proportional, temperature, unimax, llama1, or NAME=WEIGHT,... (0 for the others)."
        ),
    ] = "proportional",
    alpha: Annotated[
        float, typer.Option(help="temperature: shares of size ** ALPHA; mT5 and XLM-R: 0.3.")
    ] = 0.3,
    unit: Annotated[str, typer.Option(help="What weights count: tokens, bytes or documents.")] = (
        "tokens"
    ),
    tokenizer: Annotated[
        Optional[str], typer.Option(help="Counts the tokens; without it they are bytes / 4.")
    ] = None,
    shards: Annotated[
        Pairs,
        typer.Option(metavar="NAME=FOLDER", help="Token shards of a source: counts; repeatable."),
    ] = None,
    total: Annotated[
        Optional[str],
        typer.Option(metavar="N", help="Size of the mix: 1.4e12; none: all there is."),
    ] = None,
    amounts: Annotated[
        Pairs, typer.Option("--amount", metavar="NAME=N,...", help="So much of a source.")
    ] = None,
    epochs: Annotated[
        Pairs, typer.Option(metavar="NAME=E,...", help="So many epochs of a source.")
    ] = None,
    floors: Annotated[
        Pairs, typer.Option("--floor", metavar="NAME=SHARE,...", help="Least share: en=0.3.")
    ] = None,
    caps: Annotated[
        Pairs, typer.Option("--cap", metavar="NAME=SHARE,...", help="Greatest share of the mix.")
    ] = None,
    max_epochs: Annotated[float, typer.Option(help="No source is repeated more often.")] = 4.0,
    nearest: Annotated[
        bool, typer.Option("--nearest", help="Take the nearest possible mix instead of refusing.")
    ] = False,
    by: Annotated[
        Optional[str], typer.Option(help="Column whose values are mixed, as lang; none: the INs.")
    ] = None,
    quality: Annotated[
        Optional[str],
        typer.Option(
            metavar="COLUMN:EDGES:EPOCHS",
            help="Epochs by buckets of a score: quality.score:0.2,0.8:0,1,3.",
        ),
    ] = None,
    since: Annotated[Optional[str], typer.Option(help="Older documents stay out: 2023-01-01.")] = (
        None
    ),
    until: Annotated[Optional[str], typer.Option(help="Documents from then on stay out.")] = None,
    drop_undated: Annotated[
        bool, typer.Option("--drop-undated", help="So do those without a date.")
    ] = False,
    overlap: Annotated[
        str, typer.Option(help="How texts of the sources are compared: exact, minhash or none.")
    ] = "exact",
    seed: Annotated[int, typer.Option(min=0, help="Of order and choice.")] = 0,
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and the table of the mix, and stop.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Mix sources in stated proportions into one shuffled corpus, with epochs counted.

    Example: llmcurate mix web/ wiki=wikipedia.jsonl.zst --weights web=80,wiki=20 -o mixed

    By language: llmcurate mix corpus/ --by lang --weights temperature --floor en=0.3 -o mixed
    """
    from curate.cli import commands

    options = {
        "weights": weights,
        "alpha": alpha,
        "unit": unit,
        "tokenizer": tokenizer,
        "shards": shards,
        "total": total,
        "amounts": amounts,
        "epochs": epochs,
        "floors": floors,
        "caps": caps,
        "max_epochs": max_epochs,
        "nearest": nearest,
        "by": by,
        "quality": quality,
        "since": since,
        "until": until,
        "undated": not drop_undated,
        "overlap": overlap,
        "seed": seed,
    }
    given = {name: value for name, value in options.items() if value is not None}
    how = how_of(out, workers, as_json, dry_run, quiet)
    commands.mix(given, tuple(sets or ()), inputs or [], how)
