"""Tokens as a double-array trie: one load of four bytes a step to the longest token of a text.

Aoe 1989; as in darts-clone a slot names its byte, not its parent, which is enough where no two
parents have their children at the same base.
"""

from __future__ import annotations

import numpy as np

from kernel_cache import njit
from tokenize_kit.encode.bytes8 import njit_bare, njit_within

MOST_SLOTS = 1 << 22
# A slot: its byte, whether it is taken, whether a token ends there, the base of its children.
_TAKEN, _TOKEN, _BASE = np.uint32(1 << 8), np.uint32(1 << 9), np.uint32(10)
_LABEL = np.uint32(0x1FF)
_TRIES = 64  # slots tried in vain after which the ones before are given up


def build_trie(tokens: list[bytes], ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(slots: uint32[], ends: int32[]: the token that ends at a slot, -1 for none).

    tokens: distinct and not empty; ids: int64[tokens]. The root is slot 0; children lie at their
    parent's base + byte, and no walk leaves the table. Raises ValueError over MOST_SLOTS.
    """
    order = sorted(range(len(tokens)), key=tokens.__getitem__)
    data = np.frombuffer(bytearray().join(tokens[k] for k in order), np.uint8)
    ends = np.cumsum([0, *(len(tokens[k]) for k in order)])
    slots, found = _build(data, ends, np.asarray(ids, np.int64)[order])
    if not len(slots):
        raise ValueError(f"the tokens need more than {MOST_SLOTS} slots")
    return slots, found


@njit(nogil=True)
def _grown(slots, found, based, size):
    larger, larger_found = np.zeros(size, np.uint32), np.empty(size, np.int32)
    larger_based = np.zeros(size, np.bool_)
    for k in range(len(slots)):  # numba takes seconds to compile what slices do
        larger[k], larger_found[k], larger_based[k] = slots[k], found[k], based[k]
    for k in range(len(slots), size):
        larger_found[k] = -1
    return larger, larger_found, larger_based


@njit(cache=True, nogil=True)
def _build(data, ends, ids):
    count = len(ids)
    size = 1 << 12
    slots, found = np.zeros(size, np.uint32), np.full(size, -1, np.int32)
    based = np.zeros(size, np.bool_)  # bases in use
    # A leaf's base is 0, so its child by byte 0 would be the root: the root bears another byte.
    slots[0] = _TAKEN | np.uint32(1)
    # Ranges of sorted tokens that share their first `depth` bytes, breadth first.
    parents, lows, highs, depths = [0], [0], [count], [0]
    children = np.empty(256, np.int64)
    starts = np.empty(257, np.int64)
    cursor = 257  # no slot before it is tried
    last = 0
    at = 0
    while at < len(parents):
        parent, low, high, depth = parents[at], lows[at], highs[at], depths[at]
        at += 1
        if low < high and ends[low + 1] - ends[low] == depth:
            found[parent] = ids[low]
            slots[parent] |= _TOKEN
            low += 1
        if low == high:
            continue
        n = 0
        for k in range(low, high):
            byte = np.int64(data[ends[k] + depth])
            if n == 0 or children[n - 1] != byte:
                children[n] = byte
                starts[n] = k
                n += 1
        starts[n] = high
        place, base, vain = cursor, np.int64(0), 0
        while True:
            if place + 512 > size:
                size *= 2
                if size > MOST_SLOTS:
                    return slots[:0], found[:0]
                slots, found, based = _grown(slots, found, based, size)
            base = place - children[0]
            free = slots[place] == 0 and not based[base]
            for k in range(1, n):
                free = free and slots[base + children[k]] == 0
            if free:
                break
            vain += 1
            place += 1
        if vain > _TRIES:
            cursor = max(cursor, place - _TRIES)
        based[base] = True
        slots[parent] |= np.uint32(base) << _BASE
        last = max(last, base)
        for k in range(n):
            child = base + children[k]
            slots[child] = np.uint32(children[k]) | _TAKEN
            parents.append(child)
            lows.append(starts[k])
            highs.append(starts[k + 1])
            depths.append(depth + 1)
    return slots[: last + 257].copy(), found[: last + 257].copy()


@njit_within
def longest(slots, found, data, a, z):
    """The longest token that data[a:z] begins with, -1 for none."""
    unit = slots[np.uint64(0)]
    best = np.uint64(0)
    for k in range(a, z):
        byte = np.uint32(data[np.uint64(k)])
        place = np.uint64((unit >> _BASE) + byte)
        unit = slots[place]
        if unit & _LABEL != byte | _TAKEN:
            break
        if unit & _TOKEN:
            best = place
    return np.int64(found[best])


@njit_bare
def token_of(slots, found, data, a, z):
    """The token that data[a:z] is, -1 for none."""
    unit = slots[np.uint64(0)]
    place = np.uint64(0)
    for k in range(a, z):
        byte = np.uint32(data[np.uint64(k)])
        place = np.uint64((unit >> _BASE) + byte)
        unit = slots[place]
        if unit & _LABEL != byte | _TAKEN:
            return np.int64(-1)
    return np.int64(found[place])


@njit_bare
def all_ends(slots, data, a, z, ends):
    """Puts the ends of all tokens that data[a:z] begins with into ends: int64[]; how many."""
    unit = slots[np.uint64(0)]
    count = 0
    for k in range(a, z):
        byte = np.uint32(data[np.uint64(k)])
        unit = slots[np.uint64((unit >> _BASE) + byte)]
        if unit & _LABEL != byte | _TAKEN:
            break
        if unit & _TOKEN:
            ends[count] = k + 1
            count += 1
    return count


@njit(cache=True, nogil=True)
def shorter_tokens(slots, found, data, ends, ids, count):
    """int32[count]: of each token the longest one that is a proper beginning of it, -1 for none.

    data, ends: bytes of the tokens; ids: their numbers, below count.
    """
    shorter = np.full(count, -1, np.int32)
    for k in range(len(ids)):
        place = np.int64(0)
        for at in range(ends[k], ends[k + 1] - 1):
            place = np.int64(slots[place] >> _BASE) + np.int64(data[at])
            if found[place] >= 0:
                shorter[ids[k]] = found[place]
    return shorter
