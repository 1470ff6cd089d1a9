"""All steps as functions with signatures, for `Corpus.step`: `steps.GopherQuality(min_words=40)`.
The function for the step `dedup_minhash` is `DedupMinhash`. A step is loaded at its first use.
Settings are keyword arguments; an unknown setting raises UsageError with the nearest name."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from curate.steps.recipe import make_step
from curate.steps.registry import step_class, step_names

if TYPE_CHECKING:
    from curate.steps.contracts import Settings


def _names() -> dict[str, str]:
    return {"".join(map(str.capitalize, name.split("_"))): name for name in step_names()}


def __getattr__(name: str) -> Callable[..., Settings]:
    if name.startswith("_") or name not in (names := _names()):
        raise AttributeError(f"there is no step {name!r}: dir(llmcurate.steps) has their names")

    @wraps(step_class(names[name]), updated=())
    def made(**settings: Any) -> Settings:
        return make_step(names[name], settings)

    return made


def __dir__() -> list[str]:
    return sorted(_names())
