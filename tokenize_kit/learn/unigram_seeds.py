"""The seeds of Unigram: substrings of the text from which pieces are chosen.

As SentencePiece 0.2.3 takes them (unigram_model_trainer.cc, MakeSeedSentencePiecesFromCorpus): a
suffix array of the bytes, and every interval of equal beginnings (Abouelhoda et al. 2004), which is
a substring that at least two different bytes follow. Those that may be pieces count with how often
they occur times their characters; one that ends sentences counts these occurrences once more where
different bytes follow the end. The array is of distinct segments, not of the whole text.
"""

from __future__ import annotations

import numpy as np
from pydivsufsort import divsufsort, kasai

from llmcurate.base.kernels import njit
from tokenize_kit.encode.trie import number_characters
from tokenize_kit.learn.unigram_segments import INHERITED, SPACES, Segments

LONGEST = 16  # characters of a piece
MOST = 1_000_000  # seeds of more than one character
_FAR = 255  # bytes to the end of a segment, or more
_WIDEST = 4 * LONGEST  # bytes of a piece at most
_SPACE = 0x20


def find_seeds(
    segments: Segments,
    alphabet: np.ndarray,
    kinds: np.ndarray,
    most: int = MOST,
    ends_differ: bool = False,
    characters_differ: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(begins, sizes, scores): where a seed stands in the letters of the segments, its bytes, and
    occurrences times characters as float32; by falling score, the longer first, then by bytes.

    alphabet: of the characters that are pieces; kinds: of character_kinds; ends_differ: whether a
    sentence's end is unlike all that follows in other segments, ends too, whatever sentence comes
    next: words of a dictionary are sentences, and most stand before words of the same first byte.
    characters_differ: whether different characters have to follow a seed, not different bytes: all
    letters of Thai begin with the same byte.
    """
    letters, ends = segments.letters, segments.ends
    if not len(letters):
        none = np.empty(0, np.int64)
        return none, none, none.astype(np.float32)
    array = divsufsort(letters)
    common = kasai(letters, array)
    owners, rest, inside = _places(letters, ends, segments.sizes, ends_differ)
    firsts, lengths, characters, counts = _intervals(
        letters, array, common, owners, rest, inside, segments.counts, alphabet, kinds,
        characters_differ,
    )  # fmt: skip
    # The seed and the seed with the end of a sentence behind it begin the same suffix.
    order = np.lexsort((lengths, firsts))
    firsts, lengths, characters = firsts[order], lengths[order], characters[order]
    heads = np.flatnonzero(np.diff(firsts, prepend=-1) | np.diff(lengths, prepend=-1))
    sums = np.add.reduceat(counts[order], heads) if len(heads) else counts
    begins, lengths = array[firsts[heads]].astype(np.int64), lengths[heads].astype(np.int64)
    scores = sums.astype(np.float32) * characters[heads].astype(np.float32)
    spaces = (letters[begins] == _SPACE) * np.where(
        letters[begins + 1] == _SPACE, characters[heads], 1
    )
    best = np.lexsort((-lengths - 2 * spaces, -scores))[:most]  # stable: by bytes till now
    return begins[best], lengths[best], scores[best]


@njit(cache=True, nogil=True)
def _places(letters, ends, sizes, ends_differ):
    """(owners: int32[], the segment of every byte; rest: uint8[], how far it is to its end, _FAR at
    most; inside: uint8[], without what follows, _WIDEST + 1 at most, 0 within a character).

    Where ends differ, the rest of a segment that ends a sentence is without what follows, too.
    """
    owners = np.empty(len(letters), np.int32)
    rest, inside = np.empty(len(letters), np.uint8), np.empty(len(letters), np.uint8)
    for segment in range(len(sizes)):
        a, z = ends[segment], ends[segment + 1]
        own_end = ends_differ and letters[a + sizes[segment]] == 0
        for at in range(a, z):
            owners[at] = segment
            within = letters[at] & 0xC0 == 0x80
            inside[at] = 0 if within else min(max(a + sizes[segment] - at, 0), _WIDEST + 1)
            rest[at] = inside[at] if own_end else min(z - at, _FAR)
    return owners, rest, inside


@njit(nogil=True)
def _piece(alphabet, kinds, letters, a, z, numbers, positions):
    """The number of characters of letters[a:z], from a segment, where it may be a piece of several;
    else 0."""
    if z - a < 2 or z - a > _WIDEST or letters[z] & 0xC0 == 0x80:
        return 0
    n = number_characters(alphabet, letters, a, z, numbers, positions)
    if n < 2 or n > LONGEST:
        return 0
    script = INHERITED
    all_spaces = kinds[numbers[0]] == SPACES
    for k in range(n):
        kind = kinds[numbers[k]]
        if kind != SPACES:
            all_spaces = False
            if kind != INHERITED:
                if script != INHERITED and script != kind:
                    return 0
                script = kind
    for k in range(1, n):
        if kinds[numbers[k]] == SPACES and not all_spaces:
            return 0
    return n


@njit(cache=True, nogil=True)
def _intervals(
    letters, array, common, owners, rest, inside, counts, alphabet, kinds, characters_differ
):
    """(firsts, lengths, characters, counts) of the intervals that are seeds, the innermost first.

    array: of suffixes; common: int32[]: bytes that suffix k + 1 has in common with suffix k;
    owners, rest, inside: of _places.
    """
    n = len(array)
    numbers, positions = np.empty(_WIDEST, np.int32), np.empty(_WIDEST, np.int32)
    size = 1 << 16
    firsts, lengths = np.empty(size, np.int32), np.empty(size, np.uint8)
    sums, characters = np.empty(size, np.int64), np.empty(size, np.uint8)
    seeds = 0
    lefts, depths = np.empty(_FAR + 2, np.int64), np.empty(_FAR + 2, np.int64)
    totals = np.empty(_FAR + 2, np.int64)  # occurrences before the interval
    top = 0
    lefts[0] = depths[0] = totals[0] = 0
    before = after = np.int64(0)  # occurrences before the suffix `previous`, and with it
    previous = np.int64(-1)
    between = np.int64(_FAR)  # bytes that it has in common with all suffixes behind it so far
    for k in range(n + 1):
        if k < n and k > 0:
            between = min(between, np.int64(common[k - 1]))
        if k < n and inside[array[k]] == 0:
            continue  # it begins within a character, or in what only follows
        shared = np.int64(0)
        last_left, last_total = previous, before
        before = after
        if k < n:
            at = np.int64(array[k])
            after += counts[owners[at]]
            if previous >= 0:
                shared = min(between, np.int64(min(rest[array[previous]], rest[at])))
                if characters_differ and at + shared < len(letters):
                    while letters[at + shared] & 0xC0 == 0x80:
                        shared -= 1  # what both begin of a character
            previous, between = np.int64(k), np.int64(_FAR)
        while shared < depths[top]:
            last_left, depth, last_total = lefts[top], depths[top], totals[top]
            top -= 1
            at = np.int64(array[last_left])
            room = np.int64(inside[at])
            length = min(depth, room)
            whole = depth <= room or (depth == room + 1 and letters[at + room] == 0)
            if whole and depth <= _WIDEST + 1:
                count = _piece(alphabet, kinds, letters, at, at + length, numbers, positions)
                if count > 0:
                    if seeds == size:
                        firsts, lengths = _doubled(firsts), _doubled(lengths)
                        sums, characters = _doubled(sums), _doubled(characters)
                        size *= 2
                    firsts[seeds], lengths[seeds], characters[seeds] = last_left, length, count
                    sums[seeds] = before - last_total
                    seeds += 1
            if shared > depths[top]:
                top += 1
                lefts[top], depths[top], totals[top] = last_left, shared, last_total
        if shared > depths[top]:
            top += 1
            lefts[top], depths[top], totals[top] = last_left, shared, last_total
    return firsts[:seeds], lengths[:seeds], characters[:seeds], sums[:seeds]


@njit(nogil=True, allocates=True)
def _doubled(array):
    other = np.empty(2 * len(array), array.dtype)
    for k in range(len(array)):  # numba takes seconds to compile what slices do
        other[k] = array[k]
    return other
