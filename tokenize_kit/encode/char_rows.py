"""Rows to the ids of a byte-pair model over characters, word by word, with a memory of words."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from numba import njit

from tokenize_kit.encode.borders import word_end
from tokenize_kit.encode.char_bpe import merge_characters
from tokenize_kit.encode.characters import number_characters
from tokenize_kit.encode.remembered import look_up, recall
from tokenize_kit.encode.spelling import join_unknown, spell
from tokenize_kit.encode.trie import build_trie, longest
from tokenize_kit.encode.words import INLINE, LONGEST, remember, seen_before, word_key

# Tokens that are found before anything is merged, the longest at every place from left to right.
# first: uint8[256]: 1 for a byte that one begins with; slots, found: trie.build_trie, of places in
# ids and sizes: int64[]: id and bytes of each.
Symbols = namedtuple("Symbols", "first slots found ids sizes")


def make_symbols(ids: dict[bytes, int]) -> Symbols:
    """Of text to id."""
    first = np.zeros(256, np.uint8)
    for text in ids:
        first[text[0]] = 1
    slots, found = build_trie([*ids] or [b"\xff"], np.arange(max(len(ids), 1)))
    numbers, sizes = np.array([*ids.values()], np.int64), np.array([*map(len, ids)], np.int64)
    return Symbols(first, slots, found, numbers, sizes)


@njit(nogil=True)
def _stretch(data, a, z, bpe, fallback, room, out, w):
    """Appends the ids of data[a:z], which has no symbol, to out[:w]; returns the new length."""
    numbers, tokens, ranks, longest_at, dead, path, ends = room
    n = number_characters(bpe.alphabet, data, a, z, numbers)
    count = merge_characters(bpe, numbers, n, (tokens, ranks, longest_at, dead), path, ends)
    return spell(fallback.unknown, fallback.bytes, path, ends, count, data, a, out, w)


@njit(nogil=True)
def _word(data, a, z, bpe, symbols, fallback, room, out, w):
    """Appends the ids of a word to out[:w]; returns the new length."""
    if len(symbols.ids) == 0:
        return _stretch(data, a, z, bpe, fallback, room, out, w)
    at = a
    while at < z:
        place = np.int64(-1)
        if symbols.first[data[at]]:
            place = longest(symbols.slots, symbols.found, data, at, z)
        if place < 0:
            at += 1
            continue
        w = _stretch(data, a, at, bpe, fallback, room, out, w)
        out[w] = symbols.ids[place]
        w += 1
        at += symbols.sizes[place]
        a = at
    return _stretch(data, a, z, bpe, fallback, room, out, w)


@njit(nogil=True)
def _encode(data, a, row_end, bpe, symbols, fallback, crossed, cache, room, own, out, w):
    """Appends the ids of data[a:row_end] to out[:w]; returns the new length."""
    entries, letters, ids, used, seen = cache
    before = w
    while a < row_end:
        z = word_end(data, a, row_end, crossed)
        known = kept = z - a <= LONGEST
        if kept:
            low, high = word_key(data, a, z)
            slot = look_up(entries, letters, low, high, data, a, z)
            known = entries[slot, 1] != 0
            kept = known or z - a <= INLINE or seen_before(seen, low)
        if known:
            w = recall(entries, ids, slot, z - a, out, w)
        else:
            first = w
            w = _word(data, a, z, bpe, symbols, fallback, room, out, w)
            if kept and w - first <= LONGEST:
                for k in range(first, w):
                    own[k - first] = out[k]
                n = w - first
                remember(entries, letters, ids, used, slot, low, high, data, a, z, own, n)
        a = z
    if len(fallback.bytes) == 0 and fallback.joined:
        w = join_unknown(fallback.unknown, out, before, w)
    return w


@njit(cache=True, nogil=True)
def encode_characters(data, offsets, bpe, symbols, fallback, crossed, width, cache):
    """(ids: uint32[], sizes: int64[rows]) of normalised rows.

    width: ids that a byte gives at most.
    """
    out = np.empty((offsets[-1] - offsets[0]) * width, np.uint32)
    sizes = np.empty(len(offsets) - 1, np.int64)
    most = LONGEST
    for row in range(len(sizes)):
        most = max(most, offsets[row + 1] - offsets[row])
    room = (
        np.empty(most + 1, np.int32),
        np.empty(most + 1, np.int64),
        np.empty(most + 1, np.int64),
        np.empty(most + 1, np.int64),
        np.zeros(most + 1, np.bool_),
        np.empty(most + 1, np.int64),
        np.empty(most + 1, np.int64),
    )
    own = np.empty(LONGEST, np.uint32)
    w = np.int64(0)
    for row in range(len(sizes)):
        a, z = np.int64(offsets[row]), np.int64(offsets[row + 1])
        before = w
        w = _encode(data, a, z, bpe, symbols, fallback, crossed, cache, room, own, out, w)
        sizes[row] = w - before
    return out[:w], sizes
