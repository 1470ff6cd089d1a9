"""`llmcurate quality`, `language`, `perplexity`: scores of documents, and their models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from curate.cli.options import (
    DEFAULT,
    CommandOptions,
    Inputs,
    Json,
    NewFolder,
    Page,
    ReadOptions,
    Restart,
    Sets,
    group,
    reading,
)
from curate.cli.settings import command
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal.output import answer, echo, echo_json

NARROW = 0.2  # of the middle 80 % of the scores: a model that has seen too little

quality_app = group(
    "quality", "Score documents by a quality classifier (quality IN...).", default=True
)
Positive = Annotated[
    list[str], typer.Option("--positive", metavar="IN", help="Good documents. [repeatable]")
]
Negative = Annotated[
    list[str], typer.Option("--negative", metavar="IN", help="Documents as they come. [repeatable]")
]
Label = Annotated[
    Optional[str],
    typer.Option(
        metavar="TEXT", help="Label that is scored. The default is hq, or the one beside cc."
    ),
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
    from curate.cli.execution import run_steps

    run_steps("quality", [("quality", settings)], inputs, options, sets)


@command(quality_app, "QualityTrain", "train")
def quality_train(
    positive: Positive,
    negative: Negative,
    out: NewFolder,
    restart: Restart = False,
    as_json: Json = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Train a classifier of good documents.

    Writes quality.bin and card.json.

    \b
    Example:
    llmcurate quality train --positive wiki.jsonl --negative web/ --balance -o model
    """
    from dataclasses import replace

    from curate.cli.command_settings import QualityTrain
    from curate.engines.local import call_apart
    from curate.run.made import claim
    from curate.scoring.language.model import need_library
    from curate.scoring.quality.measures import summary
    from curate.scoring.quality.train import PRESETS, Texts, train
    from llmcurate.base.disk.files import make_folder

    need_library()
    chosen = QualityTrain.of(settings)
    preset = chosen.preset
    if preset not in PRESETS:
        raise UsageError(f"no preset {preset!r}; there are {', '.join(PRESETS)}")
    make_folder(out)
    asked = {"command": "quality train", "positive": positive, "negative": negative, **settings}
    asked |= read.given()
    claim(out, [out / name for name in ("quality.bin", "quality.ftz", "card.json")], asked, restart)
    of_training = chosen.model_dump(exclude={"preset", "balance", "samples"}, exclude_none=True)
    how = reading(read)  # either set
    good, rest = Texts(positive, as_json, how), Texts(negative, as_json, how)
    training = replace(PRESETS[preset], **of_training)
    card = train(good, rest, out, training, call_apart, chosen.samples, chosen.balance, preset)
    if as_json:
        echo_json(card)
        return
    trained = card["trained"]
    echo(f"trained on {trained['hq']} good documents and {trained['cc']} others")
    held = card["held_out"]
    echo(summary(held) if held else "held out: nothing of one of the sets, so no figures")
    if held and held["deciles"][0]["least"] - held["deciles"][-1]["most"] < NARROW:
        echo(
            "its scores lie close together and are no probabilities: for a threshold by number,"
            " train on more documents, with more --epochs or a higher --lr"
        )
    echo(f"wrote {out / card['file']} ({card['bytes']:,} bytes) and {out / 'card.json'}")


@command(quality_app, None, "evaluate")
def quality_evaluate(
    model: Model,
    positive: Positive,
    negative: Negative,
    out: Page = None,
    label: Label = None,
    as_json: Json = False,
    *,
    read: ReadOptions,
) -> None:
    """Measure a model: ROC AUC, deciles, thresholds.

    Shows average precision and calibration too; -o writes a page with the curves.

    \b
    Example:
    llmcurate quality evaluate quality.bin --positive a.jsonl --negative b.jsonl -o out
    """
    from curate.inspect.evaluate.classifiers import evaluate_quality
    from curate.inspect.results import check_folder

    check_folder(out)
    evaluate_quality(model, positive, negative, label, as_json, reading(read)).show(out, as_json)


