"""Double-array tries (Aoe 1989) of tokens: over bytes, or over characters given as small numbers.

In a trie over bytes, each slot (node) takes four bytes of memory. As in darts-clone, a slot stores
its own byte instead of its parent's number; this is enough because no two parents have the same
base (the position from which children are counted). In a trie over characters, a character of three
bytes takes one step, not three, which works because vocabularies have few different characters.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from llmcurate.base.kernels import njit
from tokenize_kit.encode.parts import pack

MOST_SLOTS, MOST_CHARACTER_SLOTS = 1 << 22, 1 << 26
# Bits of a slot: its byte; 1 if it is taken; 1 if a token ends here; the base of its children.
_TAKEN, _TOKEN, _BASE = np.uint32(1 << 8), np.uint32(1 << 9), np.uint32(10)
_LABEL = np.uint32(0x1FF)
_TRIES = 64  # after this many failures, earlier free slots are not tried again


def build_trie(tokens: list[bytes], ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Build a trie over bytes. Return (slots: uint32[], ends: int32[], the id of the token that
    ends at each slot, or -1). tokens: distinct and not empty; ids: int64[tokens]. Slot 0 is the
    root. Each slot stores a number, the base: the slot's child for a byte is at base + byte, always
    an index within the table. Raises ValueError if more than MOST_SLOTS are needed."""
    order = sorted(range(len(tokens)), key=tokens.__getitem__)
    data, ends = pack([tokens[k] for k in order])
    numbers, ids = data.astype(np.int32) + 1, np.asarray(ids, np.int64)[order]
    links, token_at = build_number_trie(numbers, ends, ids, 256, apart=True, most=MOST_SLOTS)
    bases, parents = links.T.astype(np.int64)
    child = np.flatnonzero(parents >= 0)
    inner = np.zeros(len(links), np.bool_)
    inner[parents[child]] = True
    # A leaf's base is 0, so a look-up of byte 0 there reads the root; the root's byte is 1.
    bases = np.where(inner, bases + 1, 0)
    label = np.zeros(len(links), np.int64)
    label[0], label[child] = 1, child - bases[parents[child]]
    slots = label.astype(np.uint32) | bases.astype(np.uint32) << _BASE
    slots[0] |= _TAKEN
    slots[child] |= _TAKEN
    slots[token_at >= 0] |= _TOKEN
    return slots, token_at


@njit(nogil=True, forceinline=True)
def longest_token(slots, token_at, data, a, z):
    """Return the id of the longest token that data[a:z] begins with, or -1."""
    unit = slots[np.uint64(0)]
    best = np.uint64(0)
    for k in range(a, z):
        byte = np.uint32(data[np.uint64(k)])
        position = np.uint64((unit >> _BASE) + byte)
        unit = slots[position]
        if unit & _LABEL != byte | _TAKEN:
            break
        if unit & _TOKEN:
            best = position
    return np.int64(token_at[best])


@njit(nogil=True)
def token_of(slots, token_at, data, a, z):
    """Return the id of the token that equals data[a:z], or -1."""
    unit = slots[np.uint64(0)]
    position = np.uint64(0)
    for k in range(a, z):
        byte = np.uint32(data[np.uint64(k)])
        position = np.uint64((unit >> _BASE) + byte)
        unit = slots[position]
        if unit & _LABEL != byte | _TAKEN:
            return np.int64(-1)
    return np.int64(token_at[position])


@njit(nogil=True)
def prefix_ends(slots, data, a, z, ends):
    """Find all tokens that data[a:z] begins with. Write the position of each token's end to `ends`
    (int64[]), and return the number of tokens."""
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
def shorter_tokens(slots, token_at, data, ends, ids, count):
    """Return int32[count]: for each token the longest token that is a proper prefix of it, or -1.
    data, ends: the bytes of the tokens; ids: their ids, below `count`."""
    shorter = np.full(count, -1, np.int32)
    for k in range(len(ids)):
        position = np.int64(0)
        for at in range(ends[k], ends[k + 1] - 1):
            position = np.int64(slots[position] >> _BASE) + np.int64(data[at])
            if token_at[position] >= 0:
                shorter[ids[k]] = token_at[position]
    return shorter


# An alphabet is int32[]: the number of a code point c is alphabet[alphabet[c >> 8] + (c & 255)], 0
# if the vocabulary does not have it. The positions of blocks come first, then the blocks.
_BLOCKS = 0x1100
# links: int32[slots, 2]: base of a slot's children, and its parent; a child by number s is at
# base + s, a child of the root at s. token_at: int32[slots]: the token that ends there, or -1.
CharacterTrie = namedtuple("CharacterTrie", "links token_at")


