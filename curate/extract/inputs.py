"""The inputs of the network (net.py): one row of numbers per block, and one row for the page.

A block is measured by its text, element, surroundings, position, neighbours, words, and by the
repeated unit that it is in. Lengths and counts are given as scaled logarithms. Shares are not
scaled. So all inputs are roughly between 0 and 1. Rows are computed one at a time: half a million
rows would take half a gigabyte.
"""

from __future__ import annotations

from collections import namedtuple

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
    N_KEY,
    N_OWN,
    N_PARENT,
    N_PRE,
    N_TAG,
    NAMES,
    NODE,
    START,
    TAG,
)
from llmcurate.base.kernels import njit

# Columns of a block's measures.
(
    MASS, LINKED, BOLD, SENTENCES, COMMAS, DIGITS, UPPER, LINES, ENDS, COLON, LOWER, SIGNS, PROSE,
    DATES, MEASURES,
) = range(15)  # fmt: skip
# Columns of a node: sums over all blocks inside it, and its score as in Readability.
SUM_MASS, SUM_LINKED, SUM_PROSE, SUM_BLOCKS, SCORE, SUMS = range(6)
# Elements around a block that are inputs of the network, as bits.
AROUND = (
    "article main nav header footer aside form table ul figure blockquote section address dl"
).split()
IN_BEST, IN_BEST_PARENT, AFTER_HEADING = (1 << len(AROUND) + k for k in range(3))

_BIT_OF = np.zeros(len(NAMES), np.int64)
for _k, _name in enumerate(AROUND):
    _BIT_OF[TAG[_name]] = 1 << _k
_BIT_OF[TAG["ol"]] = _BIT_OF[TAG["menu"]] = _BIT_OF[TAG["ul"]]
_H1_TAG = TAG["h1"]
_TEXTUAL = np.zeros(len(NAMES), np.bool_)  # blocks that add to their parent's score
_TEXTUAL[[TAG[n] for n in "p li pre blockquote h1 h2 h3 h4 h5 h6 dd dt figcaption".split()]] = True
_COMMENT = BIT["comment"]
# Lengths are in letters; a letter of Han or kana counts as three. A block is prose if it has fewer
# letters in links than others, and LONG_MASS letters, or PROSE_MASS letters and punctuation.
PROSE_MASS, LONG_MASS = 40, 140


@njit(nogil=True)
def measure_block(text, a, z, out):
    """Measure text[a:z], the text of a block. Write its length in letters (column MASS) and the
    other measures that are counted letter by letter to `out` (float32[MEASURES])."""
    mass = sentences = commas = digits = upper = lines = signs = dates = 0
    last = 0  # 1 if the text ends like a sentence, 2 if in a colon
    i = a
    while i < z:
        b = text[i]
        n = 1
        if b < 0x80:
            mass += 1
            if 45 <= b <= 58 and i > a and i + 1 < z and not 48 <= b <= 57:
                dates += 48 <= text[i - 1] <= 57 and 48 <= text[i + 1] <= 57
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
            if (b == 0xE5 and c == 0xB9 and d == 0xB4) or (
                b == 0xE6 and ((c == 0x9C and d == 0x88) or (c == 0x97 and d == 0xA5))
            ):
                dates += i > a and 48 <= text[i - 1] <= 57
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
    out[LINES], out[SIGNS], out[DATES] = lines, signs, dates
    out[ENDS], out[COLON] = last == 1, last == 2
    b = text[a]
    out[LOWER] = 97 <= b <= 122


@njit(nogil=True, allocates=True)
def measure(text, blocks, nodes):
    """Return (measures: float32[blocks, MEASURES], sums: float32[nodes, SUMS], around:
    int64[nodes], heading: int). `sums` has totals over the blocks in each node, and the node's
    score. `around` has bits for what each node is or lies in: the elements of AROUND (such as
    `main`), the node with the highest score (IN_BEST), and that node's parent (IN_BEST_PARENT).
    `heading` is the first h1 block's index or -1."""
    measures = np.zeros((len(blocks), MEASURES), np.float32)
    sums = np.zeros((len(nodes), SUMS), np.float32)
    around = np.zeros(len(nodes), np.int64)
    heading = _measure(text, blocks, nodes, measures, sums, around)
    return measures, sums, around, heading


