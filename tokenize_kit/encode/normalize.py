"""SentencePiece's normalization of text, with U+2581 written as a space.

SentencePiece writes every space as U+2581 before it looks for pieces. To SentencePiece, a space and
U+2581 are the same character, so both are written here as a space, which takes one byte. At each
position the normalizer takes the longest user-defined symbol, which it leaves unchanged; without
a symbol, the longest key of the precompiled normalizer, which it replaces; else one character
(sentencepiece, src/normalizer.cc, Normalizer::NormalizePrefix).

The precompiled normalizer is a blob: the size of an array in bytes (uint32), the array, and
replacements that each end in NUL. The array is a trie as in darts-clone. An
element has a label (a byte), an offset and a mark if a key ends there. Its index xor the offset is
the index of its leaf, which holds a replacement's position; this xor a byte is that of a child.
"""

from __future__ import annotations

import sys
import unicodedata
from collections import namedtuple
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

import numpy as np

from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8
from tokenize_kit.encode.trie import build_trie, longest_token
from tokenize_kit.encode.words import width_of
from tokenize_kit.formats.tokenizer_json import Unsupported

ODD = 255  # in a table: rows with this character are odd, that is, left to the library
_WHITE = "\t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
NormalForm = Literal["NFC", "NFD", "NFKC", "NFKD"]
SMALL = 6  # bytes: `tokenizers` normalizes shorter clusters as a whole (precompiled.rs)
# Letters that extend a cluster (UAX 29), in addition to marks, formats and emoji modifiers.
_EXTENDING = [0x0E33, 0x0EB3, 0xFF9E, 0xFF9F, *range(0x1F3FB, 0x1F400)]
_PREPENDED = [0x0D4E, 0x111C2, 0x111C3, 0x113D1, 0x1193F, 0x11941, 0x11A3A, 0x11D46, 0x11F02]
_PREPENDED += range(0x11A84, 0x11A8A)


@cache
def form_table(form: NormalForm) -> np.ndarray:
    """Return the table of `find_odd` for a normal form: uint8[0x110000], by code point. A value is
    the character's combining class, or ODD if the character is unassigned or may change when
    normalized, alone or after another character. A text without ODD characters is already in the
    normal form if no class except 0 is lower than the class before it (UAX 15, quick check)."""
    table = np.zeros(sys.maxunicode + 1, np.uint8)
    for point in range(sys.maxunicode + 1):
        if 0xD800 <= point < 0xE000 or 0xAC00 <= point < 0xD7A4 or point >= 0xF0000:
            continue
        character = chr(point)
        parts = unicodedata.decomposition(character)
        if parts:
            if unicodedata.normalize(form, character) != character:
                table[point] = ODD
            if not parts.startswith("<") and form.endswith("C"):
                table[[int(part, 16) for part in parts.split()[1:]]] = ODD
        if table[point] != ODD:
            unknown = unicodedata.category(character) == "Cn"
            table[point] = ODD if unknown else unicodedata.combining(character)
    if form.endswith("C"):
        table[0x1161:0x1176] = table[0x11A8:0x11C3] = ODD  # vowels and finals of Hangul
    else:
        table[0xAC00:0xD7A4] = ODD
    return table


@cache
def _clusters() -> np.ndarray:
    """Return uint8[0x110000]: 1 for characters that may continue the grapheme cluster of the
    character before, ODD for characters that take the next one into their own cluster, else 0."""
    table = np.zeros(sys.maxunicode + 1, np.uint8)
    for point in range(0x80, sys.maxunicode + 1):
        table[point] = unicodedata.category(chr(point)) in ("Mn", "Mc", "Me", "Cf", "Cn")
    table[_EXTENDING] = 1
    table[[0, 0x0D, *_PREPENDED]] = ODD
    formats = [*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD]
    table[formats] = ODD
    return table


