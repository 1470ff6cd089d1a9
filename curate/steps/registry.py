"""The registry: names of steps and the classes behind them.

A class says its name by `@step("c4")` (contracts.py). Names map to classes lazily, so that listing
them imports no step: curate/index.json holds where each class stands, and the sources are looked
through for a name that it lacks. Other distributions add steps by the entry point group
`llmcurate.steps` (name = "module:Class").
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from llmcurate.base import start
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from llmcurate.base.index import declared, index_of

if TYPE_CHECKING:
    from curate.steps.contracts import Settings

WORD = "step"  # the decorator
_declared = index_of("curate")[WORD]
REGISTRY = {name: found.place for name, found in _declared.items()}


def filters() -> list[str]:
    """The names of the filters."""
    return [name for name, place in REGISTRY.items() if place.startswith("curate.filters.")]


def step_names() -> list[str]:
    """All known names, those of installed plug-ins included."""
    return sorted({*REGISTRY, *_plugins()})


def _plugins() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {p.name: p.value for p in entry_points(group="llmcurate.steps")}


def take_up() -> None:
    """Takes up the steps that the sources declare and the index lacks."""
    _declared.update(declared("curate", WORD))
    REGISTRY.update({name: found.place for name, found in _declared.items()})


def facts(key: str) -> dict[str, dict[str, Any]]:
    """What decorators say under a key, by step."""
    return {step: found.facts[key] for step, found in _declared.items() if key in found.facts}


def is_step(name: str) -> bool:
    """Whether a step of ours has this name."""
    if name not in REGISTRY and name.isidentifier():
        take_up()
    return name in REGISTRY


def step_class(name: str) -> type[Settings]:
    """The class behind a name; UsageError names the nearest one, RunFailed says why it cannot be
    loaded."""
    place = REGISTRY.get(name) or _plugins().get(name) or (is_step(name) and REGISTRY[name])
    if not place:
        near = get_close_matches(name, step_names(), 1, 0.5)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(step_names())}"
        raise UsageError(f"unknown step {name!r}{hint}")
    try:
        return _load(name, place)
    except RunFailed:
        found = declared("curate", WORD).get(name)
        if found is None or found.place == place:
            raise
        REGISTRY[name] = found.place
        return _load(name, found.place)


def _load(name: str, place: str) -> type[Settings]:
    module, _, attribute = place.partition(":")
    start.plug_ins.update({module.partition(".")[0]} - start.OURS)
    try:
        cls: type[Settings] = getattr(importlib.import_module(module), attribute)
    except LlmcurateError:
        raise
    except Exception as error:
        from curate.steps.failures import described

        raise RunFailed(f"step {name} cannot be loaded from {place}: {described(error)}") from error
    if getattr(cls, "name", None) != name:
        raise RunFailed(f"step {name}: the class {place} needs `@step({name!r})` above it")
    return cls