@njit(nogil=True)
def _measure(text, blocks, nodes, measures, sums, around):
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
        if heading < 0 and nodes[node, N_TAG] == _H1_TAG:
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
    return heading


# Siblings are elements of one parent with the same tag and class (digits ignored): a group.
# Siblings that contain several blocks of text are units, such as posts or cards.
# Columns of a group of siblings: number with text, mass, mass in links, mass in prose, sum of the
# square roots of their masses, number of blocks.
G_COUNT, G_MASS, G_LINKED, G_PROSE, G_ROOTS, G_BLOCKS, G_FIGURES = range(7)
_MULTIPLIER = np.int64(1000003)

# `depth`, `path` and `tags` (int64[nodes]) are a node's depth, and hashes of the shapes and of the
# tags on the path to it. `sibling` is its group of siblings, `ordinal` its number among them.
# `groups` is float32[groups, G_FIGURES]. `unit` and `outer` are the nearest and the outermost unit
# around it, `repeated` the nearest element with a sibling. These may be the node itself; -1: none.
Units = namedtuple("Units", "depth path tags sibling groups ordinal unit outer repeated")


@njit(nogil=True, allocates=True)
def order_of(keys):
    """Return the indexes of keys in ascending order as int64[], equal keys in their given order.
    This function compiles in a tenth of the time of np.argsort."""
    n = len(keys)
    order, other = np.empty(n, np.int64), np.empty(n, np.int64)
    for k in range(n):
        order[k] = k
    width = 1
    while width < n:
        for a in range(0, n, 2 * width):
            i, j, z = a, a + width, min(a + 2 * width, n)
            for k in range(a, z):
                if i < a + width and (j >= z or keys[order[i]] <= keys[order[j]]):
                    other[k] = order[i]
                    i += 1
                else:
                    other[k] = order[j]
                    j += 1
        order, other = other, order
        width *= 2
    return order


@njit(nogil=True, allocates=True)
def numbered(keys, numbers):
    """Write each key's rank among the distinct keys to `numbers`. Return the number of ranks."""
    order = order_of(keys)
    count = 0
    for k in range(len(order)):
        if k and keys[order[k]] != keys[order[k - 1]]:
            count += 1
        numbers[order[k]] = count
    return count + 1 if len(keys) else 0


@njit(nogil=True, allocates=True)
def find_units(nodes, sums):
    """Return the `Units` of a page: elements that repeat a shape, such as posts or rows. `sums`
    (float32[nodes, SUMS]) comes from `measure`."""
    n = len(nodes)
    depth, path, tags = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    keys = np.zeros(n, np.int64)
    for k in range(1, n):
        up = nodes[k, N_PARENT]
        path[k] = path[up] * _MULTIPLIER ^ nodes[k, N_KEY]
        tags[k] = tags[up] * _MULTIPLIER ^ nodes[k, N_TAG] * np.int64(2654435761)
        keys[k] = up * _MULTIPLIER ^ nodes[k, N_KEY]
        depth[k] = depth[up] + 1
    sibling = np.empty(n, np.int64)
    groups = np.zeros((numbered(keys, sibling), G_FIGURES), np.float32)
    ordinal = np.zeros(n, np.float32)
    for k in range(1, n):
        if sums[k, SUM_MASS] > 0:
            g = sibling[k]
            ordinal[k] = groups[g, G_COUNT]
            groups[g, G_COUNT] += 1
            groups[g, G_MASS] += sums[k, SUM_MASS]
            groups[g, G_LINKED] += sums[k, SUM_LINKED]
            groups[g, G_PROSE] += sums[k, SUM_PROSE]
            groups[g, G_ROOTS] += np.sqrt(sums[k, SUM_MASS])
            groups[g, G_BLOCKS] += sums[k, SUM_BLOCKS]
    unit, outer, repeated = np.full(n, -1), np.full(n, -1), np.full(n, -1)
    for k in range(1, n):
        up = nodes[k, N_PARENT]
        several = groups[sibling[k], G_COUNT] >= 2
        repeated[k] = k if several else repeated[up]
        if several and sums[k, SUM_BLOCKS] >= 2:
            unit[k] = k
            outer[k] = outer[up] if outer[up] >= 0 else k
        else:
            unit[k], outer[k] = unit[up], outer[up]
    return Units(depth, path, tags, sibling, groups, ordinal, unit, outer, repeated)


