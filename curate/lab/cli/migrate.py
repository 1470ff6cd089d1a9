"""`llmcurate migrate`: a recipe from another tool's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli import completion
from curate.cli.options import app
from llmcurate.base.terminal import echo, say, suggest


def _tools(incomplete: str) -> list[str]:
    """Return the tools with the typed prefix."""
    from curate.lab.migrate.migration import TOOLS

    return completion.among(TOOLS)(incomplete)


@app.command(rich_help_panel="Lab")
def migrate(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A configuration or Python script; never executed."),
    ],
    recipe: Annotated[
        Optional[Path],
        typer.Option("-o", "--out", metavar="RECIPE", help="The new recipe. Default: print it."),
    ] = None,
    tool: Annotated[
        Optional[str],
        typer.Option(
            "--from",
            metavar="TOOL",
            help="datatrove, dclm, dolma, data-juicer, nemo-curator or text-dedup. Default: the"
            " tool is recognised from FILE.",
            autocompletion=_tools,
        ),
    ] = None,
) -> None:
    """Write a recipe that does what another tool's configuration does.

    A comment after each value names its source. Steps that are not mapped, and steps that differ,
    are listed on standard error with their line numbers.

    \b
    Examples:
    llmcurate migrate fineweb.py -o recipe.yaml
    llmcurate migrate dclm_baseline_refinedweb.yaml > recipe.yaml
    """
    from curate.lab.migrate.migration import migrate as read
    from llmcurate.base.disk.files import write_text
    from llmcurate.base.disk.units import counted
    from llmcurate.base.errors import RunFailed, UsageError

    if recipe is not None and recipe.exists():
        raise UsageError(f"{recipe} exists: give another file with -o")
    migration = read(file, tool)
    text = migration.recipe(file.stem) if migration.steps else ""
    if text and recipe is None:
        echo(text.rstrip("\n"), as_it_is=True)
    elif text and recipe is not None:
        write_text(recipe, text)
    for remark in migration.remarks:
        say(str(remark))
    say(f"mapped {migration.mapped} of {counted(migration.total, 'step')}")
    if not text:
        raise RunFailed(f"{file}: no step is left for a recipe, so none is written")
    if recipe is not None:
        suggest("run", recipe, *([] if migration.input else ["IN"]), "-o", "OUT")
