"""What `llmcurate refresh` and `llmcurate forget` do and print."""

from __future__ import annotations

import json
from pathlib import Path

from curate.errors import UsageError
from curate.progress import say
from curate.refresh.inputs import CHANGED, expanded
from curate.refresh.outcome import How, Refreshed

NOTHING_NEW = 3  # exit code


def refresh(
    recipe: str | None,
    inputs: list[str],
    home: Path,
    how: How,
    *,
    lists: list[str],
    base: str,
    sets: tuple[str, ...],
    rollback: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Runs it and prints a line, or one of JSON; returns the exit code."""
    from curate.recipe import load
    from curate.refresh import run
    from curate.refresh.state import FILE

    if how.changed not in CHANGED:
        raise UsageError(f"--changed {how.changed}: choose {', '.join(CHANGED)}")
    if rollback is not None:
        if not (home / FILE).is_file():
            raise UsageError(f"{home} is no folder of `llmcurate refresh`: it has no {FILE}")
        _tell(run.roll_back(home, rollback, how), how, as_json)
        say("inputs that came after it count as new again", how.quiet)
        return 0
    if recipe is None:
        raise UsageError("name a recipe: llmcurate refresh RECIPE IN... -o HOME")
    given = expanded(inputs, lists, base)
    if dry_run:
        print("\n".join(run.preview(load(recipe, sets), given, home, how)))
        return 0
    done = run.refresh(load(recipe, sets), given, home, how)
    _tell(done, how, as_json)
    return 0 if done.new else NOTHING_NEW


def _tell(done: Refreshed, how: How, as_json: bool) -> None:
    # Cron mails what is printed: with --quiet, only where something happened.
    if not as_json and (done.new or not how.quiet):
        print(done.line())
    if as_json:
        if not how.quiet:
            print(done.line())
        print(json.dumps(done.json(), ensure_ascii=False))


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
    from curate.refresh.state import FILE

    entries = _entries(given, lists)
    if not (home / FILE).is_file():
        raise UsageError(f"{home} is no folder of `llmcurate refresh`: it has no {FILE}")
    if purge:
        how.keep = 1
    done = run.forget(home, entries, how)
    if done.new or as_json:
        _tell(done, how, as_json)
    else:
        print(f"{home}: recorded for the snapshots to come")
    if done.new and not purge and done.snapshots > 1:
        say(
            f"{done.snapshots - 1} older snapshots may hold them still: --purge removes these",
            how.quiet,
        )
