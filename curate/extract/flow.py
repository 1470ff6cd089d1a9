"""Write text as a browser shows it: white space collapses (CSS Text 3, section 4.1.3)."""

from __future__ import annotations

import numpy as np

from curate.extract.entities import read_entity
from curate.extract.formulas import trimmed
from curate.extract.tags import (
    BOLD_BYTES,
    BROKEN,
    CUT,
    END,
    HINTS,
    IS_BLOCK,
    KINDS,
    LINK_BYTES,
    LINKS,
    NEWLINE,
    NODE,
    S_HINTS,
    S_NODE,
    S_TAG,
    SPACED,
    ST_BLOCK_HINTS,
    ST_BLOCK_NODE,
    ST_BLOCKS,
    ST_BOLD,
    ST_BOLD_BYTES,
    ST_CUT,
    ST_DEPTH,
    ST_FORMULA,
    ST_FORMULA_END,
    ST_FROM,
    ST_LINK,
    ST_LINK_BYTES,
    ST_LINKS,
    ST_MUTE,
    ST_PENDING,
    ST_POS,
    ST_PRE,
    START,
    TAG,
)
from llmcurate.base.kernels import njit

# Classes of bytes in text.
PLAIN, BLANK, LESS, AMPERSAND, C2, WIDE_BLANK, CONTROL = range(7)
CLASS = np.zeros(256, np.uint8)
CLASS[:32] = CONTROL
CLASS[127] = CONTROL
CLASS[[9, 10, 11, 12, 13, 32]] = BLANK
CLASS[ord("<")], CLASS[ord("&")], CLASS[0xC2] = LESS, AMPERSAND, C2
CLASS[[0xE2, 0xE3, 0xEF]] = WIDE_BLANK


@njit(nogil=True)
def flush(st, text, blocks):
    """End the block that is being written. A block without text is not kept."""
    end = st[ST_POS]
    while end > st[ST_FROM] and (text[end - 1] == 10 or text[end - 1] == 32):
        end -= 1
    if end > st[ST_FROM]:
        row = blocks[st[ST_BLOCKS]]
        row[START], row[END], row[NODE] = st[ST_FROM], end, st[ST_BLOCK_NODE]
        row[LINK_BYTES], row[LINKS], row[BOLD_BYTES] = (
            st[ST_LINK_BYTES],
            st[ST_LINKS],
            st[ST_BOLD_BYTES],
        )
        row[HINTS], row[CUT] = st[ST_BLOCK_HINTS], st[ST_CUT]
        st[ST_BLOCKS] += 1
    st[ST_POS] = st[ST_FROM] = end
    st[ST_PENDING] = st[ST_LINK_BYTES] = st[ST_LINKS] = st[ST_BOLD_BYTES] = st[ST_CUT] = 0
    st[ST_FORMULA_END] = -1


@njit(nogil=True)
def _wide(lead, second):  # kana, Han or full width, not Hangul: written without spaces
    if lead == 0xE3:
        return second >= 0x80
    if lead == 0xEF:
        return 0xBC <= second <= 0xBD
    return 0xE4 <= lead <= 0xE9 or (lead == 0xF0 and second >= 0xA0)


@njit(nogil=True)
def begin(st, text, stack, lead, second):
    """Start a block, or write the white space that is due before the next character, whose first
    two bytes are `lead` and `second`. A line break between two Han or kana is dropped."""
    at = st[ST_POS]
    if at == st[ST_FROM]:
        top = stack[st[ST_DEPTH]]
        st[ST_BLOCK_NODE], st[ST_BLOCK_HINTS] = top[S_NODE], top[S_HINTS]
    elif st[ST_PENDING]:
        last = text[at - 1]
        if st[ST_PENDING] == BROKEN:
            if last != 10:
                text[at] = 10
                st[ST_POS] += 1
        elif last != 10:
            joined = (
                st[ST_PENDING] == NEWLINE
                and at - st[ST_FROM] >= 3
                and _wide(np.int64(text[at - 3]), np.int64(text[at - 2]))
                and _wide(lead, second)
            )
            if not joined:
                text[at] = 32
                st[ST_POS] += 1
                if st[ST_LINK]:
                    st[ST_LINK_BYTES] += 1
    st[ST_PENDING] = 0


@njit(nogil=True)
def put(st, text, stack, source, i, j):
    """Append source[i:j], which must not contain white space that collapses, to the text."""
    begin(st, text, stack, np.int64(source[i]), np.int64(source[i + 1]) if i + 1 < j else 0)
    at = st[ST_POS]
    for k in range(i, j):
        text[at] = source[k]
        at += 1
    st[ST_POS] = at
    if st[ST_LINK]:
        st[ST_LINK_BYTES] += j - i
    if st[ST_BOLD]:
        st[ST_BOLD_BYTES] += j - i


