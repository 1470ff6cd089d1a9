"""Shell completion of recipes, steps, filters, and settings after `--set`. All words come from
files of the package, so that completing a word loads no step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import typer

from curate.steps import registry
from curate.steps.registry import REGISTRY
from curate.steps.shipped import names, text_of


def among(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a completion function that offers the names with the typed prefix."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


steps = among(REGISTRY)


def recipes(incomplete: str) -> list[str]:
    """Return the names of shipped recipes with the typed prefix; the shell completes paths."""
    return among(names())(incomplete)


def presets(incomplete: str) -> list[str]:
    """Return the presets of models with the typed prefix; the shell itself completes folders."""
    from train.model.presets import PRESETS

    return among(PRESETS)(incomplete)


def quality_presets(incomplete: str) -> list[str]:
    """Return the presets of quality classifiers with the typed prefix."""
    from curate.scoring.quality.train import PRESETS

    return among(PRESETS)(incomplete)


def columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the column names with the typed prefix, from the first table on the command line. A
    table is a .parquet, .jsonl or .csv file; a folder counts as the first table in the folder."""
    import duckdb

    lists = [value for value in ctx.params.values() if isinstance(value, list)]
    for word in [*chain.from_iterable(lists), *ctx.args]:
        files = sorted(Path(word).rglob("*")) if Path(word).is_dir() else [Path(word)]
        tables = [file for file in files if file.suffix in (".parquet", ".jsonl", ".csv")]
        if tables and tables[0].is_file():
            table = str(tables[0]).replace("'", "''")
            found = duckdb.execute(f"SELECT * FROM '{table}' LIMIT 0").description or ()
            return among(name for name, *_ in found)(incomplete)
    return []


def filters(incomplete: str) -> list[str]:
    """Complete the last filter in a list such as `c4,pii` by filters that are not in the list."""
    before, comma, word = incomplete.rpartition(",")
    others = [name for name in registry.filters() if name not in before.split(",")]
    return [f"{before}{comma}{name}" for name in others if name.startswith(word)]


def methods(incomplete: str) -> list[str]:
    """Return completions of the last method in a chain of dedup methods such as `exact+minhash`."""
    from curate.dedup.methods import methods as known

    before, plus, word = incomplete.rpartition("+")
    return [f"{before}{plus}{name}" for name in known() if name.startswith(word)]


def settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return completions of `step.setting=` for the steps of the recipe on the command line, or for
    all steps if it names no recipe."""
    from curate.steps.registry import settings_of

    # While the last option has no value yet, click leaves the words before it in `args` only.
    sections = _sections([*ctx.params.values(), *ctx.args])
    if "." not in incomplete:
        return [f"{name}." for name in sections if name.startswith(incomplete)]
    section, _, setting = incomplete.partition(".")
    if section not in sections:
        return []
    return [f"{section}.{name}=" for name in settings_of(section) if name.startswith(setting)]


def _sections(typed: list[Any]) -> list[str]:
    recipe = next((word for word in typed if word in names()), None)
    if recipe is None:
        return ["read", *REGISTRY]
    import yaml

    entries = yaml.safe_load(text_of(recipe))["steps"]
    labels = [entry if isinstance(entry, str) else next(iter(entry)) for entry in entries]
    chosen = [label.partition("@")[0] for label in labels if label != "cut"]
    return ["read", *dict.fromkeys(chosen)]
