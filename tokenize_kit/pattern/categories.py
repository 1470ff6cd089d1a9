"""Properties of code points, as the patterns name them.

General categories of Unicode 16.0, which Oniguruma (in `tokenizers` 0.23) and Rust's regex (in
tiktoken 0.12) both have. Python's own `unicodedata` is older or newer with every release, and a
letter that one of them does not know would be cut differently.
"""

from __future__ import annotations

import base64
import zlib
from functools import lru_cache

import numpy as np

from tokenize_kit.pattern.category_runs import RUNS
from tokenize_kit.pattern.script_runs import NAMES as SCRIPTS
from tokenize_kit.pattern.script_runs import RUNS as SCRIPT_RUNS

NAMES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn"
).split()
CODE_POINTS = 0x110000
# White_Space, as \s has it in both engines.
_SPACES = [*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029]
_SPACES += [0x202F, 0x205F, 0x3000]


@lru_cache(maxsize=1)
def categories() -> np.ndarray:
    """uint8[0x110000]: each code point's category as a place in NAMES; surrogates count as Cn."""
    return _by_code_point(RUNS)


@lru_cache(maxsize=1)
def scripts() -> np.ndarray:
    """uint8[0x110000]: each code point's script as a place in SCRIPTS; surrogates are Unknown."""
    return _by_code_point(SCRIPT_RUNS)


def _by_code_point(packed: str) -> np.ndarray:
    runs = zlib.decompress(base64.b85decode(packed))
    found = np.empty(CODE_POINTS, np.uint8)
    at = place = 0
    while at < len(runs):
        value, length, shift = runs[at], 0, 0
        while True:
            at += 1
            length |= (runs[at] & 0x7F) << shift
            shift += 7
            if runs[at] < 0x80:
                break
        at += 1
        found[place : place + length] = value
        place += length
    return found


@lru_cache(maxsize=16)
def members(name: str) -> np.ndarray:
    """bool[0x110000]: whether a code point has the property: "L", "Lu", "s" for \\s, "Han".

    Raises KeyError for a name that is no category and no script.
    """
    if name == "s":
        found = np.zeros(CODE_POINTS, np.bool_)
        found[_SPACES] = True
        return found
    if name in SCRIPTS:
        return scripts() == SCRIPTS.index(name)
    wanted = [k for k, n in enumerate(NAMES) if n == name or (len(name) == 1 and n[0] == name)]
    if not wanted:
        raise KeyError(name)
    return np.isin(categories(), wanted)


def folds(code_point: int) -> set[int]:
    """The code points that (?i) takes for one letter: its cases, and the few that fold to it."""
    letter = chr(code_point)
    found = {code_point, *(ord(c) for c in (letter.lower(), letter.upper()) if len(c) == 1)}
    # Unicode's simple folding of ASCII letters: the long s and the Kelvin sign.
    for other, base in ((0x17F, "s"), (0x212A, "k")):
        if letter.lower() == base:
            found.add(other)
    return found
