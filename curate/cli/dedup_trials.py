"""`llmcurate dedup clusters`, `compare` and `evaluate`: looking at what dedups do."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli.options import Inputs, Json, Out, Quiet, Sets, Workers, how_of


def clusters(
    out: Annotated[
        Optional[Path],
        typer.Argument(metavar="[OUT]", help="A run's folder; in a workspace: the newest."),
    ] = None,
    show: Annotated[int, typer.Option(help="How many clusters, the largest first.", min=1)] = 20,
    method: Annotated[
        Optional[str], typer.Option(help="Only those of this method.", show_default=False)
    ] = None,
    min_size: Annotated[int, typer.Option(help="Least members of a cluster.", min=1)] = 2,
    members: Annotated[
        int, typer.Option(help="Members shown beside the copy that stays.", min=0, max=100)
    ] = 2,
    width: Annotated[
        Optional[int], typer.Option(help="Columns of a line; of the terminal.", min=40)
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the largest clusters of copies, with what differs in them.

    Example: llmcurate dedup clusters out --show 5 --method minhash
    """
    from curate.cli import commands

    commands.clusters(out, show, method, min_size, members, width, as_json)


Methods = Annotated[
    str, typer.Option(help="Methods of dedup, comma between; + for one after the other.")
]


def compare(
    inputs: Inputs = None,
    out: Out = None,
    methods: Methods = "exact,minhash,exact+minhash",
    tokenizer: Annotated[
        Optional[Path],
        typer.Option(help="Counts tokens with it: tokenizer.json or its folder.", metavar="PATH"),
    ] = None,
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare what several methods leave of the same text.

    Documents, bytes and tokens left, overlap, time and memory. Every method is a run of its own in
    OUT/METHOD. Example:

    llmcurate dedup compare corpus/ -o out --methods exact,lines,minhash,exact+minhash
    """
    from curate.cli import commands

    how = how_of(out, workers, as_json, False, quiet)
    code = commands.compare(methods.split(","), tuple(sets or ()), tokenizer, inputs or [], how)
    raise typer.Exit(code)


def evaluate(
    inputs: Inputs = None,
    out: Out = None,
    methods: Methods = "exact,minhash,lines",
    plant: Annotated[int, typer.Option(help="Plants of each kind.", min=1, max=10_000)] = 20,
    seed: Annotated[int, typer.Option(help="Decides the sample and the plants.")] = 0,
    documents: Annotated[
        int, typer.Option(help="Most documents, drawn from the input.", min=1)
    ] = 10_000,
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure what methods find of copies planted in a corpus.

    Plants copies, near copies at six similarities, paragraphs and runs of text; tells what is found
    of each kind, and what else a method removes. Example:

    llmcurate dedup evaluate corpus/ -o out --methods minhash --set dedup_minhash.verify=0.7
    """
    from curate.cli import commands

    how = how_of(out, workers, as_json, False, quiet)
    plants = (plant, seed, documents)
    commands.evaluate_dedup(methods.split(","), tuple(sets or ()), plants, inputs or [], how)
