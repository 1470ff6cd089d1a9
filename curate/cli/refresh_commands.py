"""What `llmcurate refresh` and `llmcurate forget` do and print."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from curate.errors import CurateError, LockHeld, UsageError, disk_error
from curate.formats.input_lists import expanded
from curate.refresh.inputs import CHANGED
from curate.refresh.monitoring import FIELDS, FailureHooks, json_logs, write_metrics
from curate.refresh.outcome import How, Refreshed
from curate.terminal.progress import say

NOTHING_NEW = 3  # exit code


@dataclass
class Asked:
    """What the command line asks for."""

    recipe: str | None
    inputs: list[str]
    home: Path
    lists: list[str] = field(default_factory=list)
    base: str = ""
    sets: tuple[str, ...] = ()
    rollback: str | None = None
    dry_run: bool = False
    as_json: bool = False
    logs: str = "text"
    metrics: Path | None = None
    hooks: FailureHooks = field(default_factory=FailureHooks)


def refresh(asked: Asked, how: How) -> int:
    """Runs it and prints a line, or one of JSON; returns the exit code. A failure is told to hooks
    and metrics, and then raised."""
    if asked.logs not in ("text", "json"):
        raise UsageError(f"--logs {asked.logs}: choose text or json")
    began = time.perf_counter()
    done: Refreshed | None = None
    error: BaseException | None = None
    code = 0
    with json_logs(asked.logs == "json") as log:
        try:
            done = _refresh(asked, how)
            code = 0 if done is None or done.new else NOTHING_NEW
        except Exception as failure:
            failure = disk_error(failure) or failure
            error, code = failure, getattr(failure, "exit_code", 1)
            text = (
                str(error) if isinstance(error, CurateError) else f"{type(error).__name__}: {error}"
            )
            if log:
                log.error("%s", text, extra={FIELDS: {"exit_code": code}})
            if not isinstance(error, LockHeld):  # the one that holds it tells its own
                asked.hooks.call(asked.home, text, code)
        if asked.metrics and not asked.dry_run and not isinstance(error, LockHeld):
            of_run = done.json() if done else {}
            write_metrics(asked.metrics, asked.home, code, time.perf_counter() - began, of_run)
        if log and done:
            log.info("%s", done.line(), extra={FIELDS: done.json()})
    if error is not None and (log is None or "--debug" in sys.argv):
        raise error
    return code


def _refresh(asked: Asked, how: How) -> Refreshed | None:
    from curate.refresh import run
    from curate.run.homes import FILE
    from curate.steps.recipe import load

    home = asked.home
    if how.changed not in CHANGED:
        raise UsageError(f"--changed {how.changed}: choose {', '.join(CHANGED)}")
    if asked.rollback is not None:
        if not (home / FILE).is_file():
            raise UsageError(f"{home} is no folder of `llmcurate refresh`: it has no {FILE}")
        done = run.roll_back(home, asked.rollback, how)
        say("inputs that came after it count as new again", how.quiet)
    elif asked.recipe is None:
        raise UsageError("name a recipe: llmcurate refresh RECIPE IN... -o HOME")
    else:
        given = expanded(asked.inputs, asked.lists, asked.base)
        recipe = load(asked.recipe, asked.sets)
        if asked.dry_run:
            print("\n".join(run.preview(recipe, given, home, how)))
            return None
        done = run.refresh(recipe, given, home, how)
    _tell(done, how, asked.as_json)
    return done


def _tell(done: Refreshed, how: How, as_json: bool) -> None:
    # Cron mails what is printed: with --quiet, only where something happened.
    if (done.new and not as_json) or not how.quiet:
        print(done.line())
    if done.products and not how.quiet:
        print(f"products: {done.products}")
    if done.totals and not how.quiet:
        print(f"report: {done.home / 'runs' / str(done.name) / 'report.html'}")
    if as_json:
        print(json.dumps(done.json(), ensure_ascii=False))


def _counted(home: Path, entries: list[tuple[str, str]]) -> list[tuple[str, str, int]]:
    """How many documents that were taken out each entry means, the first 20 of them."""
    import pyarrow.parquet as pq

    from curate.refresh.removals import REMOVED, Removals
    from curate.refresh.snapshot import GONE
    from curate.run.homes import CURRENT

    path = home / CURRENT / GONE
    removed = pq.read_table(path) if path.exists() else REMOVED.empty_table()
    return [(*entry, Removals.of([entry]).count(removed)) for entry in entries[:20]]


def _entries(given: dict[str, list[str]], lists: list[Path]) -> list[tuple[str, str]]:
    from curate.refresh.removals import KINDS, normal_domain

    found = [(kind, value) for kind, values in given.items() for value in values]
    for path in lists:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise UsageError(f"--list {path}: {reason}") from None
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split(None, 1)
            if not words or words[0].startswith("#"):
                continue
            if len(words) == 2 and words[0] in KINDS:
                found.append((words[0], words[1].strip()))
            elif len(words) == 1 and "://" in words[0]:
                found.append(("url", words[0]))
            else:
                raise UsageError(
                    f"--list {path}:{number}: write `url URL`, `domain NAME`, `id ID` or a URL"
                )
    if not found:
        raise UsageError("say what to forget: --url, --domain, --id or --list FILE")
    return [(k, normal_domain(v) if k == "domain" else v) for k, v in found]


def forget(
    home: Path,
    given: dict[str, list[str]],
    lists: list[Path],
    purge: bool,
    how: How,
    as_json: bool,
) -> None:
    """Adds to the removal list, makes a snapshot without the documents, and says where they stand
    still."""
    from curate.refresh import run
    from curate.run.homes import FILE

    entries = _entries(given, lists)
    if not (home / FILE).is_file():
        raise UsageError(f"{home} is no folder of `llmcurate refresh`: it has no {FILE}")
    if purge:
        how.keep = 1
    done = run.forget(home, entries, how)
    if done.new or as_json:
        _tell(done, how, as_json)
    else:
        print(f"{home}: no document is newly forgotten; the list holds for all snapshots to come")
    for kind, value, count in _counted(home, entries):
        say(f"{kind} {value}: {count:,} documents so far", how.quiet)
    scrubbed = done.scrubbed
    if scrubbed.runs:
        say(
            f"emptied: {scrubbed.documents:,} rejected documents, and what reports and records of"
            f" {scrubbed.runs} runs quote",
            how.quiet,
        )
    if scrubbed.indexes:
        names = ", ".join(scrubbed.indexes)
        say(f"{names}: `llmcurate search` no longer works there, it held the texts", how.quiet)
    if done.new and not purge and done.snapshots > 1:
        say(
            f"{done.snapshots - 1} older snapshots may hold them still: --purge removes these",
            how.quiet,
        )
