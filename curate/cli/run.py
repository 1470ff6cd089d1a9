"""`llmcurate init`, `run`, `extract`, `filter` and `demo`: commands that run recipes."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from curate.cli import completion
from curate.cli.options import (
    ENGINES,
    AllowPython,
    CommandOptions,
    Inputs,
    Json,
    Quiet,
    Sets,
    Workers,
    app,
    output,
    workspace,
)
from curate.cli.settings import Steps, command, run_steps, setting_options
from curate.steps.registry import filters, is_step
from llmcurate.base.disk.units import parse_size
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import echo


@app.command(rich_help_panel="Curate")
def init(folder: Annotated[Path, typer.Argument(help="The new workspace.")] = Path()) -> None:
    """Create a workspace with a first recipe.

    In a workspace (a folder with llmcurate.yaml) commands find their input and number their runs.
    """
    from curate.run.workspace import RECIPE, create

    written = create(folder)
    for path in written:
        echo(f"wrote {path}")
    if not written:
        echo(f"{folder.resolve()} is a workspace already")
    enter = "" if folder == Path() else f"cd {shlex.quote(str(folder))}, then "
    echo(f"next: {enter}llmcurate run {RECIPE} IN (archives, parquet, JSONL, CSV, text files)")


@command(app, "Forecast", shared=ENGINES, panel="Curate")
def run(
    recipe: Annotated[
        Optional[str],
        typer.Argument(
            metavar="RECIPE",
            help="A recipe file, or a shipped recipe by name. In a workspace the default is its"
            " recipe.yaml.",
            autocompletion=completion.recipes,
        ),
    ] = None,
    inputs: Inputs = None,
    sets: Sets = None,
    allow_python: AllowPython = False,
    *,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Run a recipe; the same command again resumes.

    A finished run is not run again.

    \b
    Examples:
    llmcurate run c4 archives/*.warc.gz -o out --set c4.min_sentences=5
    llmcurate run c4 crawl/ -o all --dry-run --sample out --workers 1000
    """
    from curate.cli.execution import execute
    from curate.formats.kinds import format_by_name
    from curate.run.workspace import RECIPE
    from curate.steps.recipe import load
    from curate.steps.shipped import names

    options = replace(_with_forecast(options, **settings), allow_python=allow_python)
    input_alone = recipe is not None and (Path(recipe).is_dir() or format_by_name(recipe))
    if input_alone and recipe not in names():
        raise UsageError(
            f"{recipe} is not a recipe: put one before it, as in `llmcurate run {RECIPE} {recipe}`"
        )
    path = recipe or str(workspace("RECIPE").root / RECIPE)
    chosen = load(path, tuple(sets or ()))
    extracts = any(step.name == "extract" for step in chosen.steps)
    if recipe is None and extracts and not (inputs or chosen.input):
        raise UsageError(
            f"{RECIPE} names no input: `llmcurate run {RECIPE} IN...`, or add `input: IN` to it"
        )
    execute(chosen, inputs or [], options, title=Path(path).stem)


def _with_forecast(options: CommandOptions, **settings: Any) -> CommandOptions:
    if not settings:
        return options

    from curate.api.command_settings import Forecast

    if not options.dry_run:
        flag = next(f"--{name.replace('_', '-')}" for name in settings)
        raise UsageError(f"{flag} is an option of the forecast: add --dry-run")
    chosen = Forecast.of(**settings)
    size = parse_size(chosen.as_if) if chosen.as_if is not None else None
    return replace(options, sample=chosen.sample, as_if=size, prices=chosen.price)


@command(app, "extract", panel="Curate")
def extract(
    inputs: Inputs = None, sets: Sets = None, *, options: CommandOptions, **settings: Any
) -> None:
    """Extract the main text of web archives and HTML.

    \b
    Example:
    llmcurate extract crawl.warc.gz -o out --output markdown
    """
    run_steps("extract", [("extract", settings)], inputs, options, sets)


FILTERS = filters()


def _filters(arguments: list[str]) -> Steps:
    for argument in arguments:
        names = [name.strip() for name in argument.split(",") if name.strip()]
        known = (n.partition("@")[0] for n in names if ".py:" not in n)
        if names and all(n in FILTERS or (is_step(n) and n in filters()) for n in known):
            return [
                (name, {"variant": ...}) if "@" in name and ".py:" not in name else _filter(name)
                for name in names
            ]
    return []


def _filter(name: str) -> tuple[str, dict[str, str]]:
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise UsageError(f"no file {name}; write your own filter as FILE.py:FUNCTION")
        text = Path(name).read_text(encoding="utf-8", errors="replace")
        functions = re.findall(r"^def ([^\W\d]\w*)", text, re.MULTILINE) or ["FUNCTION"]
        raise UsageError(f"add the name of the function: {name}:{functions[0]}")
    return ("python", {"function": name}) if ".py:" in name else (name, {})


def _filters_with(setting: str) -> str:
    names = [name for name in FILTERS if setting in setting_options([(name, {})], {}, set())]
    return f"the filter {' or '.join(names)}" if names else ""


@command(app, _filters, "filter", owners=_filters_with, choices=FILTERS, panel="Curate")
def filter_(
    rules: Annotated[
        str,
        typer.Argument(
            help="Filters, separated by commas: by name, such as c4 or c4@tfds, or your own"
            " functions, such as my_rules.py:keep.",
            autocompletion=completion.filters,
        ),
    ],
    inputs: Inputs = None,
    sets: Sets = None,
    *,
    options: CommandOptions,
    **settings: Any,
) -> None:
    """Drop documents by published rules or your own.

    Each dropped document is stored with the reason. Each filter has its own options: llmcurate
    filter c4 --help

    \b
    Examples:
    llmcurate filter c4 corpus.jsonl -o out --min-sentences 5
    llmcurate filter gopher_quality,pii corpus/ -o out
    llmcurate filter my_rules.py:keep corpus/ -o out --min 0.5
    """
    names = [name.strip() for name in rules.split(",") if name.strip()]
    if not names:
        raise UsageError(f"RULES {rules!r} names no filter; choose from {', '.join(FILTERS)}")
    steps: Steps = [_filter(name) for name in names]
    for setting, value in settings.items():
        takers = [s for name, s in steps if setting in setting_options([(name, {})], {}, set())]
        if not takers:
            flag = f"--{setting.replace('_', '-')}"
            raise UsageError(f"{flag} needs {_filters_with(setting)}")
        for taker in takers:
            taker[setting] = value
    # A function named on the command line may run.
    run_steps("filter", steps, inputs, replace(options, allow_python=True), sets)


@app.command(rich_help_panel="Curate")
def demo(
    out: Annotated[Path, output("Folder of the demo workspace.")] = Path("demo"),
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the whole pipeline on a small invented web.

    The demo knows what was planted in each page, so it can check what each step finds.
    """
    from curate.demo.demonstration import run_demo

    run_demo(out, workers, as_json, quiet, tuple(sets or ()))
