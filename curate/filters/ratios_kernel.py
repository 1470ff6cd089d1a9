"""Kernels of the step `ratios`: characters by class, words without special characters, n-grams."""

from __future__ import annotations

import string
import unicodedata
from functools import lru_cache

import numpy as np

from curate.filters.special_characters import SPECIAL
from curate.text.hashing import mix
from curate.text.unicode import char_bytes, code_point
from curate.text.words import PRIME
from llmcurate.base.kernels import njit

PLAIN = frozenset(string.ascii_letters + string.digits + "\n?!,.")  # NeMo Curator, regex_alphanum
# {measure: test of the characters that it counts}. `line_ends` are those of `str.splitlines`.
COUNTED = {
    "digits": str.isdecimal,
    "upper_case": str.isupper,
    "letters": str.isalpha,
    "alphanumerics": str.isalnum,
    "non_alphanumerics": lambda c: c not in PLAIN,
    "punctuation": lambda c: c in string.punctuation or unicodedata.category(c)[0] == "P",
    "brackets": lambda c: c in "()[]{}⟨⟩",
    "white_space": str.isspace,
    "special_characters": lambda c: c in SPECIAL,
    "line_ends": lambda c: c in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029",
}
# A hash table has at most twice as many slots; longer texts are counted in several passes.
MOST_KEYS = 1 << 22
_ONE = np.uint64(1)


@lru_cache(maxsize=1)
def character_classes() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return (classes, counted). `classes` (uint8[0x110000]) is the class of each code point.
    `counted` maps each name in the table COUNTED to bool[classes], True for the classes whose
    characters are counted under this name."""
    bits = np.zeros(0x110000, np.int64)
    for code in (*range(0x40000), *range(0xE0000, 0xE0200)):  # no other plane has letters or signs
        for at, counts in enumerate(COUNTED.values()):
            bits[code] |= counts(chr(code)) << at
    bits[bits == 0] = bits[0x3FFFF]
    distinct, classes = np.unique(bits, return_inverse=True)
    counted = {name: distinct >> at & 1 > 0 for at, name in enumerate(COUNTED)}
    return classes.astype(np.uint8), counted


@njit(cache=True, nogil=True)
def code_points(data, offsets):
    """Return (rows, codes). `codes` (uint32[characters]) are the code points of all rows; row r has
    codes[rows[r]:rows[r + 1]] (`rows`: int64[rows + 1])."""
    rows = np.zeros(len(offsets), np.int64)
    codes = np.empty(offsets[-1] - offsets[0], np.uint32)
    n = 0
    for r in range(len(offsets) - 1):
        i, end = offsets[r], offsets[r + 1]
        while i < end:
            codes[n] = data[i] if data[i] < 0x80 else max(code_point(data, i, end), 0)
            i += char_bytes(data[i])
            n += 1
        rows[r + 1] = n
    return rows, codes[:n]


@njit(cache=True, nogil=True)
def class_counts(rows, codes, classes, line_ends):
    """Return (counts, longest). `counts` (int64[rows, classes]) is each row's number of characters
    per class. `longest` (int64[rows]) is the number of characters in the row's longest line,
    without the line end. `rows` and `codes` come from `code_points`, `classes` and `line_ends` from
    `character_classes`."""
    counts = np.zeros((len(rows) - 1, len(line_ends)), np.int64)
    longest = np.zeros(len(rows) - 1, np.int64)
    for r in range(len(longest)):
        line = 0
        for code in codes[rows[r] : rows[r + 1]]:
            counts[r, classes[code]] += 1
            line = 0 if line_ends[classes[code]] else line + 1
            longest[r] = max(longest[r], line)
    return counts, longest


@njit(cache=True, nogil=True)
def stripped_words(rows, codes, classes, space, special, lower):
    """Return (firsts, hashes, longest). A word is a run of characters between white space, without
    the special characters at its ends. `firsts` (int64[rows + 1]) is the index of each row's first
    word. `hashes` (uint64[words]) are of lower-case words. `longest` (int64[rows]) is the length of
    the longest run in characters, special ones included. `lower` maps code points to lower case."""
    firsts, longest = np.zeros(len(rows), np.int64), np.zeros(len(rows) - 1, np.int64)
    hashes = np.empty(len(codes) // 2 + len(rows), np.uint64)
    n = 0
    for r in range(len(longest)):
        size = 0
        begun = False
        whole = value = np.uint64(0)  # hashes up to this character, and to the last plain one
        for code in codes[rows[r] : rows[r + 1]]:
            kind = classes[code]
            if space[kind]:
                n += begun
                size, begun = 0, False
                continue
            size += 1
            longest[r] = max(longest[r], size)
            if special[kind] and not begun:
                continue
            whole = ((whole if begun else np.uint64(0)) ^ np.uint64(lower[code])) * PRIME
            begun = True
            if not special[kind]:
                value = whole
                hashes[n] = mix(value)
        n += begun
        firsts[r + 1] = n
    return firsts, hashes[:n].copy(), longest


@njit(cache=True, nogil=True)
def repeated_shares(rows, values, n, top):
    """Return float64[rows]: the share of the n-grams in each row that occur more than once in the
    row. `values` are unsigned integers, such as code points or hashes of words. If `top`, only the
    k most frequent n-grams count, where k is the square root of the number of distinct n-grams."""
    out = np.zeros(len(rows) - 1, np.float64)
    size = 8
    while size < 2 * min(len(values), MOST_KEYS):
        size *= 2
    keys, times = np.empty(size, np.uint64), np.empty(size, np.int32)
    leaving = PRIME ** np.uint64(n - 1)  # the factor of the value that leaves the window
    for r in range(len(out)):
        row = values[rows[r] : rows[r + 1]]
        total = len(row) - n + 1
        parts = (total + MOST_KEYS - 1) // MOST_KEYS
        distinct = 0
        repeated = [np.int32(0) for _ in range(0)]
        size = 8
        while size < 2 * min(total, MOST_KEYS):
            size *= 2
        for part in range(parts):
            times[:size] = 0
            window = np.uint64(0)
            for i in range(len(row)):
                window = window * PRIME + np.uint64(row[i]) + _ONE
                if i < n - 1:
                    continue
                key = mix(window)
                window -= (np.uint64(row[i - n + 1]) + _ONE) * leaving
                if parts > 1 and (key >> np.uint64(40)) % np.uint64(parts) != part:
                    continue
                slot = key & np.uint64(size - 1)
                while times[slot] and keys[slot] != key:
                    slot = (slot + _ONE) & np.uint64(size - 1)
                keys[slot] = key
                times[slot] += 1
            for count in times[:size]:
                distinct += count > 0
                if count > 1:
                    repeated.append(count)
        if len(repeated):
            counts = np.array(repeated)
            most = min(np.int64(np.sqrt(distinct)) if top else len(counts), len(counts))
            if most:
                out[r] = np.partition(counts, len(counts) - most)[-most:].sum() / total
    return out
