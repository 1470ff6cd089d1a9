"""The outcome of a plan that is run into a folder or a store, with its report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from curate.run.driver import run_planned
from curate.run.outcome import Options, Outcome
from curate.run.plan import RunPlan, make_plan
from curate.steps.recipe import Recipe
from llmcurate.base.disk.publish import Store, publish, scratch_of, url_of
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal.progress import say


def working_folder(out: Path, scratch: Path | None = None) -> tuple[Path, str | None]:
    """(the folder that the run works in, the URL that what it leaves is put at). UsageError for a
    scratch folder where OUT is no URL."""
    url = url_of(out)
    if url is not None:
        return scratch_of(url, scratch), url
    if scratch is not None:
        raise UsageError(f"--scratch is for an OUT that is a URL; {out} is a folder")
    return out, None


def run_plan(plan: RunPlan, folder: Path, options: Options, url: str | None = None) -> Outcome:
    """Runs the plan and writes its report. A run that stopped goes on; stages that the folder holds
    already are reused. url: where what it leaves for readers is put."""
    store = Store(url) if url else None
    if store is not None:
        store.retried(store.check, tries=2)
    outcome = run_planned(plan, folder, replace(options, published=store is not None))
    if store is not None:
        say(f"uploading new files to {store.url}", options.quiet)
        outcome.published = {"url": store.url, **publish(folder, store)}
    return outcome


def carry_out(
    recipe: Recipe, inputs: list[str], out: Path, options: Options, scratch: Path | None = None
) -> Outcome:
    """The outcome of the recipe over the inputs, or over those that it names."""
    folder, url = working_folder(out, scratch)
    return run_plan(make_plan(recipe, inputs), folder, options, url)
