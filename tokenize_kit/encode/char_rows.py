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
def _next_symbol(first, slots, found, data, a, z):
    """(place, number) of the first symbol in data[a:z]; (z, -1) where there is none."""
    for at in range(a, z):
        if first[data[at]]:
            place = longest(slots, found, data, at, z)
            if place >= 0:
                return at, place
    return z, np.int64(-1)


@njit(nogil=True)
def _encode(data, a, row_end, bpe, symbols, fallback, crossed, cache, room, own, out, w):
    """Appends the ids of data[a:row_end] to out[:w]; returns the new length."""
    entries, letters, ids, used, seen = cache
    alphabet, beside, joins, trie, tokens, pairs, orderly, parts, part_ends, dense = bpe
    low_numbers, blocks, table = alphabet
    links, found = trie
    slots, bits = pairs
    first, symbol_slots, symbol_found, symbol_ids, symbol_sizes = symbols
    unknown, byte_ids, joined = fallback
    numbers, merged, ranks, longest_at, dead, path, ends = room
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
            begin, at = w, a
            while True:  # what stands before, between and behind symbols
                stop, symbol = z, np.int64(-1)
                if len(symbol_ids):
                    stop, symbol = _next_symbol(first, symbol_slots, symbol_found, data, at, z)
                n = number_characters(low_numbers, blocks, table, data, at, stop, numbers)
                count = merge_characters(
                    beside, joins, links, found, tokens, pairs, slots, bits, orderly, parts,
                    part_ends, dense, numbers, n, merged, ranks, longest_at, dead, path, ends,
                )  # fmt: skip
                w = spell(unknown, byte_ids, path, ends, count, data, at, out, w)
                if symbol < 0:
                    break
                out[w] = symbol_ids[symbol]
                w += 1
                at = stop + symbol_sizes[symbol]
            if kept and w - begin <= LONGEST:
                for k in range(begin, w):
                    own[k - begin] = out[k]
                n = w - begin
                remember(entries, letters, ids, used, slot, low, high, data, a, z, own, n)
        a = z
    if len(byte_ids) == 0 and joined:
        w = join_unknown(unknown, out, before, w)
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
