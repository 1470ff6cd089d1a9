"""Words in URLs: whole words and parts of words, found in one pass over folded URLs.

A URL is read as letters and digits with separators between them. Two automata (Aho and Corasick
1975) run over it:

- *words*, with every run of separators as one blank. What is found must be whole: no letter of a
  script with spaces directly before or behind it, and no digit where it begins or ends with one.
  So `sex` is in `/sex-1`, `/sex1` and `/免费sex`, and not in `/sussex`; `2g1c` is not in `/12g1c`.
- *subwords*, which may stand anywhere. Separators within a part of the URL are passed over
  (`p-o-r-n`, `black.cat`), those between its parts (`/ ? & = # : ; @ ,`) are not, so that `porn` is
  not in `/map/ornaments`.
"""

from __future__ import annotations

import unicodedata
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from curate.text.unicode import char_bytes, code_point
from curate.text.words import CONNECTOR, DIGIT, LETTER, MARK, OTHER, character_tables
from kernel_cache import njit

BLANK, PART = 0x20, 0x2F  # separators in the form that the automata read
_SEPARATOR = np.zeros(128, np.uint8)
_SEPARATOR[:] = BLANK
_SEPARATOR[[ord(c) for c in "/?&=#:;@,"]] = PART
_SEPARATOR[[c for c in range(128) if chr(c).isalnum()]] = 0


@dataclass(frozen=True)
class Automaton:
    """Finds patterns in bytes. step: int32[states, classes]; kind: int32[256], a byte's class;
    found: int32[states], the pattern that ends there or -1; link: int32[states], the next shorter
    suffix at which one ends, or 0; size: int64[patterns], bytes."""

    step: np.ndarray
    kind: np.ndarray
    found: np.ndarray
    link: np.ndarray
    size: np.ndarray


def automaton(patterns: Sequence[str]) -> Automaton:
    """The automaton of distinct patterns, none of them empty."""
    encoded = [p.encode() for p in patterns]
    used = sorted({b for p in encoded for b in p})
    kind = np.zeros(256, np.int32)
    kind[used] = np.arange(1, len(used) + 1)
    tree: list[dict[int, int]] = [{}]
    ends: dict[int, int] = {}
    for number, pattern in enumerate(encoded):
        state = 0
        for b in pattern:
            if b not in tree[state]:
                tree[state][b] = len(tree)
                tree.append({})
            state = tree[state][b]
        ends[state] = number
    step = np.zeros((len(tree), len(used) + 1), np.int32)
    found = np.full(len(tree), -1, np.int32)
    link = np.zeros(len(tree), np.int32)
    suffix = [0] * len(tree)
    waiting = deque([0])
    while waiting:
        state = waiting.popleft()
        back = suffix[state]
        if state:
            step[state] = step[back]
            link[state] = back if found[back] >= 0 else link[back]
        found[state] = ends.get(state, -1)
        for b, child in tree[state].items():
            suffix[child] = int(step[back, kind[b]]) if state else 0
            step[state, kind[b]] = child
            waiting.append(child)
    return Automaton(step, kind, found, link, np.array([len(p) for p in encoded], np.int64))


def normal_word(entry: str, between: str = " ") -> str:
    """An entry of a word list as the automata read it: folded, its words joined by `between`."""
    text = unicodedata.normalize("NFKC", entry).casefold()
    kinds, _ = character_tables()
    kept = "".join(c if kinds[ord(c)] not in (OTHER, CONNECTOR) else " " for c in text)
    return between.join(kept.split())


@njit(nogil=True)
def _spell(data, start, end, kinds, out):
    """Writes data[start:end] as letters, digits and single separators; returns its length."""
    out[0] = BLANK
    n = 1
    i = start
    while i < end:
        b = data[i]
        size = 1
        separator = np.uint8(0)
        if b < 128:
            separator = _SEPARATOR[b]
        else:
            size = min(char_bytes(b), end - i)
            code = code_point(data, i, end)
            if code < 0 or code > 0x10FFFF or kinds[code] == OTHER or kinds[code] == CONNECTOR:
                separator = np.uint8(BLANK)
        if separator == 0:
            for k in range(size):
                out[n] = data[i + k]
                n += 1
        elif out[n - 1] != BLANK and out[n - 1] != PART:
            out[n] = separator
            n += 1
        elif separator == PART:
            out[n - 1] = separator
        i += size
    if out[n - 1] != BLANK and out[n - 1] != PART:
        out[n] = BLANK
        n += 1
    return n


@njit(nogil=True)
def _kind_at(text, i, n, kinds):
    if text[i] == BLANK or text[i] == PART:
        return OTHER
    while i > 0 and (text[i] & 0xC0) == 0x80:
        i -= 1
    code = code_point(text, i, n)
    return kinds[code] if 0 <= code <= 0x10FFFF else OTHER


@njit(nogil=True)
def _whole(text, a, z, n, kinds):
    """Whether text[a:z] is cut off from what stands around it."""
    before, first = _kind_at(text, a - 1, n, kinds), _kind_at(text, a, n, kinds)
    last, behind = _kind_at(text, z - 1, n, kinds), _kind_at(text, z, n, kinds)
    if before == LETTER or before == MARK or behind == LETTER or behind == MARK:
        return False
    return not ((first == DIGIT and before == DIGIT) or (last == DIGIT and behind == DIGIT))


@njit(nogil=True)
def _room(array, n):
    if n < len(array):
        return array
    larger = np.empty(2 * len(array), array.dtype)
    larger[:n] = array[:n]
    return larger


@njit(nogil=True)
def _row_words(text, n, r, kinds, step, kind, found, link, size, whole, seen, hits):
    """How many patterns stand in text[:n]; they are written to hits: int32[patterns]."""
    count = 0
    state = np.int32(0)
    for i in range(n):
        b = text[i]
        if b == PART or b == BLANK:
            if whole:
                b = np.uint8(BLANK)
            else:
                if b == PART:
                    state = np.int32(0)
                continue
        state = step[state, kind[b]]
        at = state
        while at:
            p = found[at]
            if (
                p >= 0
                and seen[p] != r
                and (not whole or _whole(text, i + 1 - size[p], i + 1, n, kinds))
            ):
                seen[p] = r
                hits[count] = p
                count += 1
            at = link[at]
    return count


@njit(cache=True, nogil=True)
def find_words(data, start, end, kinds, step, kind, found, link, size, whole):
    """(row: int64[hits], pattern: int32[hits]): which patterns stand in data[start[r]:end[r]],
    each once a row; whole: as words, else as subwords."""
    rows = np.empty(64, np.int64)
    patterns = np.empty(64, np.int32)
    total = np.int64(0)
    longest = np.int64(0)
    for r in range(len(start)):
        longest = max(longest, end[r] - start[r])
    text = np.empty(longest + 3, np.uint8)
    seen = np.full(len(size), -1, np.int64)
    hits = np.empty(len(size), np.int32)
    for r in range(len(start)):
        n = _spell(data, start[r], end[r], kinds, text)
        # A function of its own: a loop that may replace an array counts its references each time.
        count = _row_words(text, n, r, kinds, step, kind, found, link, size, whole, seen, hits)
        for k in range(count):
            rows, patterns = _room(rows, total), _room(patterns, total)
            rows[total], patterns[total] = r, hits[k]
            total += 1
    return rows[:total].copy(), patterns[:total].copy()
