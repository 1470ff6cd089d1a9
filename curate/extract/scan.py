"""Scan a page's bytes once into blocks and elements, with the rules of the HTML Standard's
tokenizer. Time and memory are linear in the bytes."""

from __future__ import annotations

import numpy as np

from curate.extract.attributes import (
    BIT,
    SPANS,
    hints_of,
    is_shadow_root,
    numbers_lines,
    read_attributes,
    read_name,
    shape_of,
    starts_with,
)
from curate.extract.elements import close_element, close_implied, open_element
from curate.extract.entities import read_entity
from curate.extract.flow import (
    AMPERSAND,
    BLANK,
    C2,
    CLASS,
    CONTROL,
    PLAIN,
    WIDE_BLANK,
    flush,
    put,
    put_blank,
    put_formula,
    put_line,
    separate,
    special_at,
)  # fmt: skip
from curate.extract.formulas import (
    is_display,
    is_tex_script,
    math_source,
    picture_source,
    shows_formula,
)
from curate.extract.metadata import FIELDS, may_state, note_script, note_tag, note_title
from curate.extract.tags import (
    ATTR,
    BLOCK_COLUMNS,
    BROKEN,
    END,
    HREF,
    IS_BLOCK,
    IS_LINE,
    IS_RAW,
    IS_VOID,
    KINDS,
    MAX_DEPTH,
    NODE_COLUMNS,
    S_COLUMNS,
    S_HINTS,
    ST_BLOCKS,
    ST_CUT,
    ST_DEPTH,
    ST_FROM,
    ST_LINK,
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
from llmcurate.base.kernels import njit

_BR, _BODY, _HTML, _HEAD = (TAG[n] for n in ("br", "body", "html", "head"))
_SCRIPT, _TITLE, _MATH, _IMG = (TAG[n] for n in ("script", "title", "math", "img"))
_CODE, _LISTING, _PRE_TAG, _TD = (TAG[n] for n in ("code", "listing", "pre", "td"))
_TEMPLATE, _A = TAG["template"], TAG["a"]
_HREF, _ITEMTYPE, _COMMENT = 2 * ATTR["href"], 2 * ATTR["itemtype"], BIT["comment"]
_BY_TYPE = 20
BY_TYPE = _COMMENT << _BY_TYPE  # hint: marked as a comment by itemtype; not an input of the network
_MATH_BEGINS = np.frombuffer(b"<math", np.uint8)
_CODE_WORD = np.frombuffer(b"code", np.uint8)


@njit(cache=True, nogil=True)
def count_tags(data, a, z):
    """Return the highest number of tags that can start in data[a:z]."""
    n = 0
    for i in range(a, z - 1):
        if data[i] == 60:
            b = data[i + 1]
            if 97 <= (b | 32) <= 122 or b == 47:
                n += 1
    return n


@njit(nogil=True)
def _find_end(data, i, z, a, e):  # the end tag of the name data[a:e], or -1
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
def _has_lines(data, i, z):  # `code` with `br` or `div`; stops at the next `code`: linear time
    lines = False
    while i + 2 < z:
        if data[i] == 60:
            b, c = data[i + 1] | 32, data[i + 2] | 32
            if starts_with(data, i + 1, z, _CODE_WORD):
                return False
            if data[i + 1] == 47 and starts_with(data, i + 2, z, _CODE_WORD):
                return lines
            lines = lines or (b == 98 and c == 114) or (b == 100 and c == 105)
        i += 1
    return False


@njit(nogil=True)
def _after_markup(data, i, z):  # a comment, a declaration, or an end tag without a name
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
def scan(data, a, z, tags, tables, links):
    """Return (text: uint8[], blocks: int64[b, BLOCK_COLUMNS], nodes: int64[n, NODE_COLUMNS], meta:
    int64[FIELDS, 3]) of the page data[a:z]. The tables have a row per block of text, per element
    (tags.py) and per piece of metadata (metadata.py). `tags` is the highest number of tags that the
    page can have (`count_tags`). `tables` comes from `blocks.tables`. `links` (int64[tags,
    LINK_COLUMNS]) are zeros to fill with links in page order, or an empty array to ignore links."""
    text = np.empty((z - a) + (z - a) // 4 + 64, np.uint8)
    blocks = np.empty((tags + 2, BLOCK_COLUMNS), np.int64)
    nodes = np.empty((tags + 2, NODE_COLUMNS), np.int64)
    meta = np.zeros((FIELDS, 3), np.int64)
    stack = np.zeros((MAX_DEPTH + 2, S_COLUMNS), np.int64)
    keys = np.zeros(MAX_DEPTH + 2, np.uint64)
    opened = np.zeros(len(KINDS), np.int64)
    endless = np.zeros(
        len(KINDS), np.bool_
    )  # raw elements without an end tag in the rest of the page
    spans = np.zeros(SPANS, np.int64)
    letters = np.zeros(8, np.uint8)
    st = np.zeros(ST_STATE + 1, np.int64)
    for k in range(NODE_COLUMNS):
        nodes[0, k] = 0
    st[ST_NODES] = 1
    _read_page(
        data, a, z, tables, st, text, blocks, nodes, meta, stack, keys, opened, endless, spans,
        letters, links,
    )  # fmt: skip
    return text[: st[ST_POS]], blocks[: st[ST_BLOCKS]], nodes[: st[ST_NODES]], meta


@njit(nogil=True)
def _read_page(
    data, a, z, tables, st, text, blocks, nodes, meta, stack, keys, opened, endless, spans, letters,
    links,
):  # fmt: skip
    i, linked = a, 0
    while i < z:
        if linked:  # a block's last blanks are cut when it ends
            link = links[linked - 1]
            link[START] = min(link[START], st[ST_POS])
            link[END] = st[ST_POS] if st[ST_LINK] else min(link[END], st[ST_POS])
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
                if special == 3:
                    separate(st, text, data, i, z)
            continue
        if kind == BLANK:
            i += 1
            if b == 13:  # CR and CRLF are LF (HTML, 13.2.3.5)
                i += i < z and data[i] == 10
                b = np.uint8(10)
            put_blank(st, text, stack, np.int64(b))
            continue
        if kind == CONTROL:
            i += 1
            separate(st, text, data, i, z)
            continue
        if kind == AMPERSAND:
            n, m = read_entity(data, i, z, letters, *tables.entities)
            if n == 0:
                if not st[ST_MUTE]:
                    put(st, text, stack, data, i, i + 1)
                i += 1
                continue
            i += n
            if m == 0:  # a reference to a control character
                separate(st, text, data, i, z)
            if m == 0 or st[ST_MUTE]:
                continue
            kind = CLASS[letters[0]]
            special = 0
            if kind == C2 or kind == WIDE_BLANK:
                _, special = special_at(letters, 0, m)
            if special == 1 or kind == BLANK:
                put_blank(st, text, stack, np.int64(32 if special else letters[0]))
            elif special == 3 or kind == CONTROL:
                separate(st, text, data, i, z)
            elif special == 0:
                put(st, text, stack, letters, 0, m)
            continue
        c = data[i + 1] if i + 1 < z else 32
        if c == 33 or c == 63 or (c == 47 and not (i + 2 < z and 97 <= (data[i + 2] | 32) <= 122)):
            i = _after_markup(data, i, z)
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
        if seen >> (_ITEMTYPE // 2) & 1:
            first, e = spans[_ITEMTYPE], spans[_ITEMTYPE + 1]
            typed = hints_of(data, first, e, tables.attributes[2], tables.attributes[3])
            hints |= (typed & _COMMENT) << _BY_TYPE
        tag = look_up(tables.tag_keys, tables.tag_values, key)
        kind = KINDS[tag]
        if end_tag:
            if tag == _BODY or tag == _HTML or tag == _HEAD:
                continue
            if tag == _CODE and not opened[_CODE] and opened[_LISTING]:
                tag, kind = _LISTING, KINDS[_LISTING]
            line = st[ST_PRE] and kind & IS_LINE
            if line:
                put_line(st, text, tag, False)
            elif kind & IS_BLOCK or tag == _BR:
                flush(st, text, blocks)
            close_element(st, stack, opened, keys, tag, key)
            if line and not st[ST_PRE]:
                flush(st, text, blocks)
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
            if tag == _SCRIPT and is_tex_script(data, seen, spans):
                display = is_display(data, seen, spans) != 0
                put_formula(st, text, stack, data, i, k, display, True, letters, tables.entities)
            elif tag == _SCRIPT:
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
                while opened[_LISTING] and i < z and CLASS[data[i]] == BLANK:
                    i += 1
            elif st[ST_POS] > st[ST_FROM]:
                if st[ST_PENDING] == BROKEN:
                    flush(st, text, blocks)
                    st[ST_CUT] = 1
                else:
                    st[ST_PENDING] = BROKEN
            continue
        if tag == _CODE and not st[ST_PRE] and not opened[_TD] and _has_lines(data, i, z):
            tag, kind = _LISTING, KINDS[_LISTING]
            while i < z and CLASS[data[i]] == BLANK:
                i += 1
        elif tag == _IMG and seen:
            first, e, display = picture_source(data, seen, spans)
            put_formula(st, text, stack, data, first, e, display, False, letters, tables.entities)
        elif tag == _MATH:
            first, e, k = math_source(data, i, z)
            if e:
                display = is_display(data, seen, spans) != 0
                put_formula(
                    st, text, stack, data, first, e, display, False, letters, tables.entities
                )
                i = k
                continue
        # An element that hides a formula's source, next to its picture, hides no text.
        hidden = hidden and not starts_with(data, i, z, _MATH_BEGINS)
        mute = shows_formula(data, seen, spans)
        if tag == _TEMPLATE:  # a shadow root is read in place, regardless of slots
            mute = not is_shadow_root(data, seen, spans)
        if st[ST_PRE] or tag == _TD or tag == _PRE_TAG:
            mute = mute or (st[ST_PRE] and hidden) or numbers_lines(data, seen, spans)
        shape = np.int64(0)
        if kind & IS_BLOCK:
            line = st[ST_PRE] and kind & IS_LINE
            if line:
                if not mute:
                    put_line(st, text, tag, True)
            else:
                flush(st, text, blocks)
            if tag == _BODY or tag == _HTML:
                continue
            close_implied(st, stack, opened, tag)
            if line and not st[ST_PRE]:
                flush(st, text, blocks)
            shape = shape_of(data, tag, seen, spans)
        if kind & IS_VOID or tag == _HEAD:
            continue
        open_element(st, stack, opened, nodes, tag, key, keys, hints, hidden, mute, seen, shape)
        if tag == _A and len(links) and seen >> (_HREF // 2) & 1:
            link = links[linked]
            link[START] = link[END] = st[ST_POS]
            link[HREF], link[HREF + 1] = spans[_HREF], spans[_HREF + 1]
            linked += 1
    flush(st, text, blocks)
