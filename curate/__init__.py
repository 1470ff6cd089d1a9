"""Corpus curation: web archives in, clean and distinct documents out.

    from pathlib import Path
    from curate import load, run_recipe

    outcome = run_recipe(load("c4"), ["crawl/"], Path("out"))
    outcome.totals()

`run_recipe` and `load` are imported when they are first used, so that `import curate` is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from curate.version import __version__

if TYPE_CHECKING:
    from curate.api import run_recipe
    from curate.steps.recipe import load

__all__ = ["__version__", "load", "run_recipe"]


def __getattr__(name: str) -> Any:
    """The functions that are imported when they are first used."""
    if name == "run_recipe":
        from curate.api import run_recipe

        return run_recipe
    if name == "load":
        from curate.steps.recipe import load

        return load
    raise AttributeError(f"module 'curate' has no attribute {name!r}")
