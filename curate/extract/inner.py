"""Text inside an element, read from an offset in the page's bytes."""

from __future__ import annotations

import numpy as np

from curate.extract.attributes import read_name
from curate.extract.tags import IS_BLOCK, IS_RAW, IS_VOID, KINDS, TAG, hash_table, look_up
from llmcurate.base.kernels import njit

WHOLE = -1  # as `tag`: read on after the element's end
_KEYS, _VALUES = hash_table({name: number for name, number in TAG.items() if name})
_BR = TAG["br"]


@njit(nogil=True)
def _after_tag(data, i, z):
    quote = 0
    while i < z:
        b = data[i]
        if quote:
            if b == quote:
                quote = 0
        elif b == 62:
            return i + 1
        elif (b == 34 or b == 39) and data[i - 1] == 61:
            quote = b
        i += 1
    return z


@njit(cache=True, nogil=True)
def inner(data, i, z, tag, lines, most):
    """Return the text from data[i] to the end of the element `tag` that contains it, as UTF-8 in
    uint8[], with character references undecoded. Line feeds separate pieces: between all tags, or
    only at `br` and block elements if `lines`. The text ends after `most` pieces."""
    out = np.empty(z - i + 1, np.uint8)
    n = pieces = 0
    depth = 1
    while i < z:
        b = data[i]
        if b != 60:
            if b > 32:
                out[n] = b
                n += 1
            elif n and out[n - 1] > 32:
                out[n] = 32
                n += 1
            i += 1
            continue
        if i + 3 < z and data[i + 1] == 33 and data[i + 2] == 45 and data[i + 3] == 45:
            i += 4
            while i < z and not (data[i] == 62 and data[i - 1] == 45 and data[i - 2] == 45):
                i += 1
            i += 1
            continue
        end = i + 1 < z and data[i + 1] == 47
        i, key = read_name(data, i + 2 if end else i + 1, z)
        i = _after_tag(data, i, z)
        name = look_up(_KEYS, _VALUES, key)
        kind = KINDS[name]
        if kind & IS_RAW and not end:
            closed = False
            while i + 1 < z and not closed:
                if data[i] == 60 and data[i + 1] == 47:
                    i, other = read_name(data, i + 2, z)
                    closed = other == key
                i += 1
            continue
        if not lines or kind & IS_BLOCK or name == _BR:
            if n and out[n - 1] == 32:
                n -= 1
            if n and out[n - 1] != 10:
                out[n] = 10
                n += 1
                pieces += 1
                if pieces == most:
                    break
        if name == tag and not kind & IS_VOID:
            depth += -1 if end else 1
            if depth == 0:
                break
    return out[:n]
