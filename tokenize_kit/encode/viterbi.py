"""Unigram: the pieces of greatest summed score that spell a text, as the libraries find them.

From left to right every place keeps the best way to it; a later way must be strictly better to
replace an earlier one. A character that no piece spells alone costs the least score less ten.
SentencePiece sums in float32 over a whole text, so that rounding may decide between near paths
(src/unigram_model.cc, Model::EncodeOptimized); `tokenizers` sums in float64, word by word.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from numba import njit

RESET = np.float32(100_000)  # sums beyond it are moved to 0 (unigram_model.cc, 0.2.3)
PENALTY = 10.0  # below the least score, of a character without a piece
UNKNOWN = -1  # a token, of a character without a piece

# trie: characters.Trie of ids; scores: float64[ids]; rounded: float32[ids], the same; lacking,
# lacking32: the score of a character without a piece; sums: float32[ids]: what an id adds to the
# sum of a text, where a character without a piece may be several ids; rounds: whether sums are
# those of float32; exact: they have no rounding errors all the same; worst: the largest score,
# without sign.
Unigram = namedtuple("Unigram", "trie scores rounded lacking lacking32 sums rounds exact worst")
# Room for a word. best: float64[], best32: float32[], gaps: float64[]: to the second best way;
# starts, tokens: int32[]: of the last token of the best way to every place.
Room = namedtuple("Room", "numbers best best32 gaps starts tokens ends path")


@njit(nogil=True)
def make_room_for(n):
    """Room for a word of n characters."""
    return Room(
        np.empty(n + 1, np.int32),
        np.empty(n + 1, np.float64),
        np.empty(n + 1, np.float32),
        np.empty(n + 1, np.float64),
        np.empty(n + 1, np.int32),
        np.empty(n + 1, np.int32),
        np.empty(n + 1, np.int32),
        np.empty(n + 1, np.int32),
    )


@njit(nogil=True)
def best_path(links, found, scores, lacking, numbers, best, gaps, starts, tokens, n):
    """The best path of numbers[:n] by sums of float64.

    Returns by how much it is better than any other. The first four are of a Unigram, the others of
    a Room.
    """
    for k in range(1, n + 1):
        best[k] = -np.inf
        gaps[k] = np.inf
    best[0] = 0.0
    for i in range(n):
        here = best[i]
        node = np.int64(numbers[i])
        single = False
        k = i + 1
        if links[node, 1] == 0:
            while True:
                token = found[node]
                if token >= 0:
                    way = here + scores[token]
                    if way > best[k]:
                        gaps[k] = way - best[k]
                        best[k] = way
                        starts[k] = i
                        tokens[k] = token
                    else:
                        gaps[k] = min(gaps[k], best[k] - way)
                    single = single or k == i + 1
                if k == n:
                    break
                child = np.int64(links[node, 0]) + np.int64(numbers[k])
                if links[child, 1] != node:
                    break
                node = child
                k += 1
        if not single:
            way = here + lacking
            if way > best[i + 1]:
                gaps[i + 1] = way - best[i + 1]
                best[i + 1] = way
                starts[i + 1] = i
                tokens[i + 1] = UNKNOWN
            else:
                gaps[i + 1] = min(gaps[i + 1], best[i + 1] - way)
    margin = np.inf
    at = n
    while at > 0:
        margin = min(margin, gaps[at])
        at = np.int64(starts[at])
    return margin


@njit(nogil=True)
def best_path_rounded(links, found, scores, lacking, numbers, best, starts, tokens, n, total):
    """The best path by sums of float32 that begin at `total`; returns the sum."""
    for k in range(1, n + 1):
        best[k] = -np.inf
    best[0] = total
    farthest = 0
    for i in range(n):
        here = best[i]
        if here < -RESET or here > RESET:
            for k in range(i, farthest + 1):
                best[k] -= here
            best[i] = np.float32(0)
            here = np.float32(0)
        node = np.int64(numbers[i])
        single = False
        k = i + 1
        if links[node, 1] == 0:
            while True:
                token = found[node]
                if token >= 0:
                    way = np.float32(here + scores[token])
                    if way > best[k]:
                        best[k] = way
                        starts[k] = i
                        tokens[k] = token
                    single = single or k == i + 1
                    farthest = max(farthest, k)
                if k == n:
                    break
                child = np.int64(links[node, 0]) + np.int64(numbers[k])
                if links[child, 1] != node:
                    break
                node = child
                k += 1
        if not single:
            farthest = max(farthest, i + 1)
            way = np.float32(here + lacking)
            if way > best[i + 1]:
                best[i + 1] = way
                starts[i + 1] = i
                tokens[i + 1] = UNKNOWN
    return best[n]


@njit(nogil=True)
def trace(starts, tokens, path, ends, n):
    """Writes the path, and where each of its tokens ends; returns how many they are."""
    count = 0
    at = n
    while at > 0:
        count += 1
        at = np.int64(starts[at])
    at = n
    for k in range(count - 1, -1, -1):
        path[k] = tokens[at]
        ends[k] = at
        at = np.int64(starts[at])
    return count
