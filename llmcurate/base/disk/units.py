"""Units: parse the sizes that people type; format the sizes, counts and shares that people read."""

from __future__ import annotations

import re
from typing import Any

from llmcurate.base.errors import UsageError

_NUMBER = r"\s*(\d[\d_]*(?:\.\d+)?(?:e\d+)?)\s*"
_SIZE = re.compile(_NUMBER + r"([kKMGTPE]?)(i?)B?\s*", re.ASCII)
_COUNT = re.compile(_NUMBER + r"([kMBGT]?)\s*", re.ASCII | re.IGNORECASE)
_DURATION = re.compile("".join(rf"(?:{_NUMBER}{unit})?" for unit in "dhms") + r"\s*", re.ASCII)
_POWERS = " kMGTPE"


def parse_size(text: str, option: str = "--as-if") -> int:
    """Return the bytes of a size such as `100TB`, `1.5 GiB` or `2000`. Raises UsageError for other
    texts and for 0; the message names `option`, the option or setting that holds the text."""
    size = round(_bytes(text))
    if size <= 0:
        raise UsageError(f"{option} {text}: give bytes, such as 100TB or 500GB")
    return size


def parse_rate(text: str, option: str = "--rate") -> float:
    """Return the bytes per second in `5MB/s` or `1.5MiB/s`. Raises UsageError for other texts."""
    rate = _bytes(text.rstrip().removesuffix("/s"))
    if rate <= 0:
        raise UsageError(f"{option} {text}: give bytes per second, such as 5MB/s or 500kB/s")
    return rate


def parse_count(text: str | float) -> float:
    """Return the number in `100k`, `1.5M`, `2B` or `1e5`. Raises ValueError for other texts."""
    match = _COUNT.fullmatch(str(text))
    if match is None:
        raise ValueError("give a number, such as 100000, 100k or 1e5")
    number, prefix = match.groups()
    return float(number) * 1000.0 ** " kmgt".index(prefix.lower().replace("b", "g") or " ")


def parse_duration(text: str, option: str = "--for") -> float:
    """Return the seconds in `30m`, `1h30m`, `2 d` or `90s`. Raises UsageError for other texts and
    for 0; the message names `option`."""
    match = _DURATION.fullmatch(text)
    parts = zip(match.groups() if match else (), (86_400, 3600, 60, 1), strict=False)
    seconds = sum(float(number or 0) * size for number, size in parts)
    if seconds <= 0:
        raise UsageError(f"{option} {text}: give a time, such as 30m, 1h30m or 2h")
    return seconds


def as_whole(value: Any) -> Any:
    """Return the whole number in `100k`, `1e5`, `32_000` or 1e5, and other values unchanged."""
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            value = parse_count(value) if _COUNT.fullmatch(value) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _bytes(text: str) -> float:
    match = _SIZE.fullmatch(text)
    if match is None:
        return 0.0  # not a size
    number, prefix, binary = match.groups()
    power = _POWERS.index(prefix.replace("K", "k") or " ")
    return float(number) * float((1024 if binary else 1000) ** power)


def format_bytes(size: float) -> str:
    """Format a number of bytes with three significant digits: `12.3 MB`, `950 B`."""
    return f"{format_scaled(size)}B" if size >= 999.5 else f"{size:.0f} B"


def format_scaled(number: float) -> str:
    """Format a number with three significant digits and a decimal prefix, to be followed by a unit:
    `12.3 T`. A number without a prefix also ends with a space: `950 `."""
    for prefix in _POWERS:
        if abs(number) < 999.5 or prefix == "E":
            size = abs(number)
            digits = 0 if prefix == " " or size >= 99.95 else 1 if size >= 9.995 else 2
            return f"{number:.{digits}f} {prefix.strip()}"
        number /= 1000
    return ""


def format_count(number: float) -> str:
    """Format a whole number with thousands separators: `1,234,567`."""
    return f"{number:,.0f}"


def format_estimate(number: float) -> str:
    """Format a whole number rounded to two significant digits: `100,000` for 99,639."""
    return format_count(float(f"{number:.2g}"))


def counted(number: float, noun: str) -> str:
    """Format a number of things: `1 document`, `1,234 documents`."""
    plural = "es" if noun.endswith(("ch", "ss")) else "s"
    return f"{format_count(number)} {noun}{'' if number == 1 else plural}"


def format_percent(share: float | None, digits: int = 1) -> str:
    """Format a fraction in percent with `digits` decimal places: `5.3 %`. A positive fraction that
    would round to 0 becomes `< 0.1 %`, and None becomes `-`."""
    if share is None:
        return "-"
    least = 10.0**-digits
    return f"< {least:g} %" if 0 < 100 * share < least / 2 else f"{100 * share:.{digits}f} %"


def format_measure(value: float | None) -> str:
    """Format a measured value: whole from 1,000 on (`1,234`), else to four digits (`0.1235`)."""
    if value is None:
        return ""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def format_short(value: float) -> str:
    """Format a number with three significant digits and a suffix: `1.2k`, `3M`, `0.05`."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def format_power(value: float) -> str:
    """Format a number with three significant digits and its power of ten: `1.5e12`, `2e9`."""
    figures, power = f"{value:.2e}".split("e")
    return f"{float(figures):g}e{int(power)}"


def format_duration(seconds: float) -> str:
    """Format seconds in the largest fitting unit: `3.2 d`, `5.0 h`, `12.5 min`, `0.8 s`."""
    for least, size, unit in ((172_800, 86_400, "d"), (3600, 3600, "h"), (60, 60, "min")):
        if seconds >= least:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def either(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
