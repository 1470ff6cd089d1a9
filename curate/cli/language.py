"""`llmcurate language`: label documents by language; train and evaluate models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.cli.options import (
    DEFAULT,
    Inputs,
    Json,
    Page,
    Sets,
    group,
    run_steps,
)
from curate.cli.settings import command

if TYPE_CHECKING:
    from curate.cli.execution import CommandOptions

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
    run_steps("language-model", [("language_model", settings)], inputs, options, sets)


@command(language_app, "LanguageEvaluate", "evaluate")
def language_evaluate(
    model: Annotated[Path, typer.Argument(help="A fastText model.")],
    inputs: Annotated[list[str], typer.Argument(metavar="IN...", help="Labelled documents.")],
    out: Page = None,
    as_json: Json = False,
    *,
    read: dict[str, Any],
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
    from curate.inspect import results
    from curate.inspect.evaluate.classifiers import evaluate_language, render_language
    from curate.run.plan import make_plan
    from curate.scoring.language.scores import text_of
    from curate.steps.recipe import build
    from llmcurate.base.terminal.progress import say

    chosen = LanguageEvaluate.of(settings)
    results.check_folder(out)
    plan = make_plan(build("evaluate", []).reading(**read), inputs)
    for notice in plan.inputs.notices:
        say(notice)
    documents = DirectInput(plan.inputs, plan.recipe.read)
    scores = evaluate_language(model, documents.batches(None), chosen.label, chosen.max_chars)
    figures = {"inputs": inputs, **scores, "corrupt": documents.tally["corrupt"]}
    results.show(
        figures, lambda: text_of(figures), lambda: render_language(figures, inputs), out, as_json
    )
