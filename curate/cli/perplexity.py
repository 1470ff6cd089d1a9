"""`llmcurate perplexity`."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli.groups import DEFAULT, DefaultGroup
from curate.cli.options import DryRun, Inputs, Json, Out, Quiet, Sets, Workers, how_of

perplexity_app = typer.Typer(
    cls=DefaultGroup,
    rich_markup_mode=None,
    help="Sort documents by how expected they are to an n-gram model; train and convert models.",
)
Variant = Annotated[str, typer.Option(help="plain (lines as written) or ccnet (its normal form).")]


@perplexity_app.command(DEFAULT, hidden=True)
def perplexity(
    inputs: Inputs = None,
    out: Out = None,
    model: Annotated[
        Optional[str],
        typer.Option(help="perplexity.bin; with {lang} in its path one for each language."),
    ] = None,
    keep: Annotated[
        str, typer.Option(help="Of head, middle, tail, all; comma between. None: keep everything.")
    ] = "",
    head: Annotated[float, typer.Option(help="Percentile under which is head.")] = 30.0,
    tail: Annotated[float, typer.Option(help="Percentile from which on is tail.")] = 60.0,
    cutoffs: Annotated[
        str, typer.Option(help="own (percentiles of this corpus), or ccnet with its own models.")
    ] = "own",
    least: Annotated[
        Optional[float], typer.Option(help="Drop what has a lower perplexity: near-copies.")
    ] = None,
    most: Annotated[Optional[float], typer.Option(help="Drop what has a higher one.")] = None,
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Score documents, sort them into head, middle and tail, and keep some.

    Example: llmcurate perplexity corpus/ -o out --model models/{lang}.bin --keep head,middle
    """
    from curate.cli import commands

    given = {"model": model, "keep": keep, "least": least, "most": most}
    settings = {name: value for name, value in given.items() if value not in (None, "")}
    settings |= {"head": head, "tail": tail, "cutoffs": cutoffs}
    how = how_of(out, workers, as_json, dry_run, quiet)
    commands.steps("perplexity", [("perplexity", settings)], inputs or [], how, tuple(sets or ()))


@perplexity_app.command("train")
def perplexity_train(
    inputs: Inputs = None,
    out: Out = None,
    order: Annotated[int, typer.Option(help="Words of the longest n-grams, 2 to 6.")] = 5,
    variant: Variant = "plain",
    unit: Annotated[
        str, typer.Option(help="whitespace or words; pieces follows from --pieces and --vocab.")
    ] = "whitespace",
    pieces: Annotated[
        Optional[Path], typer.Option(help="A SentencePiece model that cuts texts.")
    ] = None,
    vocab: Annotated[
        Optional[int], typer.Option(help="Train so many SentencePiece pieces first.", min=8)
    ] = None,
    prune: Annotated[
        str, typer.Option(help="Leave out n-grams that come so often or less: 0,0,1.")
    ] = "0",
    min_count: Annotated[int, typer.Option(help="Rarer words are unknown.", min=1)] = 1,
    discount_fallback: Annotated[
        bool, typer.Option("--discount-fallback", help="Discounts 0.5, 1, 1.5 for tiny corpora.")
    ] = False,
    arpa: Annotated[bool, typer.Option("--arpa", help="Write perplexity.arpa too.")] = False,
    memory_mib: Annotated[int, typer.Option(help="Memory for sorting n-grams.", min=1)] = 1024,
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Train a Kneser-Ney model on documents: perplexity.bin and card.json.

    Example: llmcurate perplexity train wikipedia.jsonl -o model --variant ccnet --vocab 65536
    """
    from curate.cli import commands

    settings: dict[str, object] = {"order": order, "variant": variant, "prune": prune}
    settings |= {"min_count": min_count, "discount_fallback": discount_fallback, "arpa": arpa}
    settings |= {"memory_mib": memory_mib}
    if pieces or vocab:
        settings |= {"pieces": str(pieces)} if pieces else {}
        settings |= {"vocab": vocab} if vocab else {}
    else:
        settings["unit"] = unit
    how = how_of(out, workers, as_json, dry_run, quiet)
    steps = [("perplexity_model", settings)]
    commands.steps("perplexity-model", steps, inputs or [], how, tuple(sets or ()))


@perplexity_app.command("score")
def perplexity_score(
    model: Annotated[Path, typer.Argument(help="perplexity.bin.")],
    file: Annotated[Optional[Path], typer.Argument(help="A text; none or -: stdin.")] = None,
    by: Annotated[str, typer.Option(help="line, paragraph or document.")] = "line",
    as_json: Json = False,
) -> None:
    """Print the perplexity of every line of a text.

    Example: llmcurate perplexity score model/perplexity.bin essay.txt --by paragraph
    """
    from curate.cli.perplexity_commands import score

    score(model, file, by, as_json)


@perplexity_app.command("convert")
def perplexity_convert(
    source: Annotated[Path, typer.Argument(help="perplexity.bin, or an ARPA file.")],
    target: Annotated[Path, typer.Argument(help="The other form: *.arpa, or any other name.")],
    variant: Variant = "plain",
    unit: Annotated[str, typer.Option(help="whitespace or words.")] = "whitespace",
    pieces: Annotated[
        Optional[Path], typer.Option(help="The SentencePiece model that its words are of.")
    ] = None,
) -> None:
    """Convert a model between ARPA and llmcurate's binary form.

    Example: llmcurate perplexity convert kenlm.arpa model.bin --pieces sp.model --variant ccnet
    """
    from curate.cli.perplexity_commands import convert

    convert(source, target, variant, unit, pieces)