@command(quality_app, None, "threshold")
def quality_threshold(
    model: Model,
    inputs: Annotated[list[str], typer.Argument(metavar="IN...", help="The corpus.")],
    keep: Annotated[
        list[float],
        typer.Option(metavar="FLOAT", help="Fraction that is to stay, as 0.1. [repeatable]"),
    ],
    label: Label = None,
    as_json: Json = False,
    *,
    read: ReadOptions,
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
    texts = Texts(inputs, as_json, reading(read))
    scores = score_all(Classifier(model, label), texts)
    rows = []
    for fraction in keep:
        threshold = threshold_of(scores, fraction)
        kept = int((scores >= threshold).sum())
        rows.append({"keep": fraction, "threshold": threshold, "kept": kept})
    lines = [
        f"--threshold {row['threshold']!r} keeps {row['kept']} of"
        f" {counted(len(scores), 'document')} ({row['kept'] / len(scores):.2%})"
        for row in rows
    ]
    figures = {**texts.tally, "documents": len(scores), "thresholds": rows}
    answer(figures, "\n".join(lines), as_json)


language_app = group("language", "Label documents by language (language IN...).", default=True)


@command(language_app, "language", DEFAULT, hidden=True)
def language(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Label documents by language; with --keep drop the others, each with its reason.

    \b
    Example:
    llmcurate language corpus/ -o out --keep en,de
    """
    from curate.cli.execution import run_steps

    run_steps("language", [("language", settings)], inputs, options, sets)


@command(language_app, "language_model", "train", flags={"column": "--label"})
def language_train(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Train a fastText model on labelled documents.

    Writes language.bin (or the compressed language.ftz) and card.json.

    \b
    Example:
    llmcurate language train labelled.jsonl -o model --label lang --piece-chars 300
    """
    from curate.cli.execution import run_steps

    run_steps("language-model", [("language_model", settings)], inputs, options, sets)


@command(language_app, "LanguageEvaluate", "evaluate")
def language_evaluate(
    model: Annotated[Path, typer.Argument(help="A fastText model.")],
    inputs: Annotated[list[str], typer.Argument(metavar="IN...", help="Labelled documents.")],
    out: Page = None,
    as_json: Json = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Measure a model on labelled documents.

    Shows F1 by language, confusions and calibration; -o writes a page.

    \b
    Example:
    llmcurate language evaluate model/language.bin labelled.jsonl -o evaluation
    """
    from curate.cli.command_settings import LanguageEvaluate
    from curate.corpus.direct_input import DirectInput
    from curate.inspect.evaluate.classifiers import LanguageEvaluation, evaluate_language
    from curate.inspect.results import check_folder
    from curate.run.plan import make_plan
    from curate.steps.recipe import build
    from llmcurate.base.terminal.progress import say

    chosen = LanguageEvaluate.of(settings)
    check_folder(out)
    plan = make_plan(build("evaluate", []).reading(**vars(read)), inputs)
    for notice in plan.inputs.notices:
        say(notice)
    documents = DirectInput(plan.inputs, plan.recipe.read)
    scores = evaluate_language(model, documents.batches(None), chosen.label, chosen.max_chars)
    figures = {"inputs": inputs, **scores, "corrupt": documents.tally["corrupt"]}
    LanguageEvaluation(figures).show(out, as_json)


SHOWN_CHARS = 100  # of a text in the table
BATCH = 1000  # texts

perplexity_app = group(
    "perplexity", "Sort documents by perplexity (perplexity IN...).", default=True
)


@command(perplexity_app, "perplexity", DEFAULT, hidden=True)
def perplexity(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Score documents, sort them into head, middle and tail, and keep some.

    \b
    Example:
    llmcurate perplexity corpus/ -o out --model models/{lang}.bin --keep head,middle
    """
    from curate.cli.execution import run_steps

    run_steps("perplexity", [("perplexity", settings)], inputs, options, sets)


@command(perplexity_app, "perplexity_model", "train")
def perplexity_train(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Train a Kneser-Ney model on documents.

    Writes perplexity.bin and card.json.

    \b
    Example:
    llmcurate perplexity train wikipedia.jsonl -o model --variant ccnet --vocab 65536
    """
    from curate.cli.execution import run_steps

    run_steps("perplexity-model", [("perplexity_model", settings)], inputs, options, sets)


@command(perplexity_app, "PerplexityScore", "score")
def perplexity_score(
    model: Annotated[Path, typer.Argument(help="A model, perplexity.bin.")],
    file: Annotated[
        Optional[Path], typer.Argument(help="A text. The default, and -, is standard input.")
    ] = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Print the perplexity of every line of a text.

    \b
    Example:
    llmcurate perplexity score model/perplexity.bin essay.txt --by paragraph
    """
    import math

    import pyarrow as pa

    from curate.cli.command_settings import PerplexityScore
    from curate.scoring.perplexity.model import NgramModel

    texts = _texts(file, PerplexityScore.of(settings).by)
    opened = NgramModel.open(model, whole=True)
    if not as_json:
        echo(f"{'perplexity':>12} {'words':>7} {'log10':>12}  text")
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        array = pa.array(batch, pa.large_string())
        scores, values = opened.by_document(array), opened.perplexity(array)
        columns = (values, scores.length, scores.log10)
        for value, length, log10, text in zip(*(c.tolist() for c in columns), batch, strict=True):
            finite = not math.isnan(value)
            if as_json:
                row = {"perplexity": value if finite else None, "words": length, "log10": log10}
                echo_json({**row, "text": text})
            else:
                shown = " ".join(text.split())[:SHOWN_CHARS]
                number = f"{value:12.1f}" if finite else f"{'none':>12}"
                echo(f"{number} {length:7d} {log10:12.3f}  {shown}")


def _texts(file: Path | None, by: str) -> list[str]:
    """The lines, paragraphs or whole of a file, without blank ones."""
    import re
    import sys

    try:
        if file is None or str(file) == "-":
            raw = sys.stdin.buffer.read()
        else:
            raw = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    text = raw.decode("utf-8", "replace")
    if by == "document":
        texts = [text]
    elif by == "line":
        texts = text.splitlines()
    else:
        texts = re.split(r"\n[^\S\n]*(?:\n[^\S\n]*)+", text)
    return [t for t in texts if t.strip()]


@command(perplexity_app, "PerplexityConvert", "convert")
def perplexity_convert(
    source: Annotated[Path, typer.Argument(help="perplexity.bin, or an ARPA file.")],
    target: Annotated[Path, typer.Argument(help="The other form: *.arpa, or any other name.")],
    restart: Restart = False,
    **settings: Any,
) -> None:
    """Convert a model between ARPA and llmcurate's form.

    \b
    Example:
    llmcurate perplexity convert kenlm.arpa model.bin --pieces sp.model --variant ccnet
    """
    from curate.cli.command_settings import PerplexityConvert
    from curate.run.made import claim
    from curate.scoring.perplexity.model_file import read_arpa, read_model, write_arpa, write_model
    from curate.scoring.perplexity.sentences import Unit, load_pieces

    chosen = PerplexityConvert.of(settings)
    claim(target, [target], {"command": "perplexity convert", "source": source} | settings, restart)
    if target.suffix == ".arpa":
        write_arpa(target, read_model(source, whole=True))
    else:
        unit: Unit = chosen.unit
        data, pieces = b"", chosen.pieces
        if pieces is not None:
            try:
                data = pieces.read_bytes()
            except OSError as error:
                raise UsageError(f"cannot read {pieces}: {error.strerror}") from None
            load_pieces(data, str(pieces))
            unit = "pieces"
        write_model(target, read_arpa(source, chosen.variant, unit, data, {"arpa": source.name}))
    echo(f"wrote {target}")
