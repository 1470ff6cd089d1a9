"""The stack of open elements: which elements a start tag or an end tag opens and closes.

The stack follows the HTML Standard's tree construction wherever that decides which element a text
belongs to. One exception: formatting elements are not reopened after a block that closed them. Each
element is opened and closed once, and a search of the stack takes at most MAX_DEPTH steps.
"""

from __future__ import annotations

import numpy as np

from curate.extract.attributes import BIT
from curate.extract.tags import (
    ATTR,
    F_BOLD,
    F_LINK,
    F_MUTE,
    F_PRE,
    IS_BLOCK,
    IS_BOLD,
    IS_CELL_PART,
    IS_LINE,
    IS_MUTE,
    IS_SCOPE,
    KINDS,
    MAX_DEPTH,
    N_ALL,
    N_KEY,
    N_OWN,
    N_PARENT,
    N_PRE,
    N_TAG,
    S_FLAGS,
    S_HINTS,
    S_NODE,
    S_TAG,
    ST_BOLD,
    ST_DEPTH,
    ST_LINK,
    ST_LINKS,
    ST_MUTE,
    ST_NODES,
    ST_OVER,
    ST_PRE,
    TAG,
)
from llmcurate.base.kernels import njit

_A, _P, _LI, _DT, _DD, _PRE_TAG = (TAG[n] for n in ("a", "p", "li", "dt", "dd", "pre"))
_TABLE, _TR, _TD, _TH = (TAG[n] for n in ("table", "tr", "td", "th"))
_LISTING, _BUTTON = TAG["listing"], TAG["button"]  # a button in a heading unfolds the section below
_HEADINGS = np.array([TAG[f"h{k}"] for k in range(1, 7)])
_LISTS = np.zeros(len(KINDS), np.bool_)
_LISTS[[TAG[n] for n in ("ul", "ol", "menu", "dir", "dl")]] = True
_HREF = 1 << ATTR["href"]
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
    if tag == _A and seen & _HREF:
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
