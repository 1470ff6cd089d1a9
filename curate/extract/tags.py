"""HTML's element and attribute names as the scanner knows them: numbers, kinds, and hash tables.

Kinds follow the HTML Standard's tree construction where it decides what text ends up where (which
elements are void, which end an open `p`), reduced to what matters for text.
"""

from __future__ import annotations

import numpy as np

from kernel_cache import njit

VOID = "area base br col embed hr img input link meta param source track wbr".split()
# Content that is not text of the page, up to the end tag, whatever stands in between.
RAW = "script style iframe noembed noframes noscript textarea title svg".split()
# Elements whose text is not read: what they hold is an interface, or replaced by a plug-in.
MUTE = "select button template audio video canvas object datalist map".split()
BLOCK = (
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset "
    "figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr html legend li listing main "
    "menu nav ol p pre search section summary table tbody td tfoot th thead tr ul"
).split()
BOLD = "b strong em i u mark big".split()
INLINE = ["a", "code", "kbd", "samp", "tt", "time", "span", "q", "font", "head", *BOLD]

NAMES = ["", *VOID, *RAW, *MUTE, *[t for t in BLOCK if t not in VOID], *INLINE]
TAG = {name: number for number, name in enumerate(NAMES)}

IS_VOID, IS_RAW, IS_MUTE, IS_BLOCK, IS_BOLD, IS_SCOPE, IS_CELL_PART = (1 << k for k in range(7))
KINDS = np.zeros(len(NAMES), np.uint8)
for _names, _bit in (
    (VOID, IS_VOID),
    (RAW, IS_RAW),
    (MUTE, IS_MUTE),
    (BLOCK, IS_BLOCK),
    (BOLD, IS_BOLD),
    # An end tag inside of these closes nothing outside ("has an element in scope").
    ("table td th caption html".split(), IS_SCOPE),
    ("table tbody thead tfoot tr td th caption".split(), IS_CELL_PART),
):
    for _name in _names:
        KINDS[TAG[_name]] |= _bit

# Attributes that are read.
ATTRIBUTES = (
    "class id role itemprop style hidden aria-hidden datetime content name property http-equiv "
    "lang xml:lang type rel href"
).split()
ATTR = {name: number for number, name in enumerate(ATTRIBUTES, 1)}

SLOTS = 1024  # of each table; open addressing
_BASIS = 0xCBF29CE484222325
_PRIME = 0x100000001B3


def name_hash(name: bytes) -> int:
    """FNV-1a of a name in lower case, 64 bits; what the scanner computes as it reads one."""
    value = _BASIS
    for byte in name:
        value = ((value ^ byte) * _PRIME) & 0xFFFFFFFFFFFFFFFF
    return value


def hash_table(names: dict[str, int], slots: int = SLOTS) -> tuple[np.ndarray, np.ndarray]:
    """(keys: uint64[slots], values: int64[slots]) of names with numbers from 1 on; 0 is free."""
    keys, values = np.zeros(slots, np.uint64), np.zeros(slots, np.int64)
    for name, number in names.items():
        key = name_hash(name.encode())
        at = key % slots
        while values[at]:
            at = (at + 1) % slots
        keys[at], values[at] = key, number
    return keys, values


@njit(nogil=True)
def look_up(keys, values, key):
    """The number of a hash in a `hash_table`; 0 for none."""
    slots = np.uint64(len(keys))
    at = key % slots
    while values[at] != 0:
        if keys[at] == key:
            return values[at]
        at = (at + np.uint64(1)) % slots
    return 0
