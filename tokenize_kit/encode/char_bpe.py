"""BPE over characters, as in SentencePiece and in a tokenizer.json converted from its models.

First, a word is cut wherever no token that matches a part of it lies across the cut. Most of the
resulting stretches are a single token or character. The others are encoded from left to right
(greedy.py) or, if the order of merges does not allow that, merged by rank (merges.py)."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import numpy as np

from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import mix_bits
from tokenize_kit.encode.greedy import (
    ID,
    LEFT,
    LENGTH,
    RIGHT,
    SHORTER,
    may_follow,
    ranks_of,
)
from tokenize_kit.encode.trie import (
    build_character_trie,
    build_trie,
    longest_token,
    make_alphabet,
    number_characters,
    numbers_of,
)
from tokenize_kit.encode.words import (
    BATCH,
    END,
    HIGH,
    LONGEST,
    LOW,
    add_word,
    cut_words,
    join_unknown,
    longest_row,
    recall_words,
    write_fallback,
)
from tokenize_kit.formats.merges import SHORT, derive_merges, merge_long, merge_short, pair_table

DENSE = "\u2e80"  # from here on ideographs, kana, Hangul: few pairs of them are in tokens
ASK = -1  # instead of the longest token: not looked up yet
LACKING = -1  # instead of an id: a character that is not in the vocabulary
_34, _40, _46, _63 = np.uint64(34), np.uint64(40), np.uint64(46), np.uint64(63)
_ONE = np.uint64(1)
_2, _32 = np.uint64(2), np.uint64(32)

# Tokens are numbered: first single characters (0: in no token), then tokens in the order of their
# merges. beside: uint64[]: bits of every two characters that are neighbours in a token; steps:
# int32[4 per slot]: base, parent and token of a trie.CharacterTrie's slot, in one cache line;
# tokens: int32[numbers, 5], columns of greedy.py, lengths in characters; the id LACKING stands for
# the fallback; ids: int32[numbers]: the last column; dense: number of the first character of
# scripts in which most neighbours are in no token; pairs: merges.pair_table; orderly: True if the
# greedy encoder may be used; otherwise `pairs` holds all merges.
CharBpe = namedtuple("CharBpe", "alphabet beside steps tokens pairs orderly dense ids")
# Buffers for n characters. numbers, positions: int32[n + 1], of number_characters; merged, ranks,
# longest: int64[n + 1]; dead: bool[n + 1], all False; near: bool[n + 1]; sums: float32[0], words:
# used by words.py.
Work = namedtuple("Work", "numbers positions merged ranks longest dead near sums words")


@dataclass(frozen=True)
class Merges:
    """The merges of a model, as text. tokens: tokens of two or more characters, in the order of
    their first merge; rows: (left, right, merged, rank) per merge, with tokens or characters on the
    left and right; ids: the ids of all tokens and characters that may be output."""

    tokens: list[str]
    rows: list[tuple[str, str, str, int]]
    ids: dict[str, int]


def make_char_bpe(merges: Merges) -> CharBpe:
    """Build the tables of merges. Raises ValueError if the tokens do not fit into a table."""
    letters = [text for text in merges.ids if len(text) == 1]
    alphabet, size = make_alphabet([*merges.tokens, *letters])
    characters = sorted({*"".join(merges.tokens), *letters})
    number = {text: k for k, text in enumerate([*characters, *merges.tokens], 1)}
    rows = np.array([(number[a], number[b], number[c]) for a, b, c, _ in merges.rows], np.int64)
    rows = rows.reshape(-1, 3)
    pairs = pair_table(rows, np.array([rank for *_, rank in merges.rows], np.int64))
    data, ends = numbers_of(alphabet, merges.tokens)
    piece_ids = np.arange(size + 1, size + 1 + len(merges.tokens))
    left, right = derive_merges(data, ends, np.arange(size + 1), pairs, piece_ids)
    mergeable = np.flatnonzero((left >= 0) & (right >= 0))
    times = ranks_of(pairs, left[mergeable], right[mergeable])
    a, b, merged = left[mergeable], right[mergeable], piece_ids[mergeable]
    orderly = bool(np.all(a < merged) and np.all(b < merged) and np.all(np.diff(times) > 0))
    orderly = orderly and bool(
        np.all(np.isin(np.append(a, b), np.append(merged, np.arange(size + 1))))
    )
    tokens = np.repeat(np.arange(len(number) + 1, dtype=np.int32)[:, None], 5, axis=1)
    tokens[:, SHORTER], tokens[:, LENGTH] = -1, 1
    tokens[piece_ids, LENGTH] = np.diff(ends)
    texts = [*characters, *merges.tokens]
    if orderly:
        tokens[merged, LEFT], tokens[merged, RIGHT] = a, b
        pairs = pair_table(np.stack([a, b, merged], axis=1))
        texts = [*characters, *(merges.tokens[k] for k in mergeable.tolist())]
    used = np.array([number[text] for text in texts], np.int64)
    trie = build_character_trie(
        alphabet, size, texts or ["a"], used if texts else np.zeros(1, np.int64)
    )
    if orderly:
        _fill_shorter(trie.links, trie.token_at, data, ends, piece_ids, tokens)
    tokens[:, ID] = LACKING
    for text, k in number.items():
        tokens[k, ID] = merges.ids.get(text, LACKING)
    inner = np.ones(len(data), np.bool_)
    inner[ends[1:] - 1] = False
    positions = np.flatnonzero(inner)
    beside = _pair_bits(np.stack([data[positions], data[positions + 1]], axis=1))
    dense = 1 + sum(character < DENSE for character in characters)
    steps = np.zeros((len(trie.token_at), 4), np.int32)
    steps[:, :2], steps[:, 2] = trie.links, trie.token_at
    ids = tokens[:, ID].copy()
    return CharBpe(alphabet, beside, steps.ravel(), tokens, pairs, orderly, dense, ids)


@njit(nogil=True, forceinline=True)
def _two_bits(left, right):
    mixed = mix_bits(np.uint64(left) << _32 | np.uint64(right))
    return mixed >> _46, _ONE << (mixed >> _40 & _63) | _ONE << (mixed >> _34 & _63)


@njit(cache=True, nogil=True)
def _pair_bits(pairs):
    """Return a Bloom filter of character pairs, int32[n, 2], as uint64[]. It has at least 16 bits
    per pair and sets two of them, so 1 in 70 other pairs is a false positive."""
    size = 1024
    while size < 16 * len(pairs):
        size *= 2
    bits = np.zeros(size >> 6, np.uint64)
    for k in range(len(pairs)):
        position, mask = _two_bits(pairs[k, 0], pairs[k, 1])
        bits[position & np.uint64(len(bits) - 1)] |= mask
    return bits


@njit(nogil=True, forceinline=True)
def _has_pair(bits, left, right):
    position, mask = _two_bits(left, right)
    return bits[position & np.uint64(len(bits) - 1)] & mask == mask


@njit(cache=True, nogil=True)
def _fill_shorter(links, token_at, data, ends, numbers, tokens):
    for k in range(len(numbers)):
        node = np.int64(data[ends[k]])
        tokens[numbers[k], SHORTER] = token_at[node]
        for at in range(ends[k] + 1, ends[k + 1] - 1):
            node = np.int64(links[node, 0]) + np.int64(data[at])
            if token_at[node] >= 0:
                tokens[numbers[k], SHORTER] = token_at[node]


@njit(nogil=True, forceinline=True)
def _longest_token(steps, data, a, z):
    slot = np.uint64(data[a])
    best, size = np.int64(steps[slot << _2 | _2]), np.int64(1)
    for k in range(a + 1, z):
        child = np.uint64(np.uint32(steps[slot << _2])) + np.uint64(np.uint32(data[k]))
        if steps[child << _2 | _ONE] != np.int32(slot):
            break
        slot = child
        token = np.int64(steps[slot << _2 | _2])
        if token >= 0:
            best, size = token, np.int64(k + 1 - a)
    return best, size


@njit(nogil=True)
def _cut_greedily(steps, tokens, pairs, data, longest, a, z, out, dead):
    """Encode characters a to z from left to right; write tokens to `out`, return their number.
    longest: int64[], the longest token at each character, or ASK to look it up in the trie `steps`;
    dead: a buffer, all False."""
    n = 0
    at = np.int64(a)
    token = longest[a]
    died = False
    while at < z:
        while True:
            end = at + np.int64(tokens[token, LENGTH])
            if not dead[end - a] and (n == 0 or may_follow(tokens, pairs, out[n - 1], token)):
                out[n] = token
                n += 1
                at = end
                if at < z:
                    token = longest[at]
                    if token == ASK:
                        token, _ = _longest_token(steps, data, at, z)
                        longest[at] = token
                break
            token = np.int64(tokens[token, SHORTER])
            if token < 0:
                dead[at - a] = True
                died = True
                if n == 0:
                    raise AssertionError("no token begins this text")
                n -= 1
                token = out[n]
                at -= np.int64(tokens[token, LENGTH])
                break
    if died:
        for k in range(z - a + 1):
            dead[k] = False
    return n


@njit(nogil=True, forceinline=True)
def _mark_neighbours(bpe, numbers, n, near):
    """Set near[k] to whether characters k and k + 1 may be neighbours in a token. This loop comes
    first and has no branch, so that the processor can load many table entries at once."""
    for k in range(n - 1):
        left, right = numbers[k], numbers[k + 1]
        near[k] = (left > 0) & (right > 0) & _has_pair(bpe.beside, left, right)
    near[n - 1] = False


@njit(nogil=True, forceinline=True)
def merge_characters(bpe, fallback, work, n, data, position, out, w):
    """Encode the text data[position:] by BPE and write its ids to `out` from index w on; return the
    index after the last id. The text has n characters: work.numbers[:n] and work.positions[:n] are
    their numbers and positions (see trie.number_characters)."""
    steps, tokens, pairs, ids = bpe.steps, bpe.tokens, bpe.pairs, bpe.ids
    numbers, positions, merged, longest, near = (
        work.numbers, work.positions, work.merged, work.longest, work.near
    )  # fmt: skip
    if n > 0:
        _mark_neighbours(bpe, numbers, n, near)
    a = np.int64(0)
    while a < n:
        if not near[a]:
            token = np.int64(ids[numbers[a]])
            if token >= 0:
                out[w] = token
                w += 1
                a += 1
                continue
        # Extend z until no token in the text spans it.
        z = np.int64(a + 1)
        size = np.int64(1)
        at = a
        loose = False
        while at < z:
            longest[at] = numbers[at]
            if near[at]:
                # After a character below `dense`, assume that a token spans each pair.
                loose = loose or numbers[at] < bpe.dense
                if not loose:
                    token, characters = _longest_token(steps, numbers, at, n)
                    longest[at] = token
                    z = max(z, at + characters)
                    if at == a:
                        size = characters
                else:
                    longest[at] = ASK
                    z = max(z, at + 2)
            at += 1
        if bpe.orderly and longest[a] == ASK:
            token, size = _longest_token(steps, numbers, a, z)
            longest[a] = token
        if bpe.orderly and size == z - a:  # the whole stretch is one token
            merged[0] = longest[a]
            m = np.int64(1)
        elif bpe.orderly:
            m = _cut_greedily(steps, tokens, pairs, numbers, longest, a, z, merged, work.dead)
        else:
            m = z - a
            for k in range(m):
                merged[k] = numbers[a + k]
            if m <= SHORT:
                m = merge_short(pairs, merged, work.ranks, m)
            else:
                m = merge_long(pairs, merged, m)
        at = a
        for k in range(m):
            token = np.int64(ids[merged[k]])
            if token >= 0:
                out[w] = token
                w += 1
                at += np.int64(tokens[merged[k], LENGTH])
            else:
                w = write_fallback(fallback, data, position + np.int64(positions[at]), out, w)
                at += 1
        a = z
    return w


# Tokens matched before any merge, the longest at each position from left to right. first:
# uint8[256]: 1 for the first byte of a symbol; slots, symbol_at: trie.build_trie of indexes into
# ids and sizes; ids, sizes: int64[]: id and bytes of each symbol.
Symbols = namedtuple("Symbols", "first slots symbol_at ids sizes")


def make_symbols(ids: dict[bytes, int]) -> Symbols:
    """Build the table of symbols. ids: the id of each symbol, by its text."""
    first = np.zeros(256, np.uint8)
    for text in ids:
        first[text[0]] = 1
    slots, symbol_at = build_trie([*ids] or [b"\xff"], np.arange(max(len(ids), 1)))
    numbers, sizes = np.array([*ids.values()], np.int64), np.array([*map(len, ids)], np.int64)
    return Symbols(first, slots, symbol_at, numbers, sizes)


@njit(nogil=True)
def _next_symbol(symbols, data, a, z):
    if len(symbols.ids):
        for at in range(a, z):
            if symbols.first[data[at]]:
                position = longest_token(symbols.slots, symbols.symbol_at, data, at, z)
                if position >= 0:
                    return at, position
    return z, np.int64(-1)


@njit(nogil=True, forceinline=True)
def _encode_word(data, a, z, bpe, symbols, fallback, work, out, w):
    while True:  # the text before, between and after symbols
        stop, symbol = _next_symbol(symbols, data, a, z)
        n = number_characters(bpe.alphabet, data, a, stop, work.numbers, work.positions)
        w = merge_characters(bpe, fallback, work, n, data, a, out, w)
        if symbol < 0:
            return w
        out[w] = symbols.ids[symbol]
        w += 1
        a = stop + symbols.sizes[symbol]


@njit(nogil=True)
def _encode_rows(data, offsets, bpe, symbols, fallback, crossed, cache, work, own, out, sizes):
    sums, none = work.sums, np.float32(0)
    w = np.int64(0)
    for row in range(len(sizes)):
        a, row_end, before = np.int64(offsets[row]), np.int64(offsets[row + 1]), w
        while a < row_end:
            count = cut_words(data, a, row_end, crossed, cache, work.words)
            k = np.int64(0)
            while True:
                k, a, slot, w, none = recall_words(
                    data, a, work.words, k, count, cache, sums, np.bool_(False), none, 0.0, out, w
                )
                if k == count:
                    break
                z, low, high = np.int64(work.words[k, END]), work.words[k, LOW], work.words[k, HIGH]
                begin = w
                w = _encode_word(data, a, z, bpe, symbols, fallback, work, out, w)
                n = w - begin
                if high != 0 and n <= LONGEST:
                    for i in range(n):
                        own[i] = out[begin + i]
                    add_word(cache, slot, low, high, data, a, z, own, n, np.int64(0))
                a = z
                k += 1
        if fallback.joined and len(fallback.bytes) == 0:
            w = join_unknown(fallback.unknown, out, before, w)
        sizes[row] = w - before
    return w


@njit(cache=True, nogil=True)
def encode_characters(data, offsets, bpe, symbols, fallback, crossed, width, cache):
    """Encode texts that are already normalized. Return (ids: uint32[], number of ids per text:
    int64[rows]). bpe, symbols, fallback: tables (CharBpe, Symbols, Fallback); crossed: how tokens
    contain spaces (Crossings); width: the largest number of ids per byte; cache: ids of words."""
    out = np.empty((offsets[-1] - offsets[0]) * width + 2, np.uint32)
    sizes = np.empty(len(offsets) - 1, np.int64)
    most = longest_row(offsets, LONGEST)
    own = np.empty(LONGEST, np.uint32)
    work = Work(
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
    w = _encode_rows(data, offsets, bpe, symbols, fallback, crossed, cache, work, own, out, sizes)
    return out[:w], sizes
