"""A pattern that never cuts within a script and always between two.

Common and Inherited code points (white space, signs, digits, most marks) go with what stands before
them, at the beginning of a piece with what follows. It is one regular expression of some 170
alternatives, and a table made without it: a state a script.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tokenize_kit.pattern.categories import SCRIPTS, scripts

_SHARED = ("Common", "Inherited")
# The alternatives are tried in order: first the scripts that most texts are in.
_FIRST = (
    "Latin Han Cyrillic Hiragana Katakana Arabic Devanagari Thai Hangul Bengali Greek Hebrew Tamil"
    " Telugu Lao Khmer Myanmar"
).split()
_ORDER = [*_FIRST, *(s for s in SCRIPTS if s not in _FIRST and s not in _SHARED)]
_ANY = r"\p{Common}\p{Inherited}"

SCRIPT_BOUNDARIES = (
    rf"[{_ANY}]*(?:" + "|".join(rf"\p{{{s}}}[\p{{{s}}}{_ANY}]*" for s in _ORDER) + rf")|[{_ANY}]+"
)


@lru_cache(maxsize=1)
def script_rows() -> tuple[list[list[int]], np.ndarray]:
    """(rows of automaton.Table.steps, class of every code point: uint8[0x110000]) of the pattern.

    States: 0 none, 1 at the beginning, 2 in what all scripts share, 3 + k in a script.
    """
    places = [SCRIPTS.index(name) for name in _ORDER]
    class_of = np.zeros(len(SCRIPTS), np.uint8)  # 0: shared
    class_of[places] = np.arange(1, len(places) + 1)
    count = len(places)
    begin = [2 * 2, *(2 * (3 + k) for k in range(count)), 0]
    shared = [2 * 2 + 1, *(2 * (3 + k) + 1 for k in range(count)), 1]
    rows = [[0] * (count + 2), begin, shared]
    for k in range(count):
        row = [1] * (count + 2)
        row[0] = row[1 + k] = 2 * (3 + k) + 1
        rows.append(row)
    return rows, class_of[scripts()]
