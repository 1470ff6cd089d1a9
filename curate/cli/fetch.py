"""`llmcurate fetch`: download files, or captures listed in a URL index."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional

import typer

from curate.cli.options import DryRun, Json, Quiet, app, output
from curate.cli.settings import command
from llmcurate.base.disk.files import make_folder
from llmcurate.base.disk.units import counted, format_bytes, parse_rate
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.terminal import Progress, echo, echo_json, say, suggest

if TYPE_CHECKING:
    from curate.api.command_settings import Fetch
    from curate.fetch.download import Outcome
    from curate.fetch.transfer import FileToFetch


@command(app, "Fetch", panel="Curate")
def fetch(
    sources: Annotated[
        Optional[list[str]],
        typer.Argument(
            metavar="URL|LIST|ROWS...",
            help="URLs, lists of URLs (files or URLs), or rows of a URL index (CDXJ, parquet).",
        ),
    ] = None,
    *,
    out: Annotated[Path, output("Folder to write the files to.")],
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Fetch files, or captures listed in a URL index.

    Failed transfers are retried and resumed, and files already in the folder are skipped. A sha256
    or md5 next to a URL in a list is checked.

    \b
    Examples:
    llmcurate fetch warc.paths.gz --base https://data.commoncrawl.org/ --limit 3 -o crawl
    llmcurate fetch --index example.org --crawl CC-MAIN-2024-22 -o example
    """
    from curate.api.command_settings import Fetch
    from curate.fetch.ranged import is_rows

    chosen, names = Fetch.of(**settings), sources or []
    rows = [name for name in names if is_rows(name)]
    if not names and not chosen.index:
        raise UsageError("give URLs or lists of them, rows of a URL index, or --index DOMAIN")
    by_range = bool(rows or chosen.index)
    if by_range and len(rows) < len(names):
        raise UsageError("fetch captures (--index, rows) and files with two separate commands")
    job = _Job(chosen, out, quiet, silent=quiet or as_json)
    if dry_run:
        echo(_plan(rows, job) if by_range else _plan_files(_wanted(names, job), out))
        return
    fetched = _captures(rows, job) if by_range else _files(names, job)
    if as_json:
        echo_json(fetched)
    if fetched.failure:
        raise RunFailed(fetched.failure)
    suggest("run", "fineweb", out, "-o", "clean", quiet=quiet or as_json)


@dataclass
class _Job:
    chosen: Fetch
    out: Path
    quiet: bool
    silent: bool
    began: float = field(default_factory=time.monotonic)

    @property
    def rate(self) -> float | None:
        return parse_rate(self.chosen.rate) if self.chosen.rate else None

    def download(
        self, files: Sequence[FileToFetch], label: str = "fetch", parallel: int | None = None
    ) -> Outcome:
        from curate.fetch.download import download

        with Progress(label, len(files), self.quiet) as progress:

            def watch(done: int, size: int) -> None:
                pace = size / max(time.monotonic() - self.began, 1e-3)
                progress.update(done, f"{format_bytes(size)}, {format_bytes(pace)}/s")

            return download(
                files,
                self.chosen.tries,
                parallel or self.chosen.parallel,
                self.rate,
                self.chosen.timeout,
                watch=watch,
                say=say,
            )

    def fetched(self, fetched: int, there: int, size: int, label: str) -> Fetched:
        seconds = time.monotonic() - self.began
        present = f"; {counted(there, 'file')} already there" if there else ""
        count = f"{counted(fetched, label)}, {format_bytes(size)} in {seconds:.0f} s{present}"
        say(f"fetched {count}: {self.out}", self.silent)
        return Fetched(fetched, there, size, round(seconds, 3))


class Missing(NamedTuple):
    """A file or a capture that could not be fetched, and the reason."""

    url: str
    reason: str


