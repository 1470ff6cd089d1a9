"""One pass over a page's bytes: blocks of text, and the elements that hold them.

Tags, comments, character references and raw text are told apart as the HTML Standard's tokenizer
does. Time and memory are linear in the page's bytes.
"""

from __future__ import annotations

import numpy as np

from curate.extract.attributes import SPANS, read_attributes, read_name
from curate.extract.elements import close_element, close_implied, open_element
from curate.extract.entities import read_entity
from curate.extract.metadata import FIELDS, may_state, note_script, note_tag, note_title
from curate.extract.tags import (
    BLOCK_COLUMNS,
    BOLD_BYTES,
    BROKEN,
    CUT,
    END,
    HINTS,
    IS_BLOCK,
    IS_RAW,
    IS_VOID,
    KINDS,
    LINK_BYTES,
    LINKS,
    MAX_DEPTH,
    NEWLINE,
    NODE,
    NODE_COLUMNS,
    S_COLUMNS,
    S_HINTS,
    S_NODE,
    SPACED,
    ST_BLOCK_HINTS,
    ST_BLOCK_NODE,
    ST_BLOCKS,
    ST_BOLD,
    ST_BOLD_BYTES,
    ST_CUT,
    ST_DEPTH,
    ST_FROM,
    ST_LINK,
    ST_LINK_BYTES,
    ST_LINKS,
    ST_MUTE,
    ST_NODES,
    ST_PENDING,
    ST_POS,
    ST_PRE,
    ST_STATE,
    START,
    TAG,
    look_up,
)
from kernel_cache import njit

# Classes of bytes in text, which is written as a browser would show it (CSS Text 3, section 4.1.3).
PLAIN, BLANK, LESS, AMPERSAND, C2, WIDE_BLANK, CONTROL = range(7)
CLASS = np.zeros(256, np.uint8)
CLASS[:32] = CONTROL
CLASS[127] = CONTROL
CLASS[[9, 10, 11, 12, 13, 32]] = BLANK
CLASS[ord("<")], CLASS[ord("&")], CLASS[0xC2] = LESS, AMPERSAND, C2
CLASS[[0xE2, 0xE3, 0xEF]] = WIDE_BLANK


@njit(nogil=True)
def flush(st, text, blocks):
    """Ends the block that is open, if it has text."""
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


@njit(nogil=True)
def _wide(lead, second):
    """Whether a character is written without spaces to its neighbours (kana, Han, full width; not
    Hangul), by its first two bytes."""
    if lead == 0xE3:
        return second >= 0x80
    if lead == 0xEF:
        return 0xBC <= second <= 0xBD
    return 0xE4 <= lead <= 0xE9 or (lead == 0xF0 and second >= 0xA0)


