"""The products of a recipe (tokenizer, shards, a model), made of a whole snapshot.

HOME/products/NAME is the folder of a run over the snapshot NAME, with its ledger, so a product that
was stopped goes on; HOME/products/current means the last one that is whole. The snapshot stands
before they are begun: a product that cannot be made costs no data.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from curate.disk.inside import inside
from curate.errors import UsageError
from curate.outcome import Options
from curate.recipe import Recipe
from curate.refresh import snapshot
from curate.refresh.keeping import PRODUCTS as FOLDER
from curate.refresh.outcome import How
from curate.run import make_plan, run_planned


def check(recipe: Recipe) -> None:
    """UsageError where a recipe has none that could be made of a snapshot."""
    if not recipe.products:
        raise UsageError(f"--products: recipe {recipe.name} ends in no product")
    if _alone(recipe).brings_corpus:
        raise UsageError(
            f"--products: {recipe.products[0].label} of recipe {recipe.name} names sources of its"
            " own; `llmcurate run` makes it"
        )


def _alone(recipe: Recipe) -> Recipe:
    return replace(recipe, steps=tuple(recipe.products), cuts=frozenset(), input=())


def folder_of(home: Path, name: str) -> Path:
    """Where the products of a snapshot are made."""
    return inside(home, f"{FOLDER}/{name}")


def make(home: Path, name: str, recipe: Recipe, how: How) -> bool:
    """Makes the products of a snapshot, or goes on; whether anything was to do."""
    plan = make_plan(_alone(recipe), [str(snapshot.folder_of(home, name))])
    done = run_planned(plan, folder_of(home, name), Options(how.workers, how.quiet))
    snapshot.point(home / FOLDER, name, within=".")
    return not done.nothing_new
