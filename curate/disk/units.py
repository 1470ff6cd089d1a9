"""Bytes as people write them."""

from __future__ import annotations

import re

from curate.errors import UsageError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKMGTPE]?)(i?)B?\s*", re.ASCII)
_POWERS = " kMGTPE"


def parse_size(text: str) -> int:
    """Bytes of `100TB`, `1.5 GiB`, `2000`. UsageError for anything else, and for 0."""
    found = _SIZE.fullmatch(text)
    value = 0
    if found:
        number, unit, binary = found.groups()
        power = _POWERS.index(unit.replace("K", "k") or " ")
        value = round(float(number) * (1024 if binary else 1000) ** power)
    if value <= 0:
        raise UsageError(f"--as-if {text}: give bytes, such as 100TB or 500GB")
    return value


def amount(size: float) -> str:
    """Bytes for people, to three figures."""
    return f"{scaled(size)}B" if size >= 1000 else f"{size:.0f} B"


def scaled(number: float) -> str:
    """A number to three figures with its unit: `12.3 T`; `950 ` is left as it is."""
    for unit in " kMGTPE":
        if abs(number) < 999.5 or unit == "E":
            places = 0 if unit == " " or abs(number) >= 99.95 else 1 if abs(number) >= 9.995 else 2
            return f"{number:.{places}f} {unit.strip()}"
        number /= 1000
    return ""