def cluster_table(single: dict[int, bytes], *, white: bool) -> np.ndarray:
    """Return the table by which `find_odd` finds texts that the library `tokenizers` must
    normalize: uint8[0x110000], by code point. ODD: the library must normalize each text with this
    character; 1: the character may join the one before, like an accent; 0: all others. single: the
    normalizer's {code point: replacement}; white: True if later steps distinguish other white space
    from spaces."""
    table = _clusters().copy()
    bad = "\u2581" + (_WHITE if white else "")
    table[[ord(character) for character in bad if ord(character) not in single]] = ODD
    for point, text in single.items():
        if any(character in bad for character in text.decode()):
            table[point] = ODD
    return table


_HIGHEST = np.uint64(0x8080808080808080)  # set in bytes that are not ASCII


@njit(cache=True, nogil=True)
def find_odd(data, offsets, table, clusters):
    """Return bool[rows]: True for rows that our code might normalize wrongly, so that the library
    `tokenizers` must encode them. table: from form_table or, if clusters is True, cluster_table."""
    odd = np.zeros(len(offsets) - 1, np.bool_)
    for row in range(len(odd)):
        at, z = np.int64(offsets[row]), np.int64(offsets[row + 1])
        before = np.int64(0)  # the last character's combining class, or its bytes for clusters
        while at < z:
            while not clusters and at + 8 <= z and load8(data, np.uint64(at)) & _HIGHEST == 0:
                at += 8
                before = np.int64(0)
            if at == z:
                break
            byte = np.int64(data[at])
            if byte < 0x80:
                point, size = byte, 1
            elif byte < 0xE0:
                point, size = (byte & 0x1F) << 6 | np.int64(data[at + 1] & 0x3F), 2
            else:
                point = np.int64(data[at + 1] & 0x3F) << 6 | np.int64(data[at + 2] & 0x3F)
                size = 3
                if byte < 0xF0:
                    point |= (byte & 0x0F) << 12
                else:
                    point = point << 6 | np.int64(data[at + 3] & 0x3F) | (byte & 0x07) << 18
                    size = 4
            kind = np.int64(table[point])
            if kind == ODD:
                odd[row] = True
                break
            if clusters:
                if kind and before and before + size < SMALL:
                    odd[row] = True
                    break
                before = np.int64(size)
            else:
                if kind and kind < before:
                    odd[row] = True
                    break
                before = kind
            at += size
    return odd


_LABEL = np.uint32(0x800000FF)
NO_KEY, LOOK = -1, -2  # of Charsmap.begins
_SHORT = 3  # bytes of the longest characters that are looked up in `begins`
_DEEPEST, _MOST_PATHS = 256, 1 << 21  # published normalizers: some 20 bytes, some 10,000 keys


@dataclass(frozen=True)
class Charsmap:
    """A precompiled normalizer, which replaces strings (keys). units: uint32[], the trie of the
    keys. texts: uint8[], replacements that end in NUL. pairs: uint8[65536], 1 at (first << 8 |
    second) if a key begins with these two bytes, or if a key is the first byte alone. longest: the
    length in bytes of the longest replacement. single: {code point: replacement} for keys of one
    character. begins: int32[1 << 16], by code point: NO_KEY if no key begins with the character;
    LOOK if the trie must be searched; else the position in `texts` of the character's
    replacement."""

    units: np.ndarray
    texts: np.ndarray
    pairs: np.ndarray
    longest: int
    single: dict[int, bytes]
    begins: np.ndarray


def no_charsmap() -> Charsmap:
    none = np.empty(0, np.uint8)
    begins = np.full(1 << 16, NO_KEY, np.int32)
    return Charsmap(np.empty(0, np.uint32), none, np.zeros(1 << 16, np.uint8), 0, {}, begins)


