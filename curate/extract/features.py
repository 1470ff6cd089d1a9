"""A block as a row of numbers: its text, its element, what is around it, its place, its neighbours.

The model is linear, so what matters by degrees stands as steps. Rows are made one at a time: a page
of half a million blocks would need half a gigabyte of them.
"""

from __future__ import annotations

import numpy as np

from curate.extract.hints import KINDS as HINT_KINDS
from curate.extract.measures import (
    AROUND,
    BOLD,
    COLON,
    COMMAS,
    DIGITS,
    ENDS,
    IN_BEST,
    IN_BEST_PARENT,
    LINES,
    LINKED,
    LOWER,
    MASS,
    PROSE,
    SCORE,
    SENTENCES,
    SIGNS,
    SUM_BLOCKS,
    SUM_LINKED,
    SUM_MASS,
    SUM_PROSE,
    UPPER,
)
from curate.extract.tags import NAMES, TAG
from curate.extract.tree import CUT, HINTS, LINKS, N_OWN, N_PARENT, N_TAG, NODE
from kernel_cache import njit

MASS_STEPS = np.array([8, 16, 30, 60, 120, 240, 600], np.float32)
LINK_STEPS = np.array([0.05, 0.25, 0.5, 0.75, 0.95], np.float32)
PLACE_STEPS = np.array([0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98], np.float32)
TAGS = "p li h1 h2 h3 cell div quote pre dl caption other".split()
_TAG_CLASS = np.full(len(NAMES), TAGS.index("other"))
for _class, _names in {
    "p": "p", "li": "li", "h1": "h1", "h2": "h2", "h3": "h3 h4 h5 h6", "cell": "td th",
    "div": "div section article main center", "quote": "blockquote", "pre": "pre listing",
    "dl": "dt dd", "caption": "caption figcaption",
}.items():  # fmt: skip
    for _name in _names.split():
        _TAG_CLASS[TAG[_name]] = TAGS.index(_class)
NEIGHBOURS = (-2, -1, 1, 2)
LEVELS = 4  # the block's element and those around it
NEAR = 3  # elements whose own hints count as near

_LISTED, _HEADED, _CELL = TAGS.index("li"), TAGS.index("h3"), TAGS.index("cell")
_CROSSED = ("prose", "short", "li", "heading", "linked", "cell")
FEATURES = (
    "bias", "log mass",
    *(f"mass {s:g}" for s in MASS_STEPS), *(f"linked {s:g}" for s in LINK_STEPS),
    "links", "bold", "sentences", "commas", "digits", "upper", "lines", "ends", "colon", "lower",
    "signs", "prose", "cut", *(f"tag {t}" for t in TAGS), *(f"in {t}" for t in AROUND),
    *(f"hint {h}" for h in HINT_KINDS), *(f"near {h}" for h in HINT_KINDS),
    *(f"place {s:g}" for s in PLACE_STEPS), "before h1", "no h1", "next to h1",
    *(f"{name} at {k}" for k in NEIGHBOURS
      for name in ("none", "log mass", "linked", "ends", "prose", "same parent", "same tag")),
    *(f"{name} of level {k}" for k in range(LEVELS)
      for name in ("log mass", "linked", "share", "prose", "blocks", "score")),
    "in best", "in best's parent", *(f"{name} in best" for name in _CROSSED),
    *(f"{name} near content" for name in _CROSSED),
    "page mass", "page linked", "page prose", "page blocks",
)  # fmt: skip
COUNT = len(FEATURES)
_N_HINTS, _N_AROUND, _N_TAGS = len(HINT_KINDS), len(AROUND), len(TAGS)
_CONTENT = 3  # bits of "body" and "content"


@njit(nogil=True)
def _tag_of(blocks, nodes, i):
    return _TAG_CLASS[nodes[blocks[i, NODE], N_TAG]]


