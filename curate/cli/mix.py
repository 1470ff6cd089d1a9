"""`llmcurate mix`: mix sources in given proportions."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from curate.cli.options import (
    DEFAULT,
    RECIPE,
    CommandOptions,
    ReadOptions,
    Sets,
    corpus_of,
    group,
    read_changes,
)
from curate.cli.settings import READS_TEXTS, command

Pairs = Optional[list[str]]

mix_app = group("mix", "Mix sources into one shuffled corpus.", "Curate", default=True)


# Settings that are mappings get short options here.
@command(mix_app, "mix", DEFAULT, hidden=True, shared=RECIPE, reads=READS_TEXTS)
def mix(
    inputs: Annotated[
        Optional[list[str]],
        typer.Argument(
            metavar="IN...",
            help="Sources: runs, or files or folders of documents, as IN or NAME=IN. In a workspace"
            " the default is the newest corpus.",
        ),
    ] = None,
    weights: Annotated[
        str,
        typer.Option(
            help="Weights of the sources: proportional, temperature, unimax, a published mixture"
            " (llama1, pile, gpt3, massivetext, dolma, roots), or NAME=WEIGHT,... (0 for sources"
            " not named)."
        ),
    ] = "proportional",
    total: Annotated[
        Optional[str],
        typer.Option(metavar="N", help="Size of the mix, such as 1.4e12. The default is all text."),
    ] = None,
    amounts: Annotated[
        Pairs, typer.Option("--amount", metavar="NAME=N,...", help="Amount to take of a source.")
    ] = None,
    epochs: Annotated[
        Pairs, typer.Option(metavar="NAME=E,...", help="Epochs to take of a source.")
    ] = None,
    floors: Annotated[
        Pairs,
        typer.Option(
            "--floor", metavar="NAME=SHARE,...", help="Smallest share of the mix: en=0.3."
        ),
    ] = None,
    caps: Annotated[
        Pairs, typer.Option("--cap", metavar="NAME=SHARE,...", help="Largest share of the mix.")
    ] = None,
    quality: Annotated[
        Optional[str],
        typer.Option(
            metavar="COLUMN:EDGES:EPOCHS",
            help="Epochs per bucket of a score: quality.score:0.2,0.8:0,1,3.",
        ),
    ] = None,
    undated: Annotated[
        bool,
        typer.Option(
            "--undated/--drop-undated",
            help="With --since or --until: keep documents without a date, or drop them.",
        ),
    ] = True,
    sets: Sets = None,
    *,
    read: ReadOptions,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Mix sources into one shuffled corpus.

    Sources are mixed in the given proportions, and their epochs are counted. --dry-run prints the
    table of the mix.

    \b
    Examples:
    llmcurate mix web/ wiki=wikipedia.jsonl.zst --weights web=80,wiki=20 -o mixed
    llmcurate mix corpus/ --by lang --weights temperature --floor en=0.3 -o mixed
    """
    from curate.cli.execution import execute
    from curate.mix.settings import command_settings as parsed
    from curate.steps.recipe import compose

    short = {"weights": weights, "total": total, "amounts": amounts}
    short |= {"epochs": epochs, "floors": floors, "caps": caps, "quality": quality}
    asked = {name: value for name, value in short.items() if value is not None}
    chosen = parsed(corpus_of(inputs), **{**settings, **asked, "undated": undated})
    recipe = compose("mix", [("mix", chosen)], (*(sets or ()), *read_changes(read)))
    execute(recipe, [], options, "mix")
    if options.dry_run:
        from curate.mix.make import preview

        preview(recipe.products[0], options.as_json)
