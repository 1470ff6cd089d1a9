"""`run_recipe`: a recipe by name, by file or as an object, run over files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.api.result import Location, Result, result_of
from curate.api.tables import names_of
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from curate.steps.recipe import Recipe


def run_recipe(
    recipe: Location | Recipe,
    inputs: Location | Iterable[Location],
    out: Location,
    *,
    limit: int | None = None,
    share: float | None = None,
    text_column: str | None = None,
    split: str | None = None,
    config: str | None = None,
    workers: int = 0,
    engine: str = "local",
    address: str | None = None,
    slurm: Mapping[str, str | int] | None = None,
    scratch: Location | None = None,
    allow_python: bool = False,
    quiet: bool = False,
    **settings: Mapping[str, Any],
) -> Result:
    """Runs a recipe over files and returns the result; the same call again resumes.

        run_recipe("fineweb", "crawl/*.warc.gz", "out", language={"keep": ["en"]}, workers=4)

    recipe: the name of a shipped one, a file, or an object that `load` or `Corpus.recipe` gave.
    inputs: files, folders, patterns or URLs; without any, [], the recipe names its own. out: a
    folder or a URL. limit, share: documents to read, the first ones, or a share drawn by id.
    text_column: the column of the texts. split, config: of data sets of the hub, train without one.
    workers: number of processes; 0: one a core. engine, address, scratch: as the options of
    `llmcurate run`; slurm: options of sbatch, as {"partition": "cpu"}. allow_python: the recipe may
    run the Python files that it names. settings: of steps by name, or of the section `read`, each a
    mapping.

    Raises UsageError where the call is wrong, RunFailed where the run cannot go on, LockHeld where
    another process works in `out`; each is one line that says what to do.
    """
    from curate.run.records import Options
    from curate.steps.recipe import Change, load, parse

    reading = {"limit": limit, "share": share, "split": split, "config": config}
    reading["columns.text"] = text_column
    changes = []
    for section, values in settings.items():
        written = f"{section}={values!r}"
        if not isinstance(values, Mapping):
            raise UsageError(f"{written}: settings are a mapping, as {section}={{'key': value}}")
        changes += [Change(section, str(key), value, written) for key, value in values.items()]
    changes += [Change("read", k, v, f"{k}={v}") for k, v in reading.items() if v is not None]
    if isinstance(recipe, (str, os.PathLike)):
        chosen = load(Path(recipe) if isinstance(recipe, os.PathLike) else recipe, tuple(changes))
    else:
        chosen = parse(str(recipe), recipe.name, tuple(changes)) if changes else recipe
    options = Options(workers, quiet, engine, address, allow_python=allow_python)
    options = replace(options, slurm=sbatch(slurm))
    return result_of(chosen, names_of(inputs), out, options, scratch)


def sbatch(options: Mapping[str, str | int] | None) -> tuple[str, ...]:
    """Options of sbatch as the engine takes them, KEY=VALUE."""
    return tuple(f"{key}={value}" for key, value in (options or {}).items())
