"""The inputs of the network (net.py): one row of numbers per block, and one row for the page.

Lengths and counts are given as scaled logarithms. Shares are not scaled. So all inputs are roughly
between 0 and 1. Rows are computed one at a time: half a million rows would take half a gigabyte.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from curate.extract.attributes import BIT
from curate.extract.attributes import KINDS as HINT_KINDS
from curate.extract.features import (
    AROUND,
    BOLD,
    COLON,
    COMMAS,
    DATES,
    DIGITS,
    ENDS,
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
    measure,
)
from curate.extract.lexical import WORD_INPUTS, WORDS, word_rows
from curate.extract.tags import (
    CUT,
    HINTS,
    LINKS,
    N_OWN,
    N_PARENT,
    N_PRE,
    N_TAG,
    NAMES,
    NODE,
    TAG,
)
from curate.extract.units import (
    G_BLOCKS,
    G_COUNT,
    G_LINKED,
    G_MASS,
    G_PROSE,
    G_ROOTS,
    blocks_of,
    find_units,
)
from llmcurate.base.kernels import njit

LEVELS = 6  # the block's element and its ancestors
NEAR = 3  # elements whose own hints count as near
WINDOWS = (5, 15)  # blocks on either side
TAGS = "p li h1 h2 h3 cell div quote pre dl caption other".split()
_TAG_CLASS = np.full(len(NAMES), TAGS.index("other"))
for _class, _names in {
    "p": "p", "li": "li", "h1": "h1", "h2": "h2", "h3": "h3 h4 h5 h6", "cell": "td th",
    "div": "div section article main center", "quote": "blockquote", "pre": "pre listing",
    "dl": "dt dd", "caption": "caption figcaption",
}.items():  # fmt: skip
    for _name in _names.split():
        _TAG_CLASS[TAG[_name]] = TAGS.index(_class)

INPUTS = (
    "log mass", "linked", "bold", "log sentences", "log commas", "digits", "upper", "log lines",
    "ends", "colon", "lower", "signs", "prose", "log links", "cut", "preformatted",
    *(f"tag {t}" for t in TAGS),
    "mass before", "blocks before", "prose before", "log blocks after", "log blocks before",
    "behind h1", "no h1", "before h1", "depth",
    *(f"in {t}" for t in AROUND), "in best", "in best's parent", "after heading",
    *(f"{how} {h}" for how in ("hint", "hint twice", "hint thrice") for h in HINT_KINDS),
    *(f"{name} of level {k}" for k in range(LEVELS)
      for name in ("log mass", "linked", "share", "prose", "log blocks", "log score")),
    *(f"{name} within {k}" for k in WINDOWS for name in ("log mass", "linked", "prose")),
    *(f"{name} of its {kind}" for kind in ("path", "path of tags")
      for name in ("log blocks", "share", "linked", "prose", "ends", "log mass")),
    *(f"{name} of its {kind}" for kind in ("unit", "outer unit", "repeated element")
      for name in ("being", "log units", "share", "linked", "prose", "log mass of each",
                   "log blocks of each", "ordinal", "evenness", "log mass", "depth")),
    "log dates", *WORD_INPUTS,
)  # fmt: skip
PAGE_INPUTS = (
    "log mass", "linked", "prose", "log blocks", "in p", "in li", "in cells", "preformatted",
    "headings", "log prose blocks", "longest", "comments", "adverts", "related", "digits",
    "in article", "in main", "meta", "log units", "share of units", "linked of units",
    "prose of units", "log mass of a unit", "place of h1",
)  # fmt: skip
COUNT, PAGE_COUNT = len(INPUTS), len(PAGE_INPUTS)
_N_HINTS, _N_AROUND, _N_TAGS = len(HINT_KINDS), len(AROUND) + 3, len(TAGS)
_COMMENT, _ADVERT, _RELATED, _META = (BIT[n] for n in "comment advert related meta".split())
_IN_ARTICLE, _IN_MAIN = (1 << AROUND.index(n) for n in ("article", "main"))
_CELL = TAGS.index("cell")
_PREFORMATTED, _H1, _H3 = TAGS.index("pre"), TAGS.index("h1"), TAGS.index("h3")

# Data for a page's rows. `measures`, `sums`, `around` and `heading` come from features.measure,
# `words` and `section` from lexical.word_rows; `units` are units.Units. `running` (float64[blocks +
# 1, 3]) is total mass, mass in links and in prose before each block. `path` and `tags` are each
# block's group by equal paths and by equal paths of tags. `path_figures` and `tag_figures`
# (float32[groups, FIGURES]) are blocks, mass, mass in links and in prose, and blocks that end like
# a sentence.
FIGURES = 5
PageData = namedtuple(
    "PageData",
    "measures sums running around heading units path paths path_figures tags tag_paths tag_figures"
    " words section",
)


@njit(nogil=True)
def _log(x):
    return np.float32(np.log1p(max(x, np.float32(0))) / 5)


@njit(nogil=True)
def _add_figures(group, measures, figures):
    for i in range(len(group)):
        m, f = measures[i], figures[group[i]]
        f[0] += 1
        f[1] += m[MASS]
        f[2] += m[MASS] * m[LINKED]
        f[3] += m[MASS] * m[PROSE]
        f[4] += m[ENDS]


@njit(nogil=True)
def _run(measures, running):
    for i in range(len(measures)):
        m, before, now = measures[i], running[i], running[i + 1]
        now[0] = before[0] + m[MASS]
        now[1] = before[1] + m[MASS] * m[LINKED]
        now[2] = before[2] + m[MASS] * m[PROSE]


@njit(nogil=True, allocates=True)
def page_data(text, blocks, nodes, title):
    measures, sums, around, heading = measure(text, blocks, nodes)
    units = find_units(nodes, sums)
    path, paths = blocks_of(units.path, blocks)
    tags, tag_paths = blocks_of(units.tags, blocks)
    running = np.zeros((len(blocks) + 1, 3))
    _run(measures, running)
    path_figures = np.zeros((paths, FIGURES), np.float32)
    _add_figures(path, measures, path_figures)
    tag_figures = np.zeros((tag_paths, FIGURES), np.float32)
    _add_figures(tags, measures, tag_figures)
    words, section = word_rows(text, blocks, nodes, title, measures, around)
    return PageData(
        measures, sums, running, around, heading, units, path, paths, path_figures, tags, tag_paths,
        tag_figures, words, section,
    )  # fmt: skip


@njit(nogil=True)
def fill(i, blocks, nodes, seen, row):
    """Write the inputs of block i to `row` (float32[COUNT]). `seen` comes from `page_data`."""
    measures, sums, units = seen.measures, seen.sums, seen.units
    m, block = measures[i], blocks[i]
    node, n = block[NODE], len(blocks)
    total = max(sums[0, SUM_MASS], np.float32(1))
    row[0], row[1], row[2] = _log(m[MASS]), m[LINKED], m[BOLD]
    row[3], row[4] = 3 * _log(m[SENTENCES]), 3 * _log(m[COMMAS])
    row[5], row[6], row[7] = m[DIGITS], m[UPPER], 3 * _log(m[LINES])
    row[8], row[9], row[10] = m[ENDS], m[COLON], m[LOWER]
    row[11], row[12] = min(m[SIGNS], np.float32(3)) / 3, m[PROSE]
    row[13], row[14] = 3 * _log(np.float32(block[LINKS])), block[CUT]
    row[15] = nodes[node, N_PRE] > 0
    k = 16
    for t in range(_N_TAGS):
        row[k + t] = 0
    row[k + _TAG_CLASS[nodes[node, N_TAG]]] = 1
    k += _N_TAGS
    heading = seen.heading
    row[k] = (seen.running[i, 0] + m[MASS] / 2) / total
    row[k + 1] = i / n
    row[k + 2] = seen.running[i, 2] / max(sums[0, SUM_PROSE], np.float32(1))
    row[k + 3] = _log(np.float32(n - i))
    row[k + 4] = _log(np.float32(i))
    row[k + 5] = 0 if heading < 0 else max(-40, min(40, i - heading)) / 40
    row[k + 6] = heading < 0
    row[k + 7] = i < heading
    row[k + 8] = units.depth[node] / 20
    k += 9
    for t in range(_N_AROUND):
        row[k + t] = seen.around[node] >> t & 1
    k += _N_AROUND
    own_hints, near, up = nodes[node, N_OWN], np.int64(0), node
    for _ in range(NEAR):
        near |= nodes[up, N_OWN]
        up = nodes[up, N_PARENT]
    hints = block[HINTS]
    for t in range(_N_HINTS):
        count = (hints >> t & 1) + (near >> t & 1) + (own_hints >> t & 1)
        row[k + t] = count >= 1
        row[k + _N_HINTS + t] = count >= 2
        row[k + 2 * _N_HINTS + t] = count >= 3
    k += 3 * _N_HINTS
    up = node
    for _ in range(LEVELS):
        s = sums[up]
        mass = max(s[SUM_MASS], np.float32(1))
        row[k], row[k + 1], row[k + 2] = (
            _log(s[SUM_MASS]),
            s[SUM_LINKED] / mass,
            s[SUM_MASS] / total,
        )
        row[k + 3], row[k + 4], row[k + 5] = (
            s[SUM_PROSE] / mass,
            _log(s[SUM_BLOCKS]),
            _log(s[SCORE]),
        )
        up = nodes[up, N_PARENT]
        k += 6
    for wide in WINDOWS:
        a, z = max(0, i - wide), min(n, i + wide + 1)
        mass = seen.running[z, 0] - seen.running[a, 0]
        row[k] = _log(np.float32(mass / (z - a)))
        row[k + 1] = (seen.running[z, 1] - seen.running[a, 1]) / mass
        row[k + 2] = (seen.running[z, 2] - seen.running[a, 2]) / mass
        k += 3
    for f in (seen.path_figures[seen.path[i]], seen.tag_figures[seen.tags[i]]):
        row[k], row[k + 1], row[k + 2] = _log(f[0]), f[1] / total, f[2] / f[1]
        row[k + 3], row[k + 4], row[k + 5] = f[3] / f[1], f[4] / f[0], _log(f[1] / f[0])
        k += 6
    for unit in (units.unit[node], units.outer[node], units.repeated[node]):
        if unit < 0:
            for t in range(11):
                row[k + t] = 0
        else:
            g = units.groups[units.sibling[unit]]
            mass, count = max(g[G_MASS], np.float32(1)), g[G_COUNT]
            row[k], row[k + 1], row[k + 2] = 1, _log(count), g[G_MASS] / total
            row[k + 3], row[k + 4] = g[G_LINKED] / mass, g[G_PROSE] / mass
            row[k + 5], row[k + 6] = _log(g[G_MASS] / count), _log(g[G_BLOCKS] / count)
            row[k + 7] = units.ordinal[unit] / count
            even = (g[G_ROOTS] / count) ** 2 / max(g[G_MASS] / count, np.float32(1))
            row[k + 8] = min(even, np.float32(1))
            row[k + 9] = _log(sums[unit, SUM_MASS])
            row[k + 10] = (units.depth[node] - units.depth[unit]) / 5
        k += 11
    row[k] = 3 * _log(m[DATES])
    k += 1
    for t in range(WORDS):
        row[k + t] = seen.words[i, t]


@njit(nogil=True)
def fill_page(blocks, nodes, seen, row):
    """Write the network's inputs for the page as a whole (PAGE_INPUTS) to `row`
    (float32[PAGE_COUNT]), which must be all zeros. `seen` is the result of `page_data`."""
    measures, sums, groups = seen.measures, seen.sums, seen.units.groups
    total, n = max(sums[0, SUM_MASS], np.float32(1)), max(1, len(blocks))
    row[0] = _log(total)
    row[1], row[2], row[3] = (
        sums[0, SUM_LINKED] / total,
        sums[0, SUM_PROSE] / total,
        _log(np.float32(n)),
    )
    headings, prose, longest = 0, 0, np.float32(0)
    for i in range(len(blocks)):
        m, node, hints = measures[i], blocks[i, NODE], blocks[i, HINTS]
        share = m[MASS] / total
        tag = _TAG_CLASS[nodes[node, N_TAG]]
        if tag < 2:
            row[4 + tag] += share
        elif tag == _CELL:
            row[6] += share
        if nodes[node, N_PRE]:
            row[7] += share
        headings += _H1 <= tag <= _H3
        prose += m[PROSE] > 0
        longest = max(longest, m[MASS])
        row[11] += share * (hints & _COMMENT != 0)
        row[12] += share * (hints & _ADVERT != 0)
        row[13] += share * (hints & _RELATED != 0)
        row[14] += share * m[DIGITS]
        row[15] += share * (seen.around[node] & _IN_ARTICLE != 0)
        row[16] += share * (seen.around[node] & _IN_MAIN != 0)
        row[17] += share * (hints & _META != 0)
    row[8], row[9], row[10] = headings / n, _log(np.float32(prose)), longest / total
    best = -1
    for k in range(len(groups)):
        g = groups[k]
        larger = best < 0 or g[G_MASS] > groups[best, G_MASS]
        if larger and g[G_COUNT] >= 3 and g[G_BLOCKS] >= 2 * g[G_COUNT]:
            best = k
    if best >= 0:
        g = groups[best]
        mass = max(g[G_MASS], np.float32(1))
        row[18], row[19] = _log(g[G_COUNT]), g[G_MASS] / total
        row[20], row[21] = g[G_LINKED] / mass, g[G_PROSE] / mass
        row[22] = _log(g[G_MASS] / g[G_COUNT])
    row[23] = -1 if seen.heading < 0 else seen.heading / n
