"""Words that the shell completes: recipes, steps, filters, and settings after `--set`.

All come from files of the package, so that completing a word loads no step.
"""

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
    """What completes a word to one of some names."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


steps = among(REGISTRY)


def recipes(incomplete: str) -> list[str]:
    """The shipped recipes; the shell itself completes files."""
    return among(names())(incomplete)


def presets(incomplete: str) -> list[str]:
    """The presets of models; the shell itself completes folders."""
    from train.model.presets import PRESETS

    return among(PRESETS)(incomplete)


def columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """The columns of the first table that was typed, or of one in a folder that was typed."""
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
    """The filters that a list, as `c4,pii`, may go on with: those that it does not hold yet."""
    before, comma, word = incomplete.rpartition(",")
    others = [name for name in registry.filters() if name not in before.split(",")]
    return [f"{before}{comma}{name}" for name in others if name.startswith(word)]


def methods(incomplete: str) -> list[str]:
    """The dedup methods that a sum, as `exact+minhash`, may go on with."""
    from curate.dedup.methods import methods as known

    before, plus, word = incomplete.rpartition("+")
    return [f"{before}{plus}{name}" for name in known() if name.startswith(word)]


def settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """`step.setting=` of the steps of the recipe that was typed, else of all steps."""
    from curate.steps.registry import settings_of

    # The words before an option that has no value yet are in `args` alone.
    sections = _sections([*ctx.params.values(), *ctx.args])
    if "." not in incomplete:
        return [f"{name}." for name in sections if name.startswith(incomplete)]
    section, _, setting = incomplete.partition(".")
    if section not in sections:
        return []
    return [f"{section}.{name}=" for name in settings_of(section) if name.startswith(setting)]


def _sections(typed: list[Any]) -> list[str]:
    """The sections that `--set` knows: `read`, and the steps of a shipped recipe, or all."""
    recipe = next((word for word in typed if word in names()), None)
    if recipe is None:
        return ["read", *REGISTRY]
    import yaml

    entries = yaml.safe_load(text_of(recipe))["steps"]
    labels = [entry if isinstance(entry, str) else next(iter(entry)) for entry in entries]
    chosen = [label.partition("@")[0] for label in labels if label != "cut"]
    return ["read", *dict.fromkeys(chosen)]
