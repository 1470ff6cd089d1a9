"""A block as a row of numbers: its text, its element, what is around it, its place, its neighbours.

Measures come first: lengths are in letters, those of scripts without spaces counted as three (Han,
kana), so that a limit means the same in every script. A block is prose if it is long, hardly linked
and punctuated. The model is linear, so quantities that matter by degrees stand as steps. Rows are
made one at a time: a page of half a million blocks would need half a gigabyte of them.
"""

from __future__ import annotations

import numpy as np

from curate.extract.attributes import BIT
from curate.extract.attributes import KINDS as HINT_KINDS
from curate.extract.tags import (
    BOLD_BYTES,
    CUT,
    END,
    HINTS,
    LINK_BYTES,
    LINKS,
    N_OWN,
    N_PARENT,
    N_TAG,
    NAMES,
    NODE,
    START,
    TAG,
)
from kernel_cache import njit

# Columns of a block's measures.
(
    MASS, LINKED, BOLD, SENTENCES, COMMAS, DIGITS, UPPER, LINES, ENDS, COLON, LOWER, SIGNS, PROSE,
    MEASURES,
) = range(14)  # fmt: skip
# Columns of a node's sums over all blocks inside, and Readability's score of it.
SUM_MASS, SUM_LINKED, SUM_PROSE, SUM_BLOCKS, SCORE, SUMS = range(6)
# Elements that features ask for around a block, as bits.
AROUND = (
    "article main nav header footer aside form table ul figure blockquote section address dl"
).split()
IN_BEST, IN_BEST_PARENT, AFTER_HEADING = (1 << len(AROUND) + k for k in range(3))

_BIT_OF = np.zeros(len(NAMES), np.int64)
for _k, _name in enumerate(AROUND):
    _BIT_OF[TAG[_name]] = 1 << _k
_BIT_OF[TAG["ol"]] = _BIT_OF[TAG["menu"]] = _BIT_OF[TAG["ul"]]
_H1 = TAG["h1"]
_TEXTUAL = np.zeros(len(NAMES), np.bool_)  # blocks that score for their parent
_TEXTUAL[[TAG[n] for n in "p li pre blockquote h1 h2 h3 h4 h5 h6 dd dt figcaption".split()]] = True
_COMMENT = BIT["comment"]
PROSE_MASS, LONG_MASS = 40, 140


@njit(nogil=True)
def measure_block(text, a, z, out):
    """Fills MASS and what is counted letter by letter in text[a:z] into out: float32[MEASURES]."""
    mass = sentences = commas = digits = upper = lines = signs = 0
    last = 0  # 1 where the text ends in what ends sentences, 2 in a colon
    i = a
    while i < z:
        b = text[i]
        n = 1
        if b < 0x80:
            mass += 1
            if 97 <= b <= 122 or b == 32:
                if b != 32:
                    last = 0
            elif 48 <= b <= 57:
                digits += 1
                last = 0
            elif 65 <= b <= 90:
                upper += 1
                last = 0
            elif b == 46 or b == 33 or b == 63:
                if i + 1 >= z or text[i + 1] == 32 or text[i + 1] == 10 or text[i + 1] == 34:
                    sentences += 1
                last = 1
            elif b == 44 or b == 59:
                commas += 1
                last = 0
            elif b == 10:
                lines += 1
            elif b == 58:
                last = 2
            elif b == 124 or b == 64:
                signs += 1
                last = 0
            elif b != 34 and b != 41 and b != 39:
                last = 0
        elif b < 0xE0:
            n = 2
            mass += 1
            c = text[i + 1] if i + 1 < z else 0
            if b == 0xD8 and (c == 0x8C or c == 0x9B):
                commas += 1
            elif (b == 0xD8 and c == 0x9F) or (b == 0xDB and c == 0x94):
                sentences += 1
                last = 1
            elif b == 0xC2 and (c == 0xA9 or c == 0xBB or c == 0xAB):
                signs += c == 0xA9
            else:
                last = 0
        elif b < 0xF0:
            n = 3
            c = text[i + 1] if i + 1 < z else 0
            d = text[i + 2] if i + 2 < z else 0
            mass += 3 if 0xE3 <= b <= 0xE9 else 1
            if b == 0xE3 and c == 0x80:
                if d == 0x82:
                    sentences += 1
                    last = 1
                elif d == 0x81:
                    commas += 1
            elif b == 0xEF and c == 0xBC:
                if d == 0x81 or d == 0x9F:
                    sentences += 1
                    last = 1
                elif d == 0x8C or d == 0x9B:
                    commas += 1
                elif d == 0x9A:
                    last = 2
            elif b == 0xE0 and c == 0xA5 and d == 0xA4:
                sentences += 1
                last = 1
            elif b == 0xE2 and c == 0x80:
                if d == 0xA6:
                    last = 1
            elif b == 0xE2 and (c == 0x86 or c == 0x96):
                signs += 1
                last = 0
            else:
                last = 0
        else:
            n = 4
            mass += 3
            last = 0
        i += n
    out[MASS], out[SENTENCES], out[COMMAS] = mass, sentences, commas
    out[DIGITS], out[UPPER] = digits / mass, upper / mass
    out[LINES], out[SIGNS] = lines, signs
    out[ENDS], out[COLON] = last == 1, last == 2
    b = text[a]
    out[LOWER] = 97 <= b <= 122


