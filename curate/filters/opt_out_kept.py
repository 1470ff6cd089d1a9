"""What sites said, kept in one file of JSON: read from the archives once, loaded by each worker.

Equal rules and values stand there once and are named by number. A site is [robots.txt (or where it
is said to be), its signals, tdmrep.json, ai.txt].
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
    rules: dict[Rule, int] = {}

    def number(value: Any, plain: Callable[[Any], Any]) -> int:
        if value not in numbers:
            numbers[value] = len(values)
            values.append(plain(value))
        return numbers[value]

    def policy(value: tuple[str, Policy]) -> list[Any]:
        groups = value[1]
        return [[agent, [rules.setdefault(r, len(rules)) for r in own]] for agent, own in groups]

    found: dict[str, list[Any]] = {}
    for origin, site in sites.items():
        robots: Any = site.robots
        if robots is not None and not isinstance(robots, str):
            robots = number(("policy", robots), policy)
        found[origin] = [
            robots,
            None if site.signal is None else number(("signal", site.signal), lambda v: v[1]),
            None if site.tdm is None else number(("tdm", site.tdm), lambda v: _tdm(v[1])),
            number(("policy", site.ai), policy) if site.ai else None,
        ]
    listed = [[r.allow, *_pattern(r.pattern), r.size, r.line] for r in rules]
    data = {"version": VERSION, "rules": listed, "values": values, "sites": found}
    with replacing(file) as aside:
        aside.write_bytes(orjson.dumps(data))


def _pattern(pattern: Pattern) -> list[Any]:
    return [[piece.decode("latin-1") for piece in pattern.pieces], pattern.whole]


def _tdm(rules: tuple[Reservation, ...]) -> list[Any]:
    return [[*_pattern(r.pattern), r.reserved, r.line] for r in rules]


def read(file: Path) -> Sites:
    """The sites that were kept; RunFailed where the file is damaged."""
    try:
        data = orjson.loads(file.read_bytes())
        if data["version"] != VERSION:
            raise ValueError("another version")
        values, rules = data["values"], [_rule(*rule) for rule in data["rules"]]
        made: dict[tuple[str, int], Any] = {}

        def value(kind: str, number: int | None, make: Callable[[Any], Any]) -> Any:
            if number is None:
                return None
            if (kind, number) not in made:
                made[kind, number] = make(values[number])
            return made[kind, number]

        def policy(kept: list[Any]) -> Policy:
            return tuple((agent, tuple([rules[n] for n in own])) for agent, own in kept)

        sites = Sites(())
        for origin, (robots, signal, tdm, ai) in data["sites"].items():
            site = Site(
                robots if isinstance(robots, str) else value("policy", robots, policy),
                signal=value("signal", signal, str),
                tdm=value("tdm", tdm, _as_tdm),
                ai=value("policy", ai, policy) or (),
            )
            sites.put(origin, site)
        return sites
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise RunFailed(f"{file} is damaged ({error}); remove it and run again") from None


def _as_pattern(pieces: list[str], whole: bool) -> Pattern:
    return Pattern(tuple(piece.encode("latin-1") for piece in pieces), whole)


def _rule(allow: bool, pieces: list[str], whole: bool, size: int, line: str) -> Rule:
    return Rule(allow, _as_pattern(pieces, whole), size, line)


def _as_tdm(kept: list[Any]) -> tuple[Reservation, ...]:
    return tuple(Reservation(_as_pattern(p, w), reserved, line) for p, w, reserved, line in kept)
