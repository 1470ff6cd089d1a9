"""What sites said, kept in one file of JSON: read from the archives once, loaded by each worker.

Equal values stand there once, and sites name them by number: [robots.txt (or where it is said to
be), its signals, tdmrep.json, ai.txt].
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from curate.atomic import replacing
from curate.errors import RunFailed
from curate.filters.opt_out_robots import Pattern, Policy, Rule
from curate.filters.opt_out_sites import Reservation, Site, Sites

VERSION = 1
CORRUPT = pa.schema([("file", pa.string()), ("offset", pa.int64()), ("what", pa.string())])


def write(sites: Sites, file: Path) -> None:
    """Keeps the sites as a whole."""
    values: list[Any] = []
    numbers: dict[Any, int] = {}

    def number(value: Any, plain: Callable[[Any], Any]) -> int:
        if value not in numbers:
            numbers[value] = len(values)
            values.append(plain(value))
        return numbers[value]

    found: dict[str, list[Any]] = {}
    for origin, site in sites.items():
        robots: Any = site.robots
        if robots is not None and not isinstance(robots, str):
            robots = number(("policy", robots), lambda v: _policy(v[1]))
        found[origin] = [
            robots,
            None if site.signal is None else number(("signal", site.signal), lambda v: v[1]),
            None if site.tdm is None else number(("tdm", site.tdm), lambda v: _tdm(v[1])),
            number(("policy", site.ai), lambda v: _policy(v[1])) if site.ai else None,
        ]
    data = {"version": VERSION, "values": values, "sites": found}
    with replacing(file) as aside:
        aside.write_bytes(orjson.dumps(data))


def _pattern(pattern: Pattern) -> list[Any]:
    return [[piece.decode("latin-1") for piece in pattern.pieces], pattern.whole]


def _policy(policy: Policy) -> list[Any]:
    return [
        [agent, [[r.allow, *_pattern(r.pattern), r.size, r.line] for r in rules]]
        for agent, rules in policy
    ]


def _tdm(rules: tuple[Reservation, ...]) -> list[Any]:
    return [[*_pattern(r.pattern), r.reserved, r.line] for r in rules]


def read(file: Path) -> Sites:
    """The sites that were kept; RunFailed where the file is damaged."""
    try:
        data = orjson.loads(file.read_bytes())
        if data["version"] != VERSION:
            raise ValueError("another version")
        values = data["values"]
        made: dict[tuple[str, int], Any] = {}

        def value(kind: str, number: int | None, make: Callable[[Any], Any]) -> Any:
            if number is None:
                return None
            if (kind, number) not in made:
                made[kind, number] = make(values[number])
            return made[kind, number]

        sites = Sites(())
        for origin, (robots, signal, tdm, ai) in data["sites"].items():
            site = Site(
                robots if isinstance(robots, str) else value("policy", robots, _as_policy),
                signal=value("signal", signal, str),
                tdm=value("tdm", tdm, _as_tdm),
                ai=value("policy", ai, _as_policy) or (),
            )
            sites.put(origin, site)
        return sites
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise RunFailed(f"{file} is damaged ({error}); remove it and run again") from None


def _as_pattern(pieces: list[str], whole: bool) -> Pattern:
    return Pattern(tuple(piece.encode("latin-1") for piece in pieces), whole)


def _as_policy(kept: list[Any]) -> Policy:
    return tuple((agent, tuple(_as_rule(*rule) for rule in rules)) for agent, rules in kept)


def _as_rule(allow: bool, pieces: list[str], whole: bool, size: int, line: str) -> Rule:
    return Rule(allow, _as_pattern(pieces, whole), size, line)


def _as_tdm(kept: list[Any]) -> tuple[Reservation, ...]:
    return tuple(Reservation(_as_pattern(p, w), reserved, line) for p, w, reserved, line in kept)
