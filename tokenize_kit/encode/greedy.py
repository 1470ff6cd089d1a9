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
from tokenize_kit.encode.parts import pack
from tokenize_kit.encode.trie import build_trie, longest_token, shorter_tokens
from tokenize_kit.formats.merges import NO_RANK, Pairs, derive_merges, pair_table, rank_of

# Tokens are numbered in the order of their merges: bytes 0 to 255, then merges by rank. slots,
# token_at: trie.build_trie; tokens: int32[tokens, 5], columns below; pairs: merges.pair_table of
# these numbers.
Greedy = namedtuple("Greedy", "slots token_at tokens pairs")
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
    slots, token_at, tokens, pairs = greedy
    n = 0
    at = a
    token = longest_token(slots, token_at, data, a, z)
    died = False
    while at < z:
        while True:
            end = at + np.int64(tokens[token, LENGTH])
            if not dead[end - a] and (n == 0 or may_follow(tokens, pairs, out[n - 1], token)):
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
    bytes_alone = np.arange(256)
    columns = [
        np.diff(ordered),
        shorter,
        np.append(bytes_alone, a),
        np.append(bytes_alone, b),
        np.append(byte_ids, ids[mergeable]),
    ]
    return Greedy(slots, token_at, np.stack(columns, 1).astype(np.int32), own_pairs)


def no_greedy() -> Greedy:
    """Return empty tables, for kernels that do not use them."""
    slots, token_at = build_trie([b"a"], np.zeros(1, np.int64))
    pairs = pair_table(np.empty((0, 3), np.int64))
    return Greedy(slots, token_at, np.empty((0, 5), np.int32), pairs)


@njit(cache=True, nogil=True)
def ranks_of(pairs, left, right):
    ranks = np.empty(len(left), np.int64)
    for k in range(len(left)):
        ranks[k] = rank_of(pairs, left[k], right[k]) >> 32
    return ranks
