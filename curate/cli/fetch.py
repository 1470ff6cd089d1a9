"""`llmcurate fetch`."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli.options import Json, Quiet


def fetch(
    what: Annotated[
        list[str],
        typer.Argument(metavar="URL|LIST", help="URLs; files or URLs that list them."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the files.")],
    base: Annotated[
        Optional[str],
        typer.Option(help="What stands before a list's paths: https://data.commoncrawl.org/"),
    ] = None,
    limit: Annotated[Optional[int], typer.Option(help="The first N files only.", min=1)] = None,
    rate: Annotated[
        Optional[str], typer.Option(help="Most bytes a second, all files together: 5MB/s.")
    ] = None,
    tries: Annotated[int, typer.Option(help="Tries in a row that bring nothing new.", min=1)] = 5,
    parallel: Annotated[int, typer.Option(help="Files at a time.", min=1, max=64)] = 2,
    timeout: Annotated[
        float, typer.Option(help="Seconds that a server may be silent.", min=0.1)
    ] = 60.0,
    keep_paths: Annotated[
        bool, typer.Option("--keep-paths", help="Folders by host and path, as the URLs have them.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fetch files from the web or an object store: resumed, tried again, checked.

    Example: llmcurate fetch warc.paths.gz --base https://data.commoncrawl.org/ --limit 3 -o crawl

    What is there is not fetched again; a sha256 or md5 beside a URL in a list is checked.
    """
    from curate.cli.fetch_commands import run

    run(
        what, out, base, limit, rate, tries, parallel, timeout, keep_paths, as_json, quiet
    )  # fmt: skip