@njit(cache=True, nogil=True)
def measure(text, blocks, nodes):
    """(measures: float32[blocks, MEASURES], sums: float32[nodes, SUMS], around: int64[nodes]: bits
    of AROUND and those behind them, heading: the first h1 among the blocks, or -1)."""
    measures = np.zeros((len(blocks), MEASURES), np.float32)
    sums = np.zeros((len(nodes), SUMS), np.float32)
    around = np.zeros(len(nodes), np.int64)
    heading = -1
    for i in range(len(blocks)):
        a, z, node = blocks[i, START], blocks[i, END], blocks[i, NODE]
        m = measures[i]
        measure_block(text, a, z, m)
        m[LINKED] = min(1.0, blocks[i, LINK_BYTES] / (z - a))
        m[BOLD] = min(1.0, blocks[i, BOLD_BYTES] / (z - a))
        punctuated = m[SENTENCES] > 0 or m[ENDS] > 0
        m[PROSE] = m[LINKED] < 0.5 and (
            (m[MASS] >= PROSE_MASS and punctuated) or m[MASS] >= LONG_MASS
        )
        if heading < 0 and nodes[node, N_TAG] == _H1:
            heading = i
        s = sums[node]
        s[SUM_MASS] += m[MASS]
        s[SUM_LINKED] += m[MASS] * m[LINKED]
        s[SUM_PROSE] += m[MASS] * m[PROSE]
        s[SUM_BLOCKS] += 1
        if m[PROSE]:
            score = 1 + min(m[COMMAS], 5) + min(m[MASS] / 100, 5)
            up = nodes[node, N_PARENT] if _TEXTUAL[nodes[node, N_TAG]] else node
            sums[up, SCORE] += score
            up = nodes[up, N_PARENT]
            sums[up, SCORE] += score / 2
            up = nodes[up, N_PARENT]
            sums[up, SCORE] += score / 6
    for n in range(len(nodes) - 1, 0, -1):
        up = nodes[n, N_PARENT]
        for k in (SUM_MASS, SUM_LINKED, SUM_PROSE, SUM_BLOCKS):
            sums[up, k] += sums[n, k]
    best = 0
    for n in range(len(nodes)):
        if sums[n, SUM_MASS] > 0:
            sums[n, SCORE] *= 1 - sums[n, SUM_LINKED] / sums[n, SUM_MASS]
        if nodes[n, N_OWN] & _COMMENT:
            sums[n, SCORE] *= 0.3
        if sums[n, SCORE] > sums[best, SCORE]:
            best = n
    above = nodes[best, N_PARENT]
    for n in range(len(nodes)):
        bits = around[nodes[n, N_PARENT]] | _BIT_OF[nodes[n, N_TAG]]
        if n == best:
            bits |= IN_BEST
        if n == above:
            bits |= IN_BEST_PARENT
        around[n] = bits
    return measures, sums, around, heading


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