def make_alphabet(texts: list[str]) -> tuple[np.ndarray, int]:
    """Number the characters of the texts from 1, in order of code points. Return (alphabet: the
    table from code points to these numbers, the number of characters)."""
    points = np.unique(code_points(texts))
    used = np.union1d(points >> 8, [0])
    alphabet = np.zeros(_BLOCKS + ((len(used) + 1) << 8), np.int32)
    alphabet[:_BLOCKS] = len(alphabet) - 256  # the empty block
    alphabet[used] = _BLOCKS + 256 * np.arange(len(used))
    alphabet[alphabet[points >> 8] + (points & 0xFF)] = np.arange(1, len(points) + 1)
    return alphabet, len(points)


def code_points(texts: list[str]) -> np.ndarray:
    """Return int64[]: the code points of all texts, concatenated."""
    return np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32).astype(np.int64)


def numbers_of(alphabet: np.ndarray, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Replace characters by their numbers in the alphabet; return (numbers: int32[], ends:
    int64[texts + 1])."""
    points = code_points(texts)
    return alphabet[alphabet[points >> 8] + (points & 0xFF)], np.cumsum([0, *map(len, texts)])


def build_character_trie(
    alphabet: np.ndarray, size: int, texts: list[str], ids: np.ndarray
) -> CharacterTrie:
    """Build a trie of distinct, non-empty texts whose characters are in the alphabet. size: the
    number of characters of the alphabet; ids: int64[texts]. Raises ValueError if more than
    MOST_CHARACTER_SLOTS are needed."""
    order = sorted(range(len(texts)), key=texts.__getitem__)
    numbers, ends = numbers_of(alphabet, [texts[k] for k in order])
    return build_number_trie(numbers, ends, np.asarray(ids, np.int64)[order], size)


def build_number_trie(
    numbers: np.ndarray,
    ends: np.ndarray,
    ids: np.ndarray,
    size: int,
    *,
    apart: bool = False,
    most: int = MOST_CHARACTER_SLOTS,
) -> CharacterTrie:
    """Build a trie of sorted texts whose characters are given as numbers; see build_character_trie.
    numbers: int32[]; ends: int64[texts + 1]; apart: True if no two slots may have the same base;
    most: the largest number of slots."""
    links, token_at = _build(numbers, ends, ids, size, apart, most)
    if not len(links):
        raise ValueError(f"the tokens need more than {most} slots")
    return CharacterTrie(links, token_at)


@njit(nogil=True, allocates=True)
def _resized(links, token_at, size):
    """Return both arrays with `size` slots, by loops: numba takes seconds to compile slices."""
    other, other_found = np.empty((size, 2), np.int32), np.empty(size, np.int32)
    for k in range(size):
        other[k, 0], other[k, 1], other_found[k] = 0, -1, -1
    for k in range(min(size, len(token_at))):
        other[k, 0], other[k, 1], other_found[k] = links[k, 0], links[k, 1], token_at[k]
    return other, other_found


@njit(cache=True, nogil=True)
def _build(numbers, ends, ids, alphabet, apart, most):
    none, nothing = np.empty((0, 2), np.int32), np.empty(0, np.int32)
    links, token_at = _resized(none, nothing, 4 * alphabet + 4096)
    based = np.zeros(len(links), np.bool_)  # bases in use
    # The root has base 0. Slot 0 is reserved and is no slot's child.
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
            token_at[parent] = ids[low]
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
            position, vain = cursor, 0
            while True:
                if position + alphabet + 1 > len(links):
                    if len(links) >= most:
                        return none, nothing
                    links, token_at = _resized(links, token_at, min(most, 2 * len(links)))
                    larger = np.zeros(len(links), np.bool_)
                    for k in range(len(based)):
                        larger[k] = based[k]
                    based = larger
                base = position - children[0]
                free = links[position, 1] < 0 and not (apart and based[base])
                for k in range(1, n):
                    free = free and links[base + children[k], 1] < 0
                if free:
                    break
                vain += 1
                position += 1
            if vain > _TRIES:
                cursor = max(cursor, position - _TRIES)
            links[parent, 0], based[base] = base, True
        last = max(last, base + children[n - 1])
        for k in range(n):
            child = base + children[k]
            links[child, 1] = parent
            parents.append(child)
            lows.append(starts[k])
            highs.append(starts[k + 1])
            depths.append(depth + 1)
    # A leaf's base is 0 and other bases are at most `last`, so no walk leaves the table.
    return _resized(links, token_at, last + alphabet + 2)


@njit(nogil=True)
def number_characters(alphabet, data, a, z, numbers, positions):
    """Write each character of data[a:z] to `numbers` (int32[]) as its number in `alphabet`, and its
    position, relative to `a`, to `positions` (int32[]). Return the count of characters."""
    n = np.uint64(0)
    i, end = np.uint64(a), np.uint64(z)
    while i < end:
        b = np.uint64(data[i])
        positions[n] = np.int32(i - np.uint64(a))
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
