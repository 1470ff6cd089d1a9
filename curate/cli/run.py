"""`llmcurate init`, `run`, `extract`, `filter`, `schema` and `demo`: recipes over documents."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.options import (
    Address,
    DryRun,
    EngineName,
    Exchange,
    Inputs,
    Json,
    Out,
    Quiet,
    Scratch,
    Sets,
    Workers,
    app,
    engine_options,
    run_steps,
)
from curate.cli.settings import Steps, command, setting_options
from curate.errors import UsageError
from curate.steps.registry import REGISTRY

if TYPE_CHECKING:
    from curate.api import CommandOptions


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="The new workspace.")] = Path()) -> None:
    """Make a folder a workspace, with a first recipe.

    In a workspace (a folder with llmcurate.yaml) commands find their input and number their runs.
    """
    from curate.run.workspace import create

    for path in create(folder):
        print(f"wrote {path}")


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or a shipped recipe by name.")],
    inputs: Inputs = None,
    out: Out = None,
    sets: Sets = None,
    workers: Workers = 0,
    engine: EngineName = "local",
    address: Address = None,
    exchange: Exchange = None,
    scratch: Scratch = None,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    sample: Annotated[
        Optional[Path],
        typer.Option(
            metavar="RUN",
            help="With --dry-run: take figures from this run, over 1 % of the input for example.",
        ),
    ] = None,
    as_if: Annotated[
        Optional[str],
        typer.Option(
            metavar="SIZE",
            help="With --dry-run: forecast for an input of this size, as 100TB. The input may be"
            " left out.",
        ),
    ] = None,
    price: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="KEY=USD",
            help="With --dry-run: a price of cpu_hour, put or get (1,000 of them), gb_month, or"
            " the number of months; repeatable.",
        ),
    ] = None,
) -> None:
    """Run a recipe; the same command again resumes.

    Once all is done it says so, and does nothing.

    \b
    Examples:
    llmcurate run c4 archives/*.warc.gz -o out --set c4.min_sentences=5
    llmcurate run c4 crawl/ -o all --dry-run --sample out --workers 1000
    """
    from curate.api import execute
    from curate.steps.recipe import load

    options = engine_options(
        out, workers, engine, address, exchange, scratch, as_json, dry_run, quiet
    )
    options = _forecast(options, sample, as_if, price)
    execute(load(recipe, tuple(sets or ())), inputs or [], options, title=Path(recipe).stem)


def _forecast(
    options: CommandOptions, sample: Path | None, as_if: str | None, price: list[str] | None
) -> CommandOptions:
    """The options of a run with what its forecast is made of."""
    if sample is None and as_if is None and not price:
        return options
    from dataclasses import replace

    from curate.api import Scale
    from curate.disk.units import parse_size

    if not options.dry_run:
        flag = "--sample" if sample else "--as-if" if as_if else "--price"
        raise UsageError(f"{flag} says what a forecast is made of: add --dry-run")
    size = parse_size(as_if) if as_if is not None else None
    return replace(options, scale=Scale(sample, size, tuple(price or ())))


@command(app, "extract")
def extract(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Turn web archives and HTML into text.

    \b
    Example:
    llmcurate extract crawl.warc.gz -o out --format markdown
    """
    run_steps("extract", [("extract", settings)], inputs, options, sets)


FILTERS = [name for name, place in REGISTRY.items() if place.startswith("curate.filters.")]


def _filters(arguments: list[str]) -> Steps:
    """The filters among the arguments: of the first that is a list of their names."""
    for argument in arguments:
        names = [name.strip() for name in argument.split(",") if name.strip()]
        if names and all(name.partition("@")[0] in FILTERS for name in names):
            return [(name, {"variant": ...} if "@" in name else {}) for name in names]
    return []


def _filters_with(setting: str) -> str:
    names = [name for name in FILTERS if setting in setting_options([(name, {})], {}, set())]
    return f"the filter {' or '.join(names)}" if names else ""


@command(app, _filters, "filter", owners=_filters_with, choices=FILTERS)
def filter_(
    rules: Annotated[str, typer.Argument(help="Filters by name, as c4 or c4@tfds, comma between.")],
    inputs: Inputs = None,
    sets: Sets = None,
    *,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Drop documents by published rules, each with its reason.

    Each filter has options of its own: llmcurate filter c4 --help

    \b
    Examples:
    llmcurate filter c4 corpus.jsonl -o out --min-sentences 5
    llmcurate filter gopher_quality,pii corpus/ -o out
    """

    names = [name.strip() for name in rules.split(",") if name.strip()]
    steps: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in names]
    for setting, value in settings.items():
        takers = [s for name, s in steps if setting in setting_options([(name, {})], {}, set())]
        if not takers:
            flag = f"--{setting.replace('_', '-')}"
            raise UsageError(f"{flag} needs {_filters_with(setting)}")
        for taker in takers:
            taker[setting] = value
    run_steps("filter", steps, inputs, options, sets)


@app.command()
def schema() -> None:
    """Print the JSON schema of recipes.

    It holds every step with its settings, those of installed plug-ins too. Editors check recipes
    and complete their keys with it; the shipped recipes name it in their first line.

    \b
    Example:
    llmcurate schema > recipe.schema.json
    """
    from curate.steps.schema import recipe_schema, text_of

    print(text_of(recipe_schema()), end="")


@app.command()
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="The demo's workspace.")] = Path("demo"),
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the whole chain over a small web, and check it.

    The demo builds the web itself, so it knows what each step should find in it.
    """
    from curate.demo.run import run_demo

    run_demo(out, workers, as_json, quiet, tuple(sets or ()))
