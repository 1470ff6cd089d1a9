"""Rows to the ids of a byte-pair model over characters, word by word, with a memory of words."""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kernel_cache import njit
from tokenize_kit.encode.bytes8 import njit_bare, njit_within
from tokenize_kit.encode.char_bpe import Room, merge_characters
from tokenize_kit.encode.characters import number_characters
from tokenize_kit.encode.remembered import BATCH, END, HIGH, LOW, cut_words, known_words
from tokenize_kit.encode.spelling import join_unknown
from tokenize_kit.encode.trie import build_trie, longest
from tokenize_kit.encode.words import LONGEST, remember

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


@njit_bare
def _next_symbol(symbols, data, a, z):
    """(place, number) of the first symbol in data[a:z]; (z, -1) where there is none."""
    if len(symbols.ids):
        for at in range(a, z):
            if symbols.first[data[at]]:
                place = longest(symbols.slots, symbols.found, data, at, z)
                if place >= 0:
                    return at, place
    return z, np.int64(-1)


@njit_within
def _word(data, a, z, bpe, symbols, fallback, room, out, w):
    """Appends the ids of data[a:z] to out[:w]; returns the new length."""
    while True:  # what stands before, between and behind symbols
        stop, symbol = _next_symbol(symbols, data, a, z)
        n = number_characters(bpe.alphabet, data, a, stop, room.numbers, room.places)
        w = merge_characters(bpe, fallback, room, n, data, a, out, w)
        if symbol < 0:
            return w
        out[w] = symbols.ids[symbol]
        w += 1
        a = stop + symbols.sizes[symbol]


@njit_bare
def _encode(data, offsets, bpe, symbols, fallback, crossed, cache, room, own, out, sizes):
    """Writes the ids of all rows to out, their number to sizes; returns how many there are."""
    sums, none = room.sums, np.float32(0)
    w = np.int64(0)
    for row in range(len(sizes)):
        a, row_end, before = np.int64(offsets[row]), np.int64(offsets[row + 1]), w
        while a < row_end:
            count = cut_words(data, a, row_end, crossed, cache, room.words)
            k = np.int64(0)
            while True:
                k, a, slot, w, none = known_words(
                    data, a, room.words, k, count, cache, sums, np.bool_(False), none, 0.0, out, w
                )
                if k == count:
                    break
                z, low, high = np.int64(room.words[k, END]), room.words[k, LOW], room.words[k, HIGH]
                begin = w
                w = _word(data, a, z, bpe, symbols, fallback, room, out, w)
                n = w - begin
                if high != 0 and n <= LONGEST:
                    for i in range(n):
                        own[i] = out[begin + i]
                    remember(cache, slot, low, high, data, a, z, own, n, np.int64(0))
                a = z
                k += 1
        if fallback.joined and len(fallback.bytes) == 0:
            w = join_unknown(fallback.unknown, out, before, w)
        sizes[row] = w - before
    return w


@njit(cache=True, nogil=True)
def encode_characters(data, offsets, bpe, symbols, fallback, crossed, width, cache):
    """(ids: uint32[], sizes: int64[rows]) of normalised rows.

    width: ids that a byte gives at most.
    """
    out = np.empty((offsets[-1] - offsets[0]) * width + 2, np.uint32)
    sizes = np.empty(len(offsets) - 1, np.int64)
    most = LONGEST
    for row in range(len(sizes)):
        most = max(most, offsets[row + 1] - offsets[row])
    own = np.empty(LONGEST, np.uint32)
    room = Room(
        np.empty(most + 1, np.int32),
        np.empty(most + 1, np.int32),
        np.empty(most + 1, np.int64),
        np.empty(most + 1, np.int64),
        np.empty(most + 1, np.int64),
        np.zeros(most + 1, np.bool_),
        np.empty(most + 1, np.bool_),
        np.empty(0, np.float32),
        np.empty((BATCH, 4), np.uint64),
    )
    w = _encode(data, offsets, bpe, symbols, fallback, crossed, cache, room, own, out, sizes)
    return out[:w], sizes
