"""Write the chosen blocks as plain text or Markdown.

Plain text has an empty line between paragraphs, `- ` or a number before items, ` | ` between cells.
Markdown adds headings, quotes, code and tables, but no emphasis; links.py adds links. A table with
a cell of several blocks or over MAX_CELL bytes counts as layout, so its cells become paragraphs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from curate.extract.tags import END, N_PARENT, N_TAG, NAMES, NODE, START, TAG
from llmcurate.base.kernels import njit

MAX_INDENT = 8  # depth of nested items and quotes; deeper ones are written like the eighth
MAX_CELL = 300  # bytes of a cell in a table of data
ROOM = 64  # most bytes of markup per block or element

# Columns of `places`, by node: number of lists and of quotes around it; the item, cell, row, table
# and definition list it is in (0 for none); its number among the items of its list or the cells of
# its row; the outermost preformatted element it is in.
_LISTS, _QUOTES, _ITEM, _CELL, _ROW, _TABLE, _TERMS, _NUMBER, _CODE, _PLACES = range(10)
TABLES = ("keep", "drop", "markdown")  # values of the setting `tables`
_DROP, _MARKDOWN = 1, 2
_LI, _DL, _TR, _TABLE_TAG = TAG["li"], TAG["dl"], TAG["tr"], TAG["table"]
_OL, _QUOTE, _TD, _TH = TAG["ol"], TAG["blockquote"], TAG["td"], TAG["th"]
_CAPTION, _PRE, _LISTING = TAG["caption"], TAG["pre"], TAG["listing"]
_IS_LIST = np.zeros(len(NAMES), np.bool_)
_IS_LIST[[TAG[n] for n in ("ul", "ol", "menu", "dir")]] = True
_LEVEL = np.zeros(len(NAMES), np.int64)
for _k in range(1, 7):
    _LEVEL[TAG[f"h{_k}"]] = _k


class Writing(NamedTuple):
    """The form of the written text. Each field is the setting of `extract` with the same name."""

    output: str = "text"
    comments: str = "auto"
    tables: str = "keep"
    links: str = "drop"
    kind: str = "auto"


PLAIN = Writing()


@njit(nogil=True, allocates=True)
def _places(text, blocks, nodes):
    # places: int64[nodes, _PLACES]; count: items of a list, cells of a row; data: tables of data
    n = len(nodes)
    places = np.zeros((n, _PLACES), np.int64)
    count = np.zeros(n, np.int64)
    data = np.zeros(n, np.bool_)
    held = np.zeros(n, np.int64)  # number of blocks in each cell
    wide = np.zeros(n, np.bool_)  # tables with a row of several cells
    _fill_places(text, blocks, nodes, places, count, data, held, wide)
    return places, count, data


@njit(nogil=True)
def _fill_places(text, blocks, nodes, places, count, data, held, wide):
    n = len(nodes)
    for k in range(1, n):
        tag, up = nodes[k, N_TAG], nodes[k, N_PARENT]
        p, above = places[k], places[up]
        for c in range(_PLACES):
            p[c] = above[c]
        p[_NUMBER] = 0
        if _IS_LIST[tag]:
            p[_LISTS] += 1
        elif tag == _QUOTE:
            p[_QUOTES] += 1
        elif tag == _DL:
            p[_TERMS] = k
        elif tag == _LI:
            count[up] += 1
            p[_ITEM], p[_NUMBER] = k, count[up]
        elif tag == _TABLE_TAG:
            if above[_TABLE]:
                data[above[_TABLE]] = False
            data[k] = not above[_TABLE]
            p[_TABLE] = k
            p[_CELL] = p[_ROW] = p[_ITEM] = 0
        elif tag == _PRE or tag == _LISTING:
            p[_CODE] = above[_CODE] or k
        elif tag == _TR:
            p[_ROW] = k
        elif (tag == _TD or tag == _TH) and p[_ROW]:
            count[p[_ROW]] += 1
            p[_CELL], p[_NUMBER] = k, count[p[_ROW]]
    for i in range(len(blocks)):
        p = places[blocks[i, NODE]]
        table = p[_TABLE]
        if table and p[_CELL]:
            held[p[_CELL]] += 1
            a, z = blocks[i, START], blocks[i, END]
            code = p[_CODE] > 0 and _has_lines(text, a, z)
            if held[p[_CELL]] > 1 or z - a > MAX_CELL or code:
                data[table] = False
            if count[p[_ROW]] > 1:
                wide[table] = True
        elif table and nodes[blocks[i, NODE], N_TAG] != _CAPTION:
            data[table] = False  # text outside cells: the rows may be incomplete
    for k in range(1, n):
        data[k] = data[k] and wide[k]


@njit(nogil=True)
def _has_lines(text, a, z):
    for i in range(a, z):
        if text[i] == 10:
            return True
    return False


@njit(nogil=True, allocates=True)
def _whole_rows(blocks, nodes, keep, places, data):
    # Keep or drop each row of a table of data as a whole: a row is kept if half of its text is in
    # `keep`, and a row of headings if another row of its table is kept.
    keep, n = keep.copy(), len(nodes)
    size, kept = np.zeros(n, np.int64), np.zeros(n, np.int64)
    plain = np.zeros(n, np.bool_)  # rows with a cell that is not a heading, and their tables
    stays = np.zeros(n, np.bool_)  # tables with a row that is kept
    _keep_rows(blocks, nodes, keep, places, data, size, kept, plain, stays)
    return keep


@njit(nogil=True)
def _keep_rows(blocks, nodes, keep, places, data, size, kept, plain, stays):
    for i in range(len(blocks)):
        p = places[blocks[i, NODE]]
        if p[_CELL] and data[p[_TABLE]]:
            n = blocks[i, END] - blocks[i, START]
            size[p[_ROW]] += n
            kept[p[_ROW]] += n * keep[i]
            if nodes[p[_CELL], N_TAG] == _TD:
                plain[p[_ROW]] = plain[p[_TABLE]] = True
    for k in range(1, len(nodes)):
        if plain[k] and size[k] and 2 * kept[k] >= size[k]:
            stays[places[k, _TABLE]] = True
    for i in range(len(blocks)):
        p = places[blocks[i, NODE]]
        row, table = p[_ROW], p[_TABLE]
        if p[_CELL] and data[table]:
            keep[i] = 2 * kept[row] >= size[row]
            if plain[table] and not plain[row]:
                keep[i] = stays[table]


@njit(nogil=True)
def _repeat(out, at, byte, n):
    for k in range(n):
        out[at + k] = byte
    return at + n


@njit(nogil=True)
def _number(out, at, value):
    digits, rest = 1, value // 10
    while rest:
        digits += 1
        rest //= 10
    for k in range(digits):
        out[at + digits - 1 - k] = 48 + value % 10
        value //= 10
    return at + digits


@njit(nogil=True)
def _pair(out, at, first, second):
    out[at], out[at + 1] = first, second
    return at + 2


@njit(nogil=True)
def _end_row(out, at, column, cells, line):
    for _ in range(column, cells + 1):
        at = _pair(out, at, 32, 124)
    if line:
        at = _pair(out, at, 10, 124)
        for _ in range(cells):
            at = _pair(out, _repeat(out, at, 45, 2), 45, 124)
    return at


@njit(nogil=True)
def _lines(text, a, z, out, at, indent, quotes, code):
    for i in range(a, z):
        out[at] = text[i]
        at += 1
        if text[i] == 10:
            at = _repeat(out, at, 32, 0 if code else indent)
            for _ in range(quotes):
                at = _pair(out, at, 62, 32)
    return at


@njit(cache=True, nogil=True)
def render(text, blocks, nodes, keep, markdown, tables, shown, spans):
    """Return the text of the blocks to keep (`keep`: bool[blocks]), as UTF-8 in uint8[]. The text
    is taken from `shown`, at the positions in `spans`. These are `text` and `blocks`, or copies of
    the two with Markdown links. `tables` is an index into TABLES."""
    places, count, data = _places(text, blocks, nodes)
    keep = _whole_rows(blocks, nodes, keep, places, data)
    if tables == _DROP:
        for i in range(len(blocks)):
            keep[i] &= not data[places[blocks[i, NODE], _TABLE]]
    lines, marks = np.sum(shown == 10), np.sum(shown == 124)
    out = np.empty(len(shown) + marks + ROOM * (len(blocks) + len(nodes) + lines + 1), np.uint8)
    heads = np.zeros(len(nodes), np.bool_)  # tables whose first row has been written
    begun = np.zeros(len(nodes), np.bool_)  # items whose bullet has been written
    bars = markdown or tables == _MARKDOWN
    z = _write(shown, spans, nodes, keep, markdown, bars, places, count, data, heads, begun, out)
    return out[:z]


@njit(nogil=True)
def _write(text, blocks, nodes, keep, markdown, bars, places, count, data, heads, begun, out):
    at = 0
    before = -1  # the previous block's node
    row = 0  # the open row of a table
    column = 0
    code = 0  # the open preformatted element
    for i in range(len(blocks)):
        if not keep[i]:
            continue
        node = blocks[i, NODE]
        a, z = blocks[i, START], blocks[i, END]
        p = places[node]
        table, cell = p[_TABLE], p[_CELL]
        tabular = table > 0 and cell > 0 and data[table]
        if row and (not tabular or p[_ROW] != row):
            if bars:
                owner = places[row, _TABLE]
                at = _end_row(out, at, column, count[row], not heads[owner])
                heads[owner] = True
            row = 0
        same_code = code > 0 and p[_CODE] == code
        if code and not same_code and markdown:
            out[at] = 10
            at = _repeat(out, at + 1, 96, 3)
        code = 0 if tabular else p[_CODE]
        if before >= 0 and not row:
            old = places[before]
            close = (
                same_code
                or (p[_ITEM] > 0 and old[_ITEM] > 0)
                or (p[_TERMS] > 0 and old[_TERMS] == p[_TERMS])
                or (tabular and old[_TABLE] == table and (old[_CELL] > 0 or not bars))
            )
            at = _repeat(out, at, 10, 1 if close else 2)
        before = node
        if tabular:
            number = places[cell, _NUMBER]
            if not row:
                row, column = p[_ROW], 1
                if bars:
                    at = _pair(out, at, 124, 32)
            while column < number:
                out[at] = 32
                at = _pair(out, at + 1, 124, 32)
                column += 1
            for k in range(a, z):
                if bars and text[k] == 124:
                    out[at] = 92
                    at += 1
                out[at] = 32 if text[k] == 10 else text[k]
                at += 1
            continue
        quotes = min(p[_QUOTES], MAX_INDENT) if markdown else 0
        for _ in range(quotes):
            at = _pair(out, at, 62, 32)
        item = 0 if same_code else p[_ITEM]
        indent = 0
        if item:
            depth = min(max(p[_LISTS], 1), MAX_INDENT)
            indent = 2 * depth
            at = _repeat(out, at, 32, indent - 2)
            if begun[item]:
                at = _repeat(out, at, 32, 2)
            elif nodes[nodes[item, N_PARENT], N_TAG] == _OL:
                at = _number(out, at, places[item, _NUMBER])
                at = _pair(out, at, 46, 32)
            else:
                at = _pair(out, at, 45, 32)
            begun[item] = True
        level = _LEVEL[nodes[node, N_TAG]]
        if markdown and level and not item and not code:
            at = _pair(out, _repeat(out, at, 35, level - 1), 35, 32)
        if markdown and code and not same_code:
            at = _pair(out, _repeat(out, at, 96, 2), 96, 10)
        at = _lines(text, a, z, out, at, indent, quotes, code > 0)
    if code and markdown:
        out[at] = 10
        at = _repeat(out, at + 1, 96, 3)
    if row and bars:
        at = _end_row(out, at, column, count[row], not heads[places[row, _TABLE]])
    return at
