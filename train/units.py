"""Sizes, times and shares as people read them."""

from __future__ import annotations


def scaled(number: float) -> str:
    """To three figures with its decimal prefix: `12.3 T`; `950 ` needs none."""
    for prefix in " kMGTP":
        if abs(number) < 999.5:
            size = abs(number)
            digits = 0 if prefix == " " or size >= 99.95 else 1 if size >= 9.995 else 2
            return f"{number:.{digits}f} {prefix.strip()}"
        number /= 1000
    return f"{number:.2f} E"


def duration(seconds: float) -> str:
    """In the largest fitting unit: `3.2 d`, `5.0 h`, `12.5 min`, `0.8 s`."""
    for least, size, unit in ((172_800, 86_400, "d"), (3600, 3600, "h"), (60, 60, "min")):
        if seconds >= least:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
