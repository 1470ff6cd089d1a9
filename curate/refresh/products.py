"""Products of snapshots: tokenizers, shards and models, made of the whole corpus that has grown.

HOME/products/NAME is the folder of a run over the snapshot NAME, with its ledger, so a product
that was stopped resumes; HOME/products/current means the last one that is whole. The snapshot
stands before they are begun: a product that cannot be made costs no data.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from curate.formats.read_settings import ReadSettings
from curate.refresh import snapshot
from curate.refresh.outcome import How
from curate.refresh.retention import PRODUCTS as FOLDER
from curate.run.driver import run_planned
from curate.run.outcome import Options
from curate.run.plan import make_plan
from curate.steps.recipe import Recipe
from llmcurate.base.disk.safe_paths import inside
from llmcurate.base.errors import UsageError


def check_products(recipe: Recipe) -> None:
    """UsageError where a recipe has none that could be made of a snapshot."""
    if not recipe.products:
        raise UsageError(f"--products: recipe {recipe.name} ends in no product")
    if _alone(recipe).brings_corpus:
        raise UsageError(
            f"--products: {recipe.products[0].label} of recipe {recipe.name} names sources of its"
            " own; `llmcurate run` makes it"
        )


def _alone(recipe: Recipe) -> Recipe:
    read = ReadSettings(partition_bytes=recipe.read.partition_bytes)  # the snapshot, whole
    return replace(recipe, steps=tuple(recipe.products), cuts=frozenset(), input=(), read=read)


def products_folder(home: Path, name: str) -> Path:
    """Where the products of a snapshot are made."""
    return inside(home, f"{FOLDER}/{name}")


def make_products(home: Path, name: str, recipe: Recipe, how: How) -> bool:
    """Makes the products of a snapshot, or goes on; whether anything was to do."""
    plan = make_plan(_alone(recipe), [str(snapshot.folder_of(home, name))])
    done = run_planned(plan, products_folder(home, name), Options(how.workers, how.quiet))
    snapshot.point_current_to(home / FOLDER, name, within=".")
    return not done.nothing_new
