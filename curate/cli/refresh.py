"""`llmcurate refresh` and `forget`: add new input to a corpus, and remove documents from it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli import completion
from curate.cli.options import (
    EXPERIMENT,
    AllowPython,
    CommandOptions,
    DryRun,
    Json,
    Quiet,
    Sets,
    app,
    output,
    read_changes,
)
from curate.cli.settings import READS_ALL, command
from llmcurate.base.disk.files import read_text
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, LockHeld, UsageError, disk_error
from llmcurate.base.messages import json_values
from llmcurate.base.terminal import echo, echo_json, print_lines, say, suggest

if TYPE_CHECKING:
    from curate.api.command_settings import Refresh
    from curate.refresh.outcome import Refreshed, RefreshOptions

# Settings that are options of a refresh, too.
OF_REFRESH = {"changed", "damaged", "keep", "rebuild", "abandon", "products"}
NOTHING_NEW, DAMAGED = 3, 65  # exit codes; 65 is EX_DATAERR of sysexits.h


@command(app, "Refresh", shared=(*EXPERIMENT, "slurm", "dry_run"), reads=READS_ALL, panel="Operate")
def refresh(
    out: Annotated[Path, output("Folder of the growing corpus.", "HOME")],
    recipe: Annotated[
        Optional[str],
        typer.Argument(
            help="A recipe file, or a shipped recipe by name.", autocompletion=completion.recipes
        ),
    ] = None,
    inputs: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="IN...", help="Input files, folders, patterns, URLs or *.paths.gz."),
    ] = None,
    sets: Sets = None,
    allow_python: AllowPython = False,
    *,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Add new input to a growing corpus.

    Only new input is read; its documents are deduplicated against all earlier ones. HOME/current is
    the corpus. Exit codes: 0 new data, 3 nothing new, 65 damaged or changed input was left out, 1
    failed, 75 busy.

    \b
    Example:
    llmcurate refresh fineweb archives/ -o corpus-home --keep 7
    """
    from curate.api.command_settings import Refresh
    from curate.engines.base import check_engine
    from curate.refresh.outcome import RefreshOptions

    chosen = Refresh.of(**settings)
    changes = (*(sets or ()), *read_changes(options.read))
    check_engine(options.engine, options.address, options.sbatch)
    how = RefreshOptions(
        options.workers,
        options.quiet,
        options.engine,
        options.address,
        allow_python=allow_python,
        slurm=options.sbatch,
        **chosen.model_dump(include=OF_REFRESH),
    )

    def work() -> Refreshed | None:
        if chosen.rollback is not None:
            besides = ["--set"] * bool(changes) + ["--dry-run"] * options.dry_run
            outcome = _roll_back(out, chosen, how, besides + ["the recipe"] * bool(recipe))
        else:
            found = _refresh(recipe, inputs or [], out, changes, chosen, how, options.dry_run)
            if found is None:
                return None
            outcome = found
        _print_outcome(outcome, how, options.as_json)
        return outcome

    code = _reported(out, chosen, options.dry_run, work)
    if code:
        raise typer.Exit(code)


def _reported(
    home: Path, settings: Refresh, dry_run: bool, work: Callable[[], Refreshed | None]
) -> int:
    from curate.refresh.outcome import FIELDS, call_on_failure, json_logs, write_metrics

    began = time.perf_counter()
    outcome: Refreshed | None = None
    error: BaseException | None = None
    code = 0
    with json_logs(settings.logs == "json") as log:
        try:
            outcome = work()
            code = 0 if outcome is None or outcome.new else NOTHING_NEW
            if outcome and outcome.damage:
                code = DAMAGED
                call_on_failure(settings.on_failure, home, outcome.damage, code)
        except Exception as failure:
            failure = disk_error(failure) or failure
            error, code = failure, getattr(failure, "exit_code", 1)
            text = (
                str(error)
                if isinstance(error, LlmcurateError)
                else f"{type(error).__name__}: {error}"
            )
            if log:
                log.error("%s", text, extra={FIELDS: {"exit_code": code}})
            if not isinstance(error, LockHeld):  # the process with the lock reports for itself
                call_on_failure(settings.on_failure, home, text, code)
        if settings.metrics and not dry_run and not isinstance(error, LockHeld):
            seconds = time.perf_counter() - began
            write_metrics(settings.metrics, home, code, seconds, outcome)
        if log and outcome:
            log.info("%s", outcome.line(), extra={FIELDS: json_values(outcome)})
    if error is not None and (log is None or "--debug" in sys.argv):
        raise error
    return code


def _roll_back(home: Path, settings: Refresh, how: RefreshOptions, besides: list[str]) -> Refreshed:
    from curate.refresh import run
    from curate.run.homes import FILE

    fit = {"rollback", "abandon", "logs", "metrics", "on_failure"}
    others = settings.model_dump(exclude_defaults=True, exclude=fit)
    if besides := [f"--{name.replace('_', '-')}" for name in others] + besides:
        raise UsageError(f"--rollback adds no input: leave out {besides[0]}")
    if not (home / FILE).is_file():
        raise UsageError(f"{home} is no folder of `llmcurate refresh`: it has no {FILE}")
    outcome = run.roll_back(home, str(settings.rollback), how)
    say("the next refresh reads input added after that snapshot again", how.quiet)
    return outcome


