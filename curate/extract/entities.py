"""Decode character references by the rules of the HTML Standard for text (not for attributes).

Python's `html.unescape` does the same. All 2,231 names are known; the longest match wins. The
numbers 128 to 159 stand for windows-1252 characters (`&#150;` is a dash).
"""

from __future__ import annotations

import html
from html.entities import html5

import numpy as np

from curate.extract.tags import hash_table, look_up
from curate.text.folding import put_code
from llmcurate.base.kernels import njit

LONGEST = max(len(name) for name in html5)  # 32 letters including the semicolon
_NAMES = sorted(html5)
_SLOTS = 8192


def entity_table() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (keys: uint64[], values: int64[], text: uint8[], ends: int64[]): all named references.
    `keys` and `values` are a hash table from names to numbers. The name with the number k stands
    for text[ends[k - 1]:ends[k]]."""
    keys, values = hash_table({name: k for k, name in enumerate(_NAMES, 1)}, _SLOTS)
    texts = [html5[name].encode() for name in _NAMES]
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    return keys, values, np.frombuffer(b"".join(texts), np.uint8), ends


WINDOWS_1252 = np.array([ord(html.unescape(f"&#{n};")) for n in range(128, 160)], np.int64)


@njit(nogil=True)
def _number(data, i, z, out):
    k = i + 2
    base = 10
    if k < z and (data[k] == 120 or data[k] == 88):
        base = 16
        k += 1
    first = k
    code = 0
    while k < z:
        b = int(data[k])
        if 48 <= b <= 57:
            digit = b - 48
        elif base == 16 and 97 <= (b | 32) <= 102:
            digit = (b | 32) - 87
        else:
            break
        code = code * base + digit
        if code > 0x10FFFF:
            code = 0x110000
        k += 1
    if k == first:
        return 0, 0
    if k < z and data[k] == 59:
        k += 1
    if 128 <= code < 160:
        code = int(WINDOWS_1252[code - 128])
    elif code == 13:
        pass
    elif code == 0 or 0xD800 <= code < 0xE000 or code > 0x10FFFF:
        code = 0xFFFD
    elif (
        (code < 32 and code != 9 and code != 10 and code != 12)
        or code == 127
        or 0xFDD0 <= code < 0xFDF0
        or (code & 0xFFFE) == 0xFFFE
    ):
        return k - i, 0  # controls and noncharacters are dropped
    return k - i, put_code(out, 0, code)


@njit(nogil=True)
def read_entity(data, i, z, out, keys, values, text, ends):
    """Decode the character reference that starts at data[i] with an ampersand, and write it to
    `out` (uint8[8]). Return (bytes read, bytes written), or (0, 0) if there is no reference."""
    if i + 1 < z and data[i + 1] == 35:
        return _number(data, i, z, out)
    key = np.uint64(0xCBF29CE484222325)
    best, best_end = np.int64(0), i
    k = i + 1
    while k < z and k - i <= LONGEST:
        b = data[k]
        letter = 97 <= (b | 32) <= 122 or 48 <= b <= 57
        if not letter and b != 59:
            break
        key = (key ^ np.uint64(b)) * np.uint64(0x100000001B3)
        k += 1
        # No name is shorter than two letters ("gt").
        if k - i > 2:
            number = look_up(keys, values, key)
            if number:
                best, best_end = number, k
        if b == 59:
            break
    if best == 0:
        return 0, 0
    a, n = ends[best - 1], ends[best] - ends[best - 1]
    for j in range(n):
        out[j] = text[a + j]
    return best_end - i, n
