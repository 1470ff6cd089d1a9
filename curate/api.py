"""A command on documents: a recipe planned, run into a folder or a store, and told about."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from curate.disk.publish import Store, publish, scratch_of, url_of
from curate.disk.units import format_bytes
from curate.errors import UsageError
from curate.formats.inputs import InputPlan
from curate.inspect.report.page import write_records
from curate.run import funnel, workspace
from curate.run.driver import Options, Outcome, make_plan, run_planned
from curate.run.plan import RunPlan, plan_run
from curate.run.records import record
from curate.steps.recipe import Recipe, build, make_step
from curate.terminal.progress import say


@dataclass(frozen=True)
class Scale:
    """What a forecast is made of (curate/scale): an earlier run, bytes in the place of the input's,
    prices as given."""

    sample: Path | None = None
    as_if: int | None = None
    prices: tuple[str, ...] = ()


@dataclass(frozen=True)
class How:
    """The options that every command on documents has."""

    out: Path | None
    workers: int = 0
    as_json: bool = False
    dry_run: bool = False
    quiet: bool = False
    engine: str = "local"
    address: str | None = None
    scratch: Path | None = None
    exchange: str | None = None
    scale: Scale = Scale()

    def options(self, workers: int | None = None) -> Options:
        """How a run is made. workers: instead of those asked for."""
        count = self.workers if workers is None else workers
        return Options(count, self.quiet, self.engine, self.address, self.exchange)


def run_recipe(recipe: Recipe, inputs: list[str], out: Path, options: Options) -> Outcome:
    """Runs the recipe over inputs (the recipe's own if none) into `out`; resumes, reuses."""
    return run_planned(make_plan(recipe, inputs), out, options, write_records)


def execute(recipe: Recipe, inputs: list[str], how: How, title: str) -> Outcome:
    """Plans, finds OUT, runs or prints the plan, and tells what happened."""
    space = workspace.find()
    on_paper = how.dry_run and how.scale.as_if is not None
    if recipe.read.fetch is not None:
        from curate.formats.fetched import local_inputs

        given = inputs or list(recipe.input)
        inputs = local_inputs(given, recipe.read.fetch, how.quiet, how.dry_run)
    plan = _plan(recipe, inputs, space, on_paper)
    if how.out is not None:
        out = how.out
    elif space is not None:
        out = space.out_for(title, plan.digest)
    elif on_paper:
        out = Path("OUT")
    else:
        raise UsageError("give -o OUT, or work in a workspace (`llmcurate init`)")
    url = url_of(out)
    out = scratch_of(url, how.scratch) if url else out
    if how.scratch is not None and not url:
        raise UsageError(f"--scratch is for an OUT that is a URL; {out} is a folder")
    if how.dry_run:
        _show_plan(plan, out, how, space)
        return Outcome(out, plan)
    store = Store(url) if url else None
    if store is not None:
        store.check()
    workers = how.workers or (space.workers if space else 0)
    outcome = run_planned(plan, out, how.options(workers), write_records)
    if store is not None:
        say(f"putting what is new into {store.url}", how.quiet)
        outcome.published = {"url": store.url, **publish(out, store)}
    tell(outcome, how)
    return outcome


def _show_plan(plan: RunPlan, out: Path, how: How, space: workspace.Workspace | None) -> None:
    """Prints the plan, and a forecast where documents go through stages."""
    from curate.run.preview import describe, plan_record

    if not plan.stages:
        print(describe(plan, out))
        if how.as_json and all(p.makes != "corpus" for p in plan.recipe.products):
            print(json.dumps(plan_record(plan, out), ensure_ascii=False))  # a mix prints its own
        return
    from curate.inspect.forecast.figures import find_figures
    from curate.inspect.forecast.forecast import forecast, parse_prices
    from curate.inspect.forecast.terminal import text

    prices = parse_prices(how.scale.prices)
    sources = find_figures(plan.recipe, how.scale.sample, out, space)
    workers = how.options(how.workers or (space.workers if space else 0)).count()
    result = forecast(plan, sources, workers, prices, how.scale.as_if)
    if not (how.as_json and how.quiet):
        if plan.inputs.files:
            print(describe(plan, out))
        print(text(result))
    if how.as_json:
        print(json.dumps({**plan_record(plan, out), "forecast": result.dump()}, ensure_ascii=False))


def _plan(
    recipe: Recipe,
    inputs: list[str],
    space: workspace.Workspace | None,
    on_paper: bool = False,
) -> RunPlan:
    if on_paper and not inputs and not recipe.input:
        return plan_run(recipe, InputPlan((), ()), on_paper=True)
    if not recipe.reads_input:
        return plan_run(recipe, InputPlan((), ()))
    if not inputs and not recipe.input and space is not None:
        if any(s.name == "extract" for s in recipe.steps):
            raise UsageError(f"{recipe.name} reads archives: name files or folders to read")
        inputs = [str(space.need("corpus", "llmcurate run RECIPE IN..."))]
    recipe = _with_extraction(recipe, inputs or list(recipe.input))
    return make_plan(recipe, inputs)


def _with_extraction(recipe: Recipe, inputs: list[str]) -> Recipe:
    """A command given web pages begins with extraction, but for steps that read pages as they
    came; recipes say so themselves."""
    if recipe.name not in ("filter", "dedup", "decontaminate"):
        return recipe
    before = 0
    while before < len(recipe.steps) and getattr(recipe.steps[before], "before_extract", False):
        before += 1
    if any(s.name == "extract" for s in recipe.steps[before : before + 1]):
        return recipe  # it is the next step as it stands
    from curate.formats.inputs import find_files

    files, _ = find_files(inputs) if inputs else ([], [])
    if not any(f.format in ("archive", "html") for f in files):
        return recipe
    say("the input holds web pages: extracting their main text first")
    steps = [*recipe.steps[:before], make_step("extract", {}), *recipe.steps[before:]]
    return build(recipe.name, steps, read=recipe.read)


def tell(outcome: Outcome, how: How) -> None:
    """Prints the outcome: the funnel and where things are, or one line of JSON."""
    if not how.quiet or not how.as_json:
        if outcome.nothing_new:
            print(f"all is done in {outcome.out}: same input, same settings")
        print(funnel.text(record(outcome)))
        if (put := outcome.published) is not None:
            size = format_bytes(put["bytes"])
            print(f"{put['url']}: {put['put']} of {put['files']} files put there ({size})")
        print(f"report: {outcome.paths()['report']}")
    if how.as_json:
        said = {**outcome.totals(), "paths": outcome.paths()}
        if outcome.published is not None:
            said["published"] = outcome.published
        print(json.dumps(said, ensure_ascii=False))