def _refresh(
    recipe: str | None,
    inputs: list[str],
    home: Path,
    changes: Sequence[str],
    settings: Refresh,
    how: RefreshOptions,
    dry_run: bool,
) -> Refreshed | None:
    from curate.formats.fetched import expanded
    from curate.steps.recipe import load

    if recipe is None:
        raise UsageError("give a recipe: llmcurate refresh RECIPE IN... -o HOME")
    loaded = load(recipe, tuple(changes))
    listed = expanded(inputs, list(settings.list), settings.base or "")
    from curate.refresh import run

    if dry_run:
        echo("\n".join(run.preview(loaded, listed, home, how)))
        return None
    return run.refresh(loaded, listed, home, how)


def _print_outcome(outcome: Refreshed, how: RefreshOptions, as_json: bool) -> None:
    # Cron mails all output: with --quiet print only if something happened.
    if (outcome.new and not as_json) or not how.quiet:
        echo(outcome.line())
    elif outcome.damage:
        print_lines(outcome.damage)
    if outcome.products and not how.quiet:
        echo(f"products: {outcome.products}")
    if outcome.kind in ("run", "rebuild") and not how.quiet:
        echo(f"report: {outcome.home / 'runs' / str(outcome.name) / 'report.html'}")
        suggest("browse", outcome.home, quiet=as_json)
    if as_json:
        echo_json(json_values(outcome))


def _forgotten(home: Path, entries: list[tuple[str, str]]) -> int:
    import pyarrow.parquet as pq

    from curate.refresh.forgetting import REMOVED, Removals
    from curate.run.homes import CURRENT, removed_file

    path = removed_file((home / CURRENT).resolve())
    removed = pq.read_table(path) if path else REMOVED.empty_table()
    return Removals.of(entries).count(removed)


def _entries(options: dict[str, tuple[str, ...]], lists: tuple[Path, ...]) -> list[tuple[str, str]]:
    from curate.refresh.forgetting import KINDS, normal_domain

    entries = [(kind, value) for kind, values in options.items() for value in values]
    for path in lists:
        for number, line in enumerate(read_text(path, "--list ").splitlines(), 1):
            words = line.split(None, 1)
            if not words or words[0].startswith("#"):
                continue
            if len(words) == 2 and words[0] in KINDS:
                entries.append((words[0], words[1].strip()))
            elif len(words) == 1 and "://" in words[0]:
                entries.append(("url", words[0]))
            else:
                raise UsageError(
                    f"--list {path}:{number}: write `url URL`, `domain NAME`, `id ID` or a URL"
                )
    if not entries:
        raise UsageError("give what to forget: --url, --domain, --id or --list FILE")
    return [(k, normal_domain(v) if k == "domain" else v) for k, v in entries]


def _say_purged(outcome: Refreshed, entries: list[tuple[str, str]]) -> None:
    gone, others = outcome.removed_snapshots, outcome.snapshots - 1
    left = (
        f"{others} of them {'remains' if others == 1 else 'remain'}" if others else "none remains"
    )
    echo(
        f"removed {counted(len(gone), 'older snapshot')}; --rollback can no longer return to"
        f" {'it' if len(gone) == 1 else 'them'} ({left}): {', '.join(gone)}"
    )
    documents = _forgotten(outcome.home, entries)
    match = "matches these entries is" if documents == 1 else "match these entries are"
    echo(f"{counted(documents, 'document')} that {match} now in no snapshot")


@command(app, "Forget", panel="Operate")
def forget(
    home: Annotated[Path, typer.Argument(metavar="HOME", help="Folder of `llmcurate refresh`.")],
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Remove documents from the corpus and later snapshots.

    If later input has these documents, they are not added again.

    \b
    Example:
    llmcurate forget corpus-home --domain example.org --url https://a.test/page
    """
    from curate.api.command_settings import Forget
    from curate.refresh import run, snapshot
    from curate.refresh.forgetting import Removals
    from curate.refresh.outcome import RefreshOptions
    from curate.run.homes import CURRENT, FILE

    chosen = Forget.of(**settings)
    how = RefreshOptions(quiet=quiet, keep=1 if chosen.purge else None)
    options = {"url": chosen.url, "domain": chosen.domain, "id": chosen.id}
    entries = _entries(options, chosen.list)
    if not (home / FILE).is_file():
        raise UsageError(f"{home} is no folder of `llmcurate refresh`: it has no {FILE}")
    if dry_run:
        parts = (home / CURRENT).glob("*.parquet")
        found = sum(len(Removals.of(entries).in_part(part, "")) for part in parts)
        older = len(snapshot.names(home)) - 1 if chosen.purge else 0
        echo(f"would remove {counted(found, 'document')}, {counted(older, 'older snapshot')}")
        return
    outcome = run.forget(home, entries, how)
    if outcome.new or as_json:
        _print_outcome(outcome, how, as_json)
    else:
        echo(f"{home}: no new document to forget; matching documents in later input are left out")
    if outcome.removed_snapshots and not as_json:
        _say_purged(outcome, entries)
    for kind, value in entries[:20]:
        count = counted(_forgotten(home, [(kind, value)]), "document")
        say(f"{kind} {value}: {count} removed so far", how.quiet)
    scrubbed = outcome.scrubbed
    if scrubbed.runs:
        say(
            f"erased: text of {counted(scrubbed.documents, 'rejected document')}, and quotes in"
            f" reports and records of {counted(scrubbed.runs, 'run')}",
            how.quiet,
        )
    if scrubbed.indexes:
        names = ", ".join(scrubbed.indexes)
        say(f"{names}: index deleted, it contained the text; search no longer works", how.quiet)
    if outcome.new and not chosen.purge and outcome.snapshots > 1:
        say(
            f"{counted(outcome.snapshots - 1, 'older snapshot')} may still contain them: --purge"
            " removes older snapshots",
            how.quiet,
        )
