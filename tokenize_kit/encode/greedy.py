"""Byte-pair encoding from left to right: the longest token that may follow the one before.

The tokens that merging by rank leaves are the only ones that give the text and in which every
neighbour may follow the one before it: merging the two alone leaves the two. So tokens are tried
from the longest, and where none may follow, the last one is taken back (van Antwerpen and Neubeck
2024, github.com/github/rust-gems, crate bpe). A byte costs a step in a trie, a token a question
whose answer is kept; merging costs three look-ups a byte and a search for the lowest rank.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from numba import njit

from tokenize_kit.bytes8 import stir
from tokenize_kit.encode.merges import NO_RANK, Pairs, pair_table, rank_of
from tokenize_kit.encode.trie import build_trie, longest, shorter_tokens

FOLLOWS = 1 << 18  # answers kept
_32 = np.uint64(32)

# Tokens are numbered by the time of their merge: bytes 0 to 255, then merges by rank.
# slots, found: trie.build_trie; shorter: int32[tokens]; lengths: int32[tokens], bytes; split:
# int32[tokens, 2]: what a token was merged from, itself for a byte; pairs: merges.pair_table
# of these numbers; ids: int64[tokens]: the vocabulary's; follows: uint64[FOLLOWS]: answers kept.
Greedy = namedtuple("Greedy", "slots found shorter lengths split pairs ids follows")


@njit(nogil=True)
def may_follow(split, pairs, left, right):
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
            left = np.int64(split[left, 1])
            if left == limit:
                limit = right + 1
                right = np.int64(split[right, 0])
                if right + 1 == limit:
                    return True
        else:
            limit = right + 1
            right = np.int64(split[right, 0])
            if right + 1 == limit:
                limit = left
                left = np.int64(split[left, 1])
                if left == limit:
                    return True


@njit(nogil=True, inline="always")
def may_be_next(greedy, left, right):
    """`may_follow`, which keeps its answers: pair << 1 | answer in a table that forgets."""
    key = (np.uint64(left) << _32 | np.uint64(right)) << np.uint64(1)
    slot = stir(key) & np.uint64(FOLLOWS - 1)
    known = greedy.follows[slot]
    if known & ~np.uint64(1) == key:
        return known & np.uint64(1) != 0
    answer = may_follow(greedy.split, greedy.pairs, left, right)
    greedy.follows[slot] = key | np.uint64(answer)
    return answer


@njit(nogil=True)
def encode_greedy(greedy, data, a, z, out, dead):
    """Writes the ids of data[a:z] to out: int64[]; returns how many. dead: bool[z - a + 1] of room,
    all False, and left so: places at which no token may follow what is before them."""
    n = 0
    at = a
    token = longest(greedy.slots, greedy.found, data, a, z)
    died = False
    while at < z:
        while True:
            end = at + np.int64(greedy.lengths[token])
            if not dead[end - a] and (n == 0 or may_be_next(greedy, out[n - 1], token)):
                out[n] = token
                n += 1
                at = end
                if at < z:
                    token = longest(greedy.slots, greedy.found, data, at, z)
                break
            token = np.int64(greedy.shorter[token])
            if token < 0:
                dead[at - a] = True
                died = True
                if n == 0:
                    raise AssertionError("no token begins this text")
                n -= 1
                token = out[n]
                at -= np.int64(greedy.lengths[token])
                break
    for k in range(n):
        out[k] = greedy.ids[out[k]]
    if died:
        for k in range(z - a + 1):
            dead[k] = False
    return n


@njit(cache=True, nogil=True)
def derive(data, ends, byte_numbers, pairs, wanted):
    """(left, right: int64[tokens] of the last merge of each token's bytes): right is -1 for a byte,
    left is -1 where they do not merge to `wanted`."""
    left, right = np.full(len(wanted), -1, np.int64), np.full(len(wanted), -1, np.int64)
    symbols = np.empty(16, np.int64)
    ranks = np.empty(16, np.int64)
    for t in range(len(wanted)):
        n = ends[t + 1] - ends[t]
        if n > len(symbols):
            symbols, ranks = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
        for k in range(n):
            symbols[k] = byte_numbers[data[ends[t] + k]]
        if n == 1:
            if symbols[0] == wanted[t]:
                left[t] = symbols[0]
            continue
        for k in range(n - 1):
            ranks[k] = rank_of(pairs, symbols[k], symbols[k + 1])
        while n > 1:
            at = 0
            for k in range(1, n - 1):
                if ranks[k] < ranks[at]:
                    at = k
            if ranks[at] == NO_RANK:
                break
            if n == 2 and ranks[0] & 0xFFFFFFFF == wanted[t]:
                left[t], right[t] = symbols[0], symbols[1]
            symbols[at] = ranks[at] & 0xFFFFFFFF
            n -= 1
            for k in range(at + 1, n):
                symbols[k] = symbols[k + 1]
                ranks[k] = ranks[k + 1]
            if at > 0:
                ranks[at - 1] = rank_of(pairs, symbols[at - 1], symbols[at])
            if at < n - 1:
                ranks[at] = rank_of(pairs, symbols[at], symbols[at + 1])
    return left, right


def make_greedy(tokens: dict[int, bytes], byte_ids: np.ndarray, pairs: Pairs) -> Greedy | None:
    """What `encode_greedy` needs, or None where it would not give what merging by rank gives.

    tokens: id -> bytes; byte_ids: int64[256]; pairs: merges.pair_table. A token that its own
    bytes do not merge to never appears in any text, and is left out. None where a token is merged
    before one that it is made of: time then has no order.
    """
    names = sorted(tokens)
    data = np.frombuffer(b"".join(tokens[k] for k in names), np.uint8)
    ends = np.cumsum([0, *(len(tokens[k]) for k in names)])
    ids = np.array(names, np.int64)
    left, right = derive(data, ends, byte_ids, pairs, ids)
    made = np.flatnonzero((left >= 0) & (right >= 0))
    ranks = ranks_of(pairs, left[made], right[made])
    made = made[np.argsort(ranks)]
    number = np.full(int(ids.max()) + 1, -1, np.int64)
    number[byte_ids] = np.arange(256)
    number[ids[made]] = 256 + np.arange(len(made))
    a, b, own = number[left[made]], number[right[made]], 256 + np.arange(len(made))
    if np.any(a < 0) or np.any(b < 0) or np.any(a >= own) or np.any(b >= own):
        return None
    count = 256 + len(made)
    split = np.empty((count, 2), np.int32)
    split[:256] = np.arange(256)[:, None]
    split[256:, 0], split[256:, 1] = a, b
    spelled = [bytes([k]) for k in range(256)] + [tokens[int(k)] for k in ids[made]]
    try:
        slots, found = build_trie(spelled, np.arange(count))
    except ValueError:
        return None
    ordered = np.cumsum([0, *map(len, spelled)])
    joined = np.frombuffer(b"".join(spelled), np.uint8)
    shorter = shorter_tokens(slots, found, joined, ordered, np.arange(count), count)
    own_pairs = pair_table(np.stack([a, b, own], axis=1))
    lengths = np.diff(ordered).astype(np.int32)
    known = np.concatenate([byte_ids, ids[made]])
    follows = np.full(FOLLOWS, ~np.uint64(0), np.uint64)
    return Greedy(slots, found, shorter, lengths, split, own_pairs, known, follows)


def no_greedy() -> Greedy:
    """An empty one, for kernels that are told not to use it."""
    none = np.empty((0, 2), np.int32)
    slots, found = build_trie([b"a"], np.zeros(1, np.int64))
    pairs = pair_table(np.empty((0, 3), np.int64))
    numbers = np.empty(0, np.int32)
    ids, follows = np.empty(0, np.int64), np.empty(1, np.uint64)
    return Greedy(slots, found, numbers, numbers, none, pairs, ids, follows)


@njit(cache=True, nogil=True)
def ranks_of(pairs, left, right):
    found = np.empty(len(left), np.int64)
    for k in range(len(left)):
        found[k] = rank_of(pairs, left[k], right[k]) >> 32
    return found
