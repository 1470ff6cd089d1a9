"""SentencePiece's precompiled normaliser: a double array of what is replaced, and by what.

The blob is the size of the array in bytes (uint32), the array (darts-clone: a unit has a label, an
offset to its children by exclusive or, and a leaf that holds the place of the replacement), and
replacements that each end in NUL (sentencepiece, src/normalizer.cc).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenize_kit.encode.reading import NotOurs

_LABEL = np.uint32(0x800000FF)
NO_KEY, LOOK = -1, -2  # of Charsmap.begins
_SHORT = 3  # bytes: no more than the characters have that are looked up in begins
_DEEPEST, _MOST_PATHS = 256, 1 << 21  # published ones: some 20 bytes, some 10,000 keys


@dataclass(frozen=True)
class Charsmap:
    """units: uint32[]; texts: uint8[], each to its NUL; pairs: uint8[65536], 1 where a key begins
    with these two bytes (first << 8 | second), or with the first one alone; longest: bytes of the
    longest replacement; single: code point to replacement, of keys that are one character;
    begins: int32[1 << 16]: of code points below that, NO_KEY, LOOK for those with which a key
    begins, or, where that character is the only key and what replaces it is short and has neither
    a space nor U+2581, the place of that in texts."""

    units: np.ndarray
    texts: np.ndarray
    pairs: np.ndarray
    longest: int
    single: dict[int, bytes]
    begins: np.ndarray


def no_charsmap() -> Charsmap:
    """One that leaves all as it is."""
    none = np.empty(0, np.uint8)
    begins = np.full(1 << 16, NO_KEY, np.int32)
    return Charsmap(np.empty(0, np.uint32), none, np.zeros(1 << 16, np.uint8), 0, {}, begins)


def read_charsmap(blob: bytes) -> Charsmap:
    """Raises NotOurs for an array that leads astray, or ends keys within a character."""
    if not blob:
        return no_charsmap()
    size = int.from_bytes(blob[:4], "little")
    if size < 1024 or size % 1024 or size + 5 > len(blob) or blob[-1]:
        raise NotOurs("a precompiled normaliser of another form")
    units = np.frombuffer(blob, np.uint32, size // 4, 4).copy()
    raw = blob[4 + size :]
    texts = np.frombuffer(raw, np.uint8).copy()
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        raise NotOurs("a precompiled normaliser that writes no UTF-8") from None
    bases = _bases(units)
    pairs, values, keys, starts = _keys(units, bases, texts)
    ends = np.flatnonzero(texts == 0)
    longest = int((ends[np.searchsorted(ends, values)] - values).max(initial=0))
    single = {key: raw[value : raw.index(b"\0", value)] for key, value in keys.items()}
    begins = np.full(1 << 16, NO_KEY, np.int32)
    begins[[point for point in {*starts, *single} if point < len(begins)]] = LOOK
    for point, text in single.items():
        plain = 0 < len(text) <= _SHORT and b" " not in text and b"\xe2" not in text
        if plain and point < len(begins) and point not in starts:
            begins[point] = keys[point]
    return Charsmap(units, texts, pairs, longest, single, begins)


def _bases(units: np.ndarray) -> np.ndarray:
    """int64[units]: where children of each unit would be, less their labels."""
    places = np.arange(len(units))
    offsets = (units >> 10).astype(np.int64) << ((units & 512) >> 6).astype(np.int64)
    bases: np.ndarray = places ^ offsets
    inner = units & _LABEL <= 0xFF
    if units[0] & 0x1FF or not offsets[0] or np.any((bases[inner] | 0xFF) >= len(units)):
        raise NotOurs("a precompiled normaliser that leads astray")
    leaves = inner & (units >> 8 & 1 == 1)
    if np.any(units[bases[leaves]] >> 31 == 0):
        raise NotOurs("a precompiled normaliser that leads astray")
    return bases


# How many bytes follow the first one of a character; -1 for a byte that begins none.
_BEHIND = np.full(256, -1, np.int64)
_BEHIND[:0x80], _BEHIND[0xC2:0xE0], _BEHIND[0xE0:0xF0], _BEHIND[0xF0:0xF5] = 0, 1, 2, 3


def _keys(
    units: np.ndarray, bases: np.ndarray, texts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, dict[int, int], frozenset[int]]:
    """(pairs, places of replacements, those of keys that are one character, characters that begin
    a longer key), of the keys that are UTF-8, breadth first."""
    labels = (units & _LABEL).astype(np.int64)
    slots = np.flatnonzero(labels <= 0xFF)
    slots = slots[slots > 0]
    parents = slots ^ labels[slots]
    order = np.argsort(parents, kind="stable")
    slots, parents = slots[order], parents[order]
    pairs = np.zeros((256, 256), np.uint8)
    places: list[np.ndarray] = []
    keys: dict[int, int] = {}
    starts: set[int] = set()
    # Of every path: its unit, bytes that its last character lacks, its first byte, the bytes of its
    # first character, and whether it has no other.
    unit, left, head, first = (np.zeros(1, np.int64) for _ in range(4))
    one = np.ones(1, np.bool_)
    for depth in range(_DEEPEST):
        low = np.searchsorted(parents, bases[unit], "left")
        count = np.searchsorted(parents, bases[unit], "right") - low
        parent = np.repeat(np.arange(len(unit)), count)
        if len(parent) > _MOST_PATHS:
            break
        unit = slots[np.arange(len(parent)) + np.repeat(low - np.cumsum(count) + count, count)]
        byte, before, first = labels[unit], left[parent], first[parent]
        left = np.where(before > 0, np.where(byte >> 6 == 2, before - 1, -1), _BEHIND[byte])
        one = one[parent] & ((before > 0) | (depth == 0))
        head = byte if depth == 0 else head[parent]
        if depth:
            starts |= set(np.unique(first[(before == 0) & (left >= 0)]).tolist())
        first = np.where(one, first << 8 | byte, first)
        real = left >= 0  # no text has the others' bytes
        unit, left, head, first = unit[real], left[real], head[real], first[real]
        one, byte = one[real], byte[real]
        if not len(unit):
            found = np.concatenate([np.empty(0, np.int64), *places])
            return pairs.ravel(), found, keys, frozenset(map(_character, starts))
        leaf = units[unit] >> 8 & 1 == 1
        value = (units[bases[unit[leaf]]] & 0x7FFFFFFF).astype(np.int64)
        if np.any(left[leaf]) or np.any(value >= len(texts)) or np.any(texts[value] >> 6 == 2):
            raise NotOurs("a precompiled normaliser that cuts characters")
        if depth == 0:
            pairs[byte[leaf]] = 1
        if depth == 1:
            pairs[head, byte] = 1
        whole = zip(first[leaf & one].tolist(), value[one[leaf]].tolist(), strict=True)
        keys |= {_character(code): place for code, place in whole}
        places.append(value)
    raise NotOurs("a precompiled normaliser that does not end")


def _character(code: int) -> int:
    """The code point that these bytes of UTF-8 spell."""
    return ord(code.to_bytes(4, "big").lstrip(b"\0").decode() or "\0")
