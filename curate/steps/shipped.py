"""The recipes shipped with the package, as files. This module checks no recipe, so that lists of
recipes and shell completion need not load the steps."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from llmcurate.base.errors import UsageError
from llmcurate.base.start import HOME

_INSTALLED = Path(HOME) / "llmcurate" / "pipelines"
FOLDER = _INSTALLED if _INSTALLED.is_dir() else Path(HOME) / "pipelines"  # of a checkout
ENDING = ".yaml"


@dataclass(frozen=True)
class Shipped:
    """A shipped recipe."""

    name: str
    description: str
    paper: str  # publication of its steps, or an empty string


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob(f"*{ENDING}"))


def text_of(name: str) -> str:
    """Return the YAML of a shipped recipe. Raise UsageError, with a hint, for an unknown name."""
    if name not in names():
        near = get_close_matches(name, names(), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names())}"
        raise UsageError(f"no recipe {name!r}, nor a .yaml file of that name; {hint}")
    return (FOLDER / f"{name}{ENDING}").read_text(encoding="utf-8")


def shipped() -> list[Shipped]:
    """Return all shipped recipes, by name."""
    import yaml

    recipes = []
    for name in names():
        content = yaml.safe_load(text_of(name))
        texts = (str(content.get(key) or "") for key in ("description", "paper"))
        recipes.append(Shipped(name, *texts))
    return recipes
