"""`llmcurate language`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli.groups import DEFAULT, DefaultGroup
from curate.cli.options import DryRun, Inputs, Json, Out, Quiet, Sets, Workers, how_of

language_app = typer.Typer(
    cls=DefaultGroup,
    rich_markup_mode=None,
    help="Label documents by language and keep some (language IN...); train and evaluate models.",
)
Label = Annotated[str, typer.Option(help="Column that holds the labels.")]


@language_app.command(DEFAULT, hidden=True)
def language(
    inputs: Inputs = None,
    out: Out = None,
    keep: Annotated[
        str, typer.Option(help="Labels or ISO 639 codes, comma between; none: keep all.")
    ] = "",
    threshold: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Least score; 0.65 where --keep is given."),
    ] = None,
    model: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="fastText model; else LLMCURATE_LID_MODEL, else lid.176.ftz."),
    ] = None,
    min_chars: Annotated[
        int, typer.Option(min=0, help="Label shorter documents, but drop none of them.")
    ] = 0,
    lines: Annotated[
        bool, typer.Option("--lines", help="Label each line too: shares of languages as columns.")
    ] = False,
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Label documents by language; with --keep drop the others, each with its reason.

    Example: llmcurate language corpus/ -o out --keep en,de
    """
    from curate.cli import commands

    given = {"keep": keep, "threshold": threshold, "model": model}
    given |= {"min_chars": min_chars, "lines": lines}
    settings = {name: value for name, value in given.items() if value not in (None, "", False)}
    how = how_of(out, workers, as_json, dry_run, quiet)
    commands.steps("language", [("language", settings)], inputs or [], how, tuple(sets or ()))


@language_app.command("train")
def language_train(
    inputs: Inputs = None,
    out: Out = None,
    label: Label = "lang",
    epochs: Annotated[int, typer.Option(min=1)] = 10,
    piece_chars: Annotated[
        int, typer.Option(min=0, help="Cut documents into such pieces; 0: whole.")
    ] = 0,
    quantize: Annotated[
        bool, typer.Option("--quantize", help="Write the compressed form, language.ftz.")
    ] = False,
    held_out: Annotated[float, typer.Option(help="Share of texts to measure with.")] = 0.05,
    seed: Annotated[int, typer.Option()] = 0,
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Train a fastText model on labelled documents: language.bin and card.json.

    Example: llmcurate language train labelled.jsonl -o model --label lang --piece-chars 300
    """
    from curate.cli import commands

    settings = {"column": label, "epochs": epochs, "piece_chars": piece_chars}
    settings |= {"quantize": quantize, "held_out": held_out, "seed": seed}
    how = how_of(out, workers, as_json, dry_run, quiet)
    steps = [("language_model", settings)]
    commands.steps("language-model", steps, inputs or [], how, tuple(sets or ()))


@language_app.command("evaluate")
def language_evaluate(
    model: Annotated[Path, typer.Argument(help="A fastText model.")],
    inputs: Annotated[list[str], typer.Argument(metavar="IN...", help="Labelled documents.")],
    label: Label = "lang",
    max_chars: Annotated[int, typer.Option(min=0, help="Look at so many; 0: all.")] = 0,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("-o", "--out", help="Folder for the figures: evaluation.json and .html."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure a model on labelled documents: F1 by language, confusions, calibration; -o a page.

    Example: llmcurate language evaluate model/language.bin labelled.jsonl -o evaluation
    """
    from curate.cli import commands

    commands.evaluate_language(model, label, max_chars, inputs, out, as_json)
