"""`llmcurate fetch`: files of the web or of an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from curate.cli.options import Json, Quiet, app
from curate.cli.settings import command
from curate.errors import RunFailed


@command(app, "Fetch")
def fetch(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="URL|LIST...", help="URLs, and files or URLs that list them."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="PATH", help="Folder of the files.")],
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Fetch files: resumed, tried again, checked.

    Files that are there are not fetched again. A sha256 or md5 beside a URL in a list is checked.

    \b
    Example:
    llmcurate fetch warc.paths.gz --base https://data.commoncrawl.org/ --limit 3 -o crawl
    """
    import json
    import time

    from curate.cli.command_settings import Fetch
    from curate.disk.files import make_folder
    from curate.disk.units import counted, format_bytes, parse_rate
    from curate.fetch.download import download, fetch_one, forbid_offline
    from curate.fetch.file_lists import wanted_files
    from curate.fetch.transfer import Wanted
    from curate.terminal.progress import Progress, say

    begin = time.monotonic()
    chosen = Fetch.of(settings)
    bytes_a_second = parse_rate(chosen.rate) if chosen.rate else None

    def fetch_list(url: str, path: Path) -> None:
        forbid_offline(url)
        try:
            fetch_one(
                Wanted(url, path), tries=chosen.tries, seconds=chosen.timeout, rate=bytes_a_second
            )
        except RunFailed as error:
            raise RunFailed(f"{url}: {error}") from None

    files = wanted_files(sources, out, chosen.base, chosen.keep_paths, chosen.limit, fetch_list)
    make_folder(out)
    with Progress("fetch", len(files), quiet) as progress:

        def watch(done: int, size: int) -> None:
            pace = size / max(time.monotonic() - begin, 1e-3)
            progress.update(done, f"{format_bytes(size)}, {format_bytes(pace)}/s")

        outcome = download(
            files,
            chosen.tries,
            chosen.parallel,
            bytes_a_second,
            chosen.timeout,
            watch=watch,
            say=say,
        )
    seconds = time.monotonic() - begin
    if as_json:
        summary = {
            "files": len(files),
            "fetched": len(outcome.fetched),
            "there": len(outcome.there),
            "failed": [{"url": u, "reason": r} for u, r in outcome.failed.items()],
            "bytes": outcome.bytes,
            "seconds": round(seconds, 3),
            "paths": [str(f.target) for f in files if f.url not in outcome.failed],
        }
        print(json.dumps(summary, ensure_ascii=False))
    elif not quiet:
        there = f", {len(outcome.there)} were there" if outcome.there else ""
        count = counted(len(outcome.fetched), "file")
        say(f"fetched {count}, {format_bytes(outcome.bytes)} in {seconds:.0f} s{there}: {out}")
    if outcome.failed:
        raise RunFailed(
            f"{len(outcome.failed)} of {counted(len(files), 'file')} did not come; the same"
            " command tries them"
            " again and goes on where they stopped"
        )
