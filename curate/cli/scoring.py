"""`llmcurate quality`, `language` and `perplexity`: score documents and train scoring models."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from curate.cli.options import (
    DEFAULT,
    CommandOptions,
    Inputs,
    Json,
    NewFolder,
    Quiet,
    ReadOptions,
    Restart,
    Sets,
    group,
    reading,
)
from curate.cli.settings import command, run_steps
from llmcurate.base.disk.files import make_folder
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import echo, echo_json, print_result, suggest

NARROW = 0.2  # if the middle 80 % of scores span less, the model was trained on too little

quality_app = group("quality", "Score documents with a quality classifier.", "Curate", default=True)
POSITIVE = typer.Option("--positive", metavar="IN", help="Good documents. [repeatable]")
NEGATIVE = typer.Option("--negative", metavar="IN", help="Ordinary documents. [repeatable]")
Positive = Annotated[list[str], POSITIVE]
Negative = Annotated[list[str], NEGATIVE]
Label = Annotated[
    Optional[str],
    typer.Option(
        metavar="TEXT", help="Label to score. The default is hq, or the label that is not cc."
    ),
]


def _in_folder(model: Path | None) -> Path | None:
    found = [p for p in model.glob("quality.*") if p.is_file()] if model else []
    return found[0] if len(found) == 1 else model


Model = Annotated[
    Path,
    typer.Argument(help="A fastText model, or the folder of quality train.", callback=_in_folder),
]


@command(quality_app, "quality", DEFAULT, hidden=True, flags={"score_label": "--label"})
def quality(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Score documents with a quality classifier; drop those below a threshold, or keep a share.

    \b
    Example:
    llmcurate quality corpus/ --model quality.bin --threshold 0.5 -o out
    """
    run_steps("quality", [("quality", settings)], inputs, options, sets)


@command(quality_app, "QualityTrain", "train")
def quality_train(
    out: NewFolder,
    restart: Restart = False,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Train a quality classifier.

    It writes quality.bin and card.json. With --labels, good documents have a score of
    --from-score or more.

    \b
    Examples:
    llmcurate quality train --positive wiki.jsonl --negative web/ --balance -o model
    llmcurate quality train --labels labels.jsonl --from-score 3 -o model
    """
    from curate.api.command_settings import QualityTrain
    from curate.engines.local import call_apart
    from curate.run.build import claim
    from curate.scoring.language.model import need_library
    from curate.scoring.quality.measures import summary
    from curate.scoring.quality.train import PRESETS, Texts, train

    chosen = QualityTrain.of(**settings)
    positive, negative, labels = chosen.positive, chosen.negative, chosen.labels
    if bool(labels) == bool(positive or negative) or bool(positive) != bool(negative):
        raise UsageError("give --positive and --negative, or --labels instead of both")
    need_library()
    preset = chosen.preset
    if preset not in PRESETS:
        raise UsageError(f"no preset {preset!r}; choose from {', '.join(PRESETS)}")
    make_folder(out)
    asked = {"command": "quality train", **read.given(), **settings}
    claim(out, [out / name for name in ("quality.bin", "quality.ftz", "card.json")], asked, restart)
    options = {"preset", "balance", "documents", "from_score", "positive", "negative", "labels"}
    of_training = chosen.model_dump(exclude=options, exclude_none=True)
    how, least = (quiet or as_json, reading(read)), chosen.from_score
    if labels:
        good, rest = Texts(labels, *how, (least, math.inf)), Texts(labels, *how, (-math.inf, least))
    else:
        good, rest = Texts(positive, *how), Texts(negative, *how)
    training = replace(PRESETS[preset], **of_training)
    card = train(good, rest, out, training, call_apart, chosen.documents, chosen.balance, preset)
    if as_json:
        echo_json(card)
        return
    trained = card["trained"]
    echo(f"trained on {trained['hq']} positive and {trained['cc']} negative documents")
    held = card["held_out"]
    echo(summary(held) if held else "no test scores: no document of one of the sets was held out")
    if held and held["deciles"][0]["least"] - held["deciles"][-1]["most"] < NARROW:
        echo(
            "the scores lie close together and are not probabilities; for a fixed threshold train"
            " on more documents, with more --epochs or a higher --lr"
        )
    echo(f"wrote {out / card['file']} ({card['bytes']:,} bytes) and {out / 'card.json'}")
    corpus = negative or labels
    suggest("quality", "threshold", out / card["file"], *corpus, "--keep-fraction", 0.1)


@command(quality_app, None, "threshold")
def quality_threshold(
    model: Model,
    inputs: Annotated[list[str], typer.Argument(metavar="IN...", help="The corpus.")],
    keep_fraction: Annotated[
        list[float],
        typer.Option(metavar="FLOAT", help="Fraction to keep, such as 0.1. [repeatable]"),
    ],
    label: Label = None,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
) -> None:
    """Print the threshold that keeps a fraction of a corpus.

    \b
    Example:
    llmcurate quality threshold quality.bin corpus/ --keep-fraction 0.1
    """
    from curate.scoring.quality.measures import threshold_of
    from curate.scoring.quality.model import Classifier
    from curate.scoring.quality.train import Texts, score_all

    for fraction in keep_fraction:
        if not 0 < fraction <= 1:
            raise UsageError(f"--keep-fraction {fraction:g}: give more than 0 and at most 1")
    texts = Texts(inputs, quiet or as_json, reading(read))
    scores = score_all(Classifier(model, label), texts)
    rows = []
    for fraction in keep_fraction:
        threshold = threshold_of(scores, fraction)
        kept = int((scores >= threshold).sum())
        rows.append({"keep": fraction, "threshold": threshold, "kept": kept})
    lines = [
        f"--threshold {row['threshold']!r} keeps {row['kept']} of"
        f" {counted(len(scores), 'document')} ({row['kept'] / len(scores):.2%})"
        for row in rows
    ]
    figures = {**texts.tally, "documents": len(scores), "thresholds": rows}
    print_result(figures, "\n".join(lines), as_json)


language_app = group("language", "Label documents by language.", "Curate", default=True)


@command(language_app, "language", DEFAULT, hidden=True)
def language(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Label documents by language; with --keep drop documents in other languages.

    \b
    Example:
    llmcurate language corpus/ -o out --keep en,de
    """
    run_steps("language", [("language", settings)], inputs, options, sets)


@command(language_app, "language_model", "train", flags={"column": "--label-column"})
def language_train(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Train a fastText language model on labelled documents.

    It writes language.bin (or the compressed language.ftz) and card.json.

    \b
    Example:
    llmcurate language train labelled.jsonl -o model --label-column lang --piece-chars 300
    """
    run_steps("language-model", [("language_model", settings)], inputs, options, sets)


perplexity_app = group("perplexity", "Score documents by perplexity.", "Curate", default=True)


@command(perplexity_app, "perplexity", DEFAULT, hidden=True)
def perplexity(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Score documents by perplexity, label them head, middle or tail, and keep some of these.

    \b
    Example:
    llmcurate perplexity corpus/ -o out --model models/{lang}.bin --keep head,middle
    """
    run_steps("perplexity", [("perplexity", settings)], inputs, options, sets)
