"""Inputs of the network (net.py) from a block's words, without word lists: how many words are in
the title and in the page's other prose, how frequent they are, and properties of the heading above.

Words are compared by tokens: hashes of a word's first letters (so that inflected forms match), of
two adjacent Han or kana, or of three letters of Thai, Lao, Khmer or Burmese. Tokens are counted in
a hash table, in which two tokens may share a slot.
"""

from __future__ import annotations

import numpy as np

from curate.extract.features import IN_BEST, LINKED, MASS, PROSE, SENTENCES
from curate.extract.tags import END, N_TAG, NAMES, NODE, START, TAG
from llmcurate.base.kernels import njit

STEM = 6  # leading letters of a word that are hashed
LEAST_SLOTS, MOST_SLOTS = 1 << 8, 1 << 18
_BASIS, _PRIME, _HALF = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3), np.uint64(29)
# Kinds of characters: no token, part of a word, and scripts without spaces, in pairs or in threes.
_GAP, _WORD, _PAIR, _THREE = range(4)
# Columns of the table: number of blocks with a token, of prose blocks, of prose blocks in the best
# element (features.py); the last block counted; and 1 if the title has the token.
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
def _log(x):
    return np.float32(np.log1p(max(np.float32(x), np.float32(0))) / 5)


@njit(nogil=True, allocates=True)
def word_rows(text, blocks, nodes, title, measures, around):
    """Return (rows, section). `rows` (float32[blocks, WORDS]) are the network's inputs WORD_INPUTS.
    `section` (int64[blocks]) is the number of headings up to each block, adjacent headings counted
    once. `title` is uint8[]. `measures` and `around` come from `features.measure`."""
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
            often += _log(row[_PROSE] - prose)
            spread += _log(row[_BLOCKS] - 1)
            key = (key ^ tokens[k]) * _PRIME
        whole[i] = np.int64((key ^ key >> _HALF) & np.uint64(len(table) - 1))
        equal[whole[i]] += 1
        count = np.float32(max(1, starts[i + 1] - starts[i]))
        r[0], r[1] = _log(starts[i + 1] - starts[i]), _log(m[MASS] / count)
        r[2], r[3] = hits / count, min(np.float32(1), np.float32(hits) / max(1, titles))
        r[4], r[5], r[6], r[7] = inside / count, core / count, often / count, spread / count
        r[9] = _log(m[MASS] / (m[SENTENCES] + 1))
    for i in range(len(blocks)):
        rows[i, 8] = _log(equal[whole[i]] - 1)


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
            r[11] = _log(i - heading)
            r[12], r[13] = rows[heading, 2], measures[heading, LINKED]
    for i in range(len(blocks)):
        r, s = rows[i], sums[section[i]]
        mass = max(s[0], np.float32(1))
        r[14], r[15], r[16], r[17] = _log(s[0]), s[1] / mass, s[2] / mass, _log(number)


@njit(nogil=True)
def _distances(measures, rows):
    n = len(rows)
    for first, step, far, sum_of in ((0, 1, 18, 20), (n - 1, -1, 19, 21)):
        last, mass, i = -1, np.float32(0), first
        for _ in range(n):
            rows[i, far] = _log(abs(i - last)) if last >= 0 else _FAR
            rows[i, sum_of] = _log(mass)
            if measures[i, PROSE] > 0:
                last = i
                mass += measures[i, MASS]
            i += step
