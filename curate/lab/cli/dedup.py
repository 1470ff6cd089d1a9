"""`llmcurate dedup compare` and `audit`: measure what dedup methods remove."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from curate.cli.dedup import dedup_app
from curate.cli.options import (
    MEASURES,
    CommandOptions,
    Inputs,
    Sets,
    corpus_of,
    read_changes,
    reading,
    workspace,
)
from curate.cli.settings import READS_ALL, command
from llmcurate.base.disk.files import make_folder, write_text
from llmcurate.base.messages import json_values
from llmcurate.base.terminal import print_result, say


@command(dedup_app, "DedupCompare", "compare", shared=MEASURES)
def compare(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Compare what several methods keep of the same input.

    It shows kept documents, bytes and tokens, overlap, time and memory. Each method runs in
    OUT/METHOD.

    \b
    Example:
    llmcurate dedup compare corpus/ -o out --methods exact,lines,exact+minhash
    """
    from curate.api.command_settings import DedupCompare
    from curate.lab.evaluate.comparison import compare as compared

    chosen = DedupCompare.of(**settings)
    inputs, folder = corpus_of(inputs), _folder(options.out, "compare")
    comparison = compared(
        inputs,
        chosen.methods.split(","),
        (*(sets or ()), *read_changes(options.read)),
        folder,
        chosen.tokenizer,
        options.workers,
        options.quiet,
    )
    comparison.show(None, options.as_json)
    say(f"page: {folder / 'compare.html'}", options.quiet)
    raise typer.Exit(1 if comparison.failed else 0)


@command(dedup_app, "DedupAudit", "audit", shared=MEASURES, reads=READS_ALL)
def audit(inputs: Inputs = None, *, options: CommandOptions, **settings: Any) -> None:
    """Measure duplicates in training and validation text.

    It prints the tables of Lee et al. 2022 (near duplicates and exact passages) and the longest
    match, and removes nothing. Without --val or --shards all input is training text.

    \b
    Examples:
    llmcurate dedup audit corpus/ --val heldout.jsonl -o audit
    llmcurate dedup audit corpus/ --shards shards -o audit
    """
    import json

    from curate.api.command_settings import DedupAudit
    from curate.lab.evaluate import duplicates

    chosen = DedupAudit.of(**settings)
    inputs, folder = corpus_of(inputs), _folder(options.out, "audit")
    make_folder(folder)
    measured = duplicates.audit(
        inputs,
        list(chosen.val),
        chosen.shards,
        folder,
        chosen.similarity,
        chosen.tokenizer,
        options.workers,
        options.quiet or options.as_json,
        reading(options.read),
    )
    data = json_values(measured)
    write_text(folder / "audit.json", json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    paths = {"audit": str(folder / "audit.json")}
    print_result({**data, "paths": paths}, duplicates.text(measured), options.as_json)


def _folder(out: Path | None, title: str) -> Path:
    return out if out is not None else workspace("-o OUT").out_for(title, "")
