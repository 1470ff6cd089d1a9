"""Prepare a recipe for a refresh, which runs the steps on new documents only and compares these
with earlier runs.

Later documents must not change a decision, or a refresh would differ from one run over all inputs.
So deduplication keeps the duplicate that arrived first, whatever the recipe says. The exception is
`dedup_exact` by URL with `survivor: newest`: newer versions replace older ones in the new corpus. A
step that needs later documents raises an error that names the step."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from curate.dedup.removal import DedupStep
from curate.refresh.state import Described
from curate.steps.contracts import CorpusStep, Identity
from curate.steps.recipe import Recipe
from llmcurate.base.errors import UsageError

NEW_HOME = "use another HOME, or rebuild this one from all its inputs with --rebuild"


def check(recipe: Recipe) -> str | None:
    """Return a line that names the settings on which duplicate to keep that a refresh ignores: a
    refresh keeps the duplicate that arrived first. Return None if the recipe has no such setting.
    Raise UsageError for a recipe that a refresh cannot run."""
    if recipe.read.limit is not None:
        raise UsageError(
            "refresh reads all new documents: remove `read.limit` from the recipe (`read.share`"
            " selects by id, so it works)"
        )
    policies = []
    for step in recipe.document_steps:
        if not isinstance(step, CorpusStep):
            continue
        if reason := step.obstacle:
            raise UsageError(f"refresh cannot run {step.label}: {reason} (docs/refresh.md)")
        first = step.of_arrival if isinstance(step, DedupStep) else {}
        policies += [
            f"{step.label} ({setting}: {getattr(step, setting)})"
            for setting in sorted(first.keys() & step.model_fields_set)
            if getattr(step, setting) != first[setting]
        ]
    if not recipe.document_steps:
        raise UsageError(f"recipe {recipe.name} has no document step: a refresh needs at least one")
    return (
        f"the duplicate that arrived first is kept in {', '.join(policies)}" if policies else None
    )


def incremental(recipe: Recipe, runs: list[Path]) -> Recipe:
    """Return the recipe without inputs and products (such as tokenizers), only with the steps that
    filter, edit or deduplicate documents. Its dedup steps compare with the runs in the folders
    `runs`, the oldest first."""
    earlier = [str(run.resolve()) for run in runs]
    steps = [s.arriving(earlier) if isinstance(s, CorpusStep) else s for s in recipe.document_steps]
    return replace(recipe, steps=tuple(steps), input=())


def described(recipe: Recipe) -> Described:
    """Return the settings of a recipe that decide which documents are kept, as JSON values."""
    steps = [s.identity().values for s in recipe.document_steps]
    return Described(*json.loads(json.dumps([steps, recipe.read.identity(), sorted(recipe.cuts)])))


def same_recipe(before: Described | None, recipe: Recipe) -> None:
    """Raise UsageError if the recipe differs from `before`, the recipe of earlier refreshes. The
    error names the first step that differs."""
    assert before is not None
    now = described(recipe)
    were, are = ([Identity.of(**step) for step in of.steps] for of in (before, now))
    for old, new in zip(were, are, strict=False):
        if old == new:
            continue
        if old.label != new.label:
            change = f"step {new.label} replaces {old.label}"
        else:
            change = f"step {new.label} has other settings ({_difference(old, new)})"
        raise UsageError(f"the recipe changed: {change}; {NEW_HOME}")
    more, fewer = are[len(were) :], were[len(are) :]
    if more or fewer:
        change = f"step {more[0].label} is new" if more else f"step {fewer[0].label} is missing"
        raise UsageError(f"the recipe changed: {change}; {NEW_HOME}")
    for part in ("read", "cuts"):
        if getattr(before, part) != getattr(now, part):
            raise UsageError(f"the recipe changed: `{part}` differs; {NEW_HOME}")


def _difference(old: Identity, new: Identity) -> str:
    for name in sorted({*old.settings, *new.settings}):
        if old.settings.get(name) != new.settings.get(name):
            return f"{name}: {old.settings.get(name)} before, {new.settings.get(name)} now"
    if old.version != new.version:
        return f"version {old.version} before, {new.version} now"
    if old.contents.get("source") != new.contents.get("source"):
        return "its source changed"
    return "a file it reads changed"