@njit(nogil=True)
def fill(i, before, blocks, nodes, measures, sums, around, heading, row):
    """Fills row: float32[COUNT] for block i; before: mass of the page's text before it."""
    m, block = measures[i], blocks[i]
    node = block[NODE]
    total = sums[0, SUM_MASS]
    for k in range(COUNT):
        row[k] = 0
    row[0] = 1
    row[1] = np.log1p(m[MASS]) / 5
    k = 2
    for s in MASS_STEPS:
        row[k] = m[MASS] >= s
        k += 1
    for s in LINK_STEPS:
        row[k] = m[LINKED] >= s
        k += 1
    row[k] = np.log1p(block[LINKS])
    row[k + 1] = m[BOLD]
    row[k + 2] = np.log1p(m[SENTENCES])
    row[k + 3] = np.log1p(m[COMMAS])
    row[k + 4] = m[DIGITS]
    row[k + 5] = m[UPPER]
    row[k + 6] = np.log1p(m[LINES])
    row[k + 7] = m[ENDS]
    row[k + 8] = m[COLON]
    row[k + 9] = m[LOWER]
    row[k + 10] = min(m[SIGNS], 3)
    row[k + 11] = m[PROSE]
    row[k + 12] = block[CUT]
    k += 13
    tag = _tag_of(blocks, nodes, i)
    row[k + tag] = 1
    k += _N_TAGS
    for t in range(_N_AROUND):
        row[k + t] = around[node] >> t & 1
    k += _N_AROUND
    hints, near = block[HINTS], np.int64(0)
    up = node
    for _ in range(NEAR):
        near |= nodes[up, N_OWN]
        up = nodes[up, N_PARENT]
    for t in range(_N_HINTS):
        row[k + t] = hints >> t & 1
        row[k + _N_HINTS + t] = near >> t & 1
    k += 2 * _N_HINTS
    place = (before + m[MASS] / 2) / total
    for s in PLACE_STEPS:
        row[k] = place >= s
        k += 1
    row[k] = i < heading
    row[k + 1] = heading < 0
    row[k + 2] = heading >= 0 and abs(i - heading) <= 3
    k += 3
    for d in NEIGHBOURS:
        j = i + d
        if 0 <= j < len(blocks):
            o = measures[j]
            row[k + 1] = np.log1p(o[MASS]) / 5
            row[k + 2] = o[LINKED]
            row[k + 3] = o[ENDS]
            row[k + 4] = o[PROSE]
            other = blocks[j, NODE]
            row[k + 5] = other == node or nodes[other, N_PARENT] == nodes[node, N_PARENT]
            row[k + 6] = _tag_of(blocks, nodes, j) == tag
        else:
            row[k] = 1
        k += 7
    up = node
    for _ in range(LEVELS):
        s = sums[up]
        row[k] = np.log1p(s[SUM_MASS]) / 5
        row[k + 1] = s[SUM_LINKED] / s[SUM_MASS]
        row[k + 2] = s[SUM_MASS] / total
        row[k + 3] = s[SUM_PROSE] / s[SUM_MASS]
        row[k + 4] = np.log1p(s[SUM_BLOCKS]) / 3
        row[k + 5] = np.log1p(s[SCORE]) / 3
        up = nodes[up, N_PARENT]
        k += 6
    best = around[node] & IN_BEST != 0
    row[k] = best
    row[k + 1] = around[node] & IN_BEST_PARENT != 0
    k += 2
    content = near & _CONTENT != 0
    for flag in (best, content):
        if flag:
            row[k] = m[PROSE]
            row[k + 1] = m[MASS] < 30
            row[k + 2] = tag == _LISTED
            row[k + 3] = 2 <= tag <= _HEADED
            row[k + 4] = m[LINKED]
            row[k + 5] = tag == _CELL
        k += 6
    s = sums[0]
    row[k] = np.log1p(total) / 5
    row[k + 1] = s[SUM_LINKED] / total
    row[k + 2] = s[SUM_PROSE] / total
    row[k + 3] = np.log1p(s[SUM_BLOCKS]) / 3


# The second look: what the first one made of the block, of its neighbours and of its elements.
SPAN = 4
SECOND = (
    "chance", "logit", *(f"chance at {k}" for k in range(-SPAN, SPAN + 1) if k),
    *(f"chance of level {k}" for k in range(LEVELS)), "chosen before", "chosen after",
    "chosen around", "last chosen", "next chosen", "page chance", "chosen mass",
)  # fmt: skip
