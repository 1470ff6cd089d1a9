"""`llmcurate extract-eval`: score extractors on pages whose main text is known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from curate.cli.options import Json, Page, Quiet, Sets, app
from curate.cli.settings import command


@command(app, "ExtractEval", "extract-eval", panel="Lab")
def extract_eval(
    gold: Annotated[
        Path, typer.Argument(metavar="GOLD", help="JSONL file with the main texts of pages of IN.")
    ],
    inputs: Annotated[
        list[str], typer.Argument(metavar="IN...", help="Web archives: files, folders or URLs.")
    ],
    out: Page = None,
    sets: Sets = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Score extractors on pages with known main text.

    Each line of GOLD names a page by `record_id` or `url`. It gives the main `text`, or snippets
    that the main text must contain (`with`) or must not contain (`without`). The fields title,
    author, date, page_type and lang are optional.

    \b
    Examples:
    llmcurate extract-eval gold.jsonl crawl.warc.gz -o scores
    llmcurate extract-eval gold.jsonl crawl/ --extractor blocks --extractor text
    """
    from curate.api.command_settings import ExtractEval
    from curate.lab.evaluate.extractors import Evaluation

    evaluation = ExtractEval.of(**settings)
    silent = quiet or as_json
    sets_given = tuple(sets or ())
    Evaluation(gold, inputs, evaluation.extractor, sets_given, silent).show(out, as_json)
