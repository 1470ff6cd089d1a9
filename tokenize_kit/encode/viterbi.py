"""Unigram: the pieces of greatest summed score that spell a text, as the libraries find them.

From left to right every place keeps the best way to it; a later way must be strictly better to
replace an earlier one. A character that no piece spells alone costs the least score less ten.
SentencePiece sums in float32 over a whole text, so that rounding may decide between near paths
(src/unigram_model.cc, Model::EncodeOptimized); `tokenizers` sums in float64, word by word.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from tokenize_kit.encode import characters
from tokenize_kit.encode.bytes8 import njit_bare

RESET = 100_000.0  # sums beyond it are moved to 0 (unigram_model.cc, 0.2.3)
PENALTY = 10.0  # below the least score, of a character without a piece
UNKNOWN = -1  # a token, of a character without a piece
_NOTHING = -np.inf

# alphabet: of characters.py; slots, values: a trie, one cache line a step: int32[4 a slot] and the
# same memory as float64[2 a slot]: the base of a slot's children, its parent (-1 at the root), the
# score of the token that ends there, -inf for none; found: int32[slots]: that token; longest:
# characters of the longest one; lacking: the score of a character without a piece; sums:
# float32[ids]: what an id adds to the sum of a text, where a character without a piece may be
# several ids; rounds: whether sums are those of float32; exact: they have no rounding errors all
# the same; worst: the largest score, without sign.
Unigram = namedtuple(
    "Unigram", "alphabet slots values found longest lacking sums rounds exact worst"
)
# Room for n characters. numbers, places: int32[n + 1], of number_characters; sums, gaps:
# float64[n + 1]: of every place the best way's sum, and by how much it is better than the second
# best; starts, lasts: int32[n + 1]: where the last token of the best way begins, and its slot,
# UNKNOWN for none; path, ends: int32[n]; words: of remembered.cut_words.
Room = namedtuple("Room", "numbers places sums gaps starts lasts path ends words")
_1, _2 = np.uint64(1), np.uint64(2)


def make_unigram(
    pieces: dict[str, int],
    scores: np.ndarray,
    sums: np.ndarray,
    lacking: float,
    *,
    rounds: bool,
    exact: bool,
) -> Unigram:
    """pieces: text to id, those that a text may give; scores: float64[ids]. Raises ValueError for
    pieces that no table holds."""
    used = np.array([*pieces.values()], np.int64)
    alphabet, size = characters.make_alphabet([*pieces])
    links, found = characters.build_trie(alphabet, size, [*pieces], used)
    slots = np.empty((len(found), 4), np.int32)
    slots[:, :2] = links
    slots[slots[:, 1] == 0, 1] = -1
    values = slots.view(np.float64)
    values[:, 1] = np.where(found >= 0, np.append(scores, _NOTHING)[found], _NOTHING)
    worst = max(float(np.abs(scores[used]).max(initial=0)), abs(lacking))
    longest = max(map(len, pieces), default=1)
    return Unigram(
        alphabet, slots.ravel(), values.ravel(), found, longest, lacking, sums, rounds, exact, worst
    )


@njit_bare
def best_path(unigram, rounds, room, n, total):
    """The best path of n characters by sums that begin at `total`; returns its sum.

    rounds: whether sums are those of float32. One of float64 that is rounded to it is the same
    number, for float64 has more than twice as many digits.
    """
    slots, values, numbers = unigram.slots, unigram.values, room.numbers
    sums, gaps, starts, lasts = room.sums, room.gaps, room.starts, room.lasts
    for k in range(1, n + 1):
        sums[k] = _NOTHING
        gaps[k] = np.inf
    sums[0] = total
    numbers[n] = 0  # no token goes on there
    for at in range(n):
        i = np.uint64(at)
        here = sums[i]
        if rounds and abs(here) > RESET:
            for k in range(at, min(at + unigram.longest, n) + 1):
                sums[k] = np.float64(np.float32(sums[k] - here))
            here = 0.0
        slot = np.uint64(numbers[i])
        score, last = values[slot << _1 | _1], np.int32(slot)
        if score == _NOTHING:
            score, last = unigram.lacking, np.int32(UNKNOWN)
        end = i + _1
        while True:
            if score > _NOTHING:
                way = here + score
                if rounds:
                    way = np.float64(np.float32(way))
                best = sums[end]
                if way > best:
                    gaps[end] = way - best
                    sums[end] = way
                    starts[end] = np.int32(i)
                    lasts[end] = last
                elif best - way < gaps[end]:
                    gaps[end] = best - way
            child = np.uint64(np.uint32(slots[slot << _2])) + np.uint64(np.uint32(numbers[end]))
            if slots[child << _2 | _1] != np.int32(slot):
                break
            slot, last = child, np.int32(child)
            score = values[slot << _1 | _1]
            end += _1
    return sums[n]


@njit_bare
def trace(found, room, n):
    """The tokens of the best way and the characters they end at, to the ends of path[:n], ends[:n].

    found: of a Unigram. Returns (where they begin, by how much that way is better than any other,
    whether it has characters without a piece).
    """
    first, at, margin, lacks = n, n, np.inf, False
    while at > 0:
        first -= 1
        slot = np.int64(room.lasts[at])
        if slot < 0:
            room.path[first] = UNKNOWN
            lacks = True
        else:
            room.path[first] = found[slot]
        room.ends[first] = at
        margin = min(margin, room.gaps[at])
        at = np.int64(room.starts[at])
    return first, margin, lacks
