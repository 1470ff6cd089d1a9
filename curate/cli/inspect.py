"""`llmcurate explain`, `stats`, `whatif`, `browse` and `check`: inspect runs and corpora."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from curate.cli.options import (
    CommandOptions,
    Inputs,
    Json,
    Page,
    Quiet,
    ReadOptions,
    Sets,
    Workers,
    app,
    corpus_of,
    newest,
    output,
    reading,
    workspace,
)
from curate.cli.settings import command
from llmcurate.base.disk.files import make_folder, write_text
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import echo, echo_json, print_result, say, suggest


def _a_run(folder: Path | None) -> Path | None:
    from curate.formats.folders import require_kind

    return require_kind(folder, "run", "home")


def _recorded(folder: Path | None) -> Path | None:
    from curate.run.ledger import ledger_path

    return folder if folder and ledger_path(folder).is_file() else _a_run(folder)


Run = Annotated[
    Optional[Path],
    typer.Argument(
        metavar="RUN",
        callback=_a_run,
        help="Folder OUT of a finished run, or HOME of a refresh. In a workspace the default is the"
        " newest.",
    ),
]
Recorded = Annotated[
    Optional[Path],
    typer.Argument(
        metavar="RUN",
        callback=_recorded,
        help="Folder OUT of a finished run, token shards or a tokenizer, or HOME of a refresh. In a"
        " workspace the default is the newest run.",
    ),
]


@app.command(rich_help_panel="Look")
def explain(
    id: Annotated[str, typer.Argument(help="Id of the document.")],
    out: Annotated[
        Optional[Path],
        typer.Option(
            "--in", metavar="PATH", help="Folder of a run. In a workspace the default is all runs."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain why a document was kept or dropped.

    It shows rules, values, thresholds, cuts and duplicates.

    \b
    Example:
    llmcurate explain 5f0c2b9a --in out
    """
    from curate.inspect import explain as explaining
    from curate.run.homes import runs_that_read

    if out is not None:
        outs = runs_that_read(out.resolve(), id) or [out]
        _a_run(out)
    else:
        outs = [folder for _, folder in reversed(workspace("--in").numbered())]
    if not outs or not any((folder / "run.json").exists() for folder in outs):
        raise UsageError(f"{outs[0] if outs else 'this workspace'} holds no finished run")
    account = explaining.explain(outs, id)
    if as_json:
        echo_json(account, default=str)
    else:
        echo(account)
        suggest("browse", *([out] if out else []))


@command(app, panel="Look")
def stats(
    inputs: Inputs = None,
    out: Page = None,
    as_json: Json = False,
    quiet: Quiet = False,
    *,
    read: ReadOptions,
) -> None:
    """Measure a corpus: lengths, scores, languages, domains.

    It also counts dates and sources; -o writes a page.

    \b
    Example:
    llmcurate stats corpus.jsonl.zst -o stats
    """
    from curate.inspect.stats import gather

    named = [*inputs, "-o", "tokenizer"] if inputs else []
    gather(corpus_of(inputs), reading(read)).show(out, as_json)
    suggest("tokenizer", "train", *named, quiet=quiet or as_json)


@app.command(rich_help_panel="Look")
def whatif(
    run: Run = None,
    sets: Sets = None,
    out: Annotated[
        Optional[Path], output("HTML file for the figures; with --apply the folder of the new run.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Redo the run with these settings, in place or in -o.")
    ] = False,
    workers: Workers = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate what other settings would have kept.

    The estimate uses the scores that the run stored. Documents that did not reach later steps are
    measured now, all of them or a sample.

    \b
    Examples:
    llmcurate whatif out --set gopher_quality.min_words=80 -o whatif.html
    llmcurate whatif out --set gopher_quality.min_words=80 --apply -o out80
    """
    from curate.run.homes import FILE

    typed = [run] if run else []
    run = newest("corpus", run, "RUN")
    to_page = out is not None and out.suffix.lower() in (".html", ".htm") and not out.is_dir()
    if apply:
        from curate.cli.execution import print_outcome
        from curate.inspect.whatif.apply import apply as run_again
        from curate.run.records import Options

        if to_page:
            raise UsageError(
                f"-o {out}: with --apply give a folder; for the page leave out --apply"
            )
        outcome = run_again(run, tuple(sets or ()), out, Options(workers, quiet))
        print_outcome(outcome, CommandOptions(out, workers, as_json=as_json, quiet=quiet))
        suggest("browse", *([out] if out else typed), quiet=quiet or as_json)
        return
    from curate.inspect.whatif.figures import answer
    from curate.inspect.whatif.rendering import page, text

    if out is not None and not to_page:
        raise UsageError(f"-o {out}: give a file that ends in .html")
    figures = answer(run, tuple(sets or ()), quiet=quiet)
    if out is not None:
        write_text(out, page(figures))
    print_result(figures, text(figures), as_json)
    if out is not None:
        say(f"wrote {out}", as_json)
    changes = [word for change in sets or () for word in ("--set", change)]
    quiet = quiet or as_json or not changes or (run / FILE).is_file()  # no --apply in a HOME
    suggest("whatif", *typed, *changes, "--apply", quiet=quiet)


@command(app, "Browse", panel="Look")
def browse(run: Run = None, **settings: Any) -> None:
    """Read and label a run's documents in a browser.

    The pages can be searched and show reasons, scores, cuts, and duplicates side by side. Only this
    computer can open them.

    \b
    Examples:
    llmcurate browse out
    llmcurate browse out --export-labels labels
    """
    from curate.api.command_settings import Browse
    from curate.inspect.browse.library import library

    chosen = Browse.of(**settings)
    run = newest("corpus", run, "RUN")
    with library(run, chosen.labels) as documents:
        if chosen.export_labels is not None:
            make_folder(chosen.export_labels)
            good, bad = documents.export_labels(chosen.export_labels).items()
            for label, (path, number) in zip(("good", "bad"), (good, bad), strict=True):
                labelled = counted(len(documents.labels.of(label)), f"{label} document")
                echo(f"wrote {number} of {labelled}, with their original text: {path}")
            suggest("quality", "train", "--positive", good[0], "--negative", bad[0], "-o", "model")
            return
        from curate.inspect.browse.server import Server

        with Server(documents, chosen.port) as server:
            echo(f"{run} at {server.address} (this computer only; Ctrl-C ends it)")
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                echo("stopped")


def finished(run: Path | None, quiet: bool = False) -> Path:
    """Return the folder `run`. If it is None, print and return the workspace's newest run."""
    folder = newest("finished run", run, "RUN")
    say(f"the newest run: {folder}", quiet=quiet or run is not None)
    return folder


@app.command(rich_help_panel="Operate")
def check(
    run: Recorded = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Restore what differs. This needs the run's input.")
    ] = False,
    workers: Workers = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare a run's files with their recorded checksums.

    It prints a line for each file that is missing, changed or unexpected. If there is one, it exits
    with code 1.

    \b
    Examples:
    llmcurate check out
    llmcurate check out --repair
    """
    from curate.inspect import check as checking
    from curate.run.homes import FILE
    from curate.run.records import Options

    run = finished(run, quiet)
    work = checking.repair if repair else checking.check
    result = work(run, Options(workers, quiet))
    print_result(result, result.text(), as_json)
    quiet = quiet or as_json or repair or result.passed
    if (run / FILE).is_file() and not quiet:
        say(checking.way_out(result))
    else:
        suggest("check", run, "--repair", quiet=quiet)
    raise typer.Exit(0 if result.passed else 1)
