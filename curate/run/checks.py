"""Checks before a run begins: OUT holds nothing but its own, and its Python is allowed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from curate.corpus import manifests
from curate.run.plan import RunPlan
from curate.steps.recipe import Recipe
from llmcurate.base.errors import UsageError

ALLOW_PYTHON = "LLMCURATE_ALLOW_PYTHON"  # a variable of the environment


def check_code(recipe: Recipe, allowed: bool) -> None:
    """UsageError where the recipe names Python to run and nobody has allowed it: whoever wrote the
    recipe could do with this machine what its user can."""
    names = [code for step in recipe.steps if (code := step.named_code())]
    if names and not allowed and os.environ.get(ALLOW_PYTHON) != "1":
        raise UsageError(
            f"recipe {recipe.name} runs Python of its own, {', '.join(names)}: read it, then allow"
            f" it by --allow-python, allow_python=True in Python, or {ALLOW_PYTHON}=1"
        )


def check_out(plan: RunPlan, out: Path) -> None:
    """UsageError where the run would overwrite its own input, or files that no run wrote."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"OUT {out} is a file; name a folder")
    if not plan.stages:
        _check_mixed(plan, out)
        return
    _check_apart((file.path for file in plan.inputs.files), out)
    for folder in (out / name for name in manifests.FOLDERS):
        ours = (out / "ledger.db").exists() or manifests.read_manifest(folder) is not None
        if not ours and (taken := _occupied(folder)):
            raise UsageError(f"llmcurate did not write {taken}; name another folder as OUT")


def _occupied(folder: Path) -> Path | None:
    """The folder where it holds anything, or its manifest; None where neither is there."""
    if folder.is_dir() and any(folder.iterdir()):
        return folder
    manifest = manifests.manifest_path(folder)
    return manifest if manifest.exists() else None


def _check_apart(paths: Iterable[str], out: Path) -> None:
    """UsageError where a file that is read lies in OUT."""
    home = out.resolve()
    for path in paths:
        if "://" not in path and home in Path(path).resolve().parents:
            raise UsageError(f"input {path} lies in OUT {out}; name another folder as OUT")


def _check_mixed(plan: RunPlan, out: Path) -> None:
    """UsageError where a product would write its corpus over one that it did not make."""
    makers = [p for p in plan.recipe.products if p.makes == "corpus"]
    for maker in makers:
        _check_apart(maker.own_files(), out)
    manifest = manifests.read_manifest(out / "corpus") or {}
    if makers and makers[0].name not in manifest and (taken := _occupied(out / "corpus")):
        raise UsageError(f"{taken} is of another corpus; name another folder as OUT")
