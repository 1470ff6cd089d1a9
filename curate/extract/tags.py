"""Numbers for tags and attributes, and for the columns of the arrays of blocks, nodes and links."""

from __future__ import annotations

import numpy as np

from llmcurate.base.kernels import njit

VOID = "area base br col embed hr img input link meta param source track wbr".split()
# Elements whose content, up to the end tag, is neither text of the page nor parsed for tags.
RAW = "script style iframe noembed noframes textarea title svg".split()
# Elements whose text is not read: controls, and content replaced by a plug-in.
MUTE = ("select button audio video canvas object datalist map annotation annotation-xml").split()
BLOCK = (
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset "
    "figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr html legend li listing main "
    "menu nav ol p pre search section summary table tbody td tfoot th thead tr ul"
).split()
BOLD = "b strong em i u mark big".split()
INLINE = "a code kbd samp tt time span q font head noscript math template".split() + BOLD
# Blocks that are single lines inside preformatted text.
LINE = "div li ol pre table tbody td tfoot th thead tr ul".split()

NAMES = ["", *VOID, *RAW, *MUTE, *[t for t in BLOCK if t not in VOID], *INLINE]
TAG = {name: number for number, name in enumerate(NAMES)}

IS_VOID, IS_RAW, IS_MUTE, IS_BLOCK, IS_BOLD, IS_SCOPE, IS_CELL_PART, IS_LINE = (
    1 << k for k in range(8)
)
KINDS = np.zeros(len(NAMES), np.uint8)
for _names, _bit in (
    (VOID, IS_VOID),
    (RAW, IS_RAW),
    (MUTE, IS_MUTE),
    (BLOCK, IS_BLOCK),
    (BOLD, IS_BOLD),
    (LINE, IS_LINE),
    # An end tag inside these closes nothing outside ("has an element in scope").
    ("table td th caption html template".split(), IS_SCOPE),
    ("table tbody thead tfoot tr td th caption".split(), IS_CELL_PART),
):
    for _name in _names:
        KINDS[TAG[_name]] |= _bit

ATTRIBUTES = (
    "class id role itemprop style hidden aria-hidden datetime content name property http-equiv "
    "lang xml:lang type rel href alt src display shadowrootmode itemtype"
).split()
ATTR = {name: number for number, name in enumerate(ATTRIBUTES, 1)}
ATTR["shadowroot"] = ATTR["shadowrootmode"]  # its former name

SLOTS = 1024  # of each table; open addressing
_BASIS = 0xCBF29CE484222325
_PRIME = 0x100000001B3


def name_hash(name: bytes) -> int:
    """Return the 64-bit FNV-1a hash of a lower-case name, as the scanner (scan.py) does."""
    value = _BASIS
    for byte in name:
        value = ((value ^ byte) * _PRIME) & 0xFFFFFFFFFFFFFFFF
    return value


def hash_table(names: dict[str, int], slots: int = SLOTS) -> tuple[np.ndarray, np.ndarray]:
    """Return a hash table as (keys: uint64[slots], values: int64[slots]). `names` has each name's
    number, from 1 on; 0 marks a free slot."""
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
    """Return the number that a `hash_table` has for the hash `key`, or 0."""
    slots = np.uint64(len(keys))
    at = key % slots
    while values[at] != 0:
        if keys[at] == key:
            return values[at]
        at = (at + np.uint64(1)) % slots
    return 0


MAX_DEPTH = 512  # as in browsers; deeper elements count as their parent's text
MAX_ELEMENTS = 500_000  # tags in a page; each may need a row of both tables

# Columns of a block: text[START:END] of node NODE; its bytes in links and in bold; its number of
# links; hints of the elements around its first letter; 1 if it follows a double line break.
START, END, NODE, LINK_BYTES, LINKS, BOLD_BYTES, HINTS, CUT, BLOCK_COLUMNS = range(9)
# Columns of a node: its tag, its parent (the page is node 0), its own hints, its hints and those of
# all elements around it, the number of preformatted elements around it, and its shape_of.
N_TAG, N_PARENT, N_OWN, N_ALL, N_PRE, N_KEY, NODE_COLUMNS = range(7)
# Columns of a link: text[START:END], as of a block; from HREF on, start and end of its href.
HREF, LINK_COLUMNS = 2, 4
# The scanner's state: end of the text, start of its open block; white space since its last letter;
# numbers of blocks, nodes, open elements, and elements too deep to open; numbers of open elements
# that are links, bold, preformatted, not read; columns of the open block; start and end of the last
# formula.
(
    ST_POS, ST_FROM, ST_PENDING, ST_BLOCKS, ST_NODES, ST_DEPTH, ST_OVER, ST_LINK, ST_BOLD, ST_PRE,
    ST_MUTE, ST_LINK_BYTES, ST_LINKS, ST_BOLD_BYTES, ST_BLOCK_HINTS, ST_BLOCK_NODE, ST_CUT,
    ST_FORMULA, ST_FORMULA_END, ST_STATE,
) = range(20)  # fmt: skip
SPACED, NEWLINE, BROKEN = 1, 2, 3  # white space seen since the last letter; a <br>
S_TAG, S_NODE, S_FLAGS, S_HINTS, S_COLUMNS = range(5)
F_LINK, F_BOLD, F_PRE, F_MUTE = 1, 2, 4, 8