@njit(nogil=True, allocates=True)
def blocks_of(keys, blocks):
    """Return (the group of each block: int64[blocks], the number of groups). Blocks are in one
    group if their nodes have the same key."""
    block_keys, numbers = np.empty(len(blocks), np.int64), np.empty(len(blocks), np.int64)
    for i in range(len(blocks)):
        block_keys[i] = keys[blocks[i, NODE]]
    count = numbered(block_keys, numbers)
    return numbers, count


# Words are compared by tokens: hashes of a word's first letters, of two adjacent Han or kana, or of
# three letters of Thai, Lao, Khmer or Burmese. Two tokens may share a slot of the hash table.
STEM = 6  # leading letters of a word that are hashed
LEAST_SLOTS, MOST_SLOTS = 1 << 8, 1 << 18
_BASIS, _PRIME, _HALF = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3), np.uint64(29)
# Kinds of characters: no token, part of a word, and scripts without spaces, in pairs or in threes.
_GAP, _WORD, _PAIR, _THREE = range(4)
# Columns of the table: number of blocks with a token, of prose blocks, of prose blocks in the best
# element; the last block counted; and 1 if the title has the token.
_BLOCKS, _PROSE, _BEST, _LAST, _TITLE, _TABLE = range(6)

WORD_INPUTS = (
    "log tokens", "log letters a token", "title share", "title covered", "in prose",
    "in best prose", "log prose of tokens", "log blocks of tokens", "log equal blocks",
    "log letters a sentence", "level of heading", "log blocks below heading",
    "title share of heading", "linked of heading", "log mass of section", "linked of section",
    "prose of section", "log sections", "log blocks behind prose", "log blocks before prose",
    "log prose before", "log prose behind",
)  # fmt: skip
WORDS = len(WORD_INPUTS)
_FAR = 2  # logarithm of the distance if no prose is on that side
_LEVEL = np.zeros(len(NAMES), np.int64)
for _k in range(1, 7):
    _LEVEL[TAG[f"h{_k}"]] = _k


@njit(nogil=True)
def _kind_of(lead, second, small):  # small: an ASCII character in lower case
    if lead < 0x80:
        return _WORD if 97 <= small <= 122 or 48 <= small <= 57 else _GAP
    if lead == 0xC2 or lead == 0xE2 or lead == 0xEF or (lead == 0xE3 and second == 0x80):
        return _GAP  # Latin-1 symbols, general and CJK punctuation, full width forms
    if 0xE3 <= lead <= 0xE9 or lead >= 0xF0:
        return _PAIR
    if lead == 0xE0 and 0xB8 <= second <= 0xBB:
        return _THREE
    if lead == 0xE1 and (0x80 <= second <= 0x81 or 0x9E <= second <= 0x9F):
        return _THREE
    return _WORD


@njit(nogil=True)
def _lower(char, lead, second):  # ASCII, and two-byte Latin-1, Greek and Cyrillic
    if lead < 0x80:
        return char | 32 if 65 <= lead <= 90 else char
    if (
        (lead == 0xC3 and second <= 0x9E)
        or (lead == 0xCE and 0x91 <= second <= 0x9F)
        or (lead == 0xD0 and 0x90 <= second <= 0x9F)
    ):
        return char + 0x20
    if (lead == 0xCE and 0xA0 <= second <= 0xA9) or (lead == 0xD0 and 0xA0 <= second <= 0xAF):
        return char + 0x100 - 0x20
    return char


