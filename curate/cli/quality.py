"""`llmcurate quality`."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli.groups import DEFAULT, DefaultGroup
from curate.cli.options import DryRun, Inputs, Json, Out, Quiet, Sets, Workers, how_of

quality_app = typer.Typer(
    cls=DefaultGroup,
    rich_markup_mode=None,
    help="Score documents by a quality classifier (quality IN...); train and evaluate models.",
)
Positive = Annotated[
    list[str], typer.Option("--positive", metavar="IN", help="Good documents; repeatable.")
]
Negative = Annotated[
    list[str], typer.Option("--negative", metavar="IN", help="Documents as they come; repeatable.")
]
Label = Annotated[
    Optional[str], typer.Option(help="Label that is scored; none: hq, or the one beside cc.")
]
Model = Annotated[Path, typer.Argument(help="A fastText model.")]


@quality_app.command(DEFAULT, hidden=True)
def quality(
    inputs: Inputs = None,
    out: Out = None,
    model: Annotated[
        Optional[str], typer.Option(help="fastText model; else LLMCURATE_QUALITY_MODEL.")
    ] = None,
    threshold: Annotated[
        Optional[float], typer.Option(help="Drop what scores less; DCLM's model: 0.018112.")
    ] = None,
    keep_fraction: Annotated[
        Optional[float], typer.Option(help="Keep this share of the corpus, the best.")
    ] = None,
    pareto: Annotated[
        Optional[float], typer.Option(metavar="ALPHA", help="GPT-3's draw; theirs is 9.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
    label: Label = None,
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Score documents; drop those below a threshold, or all but a share, each with its reason.

    Example: llmcurate quality corpus/ --model quality.bin --threshold 0.5 -o out
    """
    from curate.cli import commands

    given = {"model": model, "threshold": threshold, "keep_fraction": keep_fraction}
    given |= {"pareto": pareto, "seed": seed or None, "score_label": label}
    settings = {name: value for name, value in given.items() if value is not None}
    how = how_of(out, workers, as_json, dry_run, quiet)
    commands.steps("quality", [("quality", settings)], inputs or [], how, tuple(sets or ()))


@quality_app.command("train")
def quality_train(
    positive: Positive,
    negative: Negative,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder to write.")],
    preset: Annotated[str, typer.Option(help="dclm, llama or gpt3.")] = "dclm",
    balance: Annotated[
        bool, typer.Option("--balance", help="As many of the larger set as of the smaller.")
    ] = False,
    samples: Annotated[
        int, typer.Option(min=0, help="Most documents of each set, by hash; 0: all.")
    ] = 0,
    held_out: Annotated[
        float, typer.Option(min=0, max=0.9, help="Share of texts to measure with, by hash.")
    ] = 0.1,
    word_ngrams: Annotated[Optional[int], typer.Option(min=1, max=5)] = None,
    dim: Annotated[Optional[int], typer.Option(min=1, max=1000)] = None,
    epochs: Annotated[Optional[int], typer.Option(min=1)] = None,
    lr: Annotated[Optional[float], typer.Option(min=0)] = None,
    min_count: Annotated[
        Optional[int], typer.Option(min=1, help="Times that a word must occur.")
    ] = None,
    bucket: Annotated[
        Optional[int], typer.Option(min=1, help="Rows that n-grams share; 2,000,000: 800 MB.")
    ] = None,
    quantize: Annotated[
        bool, typer.Option("--quantize", help="Write the compressed form, quality.ftz.")
    ] = False,
    cutoff: Annotated[
        int, typer.Option(min=0, help="Words and n-grams kept when quantized; 0: all.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1)] = 0,
    as_json: Json = False,
) -> None:
    """Train a classifier of good documents: quality.bin and card.json.

    Example: llmcurate quality train --positive wiki.jsonl --negative web/ --balance -o model
    """
    from curate.cli import quality_commands as terminal

    given = {"word_ngrams": word_ngrams, "dim": dim, "epochs": epochs, "lr": lr}
    given |= {"min_count": min_count, "bucket": bucket, "held_out": held_out}
    changed = {name: value for name, value in given.items() if value is not None}
    changed |= {"quantize": quantize, "cutoff": cutoff, "seed": seed}
    terminal.train(positive, negative, out, preset, changed, samples, balance, as_json)


@quality_app.command("evaluate")
def quality_evaluate(
    model: Model,
    positive: Positive,
    negative: Negative,
    out: Annotated[
        Optional[Path], typer.Option("-o", "--out", help="Folder for a page with the curves.")
    ] = None,
    label: Label = None,
    as_json: Json = False,
) -> None:
    """Measure a model: ROC AUC, average precision, deciles of scores, thresholds.

    Example: llmcurate quality evaluate quality.bin --positive a.jsonl --negative b.jsonl -o out
    """
    from curate.cli import quality_commands as terminal

    terminal.evaluate(model, positive, negative, out, label, as_json)


@quality_app.command("threshold")
def quality_threshold(
    model: Model,
    inputs: Annotated[list[str], typer.Argument(metavar="IN...", help="The corpus.")],
    keep: Annotated[
        list[float], typer.Option(help="Fraction that is to stay, as 0.1; repeatable.")
    ],
    label: Label = None,
    as_json: Json = False,
) -> None:
    """Print the threshold that keeps a fraction of a corpus.

    Example: llmcurate quality threshold quality.bin corpus/ --keep 0.1
    """
    from curate.cli import quality_commands as terminal

    terminal.threshold(model, inputs, keep, label, as_json)