@lru_cache(maxsize=4)
def read_charsmap(blob: bytes) -> Charsmap:
    """Read a precompiled normalizer. Raises Unsupported for offsets out of range and for keys that
    end within a character."""
    if not blob:
        return no_charsmap()
    size = int.from_bytes(blob[:4], "little")
    if size < 1024 or size % 1024 or size + 5 > len(blob) or blob[-1]:
        raise Unsupported("a precompiled normalizer of another form")
    units = np.frombuffer(blob, np.uint32, size // 4, 4).copy()
    raw = blob[4 + size :]
    texts = np.frombuffer(raw, np.uint8).copy()
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Unsupported("a precompiled normalizer that does not write UTF-8") from None
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
    positions = np.arange(len(units))
    offsets = (units >> 10).astype(np.int64) << ((units & 512) >> 6).astype(np.int64)
    bases: np.ndarray = positions ^ offsets
    inner = units & _LABEL <= 0xFF
    if units[0] & 0x1FF or not offsets[0] or np.any((bases[inner] | 0xFF) >= len(units)):
        raise Unsupported("a precompiled normalizer with offsets out of range")
    leaves = inner & (units >> 8 & 1 == 1)
    if np.any(units[bases[leaves]] >> 31 == 0):
        raise Unsupported("a precompiled normalizer with offsets out of range")
    return bases


# The number of bytes after the first byte of a character; -1 for other bytes.
_BEHIND = np.full(256, -1, np.int64)
_BEHIND[:0x80], _BEHIND[0xC2:0xE0], _BEHIND[0xE0:0xF0], _BEHIND[0xF0:0xF5] = 0, 1, 2, 3


def _keys(
    units: np.ndarray, bases: np.ndarray, texts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, dict[int, int], frozenset[int]]:
    labels = (units & _LABEL).astype(np.int64)
    slots = np.flatnonzero(labels <= 0xFF)
    slots = slots[slots > 0]
    parents = slots ^ labels[slots]
    order = np.argsort(parents, kind="stable")
    slots, parents = slots[order], parents[order]
    pairs = np.zeros((256, 256), np.uint8)
    positions: list[np.ndarray] = []
    keys: dict[int, int] = {}
    starts: set[int] = set()
    # For each path: its unit, the bytes missing in its last character, its first byte, the bytes of
    # its first character, and whether that is its only character.
    unit, lacking, head, first = (np.zeros(1, np.int64) for _ in range(4))
    single = np.ones(1, np.bool_)
    for depth in range(_DEEPEST):
        low = np.searchsorted(parents, bases[unit], "left")
        count = np.searchsorted(parents, bases[unit], "right") - low
        parent = np.repeat(np.arange(len(unit)), count)
        if len(parent) > _MOST_PATHS:
            break
        unit = slots[np.arange(len(parent)) + np.repeat(low - np.cumsum(count) + count, count)]
        byte, before, first = labels[unit], lacking[parent], first[parent]
        lacking = np.where(before > 0, np.where(byte >> 6 == 2, before - 1, -1), _BEHIND[byte])
        single = single[parent] & ((before > 0) | (depth == 0))
        head = byte if depth == 0 else head[parent]
        if depth:
            starts |= set(np.unique(first[(before == 0) & (lacking >= 0)]).tolist())
        first = np.where(single, first << 8 | byte, first)
        real = lacking >= 0  # other paths are not UTF-8
        unit, lacking, head, first = unit[real], lacking[real], head[real], first[real]
        single, byte = single[real], byte[real]
        if not len(unit):
            values = np.concatenate([np.empty(0, np.int64), *positions])
            return pairs.ravel(), values, keys, frozenset(map(_code_point, starts))
        leaf = units[unit] >> 8 & 1 == 1
        value = (units[bases[unit[leaf]]] & 0x7FFFFFFF).astype(np.int64)
        if np.any(lacking[leaf]) or np.any(value >= len(texts)) or np.any(texts[value] >> 6 == 2):
            raise Unsupported("a precompiled normalizer that splits characters")
        if depth == 0:
            pairs[byte[leaf]] = 1
        if depth == 1:
            pairs[head, byte] = 1
        whole = zip(first[leaf & single].tolist(), value[single[leaf]].tolist(), strict=True)
        keys |= {_code_point(code): position for code, position in whole}
        positions.append(value)
    raise Unsupported("a precompiled normalizer with endless keys")


def _code_point(code: int) -> int:
    return ord(code.to_bytes(4, "big").lstrip(b"\0").decode() or "\0")


_MOST_MATCHES = 32  # Normalizer::kMaxTrieResultsSize: longer keys are ignored
_SPACE = np.uint8(0x20)

# Classes of bytes by what may begin with them: only the byte's own character; a space; a key of the
# normalizer; a user-defined symbol or U+2581.
_PLAIN, _BLANK, _KEY, _SYMBOL = 0, 1, 2, 3

# special: uint8[256] of these classes; units, texts, pairs, begins: of Charsmap; widest: bytes of
# the longest replacement; slots, length_at: trie.build_trie of the user-defined symbols; prefix,
# suffix: a space goes before or after the text; squeeze: runs of spaces become one, and those at
# the ends are dropped; single: only keys of one character count; lead: no space goes before a text
# that begins with one.
Normalizer = namedtuple(
    "Normalizer",
    "special units texts pairs begins widest slots length_at prefix suffix squeeze single lead",
)


def make_normalizer(
    charsmap: Charsmap,
    symbols: list[bytes],
    *,
    prefix: bool,
    suffix: bool = False,
    squeeze: bool = False,
    single: bool = False,
    lead: bool = False,
) -> Normalizer:
    """Build a normalizer. symbols: user-defined symbols as the model spells them. Raises ValueError
    if there are too many symbols."""
    special = np.full(256, _PLAIN, np.uint8)
    keys = charsmap.pairs.reshape(256, 256).any(axis=1)
    special[keys] = _KEY
    special[0x20] = _SYMBOL if special[0x20] == _KEY else _BLANK
    special[[0xE2, *(symbol[0] for symbol in symbols)]] = _SYMBOL
    slots, length_at = build_trie(symbols or [b"\xff"], np.array([*map(len, symbols or [b"f"])]))
    return Normalizer(
        special,
        charsmap.units,
        charsmap.texts,
        charsmap.pairs,
        charsmap.begins,
        charsmap.longest,
        slots,
        length_at,
        prefix,
        suffix,
        squeeze,
        single,
        lead,
    )


@njit(nogil=True)
def _key(units, data, at, z):
    size, value, matches = 0, np.int64(0), 0
    unit = units[0]
    position = np.int64(0)
    for k in range(at, z):
        position ^= np.int64(unit >> np.uint32(10)) << np.int64((unit & np.uint32(512)) >> 6)
        position ^= np.int64(data[k])
        unit = units[position]
        if unit & np.uint32(0x800000FF) != np.uint32(data[k]):
            break
        if unit & np.uint32(256):
            leaf = position ^ (np.int64(unit >> np.uint32(10)) << np.int64((unit & 512) >> 6))
            size, value = k + 1 - at, np.int64(units[leaf] & np.uint32(0x7FFFFFFF))
            matches += 1
            if matches == _MOST_MATCHES:
                break
    return size, value


@njit(nogil=True)
def _write(out, w, source, a, b):
    while a < b:
        if source[a] == 0xE2 and a + 2 < b and source[a + 1] == 0x96 and source[a + 2] == 0x81:
            out[w] = _SPACE
            a += 3
        else:
            out[w] = source[a]
            a += 1
        w += 1
    return w


@njit(nogil=True)
def _normalize(data, at, z, norm, out, w):
    special, units, texts, pairs = norm.special, norm.units, norm.texts, norm.pairs
    begins = norm.begins
    begin = w
    squeeze = norm.squeeze
    after_space = squeeze
    led = not squeeze and at < z  # a character other than a space was read
    if led and norm.prefix:
        out[w] = _SPACE
        w += 1
    while at < z:
        if w + (z - at) + norm.widest + 8 > len(out):
            return -1
        while led and at < z:  # the fast path: characters that stay unchanged
            byte = data[at]
            kind = special[byte]
            if kind == _PLAIN:
                out[w] = byte
                w += 1
                at += 1
                after_space = False
            elif kind == _BLANK:
                if not after_space:
                    out[w] = _SPACE
                    w += 1
                    after_space = squeeze
                at += 1
            elif kind == _KEY:
                size = 1
                if at + 1 < z and pairs[np.int64(byte) << 8 | np.int64(data[at + 1])]:
                    if byte < 0xE0 or byte >= 0xF0:
                        break
                    point = np.int64(byte & 0x0F) << 12 | np.int64(data[at + 1] & 0x3F) << 6
                    point |= np.int64(data[at + 2] & 0x3F)
                    a = np.int64(begins[point])
                    if a == LOOK:
                        break
                    size = 3
                    if a != NO_KEY:
                        while texts[a] != 0:
                            out[w] = texts[a]
                            w += 1
                            a += 1
                        at += 3
                        after_space = False
                        continue
                elif at + 1 == z:
                    break
                for k in range(at, at + size):
                    out[w] = data[k]
                    w += 1
                at += size
                after_space = False
            else:
                break
        if at == z:
            break
        # One step: `size` bytes of the text, unchanged or replaced by texts[a:b].
        byte = data[at]
        size, a, b = 0, np.int64(0), np.int64(0)
        if special[byte] == _SYMBOL:
            size = max(longest_token(norm.slots, norm.length_at, data, at, z), 0)
        replaced = False
        if (size == 0 and len(units)) and (
            at + 1 == z or pairs[np.int64(byte) << 8 | np.int64(data[at + 1])]
        ):
            end = min(z, at + width_of(data[at])) if norm.single else z
            size, a = _key(units, data, at, end)
            replaced = size > 0
        if size == 0:
            size = width_of(data[at])
        if replaced:
            b = a
            while texts[b] != 0:
                b += 1
        if not led:
            if (replaced and b - a == 1 and texts[a] == _SPACE) or (
                not replaced and size == 1 and byte == _SPACE
            ):
                at += size
                continue
            led = True
            if norm.prefix:
                out[w] = _SPACE
                w += 1
        if replaced:
            while after_space and a < b and texts[a] == _SPACE:
                a += 1
            if a < b:
                after_space = squeeze and texts[b - 1] == _SPACE
                w = _write(out, w, texts, a, b)
        else:
            c, d = at, at + size
            while after_space and c < d and data[c] == _SPACE:
                c += 1
            if c < d:
                after_space = squeeze and data[d - 1] == _SPACE
                w = _write(out, w, data, c, d)
        at += size
    if squeeze:
        while w > begin and out[w - 1] == _SPACE:
            w -= 1
    if norm.lead and w > begin and (w == begin + 1 or out[begin + 1] == _SPACE):
        w -= 1  # drop the prefix if the text is empty or begins with a space
        for k in range(begin, w):
            out[k] = out[k + 1]
    if norm.suffix and led:
        out[w] = _SPACE
        w += 1
    return w


@njit(cache=True, nogil=True)
def normalize_rows(data, offsets, norm):
    """Return the normalized rows as (bytes: uint8[], offsets: int64[rows + 1])."""
    rows = len(offsets) - 1
    ends = np.zeros(rows + 1, np.int64)
    out = np.empty((offsets[-1] - offsets[0]) + 2 * rows + norm.widest + 64, np.uint8)
    for row in range(rows):
        w = _normalize(data, offsets[row], offsets[row + 1], norm, out, ends[row])
        while w < 0:
            larger = np.empty(2 * len(out), np.uint8)
            for k in range(ends[row]):
                larger[k] = out[k]
            out = larger
            w = _normalize(data, offsets[row], offsets[row + 1], norm, out, ends[row])
        ends[row + 1] = w
    return out[: ends[rows]], ends
