"""Values of a test, parametrised or drawn, of which `make test` takes the first few."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest


def drawn(examples: int) -> int:
    """The examples that a property test draws: a tenth, and all of them by make test-slow; or so
    many as LLMCURATE_EXAMPLES says."""
    wanted = os.environ.get("LLMCURATE_EXAMPLES", "")
    return examples if wanted == "all" else int(wanted or max(5, examples // 10))


def few(names: Iterable[Any], *quick: Any) -> list[Any]:
    """The names; those that are not quick are run by make test-slow alone."""
    slow = pytest.mark.slow
    return [pytest.param(n, marks=() if n in quick else slow, id=str(n)) for n in names]


def mostly_slow(values: Iterable[Any], first: int = 1) -> list[Any]:
    """The values; those behind the first ones are run by make test-slow alone."""
    every = list(values)
    rest = every[first:]
    marked = [
        pytest.param(*(v if isinstance(v, tuple) else (v,)), marks=pytest.mark.slow) for v in rest
    ]
    return [*every[:first], *marked]
