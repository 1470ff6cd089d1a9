"""The rest of a tag behind its name: attributes, as the HTML Standard's tokenizer delimits them."""

from __future__ import annotations

import numpy as np

from curate.extract.hints import BIT, hints_of
from curate.extract.tags import ATTR, look_up
from kernel_cache import njit

SPANS = 2 * (len(ATTR) + 1)  # of `spans`: start and end of the value of attribute k at 2k
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_CLASS, _ID, _ROLE, _ITEMPROP = (ATTR[n] for n in ("class", "id", "role", "itemprop"))
_STYLE, _HIDDEN, _ARIA = ATTR["style"], ATTR["hidden"], ATTR["aria-hidden"]
_OVERLAY = BIT["overlay"]
_SPACE = np.zeros(256, np.bool_)
_SPACE[[9, 10, 12, 13, 32]] = True
_NONE = np.frombuffer(b"display:none", np.uint8)
_INVISIBLE = np.frombuffer(b"visibility:hidden", np.uint8)


@njit(nogil=True)
def same(data, a, z, word):
    """Whether data[a:z], in lower case, is the word: uint8[]."""
    if z - a != len(word):
        return False
    for k in range(len(word)):
        b = data[a + k]
        if 65 <= b <= 90:
            b += 32
        if b != word[k]:
            return False
    return True


@njit(nogil=True)
def _declares(data, a, z, word):
    """Whether a style says `word`, white space aside."""
    for i in range(a, z - len(word) + 1):
        if (data[i] | 32) != word[0]:
            continue
        j, k = i, 0
        while j < z and k < len(word):
            b = data[j]
            if not _SPACE[b]:
                if (b | 32 if 65 <= b <= 90 else b) != word[k]:
                    break
                k += 1
            elif j - i > 64:  # so many blanks are nobody's style, and would cost time
                break
            j += 1
        if k == len(word):
            return True
    return False


@njit(nogil=True)
def read_name(data, i, z):
    """The tag name at i: (place behind it, its `name_hash`)."""
    key = _BASIS
    while i < z:
        b = data[i]
        if _SPACE[b] or b == 47 or b == 62:
            break
        if 65 <= b <= 90:
            b += 32
        key = (key ^ np.uint64(b)) * _PRIME
        i += 1
    return i, key


@njit(nogil=True)
def read_attributes(data, i, z, spans, keys, values, states, found):
    """Reads attributes from i up to the end of the tag.

    Returns (place behind the tag, or -1 where the page ends inside it; bits of the attributes that
    were there; hints; whether the element is hidden). spans: int64[SPANS], filled for those bits.
    """
    seen, hints, hidden = np.int64(0), np.int64(0), False
    while True:
        while i < z and (_SPACE[data[i]] or data[i] == 47):
            i += 1
        if i >= z:
            return -1, seen, hints, hidden
        if data[i] == 62:
            return i + 1, seen, hints, hidden
        key = _BASIS
        first = i
        while i < z:
            b = data[i]
            # A "=" that starts a name belongs to it.
            if _SPACE[b] or b == 47 or b == 62 or (b == 61 and i > first):
                break
            if 65 <= b <= 90:
                b += 32
            key = (key ^ np.uint64(b)) * _PRIME
            i += 1
        while i < z and _SPACE[data[i]]:
            i += 1
        a = e = i
        if i < z and data[i] == 61:
            i += 1
            while i < z and _SPACE[data[i]]:
                i += 1
            if i >= z:
                return -1, seen, hints, hidden
            quote = data[i]
            if quote == 34 or quote == 39:
                i += 1
                a = i
                while i < z and data[i] != quote:
                    i += 1
                if i >= z:
                    return -1, seen, hints, hidden
                e = i
                i += 1
            else:
                a = i
                while i < z and not _SPACE[data[i]] and data[i] != 62:
                    i += 1
                e = i
        attribute = look_up(keys, values, key)
        if attribute == 0 or seen >> attribute & 1:  # the first of equal names counts
            continue
        seen |= 1 << attribute
        spans[2 * attribute] = a
        spans[2 * attribute + 1] = e
        if attribute <= _ITEMPROP:  # class, id, role, itemprop
            hints |= hints_of(data, a, e, states, found)
        elif attribute == _STYLE:
            hidden = hidden or _declares(data, a, e, _NONE) or _declares(data, a, e, _INVISIBLE)
        elif attribute == _HIDDEN:
            hidden = True
        elif attribute == _ARIA and e - a == 4:  # "true"
            hints |= _OVERLAY
