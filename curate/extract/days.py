"""Days as people write them, in numbers and in words of seven languages."""

from __future__ import annotations

import re
from datetime import date

# How months begin in English, German, French, Spanish, Italian, Portuguese, Dutch.
_BEGINNINGS = (
    "jan ene gen",
    "feb fév fev",
    "mar mär mrz maa mrt",
    "apr avr abr",
    "may mai mag mei maj",
    "jun juin giu",
    "jul juil lug",
    "aug aoû ago",
    "sep set",
    "oct okt ott out",
    "nov",
    "dec dez déc dic",
)
MONTHS = {word: n for n, words in enumerate(_BEGINNINGS, 1) for word in words.split()}
_MONTH = r"(?<![^\W\d_])((?:{})[^\W\d_]*)\.?".format(
    "|".join(sorted(MONTHS, key=len, reverse=True))
)
_YEAR = r"((?:19|20)\d\d)(?!\d)"
_DAY = r"(?<!\d)(\d{1,2})(?:st|nd|rd|th|er|[.ºª])?"
_WRITTEN = re.compile(
    rf"(?<!\d){_YEAR}(?:[-/.]|\s?年\s?)(\d{{1,2}})(?:[-/.]|\s?月\s?)(\d{{1,2}})(?!\d)"
    rf"|(?<![\d./-])(\d{{1,2}})([./-])(\d{{1,2}})\5{_YEAR}(?![./-]\d)"
    rf"|{_MONTH}\s+{_DAY},?\s+{_YEAR}"
    rf"|{_DAY}(?:\s+|-)(?:de\s+|of\s+)?{_MONTH},?(?:\s+|-)(?:de\s+)?{_YEAR}"
    rf"|(?<!\d){_YEAR}\s+{_MONTH}\s+(\d{{1,2}})(?!\d)",
    re.IGNORECASE,
)

_ANY_YEAR = re.compile(r"(?:19|20)\d\d")


def month_of(word: str) -> int:
    """1 to 12 by the word's beginning."""
    word = word.casefold()
    return MONTHS.get(word[:4]) or MONTHS[word[:3]]


def day_in(text: str, month_first: bool = True) -> str | None:
    """The first day since 1990 that the text names, as ISO 8601 writes it; None for none.

    month_first: whether 5/6/2024 is the 6th of May. Where one number is over 12 it is the day, and
    with dots or hyphens the day stands first.
    """
    if _ANY_YEAR.search(text) is None:
        return None
    for match in _WRITTEN.finditer(text):
        g = match.groups()
        if g[0]:
            year, month, day = int(g[0]), int(g[1]), int(g[2])
        elif g[3]:
            first, second, year = int(g[3]), int(g[5]), int(g[6])
            swap = second > 12 or (first <= 12 and month_first and g[4] == "/")
            month, day = (first, second) if swap else (second, first)
        elif g[7]:
            year, month, day = int(g[9]), month_of(g[7]), int(g[8])
        elif g[10]:
            year, month, day = int(g[12]), month_of(g[11]), int(g[10])
        else:
            year, month, day = int(g[13]), month_of(g[14]), int(g[15])
        try:
            if year >= 1990:
                return date(year, month, day).isoformat()
        except ValueError:
            continue
    return None
