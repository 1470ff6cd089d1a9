"""The options that commands on documents share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

if TYPE_CHECKING:
    from curate.api import How

Inputs = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Argument(metavar="[IN]...", help="Files, folders or URLs; in a workspace: the newest."),
]
Out = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("-o", "--out", help="Folder (or URL) to write; in a workspace: the next run."),
]
Workers = Annotated[int, typer.Option(help="Worker processes; 0: one a core.", min=0)]
EngineName = Annotated[
    str,
    typer.Option("--engine", metavar="local|ray", help="Where the work is done: here, or on Ray."),
]
Address = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="HOST:PORT", help="ray: a cluster that runs; without it one starts here."),
]
Exchange = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="URL", help="ray: a store for files, where machines share no folder."),
]
Scratch = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="Where the run works if OUT is a URL: by default in the user's cache."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as one line of JSON.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan, what it would take, and stop.")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")]
Sets = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting; repeatable."),
]


def how_of(
    out: Path | None,
    workers: int,
    as_json: bool,
    dry_run: bool,
    quiet: bool,
    engine: str = "local",
    address: str | None = None,
    scratch: Path | None = None,
    exchange: str | None = None,
) -> How:
    """The shared options as one value."""
    from curate.api import How

    return How(out, workers, as_json, dry_run, quiet, engine, address, scratch, exchange)
