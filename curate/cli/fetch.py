"""`llmcurate fetch` and `push`: files of the web, stores or URL indexes; folders to the hub."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.options import Json, Quiet, app, output
from curate.cli.settings import command
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.terminal.output import answer, echo_json

if TYPE_CHECKING:
    from curate.cli.command_settings import Fetch
    from curate.fetch.download import Outcome
    from curate.fetch.transfer import Wanted


@command(app, "Fetch")
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

    from curate.cli.command_settings import Fetch
    from curate.fetch.ranged import is_rows

    chosen, names = Fetch.of(settings), sources or []
    rows = [name for name in names if is_rows(name)]
    if not names and not chosen.index:
        raise UsageError("give URLs or lists of them, rows of a URL index, or --index DOMAIN")
    by_range = bool(rows or chosen.index)
    if by_range and len(rows) < len(names):
        raise UsageError("captures (--index, rows) and files are fetched by commands of their own")
    work = _Work(chosen, out, quiet, silent=quiet or as_json)
    summary, failure = _captures(rows, work) if by_range else _files(names, work)
    if as_json:
        echo_json(summary)
    if failure:
        raise RunFailed(failure)


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
        from llmcurate.base.disk.units import parse_rate

        return parse_rate(self.chosen.rate) if self.chosen.rate else None

    def download(
        self, files: Sequence[Wanted], label: str = "fetch", parallel: int | None = None
    ) -> Outcome:
        """Files, with a line of progress."""
        from curate.fetch.download import download
        from llmcurate.base.disk.units import format_bytes
        from llmcurate.base.terminal.progress import Progress, say

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

    def summary(self, fetched: int, at_hand: int, size: int, label: str) -> dict[str, Any]:
        """What came, said to the user and as figures."""
        from llmcurate.base.disk.units import counted, format_bytes
        from llmcurate.base.terminal.progress import say

        seconds = time.monotonic() - self.began
        present = f", {at_hand} were there" if at_hand else ""
        count = f"{counted(fetched, label)}, {format_bytes(size)} in {seconds:.0f} s{present}"
        say(f"fetched {count}: {self.out}", self.silent)
        return {"fetched": fetched, "there": at_hand, "bytes": size, "seconds": round(seconds, 3)}


def _named(reasons: dict[str, str]) -> list[dict[str, str]]:
    return [{"url": url, "reason": reason} for url, reason in reasons.items()]


def _files(names: list[str], work: _Work) -> tuple[dict[str, Any], str | None]:
    """(the outcome as JSON values, what failed) of files and lists of them."""
    from curate.fetch.download import fetch_one, forbid_offline
    from curate.fetch.file_lists import wanted_files
    from curate.fetch.transfer import Wanted
    from llmcurate.base.disk.files import make_folder
    from llmcurate.base.disk.units import counted

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
    summary = {
        "files": len(files),
        **work.summary(len(outcome.fetched), len(outcome.there), outcome.bytes, "file"),
        "failed": _named(outcome.failed),
        "paths": [str(f.target) for f in files if f.url not in outcome.failed],
    }
    if not outcome.failed:
        return summary, None
    return summary, (
        f"{len(outcome.failed)} of {counted(len(files), 'file')} did not come; the same"
        " command tries them again and goes on where they stopped"
    )


def _captures(rows: list[str], work: _Work) -> tuple[dict[str, Any], str | None]:
    """The same of captures, from rows and from a URL index."""
    from curate.fetch.ranged import Query, captures_of, fetch_captures, local_captures
    from llmcurate.base.disk.files import make_folder
    from llmcurate.base.disk.units import counted
    from llmcurate.base.terminal.progress import say

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
    summary = {
        "captures": result.captures,
        "files": len(result.files),
        **work.summary(len(result.files) - result.there, result.there, result.bytes, "file"),
        "missing": _named(result.missing),
        "failed": _named(result.failed),
        "paths": [str(path) for path in result.files],
    }
    if result.failed:
        count = counted(len(result.failed), "capture")
        return summary, f"{count} did not come; the same command goes on where it stopped"
    if result.missing:
        count = counted(len(result.missing), "capture")
        return summary, (
            f"{count} cannot be had and are left out; they are listed in {work.out}/*.missing.cdxj"
        )
    return summary, None


@command(app, "Push")
def push(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder of a run, a refresh or an exported model.")
    ],
    repository: Annotated[
        str, typer.Argument(metavar="ORG/NAME", help="Repository, made where it is not there.")
    ],
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Push a folder to the Hugging Face hub.

    It gets a card. A corpus becomes a data set of two configs, `corpus` and `rejected`; a tokenizer
    or a model a model repository. The next push sends what changed since, in one commit. The token
    is that of `hf auth login`, or HF_TOKEN.

    \b
    Examples:
    llmcurate push out me/clean-crawl
    llmcurate push out me/my-tokenizer --kind tokenizer --public --license apache-2.0
    """
    from curate.cli.command_settings import Push
    from curate.hub.push import push as push_folder
    from llmcurate.base.disk.units import counted

    chosen = Push.of(settings)
    done = push_folder(out, repository, chosen.kind, chosen.public, chosen.license, quiet)
    text = f"{done.url}: {counted(done.files, 'file')}, as commit {done.commit}"
    answer(asdict(done), text, as_json)
