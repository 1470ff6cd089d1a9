"""Dates as written in archives and table columns, converted to UTC.

A date without a time zone is taken as UTC. Dates such as 05/06/2024 are ambiguous and are not read.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any

_ISO = re.compile(  # extended or basic, with the zones of PostgreSQL (+00) and BigQuery (UTC)
    r"(\d{4})(-?)(\d\d)\2(\d\d)(?:[T ](\d\d)(:?)(\d\d)(?:\6(\d\d)(?:[.,](\d{1,9}))?)?\s*"
    r"(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?(?: UTC)?)?",
    re.I | re.ASCII,
)
_YEAR_FIRST = re.compile(r"(\d{4})[-/.](\d\d?)(?:[-/.](\d\d?))?", re.ASCII)
# Numbers of years and of days: as seconds since 1970 they would lie in 1970. From _SECONDS on (the
# year 5138) a number is milliseconds or finer.
_YEARS, _DAYS, _SECONDS = (1000, 2999), (1000_01_01, 2999_12_31), 10**11


def parse_date(value: str | None) -> datetime | None:
    """Return the date in text that is ISO 8601 (extended or basic, with or without time and
    fractions, as in WARC, PostgreSQL and BigQuery) or has 8 to 14 digits, as in ARC; else None."""
    if not value:
        return None
    value = value.strip()
    try:
        if value.isascii() and value.isdigit():
            if len(value) < 8:
                return None
            digits = value[:14].ljust(14, "0")
            return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc)
        match = _ISO.fullmatch(value)
        if match is None:
            return None
        year, _, month, day, hour, _, minute, second, fraction, zone = match.groups()
        date = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            min(int(second or 0), 59),  # a leap second becomes the second before it
            int((fraction or "0")[:6].ljust(6, "0")),
            tzinfo=timezone.utc,
        )
        if zone and zone[0] in "+-":
            shift = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:][-2:] or 0))
            date = date - shift if zone[0] == "+" else date + shift
        return date
    except (ValueError, OverflowError):
        return None


def column_date(value: Any) -> datetime | None:
    """Return the date in a column's value, or None. The value may have a form of `parse_date` or be
    a year, a month (2024-05), a day with the year first (2024/5/6), the form of mail and HTTP (Mon,
    06 May 2024 07:08:09 GMT), or seconds, or milli-, micro- or nanoseconds since 1970."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return _of_number(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if re.fullmatch(r"[12]\d{3}|(?:19|20)\d{6}|(?:19|20)\d{8}|(?:19|20)\d{12}", text, re.ASCII):
        when = _of_number(int(text)) if len(text) == 4 else parse_date(text)
        if when is not None:
            return when
    if re.fullmatch(r"-?\d{1,19}(?:\.\d{1,9})?", text, re.ASCII):
        return _of_number(float(text) if "." in text else int(text))
    if (when := parse_date(text)) is not None:
        return when
    try:
        if match := _YEAR_FIRST.fullmatch(text):
            parts = (int(part or 1) for part in match.groups())
            return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[misc, arg-type]
        when = parsedate_to_datetime(text)
        when = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
        return when.astimezone(timezone.utc)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _of_number(value: float) -> datetime | None:
    try:
        if _YEARS[0] <= value <= _YEARS[1]:
            return datetime(int(value), 1, 1, tzinfo=timezone.utc)
        if _DAYS[0] <= value <= _DAYS[1] and (when := parse_date(str(int(value)))):
            return when
        for _ in range(3):  # milliseconds, microseconds, nanoseconds
            if abs(value) >= _SECONDS:
                value /= 1000
        return datetime.fromtimestamp(value, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