@dataclass
class Fetched:
    """The outcome of a fetch of files, or of captures (single records of web archives)."""

    JSON = (
        "captures?", "files", "fetched", "there", "bytes", "seconds", "missing?captures", "failed",
        "paths",
    )  # fmt: skip
    fetched: int
    there: int  # files that were already in the folder
    bytes: int
    seconds: float
    files: int = 0  # number of files asked for, or of files with captures
    captures: int | None = None  # None for a fetch of files
    missing: list[Missing] = field(default_factory=list)  # captures that are not available
    failed: list[Missing] = field(default_factory=list)  # files or captures to retry
    paths: list[str] = field(default_factory=list)  # the files in the folder
    failure: str | None = None  # error message


def _missing(reasons: dict[str, str]) -> list[Missing]:
    return [Missing(*item) for item in reasons.items()]


def _plan_files(files: list[FileToFetch], out: Path) -> str:
    there = sum(file.target.exists() for file in files)
    return f"would fetch {counted(len(files) - there, 'file')} to {out} ({there} already there)"


def _plan(rows: list[str], job: _Job) -> str:
    from curate.fetch.ranged import local_captures

    count = sum(1 for name in rows for _ in local_captures(name))
    listed = [counted(count, "capture")] if rows else []
    asked = [f"the captures of {name} listed by {job.chosen.server}" for name in job.chosen.index]
    return f"would fetch {' and '.join(listed + asked)} to {job.out}"


def _wanted(names: list[str], job: _Job) -> list[FileToFetch]:
    from curate.fetch.download import fetch_one, forbid_offline
    from curate.fetch.file_lists import wanted_files
    from curate.fetch.transfer import FileToFetch

    chosen = job.chosen

    def fetch_list(url: str, path: Path) -> None:
        forbid_offline(url)
        try:
            fetch_one(
                FileToFetch(url, path), tries=chosen.tries, seconds=chosen.timeout, rate=job.rate
            )
        except RunFailed as error:
            raise RunFailed(f"{url}: {error}") from None

    return wanted_files(names, job.out, chosen.base, chosen.keep_paths, chosen.limit, fetch_list)


def _files(names: list[str], job: _Job) -> Fetched:
    files = _wanted(names, job)
    make_folder(job.out)
    outcome = job.download(files)
    fetched = job.fetched(len(outcome.fetched), len(outcome.there), outcome.bytes, "file")
    fetched.files, fetched.failed = len(files), _missing(outcome.failed)
    fetched.paths = [str(f.target) for f in files if f.url not in outcome.failed]
    if fetched.failed:
        fetched.failure = (
            f"{len(fetched.failed)} of {counted(len(files), 'file')} could not be fetched; run the"
            " same command to retry and resume them"
        )
    return fetched


def _captures(rows: list[str], job: _Job) -> Fetched:
    from curate.fetch.ranged import Query, captures_of, fetch_captures, local_captures

    chosen = job.chosen
    captures = [capture for name in rows for capture in local_captures(name)]
    make_folder(job.out)
    if chosen.index:
        query = Query(chosen.index, chosen.match, chosen.crawl, chosen.filter, chosen.server)

        def ask(files: Sequence[FileToFetch]) -> dict[str, str]:
            return job.download(files, "index", parallel=1).failed

        captures += captures_of(query, job.out / ".index", ask)
    captures = captures[: chosen.limit]
    if not captures:
        raise RunFailed("nothing to fetch: the index lists no capture")
    name = chosen.index[0] if chosen.index else Path(rows[0]).name.partition(".")[0]
    result = fetch_captures(captures, job.out, name, chosen.base, job.download, say)
    fetched = job.fetched(len(result.files) - result.there, result.there, result.bytes, "file")
    fetched.captures, fetched.files = result.captures, len(result.files)
    fetched.missing, fetched.failed = _missing(result.missing), _missing(result.failed)
    fetched.paths = [str(path) for path in result.files]
    if fetched.failed:
        count = counted(len(fetched.failed), "capture")
        fetched.failure = f"{count} could not be fetched; run the same command to resume"
    elif fetched.missing:
        fetched.failure = (
            f"{counted(len(fetched.missing), 'capture')} are not available and were left out: see"
            f" {job.out}/*.missing.cdxj"
        )
    return fetched
