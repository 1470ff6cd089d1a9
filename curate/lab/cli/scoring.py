"""Lab commands: `quality evaluate`, `quality label`, `language evaluate` and `perplexity`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from curate.cli.options import (
    CommandOptions,
    DryRun,
    Inputs,
    Json,
    Page,
    Quiet,
    ReadOptions,
    Restart,
    Sets,
    output,
    reading,
)
from curate.cli.scoring import (
    Label,
    Model,
    Negative,
    Positive,
    language_app,
    perplexity_app,
    quality_app,
)
from curate.cli.settings import command, run_steps
from curate.text.decoding import decode
from llmcurate.base.disk.files import make_folder
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.terminal import echo, echo_json, print_result, say, suggest, table


@command(quality_app, None, "evaluate")
def quality_evaluate(
    model: Model,
    positive: Positive,
    negative: Negative,
    out: Page = None,
    label: Label = None,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
) -> None:
    """Evaluate a quality classifier: ROC AUC, deciles, thresholds.

    It also shows average precision and calibration; -o writes a page with the curves.

    \b
    Example:
    llmcurate quality evaluate quality.bin --positive a.jsonl --negative b.jsonl -o out
    """
    from curate.lab.evaluate.classifiers import evaluate_quality

    how = (quiet or as_json, reading(read))
    evaluate_quality(model, positive, negative, label, *how).show(out, as_json)


@command(quality_app, "QualityLabel", "label")
def quality_label(
    inputs: Annotated[list[str], typer.Argument(metavar="IN...", help="Documents with text.")],
    out: Annotated[Path, output("New file for the labels (JSONL).", "FILE")],
    restart: Restart = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Label a sample of documents with the scores of a language model, 0 to 5.

    The server must have OpenAI's API, as vLLM, llama.cpp and hosted models have. FILE.log keeps
    every answer, so the same command resumes and asks nothing twice.

    \b
    Example:
    llmcurate quality label corpus/ -o labels.jsonl --endpoint http://localhost:8000/v1 --model NAME
    """
    from curate.api.command_settings import QualityLabel
    from curate.lab.scoring.chat import ChatModel
    from curate.lab.scoring.llm_labels import MOST_UNANSWERED, Labeller
    from curate.run.build import claim

    chosen, silent = QualityLabel.of(**settings), quiet or as_json
    if dry_run:
        echo(f"would send {Labeller(inputs, reading(read), chosen, out, silent).plan()}")
        return
    model = ChatModel(chosen)
    make_folder(out.parent)
    deciding = {"model", "prompt", "max_tokens", "extra", "sample", "seed", "max_chars"}
    asked = chosen.model_dump(include=deciding) | read.given()
    claim(out, [out], asked | {"command": "quality label", "inputs": inputs}, restart)
    labeller = Labeller(inputs, reading(read), chosen, out, silent)
    say(labeller.plan(), silent)
    unanswered = labeller.ask(model, quiet)
    figures = labeller.write() | {"unanswered": dict(unanswered)}
    lines = [
        f"{figures['labels']:,} of {counted(figures['documents'], 'document')} got a label;"
        f" {counted(figures['tokens_in'], 'token')} in, {figures['tokens_out']:,} out"
    ]
    lines += [f"  score {score}: {count:,}" for score, count in figures["scores"].items()]
    lines += [f"  no label, {why}: {n:,}" for why, n in figures["refused"].items()]
    lines += [f"  no label, {why}: {n:,}" for why, n in unanswered.most_common(SHOWN_REASONS)]
    print_result(figures, "\n".join(lines), as_json)
    if (failed := unanswered.total()) > MOST_UNANSWERED * figures["documents"]:
        some = counted(failed, "document")
        raise RunFailed(f"{some} got no answer: run the same command to ask for these again")
    if not figures["labels"]:
        raise RunFailed("no answer has a score: change --prompt, --model or --max-tokens")
    suggest("quality", "train", "--labels", out, "-o", "model", quiet=silent)


