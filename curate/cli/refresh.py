"""`llmcurate refresh` and `llmcurate forget`."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli.options import Address, DryRun, EngineName, Exchange, Json, Quiet, Sets, Workers

Home = Annotated[Path, typer.Option("-o", "--out", metavar="HOME", help="The folder that grows.")]


def _option(text: str) -> object:
    return typer.Option(help=text, show_default=False)


def refresh(
    out: Home,
    recipe: Annotated[
        Optional[str], typer.Argument(help="A recipe file, or a shipped one by name.")
    ] = None,
    inputs: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="[IN]...", help="Files, folders, patterns, URLs, *.paths.gz."),
    ] = None,
    lists: Annotated[
        Optional[list[str]],
        typer.Option("--list", help="A file of inputs, one a line; repeatable."),
    ] = None,
    base: Annotated[
        Optional[str], _option("Where relative lines of lists begin: a folder or URL.")
    ] = None,
    changed: Annotated[
        str, typer.Option(help="Inputs that changed since they came: refuse, new or skip.")
    ] = "refuse",
    keep: Annotated[
        Optional[int], typer.Option(help="Keep so many snapshots.", min=1, show_default=False)
    ] = None,
    keep_days: Annotated[
        Optional[float],
        typer.Option(help="Keep snapshots for so many days.", min=0, show_default=False),
    ] = None,
    rollback: Annotated[
        Optional[str],
        typer.Option(
            metavar="NAME", help="Make snapshot NAME (or `parent`) current.", show_default=False
        ),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="All inputs again, as after a change of the recipe.")
    ] = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Give up an unfinished refresh and begin anew.")
    ] = False,
    products: Annotated[
        bool, typer.Option("--products", help="Make the recipe's products of the whole snapshot.")
    ] = False,
    logs: Annotated[str, typer.Option(help="On stderr: text, or json (a line each).")] = "text",
    metrics: Annotated[
        Optional[Path], _option("A .prom file for Prometheus' textfile collector.")
    ] = None,
    on_failure: Annotated[
        Optional[str], _option("A command for sh; it finds LLMCURATE_ERROR and _EXIT_CODE set.")
    ] = None,
    webhook: Annotated[Optional[str], _option("A URL that is sent JSON on failure.")] = None,
    sets: Sets = None,
    workers: Workers = 0,
    engine: EngineName = "local",
    address: Address = None,
    exchange: Exchange = None,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Take new inputs into a corpus: only them, compared with all that came before.

    Example: llmcurate refresh fineweb archives/ -o corpus-home --keep 7

    HOME/current is the corpus. Exit codes: 0 new data, 3 nothing new, 1 failed, 75 busy.
    """
    from curate.cli import refresh_commands as command
    from curate.engines.choose import check_engine
    from curate.refresh.monitoring import FailureHooks
    from curate.refresh.outcome import How

    asked = command.Asked(
        recipe,
        inputs or [],
        out,
        lists or [],
        base or "",
        tuple(sets or ()),
        rollback,
        dry_run,
        as_json,
        logs,
        metrics,
        FailureHooks(on_failure, webhook),
    )
    check_engine(engine, address, exchange)
    how = How(workers, quiet, changed, keep, keep_days, rebuild, abandon, products)
    how.engine, how.address, how.exchange = engine, address, exchange
    code = command.refresh(asked, how)
    if code:
        raise typer.Exit(code)


def forget(
    home: Annotated[Path, typer.Argument(metavar="HOME", help="The folder of the refreshes.")],
    url: Annotated[Optional[list[str]], _option("A page; repeatable.")] = None,
    domain: Annotated[
        Optional[list[str]], _option("A domain and all below it; repeatable.")
    ] = None,
    id: Annotated[Optional[list[str]], _option("A document's id; repeatable.")] = None,
    lists: Annotated[
        Optional[list[Path]],
        typer.Option(
            "--list", help="A file of lines `url URL`, `domain NAME`, `id ID`, or bare URLs."
        ),
    ] = None,
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove the snapshots that still hold them.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Leave documents out of all snapshots from now on, also where they come again.

    Example: llmcurate forget corpus-home --domain example.org --url https://a.test/page
    """
    from curate.cli import refresh_commands as command
    from curate.refresh.outcome import How

    given = {"url": url or [], "domain": domain or [], "id": id or []}
    command.forget(home, given, lists or [], purge, How(quiet=quiet), as_json)