@njit(nogil=True)
def tokens_of(text, a, z, out):
    """Write the tokens of the UTF-8 text[a:z] to `out` (uint64[]). Return the number of tokens."""
    count = letters = run = 0
    key = _BASIS
    last, before, kind = 0, 0, _GAP  # the two previous characters and their kind
    i = a
    while i < z:
        lead = np.int64(text[i])
        size = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        char = lead
        for k in range(i + 1, min(i + size, z)):
            char = char << 8 | np.int64(text[k])
        second = np.int64(text[i + 1]) if size > 1 and i + 1 < z else 0
        char = _lower(char, lead, second)
        now = _kind_of(lead, second, char)
        i += size
        if now == _WORD:
            if letters < STEM:
                key = (key ^ np.uint64(char)) * _PRIME
            letters += 1
            run = 0
            continue
        if letters > 1:  # words of one letter are skipped
            out[count] = key
            count += 1
        key, letters = _BASIS, 0
        run = run + 1 if now == kind else 1
        kind = now
        if now != _GAP and run >= now:
            value = (_BASIS ^ np.uint64(char)) * _PRIME
            value = (value ^ np.uint64(last)) * _PRIME
            if now == _THREE:
                value = (value ^ np.uint64(before)) * _PRIME
            out[count] = value
            count += 1
        before, last = last, char
    if letters > 1:
        out[count] = key
        count += 1
    return count


@njit(nogil=True)
def _log_count(x):
    return np.float32(np.log1p(max(np.float32(x), np.float32(0))) / 5)


@njit(nogil=True, allocates=True)
def word_rows(text, blocks, nodes, title, measures, around):
    """Return (rows, section). `rows` (float32[blocks, WORDS]) are the network's inputs WORD_INPUTS.
    `section` (int64[blocks]) is the number of headings up to each block, adjacent headings counted
    once. `title` is uint8[]. `measures` and `around` come from `measure`."""
    n = len(blocks)
    slots = LEAST_SLOTS
    while slots < len(text) and slots < MOST_SLOTS:
        slots *= 2
    table = np.zeros((slots, _TABLE), np.int32)
    tokens, starts = np.empty(len(text) + len(title), np.uint64), np.zeros(n + 1, np.int64)
    equal, whole = np.zeros(slots, np.int32), np.zeros(n, np.int64)
    rows, section = np.zeros((n, WORDS), np.float32), np.zeros(n, np.int64)
    titles = _count(text, blocks, title, measures, around, table, tokens, starts)
    _look_up(blocks, measures, around, titles, table, tokens, starts, equal, whole, rows)
    _sections(blocks, nodes, measures, rows, section, np.zeros((n + 1, 3), np.float32))
    _distances(measures, rows)
    return rows, section


@njit(nogil=True)
def _in_prose(i, blocks, measures, around):  # (is prose, is prose in the best element)
    prose = measures[i, PROSE] > 0
    return np.int32(prose), np.int32(prose and around[blocks[i, NODE]] & IN_BEST != 0)


@njit(nogil=True)
def _count(text, blocks, title, measures, around, table, tokens, starts):  # slots of the title
    mask = np.uint64(len(table) - 1)
    titles = 0
    for k in range(tokens_of(title, 0, len(title), tokens)):
        row = table[(tokens[k] ^ tokens[k] >> _HALF) & mask]
        titles += row[_TITLE] == 0
        row[_TITLE] = 1
    at = 0
    for i in range(len(blocks)):
        starts[i] = at
        prose, best = _in_prose(i, blocks, measures, around)
        for k in range(at, at + tokens_of(text, blocks[i, START], blocks[i, END], tokens[at:])):
            tokens[k] = (tokens[k] ^ tokens[k] >> _HALF) & mask
            row = table[tokens[k]]
            if row[_LAST] != i + 1:
                row[_LAST] = i + 1
                row[_BLOCKS] += 1
                row[_PROSE] += prose
                row[_BEST] += best
            at += 1
    starts[len(blocks)] = at
    return titles


