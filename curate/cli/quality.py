"""`llmcurate quality`: documents by a classifier's score; train and evaluate classifiers."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.options import DEFAULT, Inputs, Json, Page, Sets, group, run_steps
from curate.cli.settings import command
from curate.errors import UsageError

if TYPE_CHECKING:
    from curate.api import CommandOptions

NARROW = 0.2  # of the middle 80 % of the scores: a model that has seen too little

quality_app = group(
    "quality", "Score documents by a quality classifier (quality IN...).", default=True
)
Positive = Annotated[
    list[str], typer.Option("--positive", metavar="IN", help="Good documents; repeatable.")
]
Negative = Annotated[
    list[str], typer.Option("--negative", metavar="IN", help="Documents as they come; repeatable.")
]
Label = Annotated[
    Optional[str],
    typer.Option(help="Label that is scored. The default is hq, or the one beside cc."),
]
Model = Annotated[Path, typer.Argument(help="A fastText model.")]


@command(quality_app, "quality", DEFAULT, hidden=True, flags={"score_label": "--label"})
def quality(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Score documents; drop those below a threshold, or all but a share, each with its reason.

    \b
    Example:
    llmcurate quality corpus/ --model quality.bin --threshold 0.5 -o out
    """
    run_steps("quality", [("quality", settings)], inputs, options, sets)


@quality_app.command("train")
def quality_train(
    positive: Positive,
    negative: Negative,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder to write.")],
    preset: Annotated[
        str, typer.Option(help="Published settings to start from: dclm, llama or gpt3.")
    ] = "dclm",
    balance: Annotated[
        bool, typer.Option("--balance", help="Take as many of the larger set as of the smaller.")
    ] = False,
    samples: Annotated[
        int, typer.Option(min=0, help="Most documents of each set, drawn by hash. 0 is all.")
    ] = 0,
    held_out: Annotated[
        float, typer.Option(min=0, max=0.9, help="Share of texts to measure with, drawn by hash.")
    ] = 0.1,
    word_ngrams: Annotated[
        Optional[int], typer.Option(min=1, max=5, help="Words of the longest n-grams.")
    ] = None,
    dim: Annotated[
        Optional[int], typer.Option(min=1, max=1000, help="Dimensions of the vectors of words.")
    ] = None,
    epochs: Annotated[Optional[int], typer.Option(min=1, help="Passes over the texts.")] = None,
    lr: Annotated[Optional[float], typer.Option(min=0, help="Learning rate.")] = None,
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
        int, typer.Option(min=0, help="Words and n-grams kept when quantized. 0 is all.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Decides the first weights.")] = 0,
    as_json: Json = False,
) -> None:
    """Train a classifier of good documents.

    Writes quality.bin and card.json.

    \b
    Example:
    llmcurate quality train --positive wiki.jsonl --negative web/ --balance -o model
    """
    from dataclasses import replace

    from curate.engines.local import call_apart
    from curate.scoring.language.model import need_library
    from curate.scoring.quality.train import PRESETS, Texts, train

    need_library()
    if preset not in PRESETS:
        raise UsageError(f"no preset {preset!r}; there are {', '.join(PRESETS)}")
    if out.exists() and not out.is_dir():
        raise UsageError(f"OUT {out} is a file; name a folder")
    options = {"word_ngrams": word_ngrams, "dim": dim, "epochs": epochs, "lr": lr}
    options |= {"min_count": min_count, "bucket": bucket, "held_out": held_out}
    changed: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    changed |= {"quantize": quantize, "cutoff": cutoff, "seed": seed}
    good, rest = Texts(positive, as_json), Texts(negative, as_json)
    training = replace(PRESETS[preset], **changed)
    card = train(good, rest, out, training, call_apart, samples, balance, preset)
    if as_json:
        print(json.dumps(card, ensure_ascii=False))
        return
    trained = card["trained"]
    print(f"trained on {trained['hq']} good documents and {trained['cc']} others")
    held = card["held_out"]
    print(_figures(held) if held else "held out: nothing of one of the sets, so no figures")
    if held and held["deciles"][0]["least"] - held["deciles"][-1]["most"] < NARROW:
        print(
            "its scores lie close together and are no probabilities: for a threshold by number,"
            " train on more documents, with more --epochs or a higher --lr"
        )
    print(f"wrote {out / card['file']} ({card['bytes']:,} bytes) and {out / 'card.json'}")


@quality_app.command("evaluate")
def quality_evaluate(
    model: Model,
    positive: Positive,
    negative: Negative,
    out: Page = None,
    label: Label = None,
    as_json: Json = False,
) -> None:
    """Measure a model: ROC AUC, deciles, thresholds.

    Shows average precision and calibration too; -o writes a page with the curves.

    \b
    Example:
    llmcurate quality evaluate quality.bin --positive a.jsonl --negative b.jsonl -o out
    """
    from curate.inspect import results
    from curate.inspect.evaluate.classifiers import evaluate_quality, render_quality

    results.check_folder(out)
    figures = evaluate_quality(model, positive, negative, label, as_json)
    results.show(figures, lambda: text_of(figures), lambda: render_quality(figures), out, as_json)


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

    \b
    Example:
    llmcurate quality threshold quality.bin corpus/ --keep 0.1
    """
    from curate.scoring.quality.measures import threshold_of
    from curate.scoring.quality.model import Classifier
    from curate.scoring.quality.train import Texts, score_all

    for fraction in keep:
        if not 0 < fraction <= 1:
            raise UsageError(f"--keep {fraction:g}: a fraction lies above 0 and is at most 1")
    texts = Texts(inputs, as_json)
    scores = score_all(Classifier(model, label), texts)
    rows = []
    for fraction in keep:
        limit = threshold_of(scores, fraction)
        kept = int((scores >= limit).sum())
        rows.append({"keep": fraction, "threshold": limit, "kept": kept})
    if as_json:
        print(json.dumps({**texts.tally, "documents": len(scores), "thresholds": rows}))
        return
    for row in rows:
        share = row["kept"] / len(scores)
        print(
            f"--threshold {row['threshold']!r} keeps {row['kept']} of {len(scores)} documents"
            f" ({share:.2%})"
        )


def text_of(figures: dict[str, Any]) -> str:
    """An evaluation for a terminal."""
    from curate.disk.units import format_percent
    from curate.terminal.tables import table

    deciles = [
        (
            f"{row['least']:.6f} to {row['most']:.6f}",
            f"{row['documents']}",
            format_percent(row["good"] / row["documents"]),
        )
        for row in figures["deciles"]
    ]
    thresholds = [
        (
            format_percent(row["kept"], 2),
            f"{row['threshold']:.6f}",
            format_percent(row["good_kept"], 2),
        )
        for row in figures["thresholds"]
    ]
    return "\n".join(
        (
            _figures(figures),
            *table(("decile of scores", "documents", "positive"), deciles, indent=2),
            *table(
                ("kept of the negatives", "threshold", "of the positives"), thresholds, indent=2
            ),
        )
    )


def _figures(figures: dict[str, Any]) -> str:
    n = figures["documents"]
    return (
        f"{n['positive']} positive, {n['negative']} negative: ROC AUC {figures['roc_auc']:.4f},"
        f" average precision {figures['average_precision']:.4f}, calibration error"
        f" {figures['calibration']['error']:.4f}"
    )
