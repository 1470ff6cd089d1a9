"""Plan the recipe of a command, run it, and print the outcome."""

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
from llmcurate.base.terminal import echo, echo_json, json_line, print_lines, say, suggest

if TYPE_CHECKING:
    from curate.run.plan import RunPlan
    from curate.run.records import Options, Outcome
    from curate.steps.recipe import Recipe

STANDARD_OUTPUT = Path("-")


def execute(recipe: Recipe, inputs: list[str], options: CommandOptions, title: str) -> Outcome:
    """Plan the recipe, then run it and print the outcome; with --dry-run only print the plan. In a
    workspace, `title` becomes part of the name of the run's folder."""
    recipe = with_columns(recipe.reading(**vars(options.read)), options)
    recipe = with_export(recipe, options.export)
    space = workspace.find()
    as_if = options.dry_run and options.as_if is not None
    if recipe.read.fetch is not None:
        from curate.formats.fetched import local_inputs

        how = recipe.read.fetch, options.quiet, options.dry_run, recipe.read.choice
        inputs = local_inputs(inputs or list(recipe.input), *how)
    missing = to_fetch(recipe.steps) if options.dry_run else []
    for file in missing:
        say(f"a run would first fetch {file}", options.quiet)
    on_paper = as_if or bool(missing)
    try:
        plan = _plan(recipe, inputs, space, as_if, on_paper)
    except UsageError as error:
        if not options.dry_run or on_paper:
            raise
        # A missing model or list must not hide the plan; any other mistake is raised again.
        plan = _plan(recipe, inputs, space, as_if, True)
        say(f"a run would fail: {error}", options.quiet)
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
    if not options.quiet and not options.as_json:
        for product in plan.recipe.products:
            for line in product.forecast():
                say(f"{product.label}: {line}")
    if options.dry_run:
        _show_plan(plan, out, options, space)
        return Outcome(out, plan)
    if options.out == STANDARD_OUTPUT:
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
    from curate.run.build import estimates
    from curate.run.plan import describe, plan_record

    shown = not options.as_json  # then only the JSON is on standard output
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
            echo_json(planned)  # a mix prints its own JSON
        return
    from curate.inspect.forecast.forecast import find_figures, forecast, parse_prices, text

    prices = parse_prices(options.prices)
    sources = find_figures(plan.recipe, options.sample, out, space)
    workers = options.run_options(options.workers or (space.workers if space else 0)).count()
    result = forecast(plan, sources, workers, prices, options.as_if)
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
                f"{recipe.name} reads archives: name them (`llmcurate run RECIPE IN...`), or add"
                " `input: PATH` to the recipe"
            )
        inputs = [str(space.need("corpus"))]
    recipe = _with_extraction(recipe, inputs or list(recipe.input))
    return make_plan(recipe, inputs, on_paper)


def _with_extraction(recipe: Recipe, inputs: list[str]) -> Recipe:
    """Return the recipe of a command. If the input has web pages, the step `extract` is added after
    the steps that read raw pages. A recipe that a user wrote must name `extract` itself."""
    if recipe.name not in ("filter", "dedup", "decontaminate"):
        return recipe
    before = 0
    while before < len(recipe.steps) and getattr(recipe.steps[before], "before_extract", False):
        before += 1
    if any(s.name == "extract" for s in recipe.steps[before : before + 1]):
        return recipe
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
    say("the input has web pages: extracting their main text first")
    steps = [*recipe.steps[:before], make_step("extract", {}), *recipe.steps[before:]]
    return replace(build(recipe.name, steps, read=recipe.read), columns=recipe.columns)


def with_columns(recipe: Recipe, options: CommandOptions) -> Recipe:
    """Return the recipe with the columns of --columns or --plain. Raises UsageError if these are
    given and the recipe writes no corpus."""
    plain = ["-attributes"] if options.plain else []
    names = tuple(options.columns.split(",")) if options.columns else tuple(plain)
    if names and not recipe.document_steps:
        raise UsageError("--columns and --plain need a command that writes a corpus")
    return replace(recipe, columns=names or recipe.columns)


