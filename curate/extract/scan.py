"""Scan a page's bytes once into blocks and elements, with the rules of the HTML Standard's
tokenizer. Time and memory are linear in the bytes.

The stack of open elements follows the standard's tree construction wherever that decides which
element a text belongs to. One exception: formatting elements are not reopened after a block that
closed them. Each element is opened and closed once, and a search of the stack takes at most
MAX_DEPTH steps. Text is written as a browser shows it: white space collapses (CSS Text 3, section
4.1.3).
"""

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
from curate.extract.entities import read_entity
from curate.extract.formulas import (
    is_display,
    is_tex_script,
    math_source,
    picture_source,
    shows_formula,
    trimmed,
)
from curate.extract.metadata import FIELDS, may_state, note_script, note_tag, note_title
from curate.extract.tags import (
    ATTR,
    BLOCK_COLUMNS,
    BOLD_BYTES,
    BROKEN,
    CUT,
    END,
    F_BOLD,
    F_LINK,
    F_MUTE,
    F_PRE,
    HINTS,
    HREF,
    IS_BLOCK,
    IS_BOLD,
    IS_CELL_PART,
    IS_LINE,
    IS_MUTE,
    IS_RAW,
    IS_SCOPE,
    IS_VOID,
    KINDS,
    LINK_BYTES,
    LINKS,
    MAX_DEPTH,
    N_ALL,
    N_KEY,
    N_OWN,
    N_PARENT,
    N_PRE,
    N_TAG,
    NEWLINE,
    NODE,
    NODE_COLUMNS,
    S_COLUMNS,
    S_FLAGS,
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
    ST_NODES,
    ST_OVER,
    ST_PENDING,
    ST_POS,
    ST_PRE,
    ST_STATE,
    START,
    TAG,
    look_up,
)
from llmcurate.base.kernels import njit

_A, _P, _LI, _DT, _DD, _PRE_TAG = (TAG[n] for n in ("a", "p", "li", "dt", "dd", "pre"))
_TABLE, _TR, _TD, _TH = (TAG[n] for n in ("table", "tr", "td", "th"))
_LISTING, _BUTTON = TAG["listing"], TAG["button"]  # a button in a heading unfolds the section below
_HEADINGS = np.array([TAG[f"h{k}"] for k in range(1, 7)])
_LISTS = np.zeros(len(KINDS), np.bool_)
_LISTS[[TAG[n] for n in ("ul", "ol", "menu", "dir", "dl")]] = True
_HREF_BIT = 1 << ATTR["href"]
_NOSCRIPT, _IN_NOSCRIPT, _UNSEEN = TAG["noscript"], BIT["noscript"], BIT["unseen"]


@njit(nogil=True)
def pop_to(st, stack, opened, k):
    """Close the elements from the top of the stack down to the one at index k."""
    while st[ST_DEPTH] >= k and st[ST_DEPTH] > 0:
        row = stack[st[ST_DEPTH]]
        opened[row[S_TAG]] -= 1
        flags = row[S_FLAGS]
        st[ST_LINK] -= flags & F_LINK
        st[ST_BOLD] -= (flags & F_BOLD) >> 1
        st[ST_PRE] -= (flags & F_PRE) >> 2
        st[ST_MUTE] -= (flags & F_MUTE) >> 3
        st[ST_DEPTH] -= 1


@njit(nogil=True)
def close_implied(st, stack, opened, tag):
    """Close the open elements that a block's start tag ends: p, li, dt, dd, and parts of tables."""
    if opened[_P]:
        k = st[ST_DEPTH]
        while k > 0 and not KINDS[stack[k, S_TAG]] & IS_SCOPE:
            if stack[k, S_TAG] == _P:
                pop_to(st, stack, opened, k)
                break
            k -= 1
    if tag == _LI or tag == _DT or tag == _DD:
        k = st[ST_DEPTH]
        while k > 0:
            t = stack[k, S_TAG]
            if (tag == _LI and t == _LI) or (tag != _LI and (t == _DT or t == _DD)):
                pop_to(st, stack, opened, k)
                break
            if _LISTS[t] or KINDS[t] & IS_SCOPE:
                break
            k -= 1
    elif KINDS[tag] & IS_CELL_PART and tag != _TABLE and opened[_TABLE]:
        k, lowest = st[ST_DEPTH], 0
        starts_cell = tag == _TD or tag == _TH
        while k > 0 and stack[k, S_TAG] != _TABLE:
            t = stack[k, S_TAG]
            cell = t == _TD or t == _TH
            row = t == _TR and not starts_cell
            part = KINDS[t] & IS_CELL_PART != 0 and not starts_cell and tag != _TR
            if cell or row or part:
                lowest = k
            k -= 1
        if lowest:
            pop_to(st, stack, opened, lowest)


