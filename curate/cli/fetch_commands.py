"""`llmcurate fetch` as its user sees it."""

from __future__ import annotations

import json
import time
from pathlib import Path

from curate.disk.units import format_bytes, parse_rate
from curate.errors import RunFailed, UsageError
from curate.fetch.download import download, fetch_one, forbid_offline
from curate.fetch.file_lists import wanted_files
from curate.fetch.transfer import Wanted
from curate.terminal.progress import Progress, say


def run(
    given: list[str],
    out: Path,
    base: str | None,
    limit: int | None,
    rate: str | None,
    tries: int,
    parallel: int,
    timeout: float,
    keep_paths: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fetches what the arguments mean. RunFailed, with all else done, where some did not come."""
    begun = time.monotonic()
    limit_rate = parse_rate(rate) if rate else None

    def get(url: str, path: Path) -> None:
        forbid_offline(url)
        try:
            fetch_one(Wanted(url, path), tries=tries, seconds=timeout, rate=limit_rate)
        except RunFailed as error:
            raise RunFailed(f"{url}: {error}") from None

    files = wanted_files(given, out, base, keep_paths, limit, get)
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; -o names a folder")
    with Progress("fetch", len(files), quiet) as progress:

        def watch(done: int, came: int) -> None:
            pace = came / max(time.monotonic() - begun, 1e-3)
            progress.update(done, f"{format_bytes(came)}, {format_bytes(pace)}/s")

        outcome = download(files, tries, parallel, limit_rate, timeout, watch=watch, say=say)
    seconds = time.monotonic() - begun
    if as_json:
        found = {
            "files": len(files),
            "fetched": len(outcome.fetched),
            "there": len(outcome.there),
            "failed": [{"url": u, "reason": r} for u, r in outcome.failed.items()],
            "bytes": outcome.bytes,
            "seconds": round(seconds, 3),
            "paths": [str(f.target) for f in files if f.url not in outcome.failed],
        }
        print(json.dumps(found, ensure_ascii=False))
    elif not quiet:
        there = f", {len(outcome.there)} were there" if outcome.there else ""
        files_text = "1 file" if len(outcome.fetched) == 1 else f"{len(outcome.fetched)} files"
        say(f"fetched {files_text}, {format_bytes(outcome.bytes)} in {seconds:.0f} s{there}: {out}")
    if outcome.failed:
        raise RunFailed(
            f"{len(outcome.failed)} of {len(files)} files did not come; the same command tries them"
            " again and goes on where they stopped"
        )
