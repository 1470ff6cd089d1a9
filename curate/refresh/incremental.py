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
from typing import Any

from curate.dedup.removal import DedupStep
from curate.steps.contracts import CorpusStep, Product, Settings
from curate.steps.recipe import Recipe
from llmcurate.base.errors import UsageError

# Dedups of passages, and the `keep` under which the first copy stays.
_KEEPS = {"dedup_passages": "one", "dedup_suffix_array": "first"}
NEW_HOME = "take another HOME, or --rebuild this one from all of its inputs"


def _obstacle(step: Settings) -> str | None:
    """Why a step cannot work on new documents alone."""
    settings = step.model_dump()
    if not isinstance(step, CorpusStep) or step.name in (*_KEEPS, "dedup_exact", "dedup_minhash"):
        return None
    if step.name == "dedup_bloom":
        if settings["expected"] is None:
            return (
                f"a filter has one size; give --set {step.label}.expected=N, the keys of all"
                " refreshes together"
            )
        return None
    if step.name == "decontaminate":
        if settings["max_hits"] is not None:
            return "`max_hits` counts in the whole corpus"
        return None
    if step.name == "perplexity":
        if settings["cutoffs"] == "own":
            without = f" --set {step.label}.low=0" if settings["low"] else ""
            return (
                f"percentiles are of the whole corpus; --set {step.label}.cutoffs=ccnet{without}"
                " takes the limits that CCNet's models have"
            )
        return None
    return "it decides by the whole corpus"


def newest(step: Settings) -> bool:
    """Whether newer versions of a page replace older ones, in earlier snapshots' documents too."""
    return isinstance(step, DedupStep) and step.replaces(step.model_dump())


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
        if reason := _obstacle(step):
            raise UsageError(f"refresh cannot do {step.label}: {reason} (docs/refresh.md)")
        first = _first(step)
        policies += [
            f"{step.label} ({setting}: {getattr(step, setting)})"
            for setting in sorted(first.keys() & step.model_fields_set)
            if getattr(step, setting) != first[setting]
        ]
    if not recipe.document_steps:
        raise UsageError(f"recipe {recipe.name} has no step on documents to refresh a corpus with")
    return f"the copy that came first stays in {', '.join(policies)}" if policies else None


def _first(step: Settings) -> dict[str, str]:
    """The settings of a dedup under which what came first stays."""
    settings = {}
    if "survivor" in type(step).model_fields and not newest(step):
        settings["survivor"] = "first"
    if step.name in _KEEPS:
        settings["keep"] = _KEEPS[step.name]
    return settings


def incremental(recipe: Recipe, runs: list[Path]) -> Recipe:
    """The recipe's steps on documents, its dedups under the policy `first` against these earlier
    runs (folders of the lineage, the oldest first)."""
    steps = [_against(s, runs) for s in recipe.steps if not isinstance(s, Product)]
    return replace(recipe, steps=tuple(steps), input=())


def _against(step: Settings, runs: list[Path]) -> Settings:
    if not isinstance(step, CorpusStep):
        return step
    values: dict[str, Any] = step.model_dump(exclude_unset=True)
    if runs and "max_removal" in type(step).model_fields:
        # Nine in ten of a day's pages may well be old ones: the guard is for what is set by hand.
        values.setdefault("max_removal", 1.0)
    if "survivor" in type(step).model_fields:
        values |= _first(step)
        # A Bloom filter holds what those before it held.
        compared = runs[-1:] if step.name == "dedup_bloom" else runs
        earlier = (*values.get("against", ()), *(str(run.resolve()) for run in compared))
        if earlier:
            values["against"] = earlier
    return type(step)(**values).named(step.label)


def described(recipe: Recipe) -> dict[str, Any]:
    """What of a recipe decides which documents stay, as JSON values."""
    content = {
        "steps": [s.identity() for s in recipe.document_steps],
        "read": recipe.read.identity(),
        "cuts": sorted(recipe.cuts),
    }
    plain: dict[str, Any] = json.loads(json.dumps(content))
    return plain


def same_recipe(before: dict[str, Any], recipe: Recipe) -> None:
    """UsageError naming the first step that is another than in the refreshes so far."""
    now = described(recipe)
    for old, new in zip(before["steps"], now["steps"], strict=False):
        if old == new:
            continue
        if old["label"] != new["label"]:
            change = f"step {new['label']} stands where {old['label']} was"
        else:
            change = f"step {new['label']} has other settings ({_difference(old, new)})"
        raise UsageError(f"the recipe changed: {change}; {NEW_HOME}")
    more, fewer = now["steps"][len(before["steps"]) :], before["steps"][len(now["steps"]) :]
    if more or fewer:
        change = f"step {more[0]['label']} is new" if more else f"step {fewer[0]['label']} is gone"
        raise UsageError(f"the recipe changed: {change}; {NEW_HOME}")
    for part in ("read", "cuts"):
        if before[part] != now[part]:
            raise UsageError(f"the recipe changed: `{part}` is another; {NEW_HOME}")


def _difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    names = sorted({*old["settings"], *new["settings"]})
    differ = [n for n in names if old["settings"].get(n) != new["settings"].get(n)]
    if differ:
        name = differ[0]
        return f"{name}: {old['settings'].get(name)} before, {new['settings'].get(name)} now"
    if old["version"] != new["version"]:
        return f"version {old['version']} before, {new['version']} now"
    if old.get("source") != new.get("source"):
        return "its source changed"
    return "a file it reads changed"
