"""Byte-pair encoding from left to right: the longest token that may follow the one before.

The tokens that merging by rank leaves are the only ones that give the text and in which every
neighbour may follow the one before it: merging the two alone leaves the two. So tokens are tried
from the longest, and where none may follow, the last one is taken back (van Antwerpen and Neubeck
2024, github.com/github/rust-gems, crate bpe). A byte costs a step in a trie, a token a question;
merging costs three look-ups a byte and a search for the lowest rank.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8, stir
from tokenize_kit.encode.merges import NO_RANK, Pairs, merge_short, pair_table, rank_of
from tokenize_kit.encode.parts import pack
from tokenize_kit.encode.trie import build_trie, longest_token, shorter_tokens

# Joins: bytes before and after a border between two tokens, as bits. Two tokens may always stand
# side by side where no merge has such bytes on both sides of its own border; so most questions are
# answered by the text alone, before it is asked which tokens they are.

_1, _6, _16 = np.uint64(1), np.uint64(6), np.uint64(16)
_32, _63 = np.uint64(32), np.uint64(63)
# Of eight bytes, the first one lowest, those that count: three before a border and three after;
# three and one; one and three; one and one.
_SIX, _TWO = np.uint64(0xFFFFFFFFFFFF), np.uint64(0xFFFF)
_LONG_LEFT, _LONG_RIGHT = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFF0000)
_SHORT = np.uint64(0xFFFF0000)


def joins_of(data: np.ndarray, ends: np.ndarray, split: np.ndarray) -> np.ndarray:
    """Bits of all merges, uint64[1024 + a power of two]: first a bit for every byte before and
    after, of merges with a part shorter than three bytes; then bits of hashes of all merges.

    data: uint8[], ends: int64[tokens + 1]: the tokens' bytes; split: int32[tokens, 2]: what each
    was merged from, the first 256 from nothing.
    """
    merges = len(split) - 256
    bits = np.zeros(1024 + (1 << max(0, merges.bit_length() - 1)), np.uint64)  # 64 a merge
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
        bit = stir(six) >> _32
        position = np.uint64(1024) + ((bit >> _6) & np.uint64(len(bits) - 1025))
        bits[position] |= _1 << (bit & _63)


@njit(nogil=True, forceinline=True)
def _has_join(bits, six):
    bit = stir(six) >> _32
    position = np.uint64(1024) + ((bit >> _6) & np.uint64(len(bits) - 1025))
    return bits[position] >> (bit & _63) & _1 != 0


@njit(nogil=True, forceinline=True)
def may_join(bits, data, at):
    """Whether a merge may have these bytes around the position where it joins; False is certain.

    Without a branch: the answer is hard to foresee, and what follows does not wait for it.
    """
    if at < 3 or at + 5 > len(data):
        return True
    six = load8(data, np.uint64(at - 3)) & _SIX
    two = (six >> _16) & _TWO
    short = bits[two >> _6] >> (two & _63) & _1 != 0
    left, right = _has_join(bits, six & _LONG_LEFT), _has_join(bits, six & _LONG_RIGHT)
    return _has_join(bits, six) | (short & (left | right | _has_join(bits, six & _SHORT)))


# Tokens are numbered by the time of their merge: bytes 0 to 255, then merges by rank. slots,
# token_at: trie.build_trie; tokens: int32[tokens, 5], columns below; pairs: merges.pair_table of
# these numbers; joins: joins.joins_of.
Greedy = namedtuple("Greedy", "slots token_at tokens pairs joins")
# Bytes; the longest token that it begins with, -1 for none; what it was merged from, itself for a
# byte; the vocabulary's id.
LENGTH, SHORTER, LEFT, RIGHT, ID = range(5)


@njit(nogil=True)
def may_follow(tokens, pairs, left, right):
    """Whether merging the two tokens' bytes leaves these two.

    Merges are taken back from the latest on; at the border between the two none may have been
    possible earlier than the one that was made.
    """
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
    """Writes the ids of data[a:z] to out: int64[]; returns how many. dead: bool[z - a + 1] to use,
    all False, and left so: positions at which no token may follow what is before them.
    """
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


@njit(cache=True, nogil=True)
def derive_merges(data, ends, byte_numbers, pairs, ids):
    """(left, right: int64[tokens] of the last merge of each token's bytes): right is -1 for a byte,
    left is -1 where they do not merge to `wanted`."""
    left, right = np.full(len(ids), -1, np.int64), np.full(len(ids), -1, np.int64)
    symbols = np.empty(16, np.int64)
    ranks = np.empty(16, np.int64)
    for t in range(len(ids)):
        n = ends[t + 1] - ends[t]
        if n > len(symbols):
            symbols, ranks = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
        for k in range(n):
            symbols[k] = byte_numbers[data[ends[t] + k]]
        if n == 1:
            if symbols[0] == ids[t]:
                left[t] = symbols[0]
            continue
        if merge_short(pairs, symbols, ranks, n, 2) == 2:
            merged = rank_of(pairs, symbols[0], symbols[1])
            if merged != NO_RANK and merged & 0xFFFFFFFF == ids[t]:
                left[t], right[t] = symbols[0], symbols[1]
    return left, right


def make_greedy(tokens: dict[int, bytes], byte_ids: np.ndarray, pairs: Pairs) -> Greedy | None:
    """The tables of `encode_greedy`, or None where it would not give the ids of merging by rank.

    tokens: id -> bytes; byte_ids: int64[256]; pairs: merges.pair_table. A token that its own
    bytes do not merge to never appears in any text, and is left out. None where a token is merged
    before one that it is made of: time then has no order.
    """
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
    """An empty one, for kernels that shall not use it."""
    slots, token_at = build_trie([b"a"], np.zeros(1, np.int64))
    pairs = pair_table(np.empty((0, 3), np.int64))
    return Greedy(slots, token_at, np.empty((0, 5), np.int32), pairs, np.zeros(1025, np.uint64))


@njit(cache=True, nogil=True)
def ranks_of(pairs, left, right):
    ranks = np.empty(len(left), np.int64)
    for k in range(len(left)):
        ranks[k] = rank_of(pairs, left[k], right[k]) >> 32
    return ranks