def with_export(recipe: Recipe, ending: str | None) -> Recipe:
    """Return the recipe with an export as JSONL. `ending` is jsonl, jsonl.gz or jsonl.zst, or None
    for no export. Raises UsageError if the recipe writes no corpus or has an export already."""
    if ending is None:
        return recipe
    if not recipe.document_steps or any(p.name == "export" for p in recipe.products):
        raise UsageError("--export needs a command that writes a corpus and exports nothing yet")
    form, _, compression = ending.partition(".")
    if form != "jsonl" or compression not in ("", "gz", "zst"):
        raise UsageError(f"--export {ending}: choose jsonl, jsonl.gz or jsonl.zst")
    from curate.steps.recipe import make_step

    attributes = "attributes" in recipe.columns
    step = make_step("export", {"compression": compression or "none", "attributes": attributes})
    return replace(recipe, steps=(*recipe.steps, step))


def print_outcome(outcome: Outcome, options: CommandOptions) -> None:
    """Print the documents after each step and the path of the report, or one line of JSON."""
    from curate.run.records import funnel, json_of, record

    if not options.quiet or not options.as_json:
        done = f"nothing to do in {outcome.out}: same input, same settings"
        lines = funnel(record(outcome)).split("\n")
        if outcome.nothing_new:
            lines.insert(outcome.totals().nothing_kept is not None, done)
        echo("\n".join(lines))
        if (upload := outcome.published) is not None:
            size = format_bytes(upload.bytes)
            echo(f"uploaded {upload.put} of {counted(upload.files, 'file')} ({size}): {upload.url}")
        echo(f"report: {outcome.paths()['report']}")
    if options.as_json:
        summary = {**json_of(outcome.totals()), "paths": outcome.paths()}
        if outcome.published is not None:
            summary["published"] = vars(outcome.published)
        echo_json(summary)


def next_command(outcome: Outcome, inputs: list[str], typed: str | None) -> list[str]:
    """Return the words of the command to suggest after a run, or [] if no command follows. The
    choice depends on what the run made last. `inputs` and `typed` are IN and OUT as the user typed
    them. In a workspace `typed` is None, since commands find OUT themselves."""
    made = [p for p in outcome.products if p["makes"] != "export"][-1:]
    of = made[0]["makes"] if made else "documents" if outcome.plan.stages else ""
    if of == "tokenizer" and "cards" in made[0]:
        return []  # several tokenizers: the user chooses
    if of == "model" and "tokenizer.json" not in made[0]["files"]:
        return []  # a model of tokens whose text is unknown
    out = typed or ""
    corpus = [out] if outcome.plan.stages else inputs
    following = {
        "documents": ("browse", [out]),
        "corpus": ("tokenizer train", [out, "-o", "tokenizer"]),
        "tokenizer": ("tokenizer encode", [*corpus, "--tokenizer", out, "-o", "shards"]),
        "shards": ("pretrain", [out, "-o", "model"]),
        "model": ("generate", ["--model", out]),
        "chat": ("generate", ["Hello", "--model", out, "--chat"]),
    }
    task, file = made[0].get("records", (of, "")) if made else (of, "")
    following |= dict.fromkeys(
        ("classify", "token", "span", "choice"), ("predict", [out, file, "-o", "predicted.jsonl"])
    )
    command, named = following.get(task, following.get(of, ("", [])))
    return [*command.split(), *(named if out else [])]


def run_to_standard_output(plan: RunPlan, options: Options, as_json: bool) -> Outcome:
    """Run the plan in a temporary folder. Write the kept documents to standard output as JSONL, and
    the outcome to standard error. Raises UsageError if the plan writes no corpus, or makes products
    such as a tokenizer."""
    from curate.documents.attributes import ATTRIBUTES
    from curate.formats.jsonl import json_lines
    from curate.run.build import corpus_batches
    from curate.run.driver import run_planned
    from curate.run.records import funnel, json_of, record

    if not plan.stages or plan.products:
        raise UsageError("-o - can only write a corpus; this command makes more: give -o OUT")
    with tempfile.TemporaryDirectory(prefix="llmcurate-out-") as folder:
        outcome = run_planned(plan, Path(folder, "out"), options, lambda *report: lambda: None)
        try:
            asked = ATTRIBUTES in plan.recipe.columns
            for line in json_lines(corpus_batches(outcome.out / "corpus", None), asked):
                if sys.stdout.isatty():
                    line = json_line(line.decode("utf-8")).encode("utf-8")
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # the reader has ended; the interpreter must not flush at its exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise
    if as_json:
        echo_json(json_of(outcome.totals()), sys.stderr)
    elif not options.quiet:
        print_lines(funnel(record(outcome)))
    return outcome