@command(language_app, "LanguageEvaluate", "evaluate")
def language_evaluate(
    model: Annotated[Path, typer.Argument(help="A fastText model.")],
    on: Annotated[list[str], typer.Option(metavar="IN", help="Labelled texts. [repeatable]")],
    out: Page = None,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
    **settings: Any,
) -> None:
    """Evaluate a language identifier on labelled documents.

    It shows F1 by language, confusions and calibration; -o writes a page.

    \b
    Example:
    llmcurate language evaluate model/language.bin --on labelled.jsonl -o evaluation
    """
    from curate.api.command_settings import LanguageEvaluate
    from curate.corpus.direct_input import DirectInput
    from curate.lab.evaluate.classifiers import LanguageEvaluation, evaluate_language
    from curate.run.plan import make_plan
    from curate.steps.recipe import build

    chosen = LanguageEvaluate.of(**settings)
    plan = make_plan(build("evaluate", []).reading(**vars(read)), on)
    for notice in plan.inputs.notices:
        say(notice, quiet)
    documents = DirectInput(plan.inputs, plan.recipe.read)
    scores = evaluate_language(
        model, documents.batches(None), chosen.label_column, chosen.max_chars
    )
    figures = {"inputs": on, **scores, "corrupt": documents.tally["corrupt"]}
    LanguageEvaluation(figures).show(out, as_json)


SHOWN_REASONS = 5  # number of reasons shown for requests without an answer
SHOWN_CHARS = 100  # of a text in the table
BATCH = 1000  # texts scored at a time


@command(perplexity_app, "perplexity_model", "train")
def perplexity_train(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Train a Kneser-Ney n-gram model on documents.

    It writes perplexity.bin and card.json.

    \b
    Example:
    llmcurate perplexity train wikipedia.jsonl -o model --variant ccnet --vocab 65536
    """
    run_steps("perplexity-model", [("perplexity_model", settings)], inputs, options, sets)


@command(perplexity_app, "PerplexityScore", "score")
def perplexity_score(
    model: Annotated[Path, typer.Argument(help="Model file, perplexity.bin.")],
    file: Annotated[
        Optional[Path], typer.Argument(help="Text file. The default, and -, is standard input.")
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

    from curate.api.command_settings import PerplexityScore
    from curate.scoring.perplexity.model import NgramModel

    texts = _texts(file, PerplexityScore.of(**settings).by)
    opened = NgramModel.open(model, whole=True)
    rows = []
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
                number = f"{value:.1f}" if finite else "none"
                rows.append((number, str(length), f"{log10:.3f}", shown))
    if not as_json:
        echo("\n".join(table(("perplexity", "words", "log10", "text"), rows, left=(3,))))


def _texts(file: Path | None, by: str) -> list[str]:
    import re
    import sys

    try:
        if file is None or str(file) == "-":
            raw = sys.stdin.buffer.read()
        else:
            raw = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    text = decode(raw, html=False).text
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
    out: Annotated[Path, output("New file: *.arpa for ARPA, any other name for a model.", "FILE")],
    restart: Restart = False,
    **settings: Any,
) -> None:
    """Convert an n-gram model from or to ARPA.

    \b
    Example:
    llmcurate perplexity convert kenlm.arpa -o model.bin --pieces sp.model --variant ccnet
    """
    from dataclasses import replace

    from curate.api.command_settings import PerplexityConvert
    from curate.run.build import claim
    from curate.scoring.perplexity.model_file import read_arpa, read_model, write_arpa, write_model
    from curate.scoring.perplexity.sentences import Unit, load_pieces

    chosen = PerplexityConvert.of(**settings)
    claim(out, [out], {"command": "perplexity convert", "source": source} | settings, restart)
    if out.suffix == ".arpa":
        write_arpa(out, read_model(source, whole=True))
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
        model = read_arpa(source, chosen.variant, unit, data)
        write_model(out, replace(model, about={"arpa": source.name}))
    echo(f"wrote {out}")