@njit(nogil=True)
def begin(st, text, stack, lead, second):
    """Makes the text ready for a letter with these first two bytes."""
    at = st[ST_POS]
    if at == st[ST_FROM]:
        top = stack[st[ST_DEPTH]]
        st[ST_BLOCK_NODE], st[ST_BLOCK_HINTS] = top[S_NODE], top[S_HINTS]
    elif st[ST_PENDING]:
        last = text[at - 1]
        if st[ST_PENDING] == BROKEN:
            text[at] = 10
            st[ST_POS] += 1
        elif last != 10:
            joined = (
                st[ST_PENDING] == NEWLINE
                and at - st[ST_FROM] >= 3
                and _wide(text[at - 3], text[at - 2])
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
    """Appends source[i:j], which holds no white space that collapses."""
    begin(st, text, stack, source[i], source[i + 1] if i + 1 < j else 0)
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
    """White space in text: kept in preformatted text, else remembered."""
    if st[ST_PRE]:
        if b == 13 or st[ST_MUTE]:
            return
        if st[ST_POS] == st[ST_FROM]:
            if b == 10:  # empty lines before preformatted text
                return
            begin(st, text, stack, b, 0)
        text[st[ST_POS]] = b
        st[ST_POS] += 1
    elif st[ST_PENDING] < NEWLINE:
        st[ST_PENDING] = NEWLINE if b == 10 or b == 13 else max(st[ST_PENDING], SPACED)


@njit(nogil=True)
def special_at(data, i, z):
    """(bytes, what) at a lead byte of the classes C2 and WIDE_BLANK: 1 white space, 2 nothing to
    see (soft hyphen, byte order mark), 0 an ordinary character."""
    b = data[i]
    c = data[i + 1] if i + 1 < z else 0
    if b == 0xC2:
        if c == 0xA0 or c == 0x85:
            return 2, 1
        return 2, 2 if c == 0xAD or 0x80 <= c < 0xA0 else 0
    d = data[i + 2] if i + 2 < z else 0
    if b == 0xE2 and c == 0x80 and (d <= 0x8A or d == 0xA8 or d == 0xA9 or d == 0xAF) and d >= 0x80:
        return 3, 1
    if (b == 0xE2 and c == 0x81 and d == 0x9F) or (b == 0xE3 and c == 0x80 and d == 0x80):
        return 3, 1
    return 3, 2 if b == 0xEF and c == 0xBB and d == 0xBF else 0


_BR, _BODY, _HTML, _HEAD = (TAG[n] for n in ("br", "body", "html", "head"))
_SCRIPT, _TITLE = TAG["script"], TAG["title"]


@njit(cache=True, nogil=True)
def count_tags(data, a, z):
    """How many tags may start in data[a:z]."""
    n = 0
    for i in range(a, z - 1):
        if data[i] == 60:
            b = data[i + 1]
            if 97 <= (b | 32) <= 122 or b == 47:
                n += 1
    return n


@njit(nogil=True)
def _find_end(data, i, z, a, e):
    """Where the end tag of the name data[a:e] starts, at i or later; -1 for nowhere."""
    n = e - a
    while i + 2 + n <= z:
        if data[i] == 60 and data[i + 1] == 47:
            k = 0
            while k < n and (data[i + 2 + k] | 32) == (data[a + k] | 32):
                k += 1
            if k == n:
                b = data[i + 2 + n] if i + 2 + n < z else 62
                if b == 62 or b == 47 or b <= 32:
                    return i
        i += 1
    return -1


@njit(nogil=True)
def _behind_markup(data, i, z):
    """The place behind a comment, a declaration or an end tag without a name at i."""
    if i + 3 < z and data[i + 1] == 33 and data[i + 2] == 45 and data[i + 3] == 45:
        k = i + 4
        if k < z and data[k] == 62:  # <!--> is a whole comment, as is <!--->
            return k + 1
        if k + 1 < z and data[k] == 45 and data[k + 1] == 62:
            return k + 2
        while k + 2 < z:
            if data[k] == 45 and data[k + 1] == 45:
                if data[k + 2] == 62:
                    return k + 3
                if data[k + 2] == 33 and k + 3 < z and data[k + 3] == 62:
                    return k + 4
            k += 1
        return z
    k = i + 2
    while k < z and data[k] != 62:
        k += 1
    return min(k + 1, z)


@njit(cache=True, nogil=True)
def scan(data, a, z, tags, tables):
    """Blocks and nodes of the page data[a:z], which has at most `tags` tags (`count_tags`).

    Returns (text: uint8[], blocks: int64[b, BLOCK_COLUMNS], nodes: int64[n, NODE_COLUMNS],
    meta: int64[FIELDS, 3], see metadata.py). tables: blocks.Tables.
    """
    text = np.empty((z - a) + (z - a) // 4 + 64, np.uint8)
    blocks = np.empty((tags + 2, BLOCK_COLUMNS), np.int64)
    nodes = np.empty((tags + 2, NODE_COLUMNS), np.int64)
    meta = np.zeros((FIELDS, 3), np.int64)
    stack = np.zeros((MAX_DEPTH + 2, S_COLUMNS), np.int64)
    keys = np.zeros(MAX_DEPTH + 2, np.uint64)
    opened = np.zeros(len(KINDS), np.int64)
    endless = np.zeros(len(KINDS), np.bool_)  # raw elements whose end tag is not to be found
    spans = np.zeros(SPANS, np.int64)
    letters = np.zeros(8, np.uint8)
    st = np.zeros(ST_STATE + 1, np.int64)
    for k in range(NODE_COLUMNS):
        nodes[0, k] = 0
    st[ST_NODES] = 1
    i = a
    while i < z:
        b = data[i]
        kind = CLASS[b]
        if kind == PLAIN or kind == C2 or kind == WIDE_BLANK:
            first = i
            special = 0
            while i < z:
                kind = CLASS[data[i]]
                if kind == PLAIN:
                    i += 1
                elif kind == C2 or kind == WIDE_BLANK:
                    n, special = special_at(data, i, z)
                    if special:
                        break
                    i = min(i + n, z)
                else:
                    break
            if i > first and not st[ST_MUTE]:
                put(st, text, stack, data, first, i)
            if special:
                n, special = special_at(data, i, z)
                if special == 1:
                    put_blank(st, text, stack, np.int64(32))
                i = min(i + n, z)
            continue
        if kind == BLANK:
            put_blank(st, text, stack, np.int64(b))
            i += 1
            continue
        if kind == CONTROL:
            i += 1
            continue
        if kind == AMPERSAND:
            n, m = read_entity(data, i, z, letters, *tables.entities)
            if n == 0:
                if not st[ST_MUTE]:
                    put(st, text, stack, data, i, i + 1)
                i += 1
                continue
            i += n
            if m == 0 or st[ST_MUTE]:
                continue
            kind = CLASS[letters[0]]
            special = 0
            if kind == C2 or kind == WIDE_BLANK:
                _, special = special_at(letters, 0, m)
            if special == 1 or kind == BLANK:
                put_blank(st, text, stack, np.int64(32 if special else letters[0]))
            elif special == 0 and kind != CONTROL:
                put(st, text, stack, letters, 0, m)
            continue
        # A "<".
        c = data[i + 1] if i + 1 < z else 32
        if c == 33 or c == 63 or (c == 47 and not (i + 2 < z and 97 <= (data[i + 2] | 32) <= 122)):
            i = _behind_markup(data, i, z)
            continue
        if c != 47 and not 97 <= (c | 32) <= 122:
            if not st[ST_MUTE]:
                put(st, text, stack, data, i, i + 1)
            i += 1
            continue
        end_tag = c == 47
        name = i + 2 if end_tag else i + 1
        i, key = read_name(data, name, z)
        name_end = i
        i, seen, hints, hidden = read_attributes(data, i, z, spans, *tables.attributes)
        if i < 0:  # the page ends inside a tag
            break
        tag = look_up(tables.tag_keys, tables.tag_values, key)
        kind = KINDS[tag]
        if end_tag:
            if tag == _BODY or tag == _HTML or tag == _HEAD:
                continue
            if kind & IS_BLOCK or tag == _BR:
                flush(st, text, blocks)
            close_element(st, stack, opened, keys, tag, key)
            continue
        if may_state(tag, seen, hints):
            around = stack[st[ST_DEPTH], S_HINTS] | hints
            note_tag(data, tag, seen, hints, around, spans, a, i, z, meta)
        if kind & IS_RAW:
            if endless[tag]:
                continue
            k = _find_end(data, i, z, name, name_end)
            if k < 0:
                endless[tag] = True
                if tag == _SCRIPT:
                    break
                continue
            if tag == _SCRIPT:
                note_script(data, i, k, seen, spans, meta)
            elif tag == _TITLE:
                note_title(i, k, meta)
            while k < z and data[k] != 62:
                k += 1
            i = k + 1
            continue
        if tag == _BR:
            if st[ST_PRE]:
                put_blank(st, text, stack, np.int64(10))
            elif st[ST_POS] > st[ST_FROM]:
                if st[ST_PENDING] == BROKEN:
                    flush(st, text, blocks)
                    st[ST_CUT] = 1
                else:
                    st[ST_PENDING] = BROKEN
            continue
        if kind & IS_BLOCK:
            flush(st, text, blocks)
            if tag == _BODY or tag == _HTML:
                continue
            close_implied(st, stack, opened, tag)
        if kind & IS_VOID or tag == _HEAD:
            continue
        open_element(st, stack, opened, nodes, tag, key, keys, hints, hidden, seen)
    flush(st, text, blocks)
    return text[: st[ST_POS]], blocks[: st[ST_BLOCKS]], nodes[: st[ST_NODES]], meta
