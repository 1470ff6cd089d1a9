"""`llmcurate dedup` and `decontaminate`: remove duplicates, and items of evaluation sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from curate.cli import completion
from curate.cli.options import (
    DEFAULT,
    ENGINES,
    CommandOptions,
    Inputs,
    Json,
    Sets,
    app,
    group,
    newest,
)
from curate.cli.settings import Steps, command, run_steps
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import echo, print_result

dedup_app = group("dedup", "Remove duplicates.", "Curate", default=True)


def _steps(arguments: list[str]) -> Steps:
    from curate.dedup.methods import steps_of

    method = "exact"
    for option, value in zip(arguments, [*arguments, ""][1:], strict=True):
        if option == "--method" and value:
            method = value
        elif option.startswith("--method="):
            method = option.partition("=")[2]
    return steps_of(method)


def _owners(setting: str) -> str:
    from curate.cli.settings import setting_options
    from curate.dedup.methods import methods

    owners = [
        name for name, steps in methods().items() if setting in setting_options(steps, {}, set())
    ]
    return f"--method {' or '.join(owners)}" if owners else ""


@command(dedup_app, _steps, DEFAULT, hidden=True, shared=ENGINES, owners=_owners)
def dedup(
    inputs: Inputs = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Dedup method. Join several with + to run them in turn.",
            autocompletion=completion.methods,
        ),
    ] = "exact",
    sets: Sets = None,
    *,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Remove duplicate documents or passages and keep one of each.

    decisions.parquet records which duplicate was kept.

    Each method has its own options: llmcurate dedup --method minhash --help

    \b
    exact         documents with the same text, or with --key url the same URL
    url           documents with the same URL
    minhash       near duplicates, by MinHash over shingles
    simhash       near duplicates, by SimHash fingerprints of 64 bits
    lines         repeated lines, cut as C4 does
    sentences     repeated runs of sentences
    paragraphs    repeated paragraphs
    suffix-array  repeated passages, wherever they begin and end
    bloom         text mostly seen before, by a Bloom filter over n-grams
    semantic      documents of the same meaning, by embeddings (SemDeDup)
    newest        same URL, then near duplicates; the newest is kept

    \b
    Examples:
    llmcurate dedup corpus/ -o out --key url --survivor newest
    llmcurate dedup corpus/ -o out --method minhash --verify 0.8
    llmcurate dedup corpus/ -o out --method exact+lines
    llmcurate dedup corpus/ -o out --method paragraphs --keep none --hash sha1-64
    llmcurate dedup new/ -o out2 --method minhash --against out
    """
    from curate.dedup.methods import steps_with_options

    run_steps("dedup", steps_with_options(method, settings), inputs, options, sets)


@command(dedup_app, "Clusters", "clusters")
def clusters(
    out: Annotated[
        Optional[Path],
        typer.Argument(
            metavar="OUT",
            help="Folder of a run. In a workspace the default is the newest run with a dedup.",
        ),
    ] = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Show the largest clusters of duplicates and how their texts differ.

    \b
    Example:
    llmcurate dedup clusters out --show 5 --method minhash
    """
    from curate.api.command_settings import Clusters
    from curate.inspect.report import duplicates as browsing

    out = newest("dedup", out, "OUT")
    chosen = Clusters.of(**settings)
    largest = browsing.browse(out, chosen.show, chosen.method, chosen.min_size, chosen.members)
    print_result(largest, browsing.text(largest), as_json)


@command(app, "decontaminate", panel="Curate")
def decontaminate(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Drop documents that contain items of evaluation sets.

    contamination.parquet lists the items found in each document.

    \b
    Examples:
    llmcurate decontaminate corpus/ --evals gsm8k.jsonl --evals mmlu.parquet -o out
    llmcurate decontaminate corpus/ --evals gsm8k.jsonl -o out --action cut
    """
    if not settings.get("evals"):
        raise UsageError("give the evaluation sets: --evals FILE (repeatable)")
    steps = [("decontaminate", settings)]
    outcome = run_steps("decontaminate", steps, inputs, options, sets)
    if not options.as_json:
        for stage in outcome.stages:
            for note in (stage.decided or {}).get("notes", ()):
                echo(note)
