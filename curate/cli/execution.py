"""Recipes of commands: planned by what the command line says, run, and their outcome printed."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from curate.cli.options import CommandOptions
from curate.run import workspace
from curate.steps.contracts import to_fetch
from llmcurate.base.disk.units import counted, format_bytes
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import echo, echo_json, json_line, say, suggest, tell

if TYPE_CHECKING:
    from curate.run.plan import RunPlan
    from curate.run.records import Options, Outcome
    from curate.steps.recipe import Recipe

NAME = Path("-")  # what stands for standard output as OUT


def execute(recipe: Recipe, inputs: list[str], options: CommandOptions, title: str) -> Outcome:
    """Plans the recipe, then prints the plan, or runs it and prints the outcome.

    title: the name of the run in a workspace.
    """
    recipe = with_columns(recipe.reading(**vars(options.read)), options)
    recipe = with_export(recipe, options.export)
    space = workspace.find()
    as_if = options.dry_run and options.scale.as_if is not None
    if recipe.read.fetch is not None:
        from curate.formats.fetched import local_inputs

        how = recipe.read.fetch, options.quiet, options.dry_run, recipe.read.choice
        inputs = local_inputs(inputs or list(recipe.input), *how)
    missing = to_fetch(recipe.steps) if options.dry_run else []
    for file in missing:
        say(f"a run fetches {file} first", options.quiet)
    on_paper = as_if or bool(missing)
    try:
        plan = _plan(recipe, inputs, space, as_if, on_paper)
    except UsageError as error:
        if not options.dry_run or on_paper:
            raise
        # A model or list that is still to come hides nothing else of the plan; any other mistake
        # comes up again.
        plan = _plan(recipe, inputs, space, as_if, True)
        say(f"a run would end with: {error}", options.quiet)
    from curate.run.driver import run_plan, working_folder
    from curate.run.records import Outcome

    if options.out is not None:
        out = options.out
    elif space is not None:
        out = space.out_for(title, "" if options.restart else plan.digest)
    elif as_if:
        out = Path("OUT")
    else:
        raise UsageError("give -o OUT, or work in a workspace (`llmcurate init`)")
    out, url = working_folder(out, options.scratch)
    if options.dry_run:
        _show_plan(plan, out, options, space)
        return Outcome(out, plan)
    if options.out == NAME:
        outcome = run_to_standard_output(plan, options.run_options(), options.as_json)
    else:
        workers = options.workers or (space.workers if space else 0)
        outcome = run_plan(plan, out, options.run_options(workers), url)
        print_outcome(outcome, options)
        typed = str(options.out) if options.out is not None else None
        words = next_command(outcome, inputs, typed)
        if words and url is None and not outcome.read_nothing:
            suggest(*words, quiet=options.quiet or options.as_json)
    if outcome.read_nothing:
        raise typer.Exit(1)
    return outcome


def _show_plan(
    plan: RunPlan, out: Path, options: CommandOptions, space: workspace.Workspace | None
) -> None:
    """Prints the plan, and a forecast where documents go through stages."""
    from curate.run.build import estimates
    from curate.run.plan import describe, plan_record

    shown = not (options.as_json and options.quiet)
    planned = plan_record(plan, out)
    building = estimates(plan, out, options.restart)
    for product in planned["products"]:
        if product["folder"] in building:
            product["estimate"] = building[product["folder"]].figures
    lines = [line for estimate in building.values() for line in estimate.lines]
    if not plan.stages:
        if shown:
            echo("\n".join([describe(plan, out), *lines]))
        if options.as_json and all(p.makes != "corpus" for p in plan.recipe.products):
            echo_json(planned)  # a mix prints its own
        return
    from curate.inspect.forecast.forecast import find_figures, forecast, parse_prices, text

    prices = parse_prices(options.scale.prices)
    sources = find_figures(plan.recipe, options.scale.sample, out, space)
    workers = options.run_options(options.workers or (space.workers if space else 0)).count()
    result = forecast(plan, sources, workers, prices, options.scale.as_if)
    if shown:
        if plan.inputs.files:
            echo(describe(plan, out))
        echo("\n".join([text(result), *lines]))
    if options.as_json:
        echo_json({**planned, "forecast": result})


def _plan(
    recipe: Recipe,
    inputs: list[str],
    space: workspace.Workspace | None,
    as_if: bool,
    on_paper: bool,
) -> RunPlan:
    from curate.formats.inputs import InputPlan
    from curate.run.plan import make_plan, plan_run

    if as_if and not inputs and not recipe.input:
        return plan_run(recipe, InputPlan((), ()), on_paper=True)
    if not recipe.reads_input:
        return plan_run(recipe, InputPlan((), ()))
    if not inputs and not recipe.input and space is not None:
        if any(s.name == "extract" for s in recipe.steps):
            raise UsageError(
                f"{recipe.name} reads archives: name them (`llmcurate run RECIPE IN...`), or put"
                " `input: PATH` into the recipe"
            )
        inputs = [str(space.need("corpus"))]
    recipe = _with_extraction(recipe, inputs or list(recipe.input))
    return make_plan(recipe, inputs, on_paper)


def _with_extraction(recipe: Recipe, inputs: list[str]) -> Recipe:
    """The recipe of a command with extraction in front, where the input holds web pages.

    Steps that read pages as they came stay before it. Recipes of users name the step themselves.
    """
    if recipe.name not in ("filter", "dedup", "decontaminate"):
        return recipe
    before = 0
    while before < len(recipe.steps) and getattr(recipe.steps[before], "before_extract", False):
        before += 1
    if any(s.name == "extract" for s in recipe.steps[before : before + 1]):
        return recipe  # it is the next step as it stands
    from curate.formats.listing import find_files
    from curate.steps.recipe import build, make_step

    read = recipe.read
    if not inputs:
        return recipe
    found = find_files(
        inputs, skip_unreadable=read.skip_unreadable, columns=read.named, choice=read.choice
    )
    if not any(f.holds_pages for f in found.files):
        return recipe
    say("the input holds web pages: extracting their main text first")
    steps = [*recipe.steps[:before], make_step("extract", {}), *recipe.steps[before:]]
    return replace(build(recipe.name, steps, read=recipe.read), columns=recipe.columns)


def with_columns(recipe: Recipe, options: CommandOptions) -> Recipe:
    """The recipe with the columns of its corpus that were asked for."""
    plain = ["-attributes"] if options.plain else []
    names = tuple(options.columns.split(",")) if options.columns else tuple(plain)
    if names and not recipe.document_steps:
        raise UsageError("--columns and --plain are for a command that writes a corpus")
    return replace(recipe, columns=names or recipe.columns)


def with_export(recipe: Recipe, ending: str | None) -> Recipe:
    """The recipe that writes its corpus as JSON lines, too: jsonl, jsonl.gz or jsonl.zst."""
    if ending is None:
        return recipe
    if not recipe.document_steps or any(p.name == "export" for p in recipe.products):
        raise UsageError("--export is for a command that writes a corpus, once")
    form, _, compression = ending.partition(".")
    if form != "jsonl" or compression not in ("", "gz", "zst"):
        raise UsageError(f"--export {ending}: choose jsonl, jsonl.gz or jsonl.zst")
    from curate.steps.recipe import make_step

    attributes = "attributes" in recipe.columns
    step = make_step("export", {"compression": compression or "none", "attributes": attributes})
    return replace(recipe, steps=(*recipe.steps, step))


def print_outcome(outcome: Outcome, options: CommandOptions) -> None:
    """Prints the outcome: the funnel and where things are, or one line of JSON."""
    from curate.run.records import funnel, json_of, record

    if not options.quiet or not options.as_json:
        done = f"all is done in {outcome.out}: same input, same settings"
        lines = funnel(record(outcome)).split("\n")
        if outcome.nothing_new:
            lines.insert(outcome.totals().nothing_kept is not None, done)
        echo("\n".join(lines))
        if (put := outcome.published) is not None:
            size = format_bytes(put.bytes)
            echo(f"{put.url}: {put.put} of {counted(put.files, 'file')} put there ({size})")
        echo(f"report: {outcome.paths()['report']}")
    if options.as_json:
        summary = {**json_of(outcome.totals()), "paths": outcome.paths()}
        if outcome.published is not None:
            summary["published"] = vars(outcome.published)
        echo_json(summary)


def next_command(outcome: Outcome, inputs: list[str], typed: str | None) -> list[str]:
    """What to type after a run, by what it made last; none where there is no command for it.

    inputs, typed: input and OUT as they were typed; OUT is None in a workspace, whose commands find
    them.
    """
    made = [p for p in outcome.products if p["makes"] != "export"][-1:]
    of = made[0]["makes"] if made else "documents" if outcome.plan.stages else ""
    if of == "tokenizer" and "cards" in made[0]:
        return []  # of several the user chooses
    out = typed or ""
    corpus = [out] if outcome.plan.stages else inputs
    following = {
        "documents": ("browse", [out]),
        "corpus": ("tokenizer train", [out, "-o", "tokenizer"]),
        "tokenizer": ("tokenizer encode", [*corpus, "--tokenizer", out, "-o", "shards"]),
        "shards": ("pretrain", [out, "-o", "model"]),
        "model": ("generate", ["--model", out]),
    }
    command, named = following.get(of, ("", []))
    return [*command.split(), *(named if out else [])]


def run_to_standard_output(plan: RunPlan, options: Options, as_json: bool) -> Outcome:
    """Runs the plan in a folder that goes afterwards, and writes what it keeps as JSON lines; the
    outcome goes to standard error. UsageError where it makes products, or no corpus."""
    from curate.documents.attributes import ATTRIBUTES
    from curate.formats.jsonl import json_lines
    from curate.run.build import corpus_batches
    from curate.run.driver import run_planned
    from curate.run.records import funnel, json_of, record

    if not plan.stages or plan.products:
        raise UsageError("-o - writes a corpus, and this run makes something else: give -o OUT")
    with tempfile.TemporaryDirectory(prefix="llmcurate-out-") as folder:
        outcome = run_planned(plan, Path(folder, "out"), options, lambda *report: lambda: None)
        try:
            asked = ATTRIBUTES in plan.recipe.columns
            for line in json_lines(corpus_batches(outcome.out / "corpus", None), asked):
                if sys.stdout.isatty():
                    line = json_line(line.decode("utf-8")).encode("utf-8")
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # who reads has had enough; the interpreter must not try again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise
    if as_json:
        echo_json(json_of(outcome.totals()), sys.stderr)
    elif not options.quiet:
        tell(funnel(record(outcome)))
    return outcome
