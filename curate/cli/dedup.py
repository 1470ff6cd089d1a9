"""`llmcurate dedup` and `decontaminate`: copies found, compared, measured; evaluation sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli import completion
from curate.cli.options import (
    DEFAULT,
    ENGINES,
    MEASURES,
    CommandOptions,
    Inputs,
    Json,
    Sets,
    app,
    corpus_of,
    group,
    newest,
    output,
    read_changes,
    reading,
    workspace,
)
from curate.cli.settings import READS_ALL, Steps, command
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal.output import answer, echo, echo_json

if TYPE_CHECKING:
    from curate.cli.options import CommandOptions
    from curate.inspect.results import Findings

dedup_app = group("dedup", "Keep one of each set of copies (dedup IN...).", default=True)


def _steps(arguments: list[str]) -> Steps:
    """The steps of the --method among the arguments."""
    from curate.dedup.methods import steps_of

    method = "exact"
    for option, value in zip(arguments, [*arguments, ""][1:], strict=True):
        if option == "--method" and value:
            method = value
        elif option.startswith("--method="):
            method = option.partition("=")[2]
    return steps_of(method)


def _owners(setting: str) -> str:
    """The methods that have a setting, as an error message names them."""
    from curate.cli.settings import setting_options
    from curate.dedup.methods import methods

    owners = [
        name for name, steps in methods().items() if setting in setting_options(steps, {}, set())
    ]
    return f"--method {' or '.join(owners)}" if owners else ""


@command(dedup_app, _steps, DEFAULT, hidden=True, shared=ENGINES, owners=_owners)
def dedup(
    inputs: Inputs = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="How copies are found; + joins methods that run one after the other.",
            autocompletion=completion.methods,
        ),
    ] = "exact",
    sets: Sets = None,
    *,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Keep one of each set of copies, of documents or of passages.

    decisions.parquet says which copy stays.

    Each method has options of its own: llmcurate dedup --method minhash --help

    \b
    exact         the same text, or with --key url the same URL
    url           the same URL
    minhash       near duplicates, by MinHash over shingles
    lines         lines that stand elsewhere, cut as C4 does
    sentences     runs of sentences that stand elsewhere
    paragraphs    paragraphs that stand elsewhere
    suffix-array  passages of any place that stand elsewhere
    bloom         text mostly seen before, by a Bloom filter over n-grams
    semantic      documents of the same meaning, by embeddings (SemDeDup)
    newest        of each URL, then of each near duplicate, the newest

    \b
    Examples:
    llmcurate dedup corpus/ -o out --key url --survivor newest
    llmcurate dedup corpus/ -o out --method minhash --verify 0.8
    llmcurate dedup corpus/ -o out --method exact+lines
    llmcurate dedup corpus/ -o out --method paragraphs --keep none --hash sha1-64
    llmcurate dedup new/ -o out2 --method minhash --against out
    """
    from curate.cli.execution import run_steps
    from curate.dedup.methods import steps_with_options

    run_steps("dedup", steps_with_options(method, settings), inputs, options, sets)


