"""`llmcurate fetch` and `push`: files of the web, stores or URL indexes; folders to the hub."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional

import typer

from curate.cli.options import Json, Quiet, app, output
from curate.cli.settings import command
from llmcurate.base.disk.files import make_folder
from llmcurate.base.disk.units import counted, format_bytes, parse_rate
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.terminal import Progress, echo_json, say, suggest

if TYPE_CHECKING:
    from curate.api.command_settings import Fetch
    from curate.fetch.download import Outcome
    from curate.fetch.transfer import Wanted


@command(app, "Fetch", panel="Curate")
def fetch(
    sources: Annotated[
        Optional[list[str]],
        typer.Argument(
            metavar="URL|LIST|ROWS...",
            help="URLs, files or URLs that list them, or rows of a URL index (CDXJ, parquet).",
        ),
    ] = None,
    *,
    out: Annotated[Path, output("Folder of the files.")],
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Fetch files, or captures of a URL index.

    Resumed, tried again, checked.

    Files that are there are not fetched again. A sha256 or md5 beside a URL in a list is checked.

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
        raise UsageError("captures (--index, rows) and files are fetched by commands of their own")
    work = _Work(chosen, out, quiet, silent=quiet or as_json)
    came = _captures(rows, work) if by_range else _files(names, work)
    if as_json:
        echo_json(came)
    if came.failure:
        raise RunFailed(came.failure)
    suggest("run", "fineweb", out, "-o", "clean", quiet=quiet or as_json)


@dataclass
class _Work:
    """How a command fetches, and when it began. silent: it says nothing of what came."""

    chosen: Fetch
    out: Path
    quiet: bool
    silent: bool
    began: float = field(default_factory=time.monotonic)

    @property
    def rate(self) -> float | None:
        """Bytes a second."""
        return parse_rate(self.chosen.rate) if self.chosen.rate else None

    def download(
        self, files: Sequence[Wanted], label: str = "fetch", parallel: int | None = None
    ) -> Outcome:
        """Files, with a line of progress."""
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
        """The outcome, which is said to the user."""
        seconds = time.monotonic() - self.began
        present = f", {there} were there" if there else ""
        count = f"{counted(fetched, label)}, {format_bytes(size)} in {seconds:.0f} s{present}"
        say(f"fetched {count}: {self.out}", self.silent)
        return Fetched(fetched, there, size, round(seconds, 3))


class Lacking(NamedTuple):
    """A file, or a capture, that did not come."""

    url: str
    reason: str


@dataclass
class Fetched:
    """The outcome of a fetch. captures, missing: of captures alone; failure: the last line."""

    JSON = (
        "captures?", "files", "fetched", "there", "bytes", "seconds", "missing?captures", "failed",
        "paths",
    )  # fmt: skip
    fetched: int
    there: int
    bytes: int
    seconds: float
    files: int = 0
    captures: int | None = None
    missing: list[Lacking] = field(default_factory=list)
    failed: list[Lacking] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    failure: str | None = None


def _lacking(reasons: dict[str, str]) -> list[Lacking]:
    return [Lacking(*item) for item in reasons.items()]


def _files(names: list[str], work: _Work) -> Fetched:
    """The outcome of files and lists of them."""
    from curate.fetch.download import fetch_one, forbid_offline
    from curate.fetch.file_lists import wanted_files
    from curate.fetch.transfer import Wanted

    chosen = work.chosen

    def fetch_list(url: str, path: Path) -> None:
        forbid_offline(url)
        try:
            fetch_one(Wanted(url, path), tries=chosen.tries, seconds=chosen.timeout, rate=work.rate)
        except RunFailed as error:
            raise RunFailed(f"{url}: {error}") from None

    files = wanted_files(names, work.out, chosen.base, chosen.keep_paths, chosen.limit, fetch_list)
    make_folder(work.out)
    outcome = work.download(files)
    came = work.fetched(len(outcome.fetched), len(outcome.there), outcome.bytes, "file")
    came.files, came.failed = len(files), _lacking(outcome.failed)
    came.paths = [str(f.target) for f in files if f.url not in outcome.failed]
    if came.failed:
        came.failure = (
            f"{len(came.failed)} of {counted(len(files), 'file')} did not come; the same"
            " command tries them again and goes on where they stopped"
        )
    return came


def _captures(rows: list[str], work: _Work) -> Fetched:
    """The same of captures, from rows and from a URL index."""
    from curate.fetch.ranged import Query, captures_of, fetch_captures, local_captures

    chosen = work.chosen
    captures = [capture for name in rows for capture in local_captures(name)]
    make_folder(work.out)
    if chosen.index:
        query = Query(chosen.index, chosen.match, chosen.crawl, chosen.filter, chosen.server)

        def ask(files: Sequence[Wanted]) -> dict[str, str]:
            return work.download(files, "index", parallel=1).failed

        captures += captures_of(query, work.out / ".index", ask)
    captures = captures[: chosen.limit]
    if not captures:
        raise RunFailed("there is nothing to fetch: the index lists no capture")
    name = chosen.index[0] if chosen.index else Path(rows[0]).name.partition(".")[0]
    result = fetch_captures(captures, work.out, name, chosen.base, work.download, say)
    came = work.fetched(len(result.files) - result.there, result.there, result.bytes, "file")
    came.captures, came.files = result.captures, len(result.files)
    came.missing, came.failed = _lacking(result.missing), _lacking(result.failed)
    came.paths = [str(path) for path in result.files]
    if came.failed:
        count = counted(len(came.failed), "capture")
        came.failure = f"{count} did not come; the same command goes on where it stopped"
    elif came.missing:
        came.failure = (
            f"{counted(len(came.missing), 'capture')} cannot be had and are left out; they are"
            f" listed in {work.out}/*.missing.cdxj"
        )
    return came
