"""A recipe as a refresh runs it: over new documents alone, earlier ones known by their indexes.

What a step decides on a document must not depend on documents that come later, or a refresh would
differ from a run over everything. Filters decide a document at a time. Dedups decide in order of
arrival: the copy that came first stays, whatever the recipe says, but for newer versions of pages:
`dedup_exact` by URL with `survivor: newest` takes the older ones out of the next snapshot. Anything
else is refused by name.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from curate.dedup.removal import DedupStep
from curate.refresh.state import Described
from curate.steps.contracts import CorpusStep, Identity
from curate.steps.recipe import Recipe
from llmcurate.base.errors import UsageError

NEW_HOME = "take another HOME, or --rebuild this one from all of its inputs"


def check(recipe: Recipe) -> str | None:
    """A line on the policies of the recipe that a refresh does not follow; None where there are
    none. UsageError naming the first step that it cannot do as a whole run would."""
    if recipe.read.limit is not None:
        raise UsageError(
            "refresh takes all of what is new: leave `read.limit` out (`read.share` is by id, so it"
            " works)"
        )
    policies = []
    for step in recipe.document_steps:
        if not isinstance(step, CorpusStep):
            continue
        if reason := step.obstacle:
            raise UsageError(f"refresh cannot do {step.label}: {reason} (docs/refresh.md)")
        first = step.of_arrival if isinstance(step, DedupStep) else {}
        policies += [
            f"{step.label} ({setting}: {getattr(step, setting)})"
            for setting in sorted(first.keys() & step.model_fields_set)
            if getattr(step, setting) != first[setting]
        ]
    if not recipe.document_steps:
        raise UsageError(f"recipe {recipe.name} has no step on documents to refresh a corpus with")
    return f"the copy that came first stays in {', '.join(policies)}" if policies else None


def incremental(recipe: Recipe, runs: list[Path]) -> Recipe:
    """The recipe's steps on documents, its dedups under the policy `first` against these earlier
    runs (folders of the lineage, the oldest first)."""
    earlier = [str(run.resolve()) for run in runs]
    steps = [s.arriving(earlier) if isinstance(s, CorpusStep) else s for s in recipe.document_steps]
    return replace(recipe, steps=tuple(steps), input=())


def described(recipe: Recipe) -> Described:
    """What of a recipe decides which documents stay, as JSON values."""
    steps = [s.identity().values for s in recipe.document_steps]
    return Described(*json.loads(json.dumps([steps, recipe.read.identity(), sorted(recipe.cuts)])))


def same_recipe(before: Described | None, recipe: Recipe) -> None:
    """UsageError naming the first step that is another than in the refreshes so far."""
    assert before is not None
    now = described(recipe)
    were, are = ([Identity.of(**step) for step in of.steps] for of in (before, now))
    for old, new in zip(were, are, strict=False):
        if old == new:
            continue
        if old.label != new.label:
            change = f"step {new.label} stands where {old.label} was"
        else:
            change = f"step {new.label} has other settings ({_difference(old, new)})"
        raise UsageError(f"the recipe changed: {change}; {NEW_HOME}")
    more, fewer = are[len(were) :], were[len(are) :]
    if more or fewer:
        change = f"step {more[0].label} is new" if more else f"step {fewer[0].label} is gone"
        raise UsageError(f"the recipe changed: {change}; {NEW_HOME}")
    for part in ("read", "cuts"):
        if getattr(before, part) != getattr(now, part):
            raise UsageError(f"the recipe changed: `{part}` is another; {NEW_HOME}")


def _difference(old: Identity, new: Identity) -> str:
    for name in sorted({*old.settings, *new.settings}):
        if old.settings.get(name) != new.settings.get(name):
            return f"{name}: {old.settings.get(name)} before, {new.settings.get(name)} now"
    if old.version != new.version:
        return f"version {old.version} before, {new.version} now"
    if old.contents.get("source") != new.contents.get("source"):
        return "its source changed"
    return "a file it reads changed"
