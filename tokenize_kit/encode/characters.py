"""Characters as small numbers, and tokens as a double-array trie over them: a step a character.

A vocabulary of pieces of characters knows some thousand of them. Numbered, a character of three
bytes is one step in the trie instead of three.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kernel_cache import njit
from tokenize_kit.encode.bytes8 import njit_bare

MOST_SLOTS = 1 << 26
_TRIES = 64  # slots tried in vain after which the ones before are given up

# An alphabet is int32[]: the number of a code point c is alphabet[alphabet[c >> 8] + (c & 255)], 0
# for one that the vocabulary does not have. The places of blocks come first, then the first block.
_BLOCKS = 0x1100
# links: int32[slots, 2]: base of a slot's children, and its parent; a child by number s lies at
# base + s, those of the root at s. found: int32[slots]: the token that ends there, -1 for none.
Trie = namedtuple("Trie", "links found")


def make_alphabet(texts: list[str]) -> tuple[np.ndarray, int]:
    """(the alphabet of these texts, how many characters it has): numbers by code point, from 1."""
    points = np.unique(code_points(texts))
    used = np.union1d(points >> 8, [0])
    alphabet = np.zeros(_BLOCKS + ((len(used) + 1) << 8), np.int32)
    alphabet[:_BLOCKS] = len(alphabet) - 256  # a block without a character
    alphabet[used] = _BLOCKS + 256 * np.arange(len(used))
    alphabet[alphabet[points >> 8] + (points & 0xFF)] = np.arange(1, len(points) + 1)
    return alphabet, len(points)


def code_points(texts: list[str]) -> np.ndarray:
    """int64[]: those of all texts, one after the other."""
    return np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32).astype(np.int64)


def numbers_of(alphabet: np.ndarray, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """(numbers: int32[], ends: int64[texts + 1]) of the characters of the texts."""
    points = code_points(texts)
    return alphabet[alphabet[points >> 8] + (points & 0xFF)], np.cumsum([0, *map(len, texts)])


def build_trie(alphabet: np.ndarray, size: int, texts: list[str], ids: np.ndarray) -> Trie:
    """texts: distinct, not empty, of characters that the alphabet (of `size`) has; ids: int64[]."""
    order = sorted(range(len(texts)), key=texts.__getitem__)
    numbers, ends = numbers_of(alphabet, [texts[k] for k in order])
    links, found = _build(numbers, ends, np.asarray(ids, np.int64)[order], size)
    if not len(links):
        raise ValueError(f"the tokens need more than {MOST_SLOTS} slots")
    return Trie(links, found)


@njit(nogil=True)
def _sized(links, found, size):
    """Both with `size` slots; loops, for numba takes seconds to compile what slices do."""
    other, other_found = np.empty((size, 2), np.int32), np.empty(size, np.int32)
    for k in range(size):
        other[k, 0], other[k, 1], other_found[k] = 0, -1, -1
    for k in range(min(size, len(found))):
        other[k, 0], other[k, 1], other_found[k] = links[k, 0], links[k, 1], found[k]
    return other, other_found


@njit(cache=True, nogil=True)
def _build(numbers, ends, ids, alphabet):
    """Tokens in sorted order; breadth first, so that slots with many children come first."""
    none, nothing = np.empty((0, 2), np.int32), np.empty(0, np.int32)
    links, found = _sized(none, nothing, 4 * alphabet + 4096)
    # The root has the base 0 and no slot of its own: slot 0 is taken, and nobody's child.
    parents, lows, highs, depths = [0], [0], [len(ids)], [0]
    children = np.empty(alphabet + 1, np.int64)
    starts = np.empty(alphabet + 2, np.int64)
    cursor = alphabet + 1
    last = alphabet
    at = 0
    while at < len(parents):
        parent, low, high, depth = parents[at], lows[at], highs[at], depths[at]
        at += 1
        if low < high and ends[low + 1] - ends[low] == depth:
            found[parent] = ids[low]
            low += 1
        if low == high:
            continue
        n = 0
        for k in range(low, high):
            number = np.int64(numbers[ends[k] + depth])
            if n == 0 or children[n - 1] != number:
                children[n] = number
                starts[n] = k
                n += 1
        starts[n] = high
        base = np.int64(0)
        if depth > 0:
            place, vain = cursor, 0
            while True:
                if place + alphabet + 1 > len(links):
                    if 2 * len(links) > MOST_SLOTS:
                        return none, nothing
                    links, found = _sized(links, found, 2 * len(links))
                base = place - children[0]
                free = links[place, 1] < 0
                for k in range(1, n):
                    free = free and links[base + children[k], 1] < 0
                if free:
                    break
                vain += 1
                place += 1
            if vain > _TRIES:
                cursor = max(cursor, place - _TRIES)
            links[parent, 0] = base
        last = max(last, base + children[n - 1])
        for k in range(n):
            child = base + children[k]
            links[child, 1] = parent
            parents.append(child)
            lows.append(starts[k])
            highs.append(starts[k + 1])
            depths.append(depth + 1)
    # A leaf's base is 0, others' bases are `last` at most: no walk leaves these.
    return _sized(links, found, last + alphabet + 2)


@njit_bare
def number_characters(alphabet, data, a, z, numbers, places):
    """Writes to numbers: int32[] those of the characters of data[a:z], to places: int32[] where
    each begins behind a; returns how many."""
    n = np.uint64(0)
    i, end = np.uint64(a), np.uint64(z)
    while i < end:
        b = np.uint64(data[i])
        places[n] = np.int32(i - np.uint64(a))
        if b < np.uint64(0x80):
            numbers[n] = alphabet[np.uint64(_BLOCKS) + b]
            i += np.uint64(1)
        else:
            second = np.uint64(data[i + np.uint64(1)]) & np.uint64(0x3F)
            if b < np.uint64(0xE0):
                point = (b & np.uint64(0x1F)) << np.uint64(6) | second
                i += np.uint64(2)
            else:
                third = np.uint64(data[i + np.uint64(2)]) & np.uint64(0x3F)
                if b < np.uint64(0xF0):
                    point = (b & np.uint64(0x0F)) << np.uint64(12) | second << np.uint64(6) | third
                    i += np.uint64(3)
                else:
                    fourth = np.uint64(data[i + np.uint64(3)]) & np.uint64(0x3F)
                    point = (
                        (b & np.uint64(0x07)) << np.uint64(18)
                        | second << np.uint64(12)
                        | third << np.uint64(6)
                        | fourth
                    )
                    i += np.uint64(4)
            block = np.uint64(alphabet[point >> np.uint64(8)])
            numbers[n] = alphabet[block + (point & np.uint64(0xFF))]
        n += np.uint64(1)
    return np.int64(n)