@njit(nogil=True)
def _look_up(blocks, measures, around, titles, table, tokens, starts, equal, whole, rows):
    for i in range(len(blocks)):
        r, m = rows[i], measures[i]
        prose, best = _in_prose(i, blocks, measures, around)
        hits, inside, core = 0, 0, 0
        often = spread = np.float32(0)
        key = _BASIS
        for k in range(starts[i], starts[i + 1]):
            row = table[np.int64(tokens[k])]
            hits += row[_TITLE]
            inside += row[_PROSE] > prose
            core += row[_BEST] > best
            often += _log_count(row[_PROSE] - prose)
            spread += _log_count(row[_BLOCKS] - 1)
            key = (key ^ tokens[k]) * _PRIME
        whole[i] = np.int64((key ^ key >> _HALF) & np.uint64(len(table) - 1))
        equal[whole[i]] += 1
        count = np.float32(max(1, starts[i + 1] - starts[i]))
        r[0], r[1] = _log_count(starts[i + 1] - starts[i]), _log_count(m[MASS] / count)
        r[2], r[3] = hits / count, min(np.float32(1), np.float32(hits) / max(1, titles))
        r[4], r[5], r[6], r[7] = inside / count, core / count, often / count, spread / count
        r[9] = _log_count(m[MASS] / (m[SENTENCES] + 1))
    for i in range(len(blocks)):
        rows[i, 8] = _log_count(equal[whole[i]] - 1)


@njit(nogil=True)
def _sections(blocks, nodes, measures, rows, section, sums):
    number, heading = 0, -1
    for i in range(len(blocks)):
        if _LEVEL[nodes[blocks[i, NODE], N_TAG]]:
            number += heading < 0 or heading != i - 1
            heading = i
        section[i] = number
        m, s, r = measures[i], sums[number], rows[i]
        s[0] += m[MASS]
        s[1] += m[MASS] * m[LINKED]
        s[2] += m[MASS] * m[PROSE]
        if heading >= 0:
            r[10] = _LEVEL[nodes[blocks[heading, NODE], N_TAG]] / 6
            r[11] = _log_count(i - heading)
            r[12], r[13] = rows[heading, 2], measures[heading, LINKED]
    for i in range(len(blocks)):
        r, s = rows[i], sums[section[i]]
        mass = max(s[0], np.float32(1))
        r[14], r[15], r[16], r[17] = _log_count(s[0]), s[1] / mass, s[2] / mass, _log_count(number)


@njit(nogil=True)
def _distances(measures, rows):
    n = len(rows)
    for first, step, far, sum_of in ((0, 1, 18, 20), (n - 1, -1, 19, 21)):
        last, mass, i = -1, np.float32(0), first
        for _ in range(n):
            rows[i, far] = _log_count(abs(i - last)) if last >= 0 else _FAR
            rows[i, sum_of] = _log_count(mass)
            if measures[i, PROSE] > 0:
                last = i
                mass += measures[i, MASS]
            i += step


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
_ADVERT, _RELATED, _META = (BIT[n] for n in "advert related meta".split())
_IN_ARTICLE, _IN_MAIN = (1 << AROUND.index(n) for n in ("article", "main"))
_CELL = TAGS.index("cell")
_PREFORMATTED, _H1, _H3 = TAGS.index("pre"), TAGS.index("h1"), TAGS.index("h3")

# Data for a page's rows. `measures`, `sums`, `around` and `heading` come from measure,
# `words` and `section` from word_rows; `units` are Units. `running` (float64[blocks +
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
