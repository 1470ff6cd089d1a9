"""`llmcurate decontaminate`."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from typing import Annotated, Optional

import typer

from curate.cli.options import DryRun, Inputs, Json, Out, Quiet, Sets, Workers, how_of


def _option(text: str) -> object:
    return typer.Option(help=text, show_default=False)


def decontaminate(
    inputs: Inputs = None,
    evals: Annotated[
        Optional[list[str]],
        _option("A file of test items (JSON lines, parquet, text), or NAME=FILE; repeatable."),
    ] = None,
    out: Out = None,
    fields: Annotated[
        Optional[str],
        _option("What makes an item: question,choices,answer. Default: text, else all strings."),
    ] = None,
    mode: Annotated[
        Optional[str],
        _option("13-gram (default; GPT-3), 50-char (GPT-4's report) or overlap (PaLM)."),
    ] = None,
    ngram: Annotated[Optional[int], _option("overlap: words of an n-gram: 8.")] = None,
    threshold: Annotated[
        Optional[float], _option("overlap: least share of an item's n-grams: 0.7.")
    ] = None,
    shortest: Annotated[
        Optional[int],
        _option("Shorter items are not looked for: 8 words, or 25 characters with 50-char."),
    ] = None,
    samples: Annotated[
        Optional[int], _option("50-char: random windows an item; all by default; GPT-4: 3.")
    ] = None,
    seed: Annotated[Optional[int], _option("50-char: decides the samples.")] = None,
    max_hits: Annotated[
        Optional[int],
        _option("Ignore n-grams found in more documents; off by default; GPT-3: 10."),
    ] = None,
    action: Annotated[
        Optional[str], _option("drop documents (default) or cut what matches.")
    ] = None,
    context: Annotated[
        Optional[int], _option("cut: characters that go on either side of a match: 200.")
    ] = None,
    max_removal: Annotated[
        Optional[float], _option("Stop where a larger share would go: 0.9.")
    ] = None,
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Drop documents that hold items of evaluation sets; contamination.parquet says which items.

    Example: llmcurate decontaminate corpus/ --evals gsm8k.jsonl --evals mmlu.parquet -o out

    Cut the passages instead: llmcurate decontaminate corpus/ --evals gsm8k.jsonl -o out --action
    cut
    """
    from curate.cli import commands
    from curate.errors import UsageError

    if not evals:
        raise UsageError("name the test items: --evals FILE (repeatable)")
    options = {
        "evals": tuple(evals),
        "fields": fields,
        "mode": mode,
        "ngram": ngram,
        "threshold": threshold,
        "shortest": shortest,
        "samples": samples,
        "seed": seed,
        "max_hits": max_hits,
        "action": action,
        "context": context,
        "max_removal": max_removal,
    }
    given = {name: value for name, value in options.items() if value is not None}
    how = how_of(out, workers, as_json, dry_run, quiet)
    commands.decontaminate(given, tuple(sets or ()), inputs or [], how)
