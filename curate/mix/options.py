"""What the command line writes in short, as settings of the step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from curate.errors import UsageError
from curate.mix.sources import named

PAIRS = ("amounts", "epochs", "floors", "caps")


def settings(options: dict[str, Any], inputs: list[str]) -> dict[str, Any]:
    """The step's settings; UsageError names what cannot be read."""
    found = {**options, "sources": named(inputs)}
    if "=" in found.get("weights", ""):
        found["weights"] = pairs("weights", [found["weights"]])
    for name in PAIRS:
        if name in found:
            found[name] = pairs(name, found[name])
    if "shards" in found:
        found["shards"] = {n: p[0] for n, p in named(found["shards"]).items()}
    if "quality" in found:
        found["quality"] = buckets(found["quality"])
    return found


def pairs(what: str, given: Iterable[str]) -> dict[str, float]:
    """`web=80,wiki=20` as numbers by name."""
    found: dict[str, float] = {}
    for part in (p for text in given for p in text.split(",")):
        name, equals, number = part.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise UsageError(f"mix: {what}: {part!r} is no NAME=NUMBER, as in web=80,wiki=20")
        if name in found:
            raise UsageError(f"mix: {what}: {name!r} stands twice")
        found[name] = value
    return found


def buckets(text: str) -> dict[str, Any]:
    """`score:0.2,0.8:0,1,3` as column, edges and epochs."""
    rest, _, epochs = text.rpartition(":")
    column, _, edges = rest.rpartition(":")
    try:
        return {
            "column": column,
            "edges": [float(e) for e in edges.split(",")],
            "epochs": [float(e) for e in epochs.split(",")],
        }
    except ValueError:
        raise UsageError(
            f"mix: quality {text!r} is no COLUMN:EDGES:EPOCHS, as in score:0.2,0.8:0,1,3"
        ) from None