@njit(nogil=True)
def _in_heading(opened):
    for tag in _HEADINGS:
        if opened[tag]:
            return True
    return False


@njit(nogil=True)
def open_element(st, stack, opened, nodes, tag, key, keys, hints, hidden, mute, seen, shape):
    """Push a new element onto the stack. A block element also becomes a row of `nodes`; a block
    that only makes a line of preformatted text (such as `div` in `pre`) does not. The arguments
    from `tag` on describe the element, except `keys` (hashes of the open elements' names)."""
    kind = KINDS[tag]
    node_too = kind & IS_BLOCK and not (st[ST_PRE] and kind & IS_LINE)
    if tag == _NOSCRIPT:
        hints |= _IN_NOSCRIPT
    if hidden:
        hints |= _UNSEEN
    if tag == _A and opened[_A]:  # links do not nest
        k = st[ST_DEPTH]
        while k > 0 and stack[k, S_TAG] != _A and not KINDS[stack[k, S_TAG]] & IS_BLOCK:
            k -= 1
        if stack[k, S_TAG] == _A:
            pop_to(st, stack, opened, k)
    if st[ST_DEPTH] >= MAX_DEPTH:
        st[ST_OVER] += 1
        return
    above = stack[st[ST_DEPTH]]
    st[ST_DEPTH] += 1
    row = stack[st[ST_DEPTH]]
    flags = 0
    if tag == _A and seen & _HREF_BIT:
        flags |= F_LINK
        st[ST_LINK] += 1
        st[ST_LINKS] += 1
    if kind & IS_BOLD:
        flags |= F_BOLD
        st[ST_BOLD] += 1
    if tag == _PRE_TAG or tag == _LISTING:
        flags |= F_PRE
        st[ST_PRE] += 1
    folded = tag == _BUTTON and _in_heading(opened)
    if mute or (kind & IS_MUTE and not folded) or (hidden and not kind & IS_BLOCK):
        flags |= F_MUTE
        st[ST_MUTE] += 1
    row[S_TAG], row[S_FLAGS], row[S_HINTS] = tag, flags, above[S_HINTS] | hints
    row[S_NODE] = above[S_NODE]
    keys[st[ST_DEPTH]] = key
    opened[tag] += 1
    if node_too:
        node = st[ST_NODES]
        st[ST_NODES] += 1
        nodes[node, N_TAG], nodes[node, N_PARENT] = tag, above[S_NODE]
        nodes[node, N_OWN], nodes[node, N_ALL] = hints, row[S_HINTS]
        nodes[node, N_PRE] = st[ST_PRE]
        nodes[node, N_KEY] = shape
        row[S_NODE] = node


@njit(nogil=True)
def close_element(st, stack, opened, keys, tag, key):
    """Close the element of an end tag and all elements inside it, unless the HTML Standard forbids
    it, because the element is out of scope."""
    if st[ST_OVER]:
        st[ST_OVER] -= 1
        return
    kind = KINDS[tag]
    if opened[tag] == 0:
        return
    block = kind & IS_BLOCK
    between = False  # a block is open inside the inline element that ends
    k = st[ST_DEPTH]
    while k > 0:
        t = stack[k, S_TAG]
        if t == tag and (tag or keys[k] == key):
            break
        if KINDS[t] & IS_SCOPE and (not kind & IS_CELL_PART or t == _TABLE):
            return
        if (tag == _LI or tag == _DT or tag == _DD) and _LISTS[t]:
            return
        between = between or KINDS[t] & IS_BLOCK != 0
        k -= 1
    if k == 0:
        return
    if block or not between or kind & IS_SCOPE:
        pop_to(st, stack, opened, k)
    else:  # it stays on the stack without effect
        row = stack[k]
        flags = row[S_FLAGS]
        st[ST_LINK] -= flags & F_LINK
        st[ST_BOLD] -= (flags & F_BOLD) >> 1
        st[ST_MUTE] -= (flags & F_MUTE) >> 3
        row[S_FLAGS] = 0


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


_BR, _BODY, _HTML, _HEAD = (TAG[n] for n in ("br", "body", "html", "head"))
_SCRIPT, _TITLE, _MATH, _IMG = (TAG[n] for n in ("script", "title", "math", "img"))
_CODE, _TEMPLATE = TAG["code"], TAG["template"]
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
