"""Measure each block of a page in one row: text, element, surroundings, position and neighbours.

Lengths are in letters; a letter of a script without spaces (Han, kana) counts as three, so a limit
means the same in every script. A block is prose if less than half of it is links and it is long
enough: LONG_MASS letters, or PROSE_MASS letters if it has punctuation.
"""

from __future__ import annotations

import numpy as np

from curate.extract.attributes import BIT
from curate.extract.tags import (
    BOLD_BYTES,
    END,
    LINK_BYTES,
    N_OWN,
    N_PARENT,
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
_H1 = TAG["h1"]
_TEXTUAL = np.zeros(len(NAMES), np.bool_)  # blocks that add to their parent's score
_TEXTUAL[[TAG[n] for n in "p li pre blockquote h1 h2 h3 h4 h5 h6 dd dt figcaption".split()]] = True
_COMMENT = BIT["comment"]
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
    return heading