@command(dedup_app, "Clusters", "clusters")
def clusters(
    out: Annotated[
        Optional[Path],
        typer.Argument(
            metavar="OUT",
            help="A run's folder. In a workspace the default is the newest run with a dedup.",
        ),
    ] = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Show the largest clusters of copies and what differs.

    \b
    Example:
    llmcurate dedup clusters out --show 5 --method minhash
    """
    import shutil
    import sys

    from curate.cli.command_settings import Clusters
    from curate.inspect.report import clusters as browsing
    from llmcurate.base.terminal.tables import coloured

    out = newest("dedup", out, "OUT")
    chosen = Clusters.of(settings)
    largest = browsing.browse(out, chosen.show, chosen.method, chosen.min_size, chosen.members)
    if as_json:
        echo_json(largest.dump())
        return
    columns = chosen.width or shutil.get_terminal_size((100, 24)).columns
    colours = coloured(sys.stdout)
    echo(browsing.text(largest, columns, colours), colours)


@command(dedup_app, "DedupCompare", "compare", shared=MEASURES)
def compare(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Compare what several methods leave of the same text.

    Shows documents, bytes and tokens that stay, overlap, time and memory. Every method is a run of
    its own in OUT/METHOD.

    \b
    Example:
    llmcurate dedup compare corpus/ -o out --methods exact,lines,exact+minhash
    """

    from curate.cli.command_settings import DedupCompare
    from curate.inspect.compare.compare import compare as compared

    chosen = DedupCompare.of(settings)
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
    _print(comparison, folder, "compare", options)
    raise typer.Exit(1 if comparison.failed else 0)


@command(dedup_app, "DedupEvaluate", "evaluate", shared=MEASURES, reads=READS_ALL)
def evaluate(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Measure which planted copies the methods find.

    Plants copies, near copies at six similarities, paragraphs and runs of text in a corpus. Shows
    how many of each kind a method finds, and what else it removes.

    \b
    Example:
    llmcurate dedup evaluate corpus/ -o out --methods minhash --set dedup_minhash.verify=0.7
    """

    from curate.cli.command_settings import DedupEvaluate
    from curate.inspect.evaluate.dedups import evaluate as evaluated

    chosen = DedupEvaluate.of(settings)
    inputs, folder = corpus_of(inputs), _folder(options.out, "evaluate")
    evaluation = evaluated(
        inputs,
        chosen.methods.split(","),
        (*(sets or ()), *read_changes(options.read)),
        folder,
        chosen.plant,
        chosen.seed,
        chosen.documents,
        options.workers,
        options.quiet,
    )
    _print(evaluation, folder, "evaluate", options)


@command(dedup_app, "DedupAudit", "audit", shared=MEASURES, reads=READS_ALL)
def audit(inputs: Inputs = None, *, options: CommandOptions, **settings: Any) -> None:
    """Measure duplicates in training and validation text.

    Shows the tables of Lee et al. 2022, near-duplicates and exact passages, and the longest match;
    removes nothing. Without --val or --shards all of the input is training text.

    \b
    Examples:
    llmcurate dedup audit corpus/ --val heldout.jsonl -o audit
    llmcurate dedup audit corpus/ --shards shards -o audit
    """
    import json

    from curate.cli.command_settings import DedupAudit
    from curate.inspect.evaluate import duplicates
    from llmcurate.base.disk.files import make_folder, write_text

    chosen = DedupAudit.of(settings)
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
    data = measured.dump()
    write_text(folder / "audit.json", json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    paths = {"audit": str(folder / "audit.json")}
    answer({**data, "paths": paths}, duplicates.text(measured), options.as_json)


def _folder(out: Path | None, title: str) -> Path:
    """OUT; in a workspace by default the next run."""
    return out if out is not None else workspace("-o OUT").out_for(title, "")


def _print(findings: Findings, folder: Path, name: str, options: CommandOptions) -> None:
    """Prints findings, and where their files are. name: of the JSON file among `paths`."""
    page = folder / f"{findings.NAME}.html"
    if not options.quiet or not options.as_json:
        echo(findings.text())
        echo(f"page: {page}")
    if options.as_json:
        paths = {name: str(page.with_suffix(".json")), "page": str(page)}
        echo_json({**findings.dump(), "paths": paths})


@dedup_app.command("import")
def import_signatures(
    signatures: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Files that `export --format minhash` wrote."),
    ],
    out: Annotated[Path, output("New folder to write.")],
    as_json: Json = False,
) -> None:
    """Make MinHash signatures an index for --against.

    The corpus that they were made of need not be here. Each file has ids and, as bytes of
    datasketch's LeanMinHash, their signatures.

    \b
    Example:
    llmcurate dedup import signatures.parquet -o theirs
    llmcurate dedup new/ --method minhash --against theirs -o out
    """

    from curate.dedup.minhash.lean_minhash import import_signatures as make_index
    from llmcurate.base.disk.units import counted

    figures = make_index(signatures, out)
    text = f"{out}: signatures of {counted(figures['documents'], 'document')}"
    answer({**figures, "out": str(out)}, text, as_json)


@command(dedup_app, "Hashes", "hashes")
def hashes(as_json: Json = False, **settings: Any) -> None:
    """Measure the hashes of exact dedup on this machine.

    Shows their speed, and the odds of a collision.
    """

    from dataclasses import asdict

    from curate.cli.command_settings import Hashes
    from curate.dedup.hashes import hash_speeds, hash_table

    chosen = Hashes.of(settings)
    documents, size = chosen.documents, chosen.bytes
    rows = hash_speeds(documents, size)
    summary = {"documents": documents, "bytes": size, "hashes": [asdict(row) for row in rows]}
    answer(summary, hash_table(rows, size), as_json)


@command(app, "decontaminate")
def decontaminate(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Drop documents that hold items of evaluation sets.

    contamination.parquet says which items stand in which document.

    \b
    Examples:
    llmcurate decontaminate corpus/ --evals gsm8k.jsonl --evals mmlu.parquet -o out
    llmcurate decontaminate corpus/ --evals gsm8k.jsonl -o out --action cut
    """
    if not settings.get("evals"):
        raise UsageError("name the test items: --evals FILE (repeatable)")
    steps = [("decontaminate", settings)]
    from curate.cli.execution import run_steps

    outcome = run_steps("decontaminate", steps, inputs, options, sets)
    if not options.as_json:
        for stage in outcome.stages:
            for note in (stage.get("decided") or {}).get("notes", ()):
                echo(note)
