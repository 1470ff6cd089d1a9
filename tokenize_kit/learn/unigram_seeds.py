"""Seeds of Unigram: the substrings of the text from which pieces are chosen.

As in SentencePiece 0.2.3 (unigram_model_trainer.cc, MakeSeedSentencePiecesFromCorpus): a suffix
array of the bytes gives every interval of suffixes with a common prefix (Abouelhoda et al. 2004).
Such a prefix is a substring that at least two different bytes follow. The score of a substring that
may be a piece is the number of its occurrences times the number of its characters. Each occurrence
at the end of a sentence counts as two if the sentences after these begin with different bytes. The
array is built from distinct segments, each stored with the bytes that follow it."""

from __future__ import annotations

import numpy as np
from pydivsufsort import divsufsort, kasai

from llmcurate.base.kernels import njit
from tokenize_kit.encode.trie import number_characters
from tokenize_kit.learn.bpe_pairs import enlarged
from tokenize_kit.learn.unigram_segments import INHERITED, SPACES, Segments

LONGEST = 16  # the most characters of a piece
MOST = 1_000_000  # the most seeds of several characters
_FAR = 255  # bytes to the end of a segment, or more
_WIDEST = 4 * LONGEST  # the most bytes of a piece
_SPACE = 0x20


def find_seeds(
    segments: Segments,
    alphabet: np.ndarray,
    kinds: np.ndarray,
    most: int = MOST,
    ends_differ: bool = False,
    characters_differ: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find seeds: substrings that may become pieces. Return three arrays with an element per seed:
    where it begins in segments.letters (int64[], one of its occurrences), its number of bytes
    (int64[]), and its score (float32[]: occurrences times characters). Seeds are sorted by falling
    score, then by falling length, then by bytes. alphabet: the numbers of the characters that may
    be in pieces; kinds: the result of character_kinds; most: the largest number of seeds.

    A substring is a seed only if different bytes follow its occurrences. ends_differ: True if every
    end of a sentence counts as a different byte; False if the first byte of the next sentence
    counts instead. True is for sentences that are words of a dictionary, since most of these begin
    with the same byte. characters_differ: True if different characters, not only bytes, must follow
    a seed, because all Thai letters begin with the same byte."""
    letters, ends = segments.letters, segments.ends
    if not len(letters):
        none = np.empty(0, np.int64)
        return none, none, none.astype(np.float32)
    array = divsufsort(letters)
    common = kasai(letters, array)
    owners, to_end, inside = _places(letters, ends, segments.sizes, ends_differ)
    firsts, lengths, characters, counts = _intervals(
        letters, array, common, owners, to_end, inside, segments.counts, alphabet, kinds,
        characters_differ,
    )  # fmt: skip
    # A seed may be found twice: by itself, and at the ends of sentences. Add up both counts.
    order = np.lexsort((lengths, firsts))
    firsts, lengths, characters = firsts[order], lengths[order], characters[order]
    heads = np.flatnonzero(np.diff(firsts, prepend=-1) | np.diff(lengths, prepend=-1))
    sums = np.add.reduceat(counts[order], heads) if len(heads) else counts
    begins, lengths = array[firsts[heads]].astype(np.int64), lengths[heads].astype(np.int64)
    scores = sums.astype(np.float32) * characters[heads].astype(np.float32)
    spaces = (letters[begins] == _SPACE) * np.where(
        letters[begins + 1] == _SPACE, characters[heads], 1
    )
    best = np.lexsort((-lengths - 2 * spaces, -scores))[:most]  # ties stay in order of bytes
    return begins[best], lengths[best], scores[best]


@njit(cache=True, nogil=True)
def _places(letters, ends, sizes, ends_differ):
    """Return (owners, to_end, inside), arrays with an element per byte of `letters`. One or two
    bytes, of what comes next in the corpus, follow each segment's text in `letters`. owners:
    int32[], the byte's segment. inside: uint8[], how many bytes of the segment's text remain (at
    most _WIDEST + 1), or 0 if no character begins at the byte. to_end: uint8[], how many bytes of
    the segment remain (at most _FAR), those after its text included. ends_differ: True if no two
    ends of sentences count as the same byte; then `to_end` equals `inside` in segments that end a
    sentence."""
    owners = np.empty(len(letters), np.int32)
    to_end, inside = np.empty(len(letters), np.uint8), np.empty(len(letters), np.uint8)
    for segment in range(len(sizes)):
        a, z = ends[segment], ends[segment + 1]
        own_end = ends_differ and letters[a + sizes[segment]] == 0
        for at in range(a, z):
            owners[at] = segment
            within = letters[at] & 0xC0 == 0x80
            inside[at] = 0 if within else min(max(a + sizes[segment] - at, 0), _WIDEST + 1)
            to_end[at] = inside[at] if own_end else min(z - at, _FAR)
    return owners, to_end, inside


@njit(nogil=True)
def _piece(alphabet, kinds, letters, a, z, numbers, positions):
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
    letters, array, common, owners, to_end, inside, counts, alphabet, kinds, characters_differ
):
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
    between = np.int64(_FAR)  # bytes that `previous` shares with all suffixes after it so far
    for k in range(n + 1):
        if k < n and k > 0:
            between = min(between, np.int64(common[k - 1]))
        if k < n and inside[array[k]] == 0:
            continue  # the suffix begins within a character, or in the bytes after a segment
        shared = np.int64(0)
        last_left, last_total = previous, before
        before = after
        if k < n:
            at = np.int64(array[k])
            after += counts[owners[at]]
            if previous >= 0:
                shared = min(between, np.int64(min(to_end[array[previous]], to_end[at])))
                if characters_differ and at + shared < len(letters):
                    while letters[at + shared] & 0xC0 == 0x80:
                        shared -= 1  # drop the shared beginning of a character
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
                        size *= 2
                        firsts, lengths = enlarged(firsts, size), enlarged(lengths, size)
                        sums, characters = enlarged(sums, size), enlarged(characters, size)
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