@njit(nogil=True)
def put_blank(st, text, stack, b):
    """Write white space in preformatted text; elsewhere remember it until the next letter."""
    if st[ST_PRE]:
        if st[ST_MUTE]:
            return
        if b == 13:  # from a character reference: a space (CSS Text 3, section 4.1)
            st[ST_PENDING] = max(st[ST_PENDING], SPACED)
            return
        if st[ST_POS] == st[ST_FROM]:
            if b == 10:  # drop empty lines before preformatted text
                return
            begin(st, text, stack, b, 0)
        elif st[ST_PENDING]:
            broken = st[ST_PENDING] == BROKEN and text[st[ST_POS] - 1] != 10
            st[ST_PENDING] = 0
            if broken:
                text[st[ST_POS]] = 10
                st[ST_POS] += 1
                if b == 10:
                    return
        text[st[ST_POS]] = b
        st[ST_POS] += 1
    elif st[ST_PENDING] < NEWLINE:
        st[ST_PENDING] = NEWLINE if b == 10 or b == 13 else max(st[ST_PENDING], SPACED)


@njit(nogil=True)
def _in_word(lead, second):  # a letter or a digit; not common punctuation and symbols
    if lead < 128:
        return 48 <= lead <= 57 or 97 <= (lead | 32) <= 122
    return lead > 0xC2 and lead != 0xE2 and not (lead == 0xE3 and second == 0x80)


@njit(nogil=True)
def separate(st, text, data, i, z):
    """Replace the control character before data[i] by a space if it stands between two words. The
    space is written together with the next word. A word after the control character may also be a
    tag or character reference, but not Han or kana."""
    at = st[ST_POS]
    if st[ST_MUTE] or st[ST_PENDING] or at == st[ST_FROM] or i + 1 >= z:
        return
    last, b, c = np.int64(text[at - 1]), np.int64(data[i]), np.int64(data[i + 1])
    follows = b == 38 or b == 60 or (_in_word(b, c) and not _wide(b, c))
    if follows and (last >= 128 or _in_word(last, 0)):
        st[ST_PENDING] = SPACED


@njit(nogil=True)
def put_formula(st, text, stack, source, i, j, display, plain, letters, entities):
    """Append the formula source[i:j] between dollar signs (double ones if `display`), unless the
    same formula was written right before. If `plain`, it contains no character references."""
    i, j = trimmed(source, i, j)
    if i == j or st[ST_MUTE]:
        return
    if display and st[ST_POS] > st[ST_FROM]:
        st[ST_PENDING] = BROKEN
    started = st[ST_POS] == st[ST_FROM]
    begin(st, text, stack, 36, 0)
    if started:  # the source's element is often hidden, but not the block
        k = st[ST_DEPTH]
        while k > 0 and not KINDS[stack[k, S_TAG]] & IS_BLOCK:
            k -= 1
        st[ST_BLOCK_HINTS] = stack[k, S_HINTS]
    first = at = st[ST_POS]
    for _ in range(2 if display else 1):
        text[at] = 36
        at += 1
    blank = False
    while i < j:
        b, n, m = source[i], 1, 1
        letters[0] = b
        if b == 38 and not plain:
            n, m = read_entity(source, i, j, letters, *entities)
            if n == 0:
                n = m = 1
                letters[0] = b
        i += n
        if m == 0 or letters[0] <= 32 or letters[0] == 127:
            blank = True
            continue
        if blank:
            text[at] = 32
            at += 1
            blank = False
        for k in range(m):
            text[at + k] = letters[k]
        at += m
    for _ in range(2 if display else 1):
        text[at] = 36
        at += 1
    before, n = st[ST_FORMULA], at - first
    if first == st[ST_FORMULA_END] and n == first - before:
        k = 0
        while k < n and text[before + k] == text[first + k]:
            k += 1
        if k == n:
            return
    if st[ST_LINK]:
        st[ST_LINK_BYTES] += n
    st[ST_POS] = at
    st[ST_FORMULA], st[ST_FORMULA_END] = first, at
    if display:
        st[ST_PENDING] = BROKEN


@njit(nogil=True)
def special_at(data, i, z):
    """Return (number of bytes, kind) of the character at i. The kind is 1 for white space, 2 for an
    invisible character (soft hyphen, byte order mark), 3 for a control character, 0 for any other.
    The character's first byte must be of class C2 or WIDE_BLANK (table CLASS)."""
    b = data[i]
    c = data[i + 1] if i + 1 < z else 0
    if b == 0xC2:
        if c == 0xA0 or c == 0x85:
            return 2, 1
        if c == 0xAD:
            return 2, 2
        return 2, 3 if 0x80 <= c < 0xA0 else 0
    d = data[i + 2] if i + 2 < z else 0
    if b == 0xE2 and c == 0x80 and (d <= 0x8A or d == 0xA8 or d == 0xA9 or d == 0xAF) and d >= 0x80:
        return 3, 1
    if (b == 0xE2 and c == 0x81 and d == 0x9F) or (b == 0xE3 and c == 0x80 and d == 0x80):
        return 3, 1
    return 3, 2 if b == 0xEF and c == 0xBB and d == 0xBF else 0


_TD, _TH = TAG["td"], TAG["th"]


@njit(nogil=True)
def put_line(st, text, tag, starts):
    """Break the line of preformatted text at a tag `tag`, or add a space for a table cell."""
    at = st[ST_POS]
    if at == st[ST_FROM] or text[at - 1] == 10:
        return
    if tag == _TD or tag == _TH:
        st[ST_PENDING] = max(st[ST_PENDING], SPACED)
    elif starts:
        text[at] = 10
        st[ST_POS] += 1
        st[ST_PENDING] = 0
    else:
        st[ST_PENDING] = BROKEN
