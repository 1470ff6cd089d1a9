"""Byte-pair encoding from left to right: take the longest token that may follow the previous one.

A token may follow another if the text of these two alone is encoded as the same two tokens. Only
the sequence that merging by rank gives meets this condition at every border. So at each position
tokens are tried from the longest, and if none may follow, the last token is undone (van Antwerpen
and Neubeck 2024, github.com/github/rust-gems, crate bpe). This takes one step in a trie per byte
and one test per token; merging takes three look-ups per byte and a search for the lowest rank.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8, mix_bits
from tokenize_kit.encode.parts import pack
from tokenize_kit.encode.trie import build_trie, longest_token, shorter_tokens
from tokenize_kit.formats.merges import NO_RANK, Pairs, derive_merges, pair_table, rank_of

# Joins: bytes before and after the border of a merge, as bits. Two tokens may always be neighbours
# if no merge has the same bytes around its border. For most borders, these bytes are enough.

_1, _6, _16 = np.uint64(1), np.uint64(6), np.uint64(16)
_32, _63 = np.uint64(32), np.uint64(63)
# Masks of eight bytes, the first one lowest: three before a border and three after; three and one;
# one and three; one and one.
_SIX, _TWO = np.uint64(0xFFFFFFFFFFFF), np.uint64(0xFFFF)
_LONG_LEFT, _LONG_RIGHT = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFF0000)
_SHORT = np.uint64(0xFFFF0000)


def joins_of(data: np.ndarray, ends: np.ndarray, split: np.ndarray) -> np.ndarray:
    """Build the table, uint64[1024 + a power of two], in which `may_join` looks up whether a merge
    can join the bytes around a position in a text. The place between the two tokens of a merge is
    called its border. The first 1024 elements have a bit for each pair of bytes, set if a merge has
    these two bytes beside its border and one of its two tokens is shorter than three bytes. The
    other elements have a bit for each merge, at the hash of up to three bytes on each side of its
    border. data: uint8[], the tokens' bytes; ends: int64[tokens + 1], their bounds; split:
    int32[tokens, 2], the two tokens that each token merges (unused for the 256 bytes)."""
    merges = len(split) - 256
    bits = np.zeros(1024 + (1 << max(0, merges.bit_length() - 1)), np.uint64)  # 64 per merge
    _fill_joins(np.concatenate([data, np.zeros(8, np.uint8)]), ends, split, bits)
    return bits


@njit(cache=True, nogil=True)
def _fill_joins(data, ends, split, bits):
    for token in range(256, len(split)):
        left = ends[split[token, 0] + 1] - ends[split[token, 0]]
        right = ends[split[token, 1] + 1] - ends[split[token, 1]]
        six = load8(data, np.uint64(ends[token] + left - 3)) & _SIX
        if left < 3 or right < 3:
            two = (six >> _16) & _TWO
            bits[two >> _6] |= _1 << (two & _63)
            if left >= 3:
                six &= _LONG_LEFT
            elif right >= 3:
                six &= _LONG_RIGHT
            else:
                six &= _SHORT
        bit = mix_bits(six) >> _32
        position = np.uint64(1024) + ((bit >> _6) & np.uint64(len(bits) - 1025))
        bits[position] |= _1 << (bit & _63)


@njit(nogil=True, forceinline=True)
def _has_join(bits, six):
    bit = mix_bits(six) >> _32
    position = np.uint64(1024) + ((bit >> _6) & np.uint64(len(bits) - 1025))
    return bits[position] >> (bit & _63) & _1 != 0


@njit(nogil=True, forceinline=True)
def may_join(bits, data, at):
    """Return True if some merge may join the token before position `at` of `data` with the token
    that begins there, and False if no merge can. The code has no branch, because the processor
    could not predict it."""
    if at < 3 or at + 5 > len(data):
        return True
    six = load8(data, np.uint64(at - 3)) & _SIX
    two = (six >> _16) & _TWO
    short = bits[two >> _6] >> (two & _63) & _1 != 0
    left, right = _has_join(bits, six & _LONG_LEFT), _has_join(bits, six & _LONG_RIGHT)
    return _has_join(bits, six) | (short & (left | right | _has_join(bits, six & _SHORT)))


# Tokens are numbered in the order of their merges: bytes 0 to 255, then merges by rank. slots,
# token_at: trie.build_trie; tokens: int32[tokens, 5], columns below; pairs: merges.pair_table of
# these numbers; joins: joins_of.
Greedy = namedtuple("Greedy", "slots token_at tokens pairs joins")
# Columns: bytes; the longest shorter token that it begins with, or -1; the two tokens that it was
# merged from (itself for a byte); the id in the vocabulary.
LENGTH, SHORTER, LEFT, RIGHT, ID = range(5)


@njit(nogil=True)
def may_follow(tokens, pairs, left, right):
    """Return True if the text of the two tokens, encoded alone, gives these two tokens again. To
    find out, the merges of both tokens are undone, latest first. The result is False if a merge
    across the border would have come before a merge within one of the tokens."""
    limit = np.int64(1 << 62)
    while True:
        merged = rank_of(pairs, left, right)
        if merged != NO_RANK and (merged & 0xFFFFFFFF) < limit:
            return False
        if left > right:
            limit = left
            left = np.int64(tokens[left, RIGHT])
            if left == limit:
                limit = right + 1
                right = np.int64(tokens[right, LEFT])
                if right + 1 == limit:
                    return True
        else:
            limit = right + 1
            right = np.int64(tokens[right, LEFT])
            if right + 1 == limit:
                limit = left
                left = np.int64(tokens[left, RIGHT])
                if left == limit:
                    return True


@njit(nogil=True)
def encode_greedy(greedy, data, a, z, out, dead):
    """Write the ids of data[a:z] to out: int64[]; return their number. dead: bool[z - a + 1], a
    buffer for positions at which no token may follow, all False before and after the call."""
    slots, token_at, tokens, pairs, joins = greedy
    n = 0
    at = a
    token = longest_token(slots, token_at, data, a, z)
    died = False
    while at < z:
        free = n == 0 or not may_join(joins, data, at)
        while True:
            end = at + np.int64(tokens[token, LENGTH])
            if not dead[end - a] and (free or may_follow(tokens, pairs, out[n - 1], token)):
                out[n] = token
                n += 1
                at = end
                if at < z:
                    token = longest_token(slots, token_at, data, at, z)
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
    for k in range(n):
        out[k] = tokens[out[k], ID]
    if died:
        for k in range(z - a + 1):
            dead[k] = False
    return n


def make_greedy(tokens: dict[int, bytes], byte_ids: np.ndarray, pairs: Pairs) -> Greedy | None:
    """Return the tables of `encode_greedy`, or None if the tokens do not fit into a trie or if
    `encode_greedy` might give other ids than merging by rank. The ids might differ if a merge joins
    a token that a later merge makes, or a token whose own text is encoded as other tokens. tokens:
    the bytes of each id; byte_ids: int64[256]; pairs: the merges, from merges.pair_table."""
    names = sorted(tokens)
    data, ends = pack([tokens[k] for k in names])
    ids = np.array(names, np.int64)
    left, right = derive_merges(data, ends, byte_ids, pairs, ids)
    mergeable = np.flatnonzero((left >= 0) & (right >= 0))
    ranks = ranks_of(pairs, left[mergeable], right[mergeable])
    mergeable = mergeable[np.argsort(ranks)]
    number = np.full(int(ids.max()) + 1, -1, np.int64)
    number[byte_ids] = np.arange(256)
    number[ids[mergeable]] = 256 + np.arange(len(mergeable))
    a, b, new = number[left[mergeable]], number[right[mergeable]], 256 + np.arange(len(mergeable))
    if np.any(a < 0) or np.any(b < 0) or np.any(a >= new) or np.any(b >= new):
        return None
    count = 256 + len(mergeable)
    spelled = [bytes([k]) for k in range(256)] + [tokens[int(k)] for k in ids[mergeable]]
    try:
        slots, token_at = build_trie(spelled, np.arange(count))
    except ValueError:
        return None
    joined, ordered = pack(spelled)
    shorter = shorter_tokens(slots, token_at, joined, ordered, np.arange(count), count)
    own_pairs = pair_table(np.stack([a, b, new], axis=1))
    made_of = np.concatenate([np.repeat(np.arange(256), 2).reshape(256, 2), np.stack([a, b], 1)])
    numbered = np.concatenate([byte_ids, ids[mergeable]])
    columns = [np.diff(ordered), shorter, made_of[:, 0], made_of[:, 1], numbered]
    joins = joins_of(joined, ordered, made_of)
    return Greedy(slots, token_at, np.stack(columns, 1).astype(np.int32), own_pairs, joins)


def no_greedy() -> Greedy:
    """Return empty tables, for kernels that do not use them."""
    slots, token_at = build_trie([b"a"], np.zeros(1, np.int64))
    pairs = pair_table(np.empty((0, 3), np.int64))
    return Greedy(slots, token_at, np.empty((0, 5), np.int32), pairs, np.zeros(1025, np.uint64))


@njit(cache=True, nogil=True)
def ranks_of(pairs, left, right):
    ranks = np.empty(len(left), np.int64)
    for k in range(len(left)):
        ranks[k] = rank_of(pairs, left[k], right[k]) >> 32
    return ranks
