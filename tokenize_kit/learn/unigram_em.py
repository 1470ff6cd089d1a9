"""Expected counts, best paths and alternative spellings of a Unigram's pieces.

Expected counts are computed from products of probabilities in float64, not from sums of logarithms.
Best paths and losses are computed in float32, as in SentencePiece, because they decide which pieces
stay. A path is a way to split a text into pieces, and a lattice holds all paths.
"""

from __future__ import annotations

from collections import namedtuple
from copy import copy
from dataclasses import dataclass

import numpy as np

from llmcurate.base.kernels import njit
from tokenize_kit.encode.trie import build_number_trie
from tokenize_kit.learn.unigram_seeds import LONGEST

PENALTY = 10.0  # a character without a piece scores this much below the smallest score
_KEPT_SHARE = 0.9  # a trie with a smaller share of its first pieces is built again
_UNKNOWN = np.int64(0)  # the slot of unknown characters: the root, where no piece ends
_SMALL, _LARGE = 2.0**-332, 2.0**332
_NOTHING = np.float32(-np.inf)
_1, _2 = np.uint64(1), np.uint64(2)

# A trie of pieces, one cache line per step. slots: int32, 4 per slot: base of the children, parent,
# and 2 for the value. values: float64, 2 per slot in the same memory, the second for the piece that
# ends there. unknown: the value of a character without a piece.
Lattice = namedtuple("Lattice", "slots values unknown")
# numbers: int32[], the characters of all texts as numbers; ends: int64[texts + 1].
Texts = namedtuple("Texts", "numbers ends")


@dataclass(frozen=True)
class Pieces:
    """Pieces sorted by their bytes. texts: the characters of all pieces; scores: float32[pieces];
    order: int64[pieces], the piece numbers in SentencePiece's order. The first piece in this order
    also gets the counts of unknown characters."""

    texts: Texts
    scores: np.ndarray
    order: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)

    def select(self, order: np.ndarray, scores: np.ndarray) -> Pieces:
        """Keep only the pieces listed in `order`, int64[], which also becomes their new order.
        scores: float32[pieces before the selection], the new scores."""
        kept = np.sort(order)
        sizes = np.diff(self.texts.ends)
        mask = np.zeros(len(self), np.bool_)
        mask[kept] = True
        numbers = self.texts.numbers[np.repeat(mask, sizes)]
        texts = Texts(numbers, np.cumsum(np.append(0, sizes[kept])))
        return Pieces(texts, scores[kept], np.searchsorted(kept, order))


class PieceTrie:
    """The trie of pieces. slot_of: int64[pieces], the slot at which each piece ends; piece_at:
    int32[slots], the piece that ends at each slot, or -1."""

    def __init__(self, pieces: Pieces, alphabet: int) -> None:
        self.pieces, self._alphabet, self._built = pieces, alphabet, len(pieces)
        links, piece_at = build_number_trie(*pieces.texts, np.arange(len(pieces)), alphabet)
        self._slots = np.empty((len(piece_at), 4), np.int32)
        self._slots[:, :2] = links
        self._values = self._slots.view(np.float64)
        self._values[:, 1] = 0.0
        used = np.flatnonzero(piece_at >= 0)
        self.slot_of = np.empty(len(pieces), np.int64)
        self.slot_of[piece_at[used]] = used
        self.piece_at = piece_at

    def select(self, order: np.ndarray, scores: np.ndarray) -> PieceTrie:
        """Return a trie of the pieces that Pieces.select returns. It reuses this trie's slots
        unless many pieces are dropped."""
        pieces = self.pieces.select(order, scores)
        if len(pieces) < _KEPT_SHARE * self._built:
            return PieceTrie(pieces, self._alphabet)
        fewer = copy(self)
        fewer.pieces, fewer.slot_of = pieces, self.slot_of[np.sort(order)]
        fewer.piece_at = np.full(len(self.piece_at), -1, np.int32)
        fewer.piece_at[fewer.slot_of] = np.arange(len(pieces))
        return fewer

    @property
    def _unknown_score(self) -> np.float32:
        return np.float32(self.pieces.scores.min() - np.float32(PENALTY))

    def probabilities(self) -> Lattice:
        """Return a lattice with the probabilities of pieces, 0 for slots (nodes of the trie)
        without a piece. The lattice lies in this trie's memory: the next call of `probabilities` or
        `scores` overwrites it."""
        self._values[:, 1] = 0.0
        self._values[self.slot_of, 1] = np.exp(self.pieces.scores.astype(np.float64))
        return Lattice(
            self._slots.ravel(), self._values.ravel(), float(np.exp(float(self._unknown_score)))
        )

    def scores(self) -> Lattice:
        """Return a lattice with the scores of pieces, -inf for slots (nodes of the trie) without a
        piece. The lattice lies in this trie's memory: the next call of `probabilities` or `scores`
        overwrites it."""
        self._values[:, 1] = -np.inf
        self._values[self.slot_of, 1] = self.pieces.scores
        return Lattice(self._slots.ravel(), self._values.ravel(), float(self._unknown_score))

    def piece_counts(self, counts: np.ndarray) -> np.ndarray:
        """Return float64[pieces], the counts of pieces, from counts of slots (nodes). The count of
        unknown characters is added to the first piece in SentencePiece's order."""
        counted = counts[self.slot_of]
        counted[self.pieces.order[0]] += counts[_UNKNOWN]
        return counted


@njit(nogil=True)
def _first_slot(lattice, number):
    return np.int64(number) if lattice.slots[np.uint64(number) << _2 | _1] == 0 else np.int64(-1)


@njit(nogil=True)
def _next_slot(lattice, slot, number):
    child = np.int64(lattice.slots[np.uint64(slot) << _2]) + np.int64(number)
    return child if lattice.slots[np.uint64(child) << _2 | _1] == np.int32(slot) else np.int64(-1)


@njit(cache=True, nogil=True)
def expected_counts(lattice, texts, counts):
    """Return float64[slots]: the expected occurrences of pieces in the texts, by the slot (node of
    the trie) where a piece ends. lattice: a lattice of probabilities; counts: how often each text
    occurs. Characters without a piece are counted in slot 0, the root. To prevent underflow, a
    small forward or backward sum is multiplied by 2^332, together with the sums at the next LONGEST
    positions (LONGEST is the most characters of a piece). The expected occurrences are corrected
    for these multiplications."""
    numbers, ends = texts
    longest = np.int64(1)
    for k in range(len(counts)):
        longest = max(longest, ends[k + 1] - ends[k])
    forward, backward = np.zeros(longest + 1), np.zeros(longest + 1)
    moved = np.zeros(longest + 1, np.int64)
    first_edge = np.zeros(longest + 1, np.int64)
    edge_slots = np.empty((longest + 1) * LONGEST, np.int32)
    edge_ends = np.empty((longest + 1) * LONGEST, np.int32)
    expected = np.zeros(len(lattice.slots) >> 2)
    values = lattice.values
    for text in range(len(counts)):
        a = ends[text]
        n = ends[text + 1] - a
        for k in range(n + 1):
            forward[k] = 0.0
        forward[0] = 1.0
        moves = np.int64(0)
        edge = np.int64(0)
        for i in range(n):
            if forward[i] < _SMALL:
                for k in range(i, min(i + LONGEST, n) + 1):
                    forward[k] *= _LARGE
                moves += 1
            moved[i] = moves
            first_edge[i] = edge
            sum_before = forward[i]
            slot = _first_slot(lattice, numbers[a + i])
            end = i + 1
            single = False
            while slot >= 0:
                value = values[np.uint64(slot) << _1 | _1]
                if value > 0.0:
                    forward[end] += sum_before * value
                    edge_slots[edge], edge_ends[edge] = slot, end
                    edge += 1
                    single = single or end == i + 1
                if end == n:
                    break
                slot = _next_slot(lattice, slot, numbers[a + end])
                end += 1
            if not single:
                forward[i + 1] += sum_before * lattice.unknown
                edge_slots[edge], edge_ends[edge] = _UNKNOWN, i + 1
                edge += 1
        moved[n] = moves
        share = np.float64(counts[text]) / forward[n]
        backward[n] = 1.0
        moves_back = np.int64(0)
        for i in range(n - 1, -1, -1):
            total = 0.0
            weight = share * forward[i]
            scale = moved[n] - moved[i] - moves_back
            if scale != 0:
                weight *= _LARGE ** np.float64(scale)
            while edge > first_edge[i]:
                edge -= 1
                slot = np.int64(edge_slots[edge])
                value = lattice.unknown if slot == _UNKNOWN else values[np.uint64(slot) << _1 | _1]
                value *= backward[edge_ends[edge]]
                total += value
                expected[slot] += weight * value
            backward[i] = total
            if total < _SMALL:
                for k in range(i, min(i + LONGEST, n) + 1):
                    backward[k] *= _LARGE
                moves_back += 1
    return expected


@njit(nogil=True)
def _best(lattice, numbers, a, n, whole, sums, slots, starts):
    """Return the sum of scores (float32) of the best way to split a text into pieces. The text is
    numbers[a:a + n], characters as numbers. Of equal ways, the one with the longer last piece wins.
    whole: True if one piece may be the whole text. sums, slots, starts: arrays to fill: at k, for
    the first k characters, the best sum and the last piece's slot (node of the trie) and start."""
    for k in range(n + 1):
        sums[k] = _NOTHING
    sums[0] = np.float32(0)
    for i in range(n):
        slot = _first_slot(lattice, numbers[a + i])
        end = i + 1
        single = False
        while slot >= 0:
            score = lattice.values[np.uint64(slot) << _1 | _1]
            if score > -np.inf:
                single = single or end == i + 1
                if whole or end - i < n:
                    path_sum = sums[i] + np.float32(score)
                    if path_sum > sums[end]:
                        sums[end], slots[end], starts[end] = path_sum, slot, i
            if end == n:
                break
            slot = _next_slot(lattice, slot, numbers[a + end])
            end += 1
        if not single:
            path_sum = sums[i] + np.float32(lattice.unknown)
            if path_sum > sums[i + 1]:
                sums[i + 1], slots[i + 1], starts[i + 1] = path_sum, _UNKNOWN, i
    return sums[n]


@njit(cache=True, nogil=True)
def best_counts(lattice, texts, counts):
    """Return float64[slots]: the occurrences of pieces in the best paths of the texts. lattice: a
    lattice of scores."""
    numbers, ends = texts
    longest = np.int64(1)
    for k in range(len(counts)):
        longest = max(longest, ends[k + 1] - ends[k])
    sums = np.empty(longest + 1, np.float32)
    slots, starts = np.empty(longest + 1, np.int64), np.empty(longest + 1, np.int64)
    counted = np.zeros(len(lattice.slots) >> 2)
    for text in range(len(counts)):
        at = ends[text + 1] - ends[text]
        _best(lattice, numbers, ends[text], at, True, sums, slots, starts)
        while at > 0:
            counted[slots[at]] += np.float64(counts[text])
            at = starts[at]
    return counted


@njit(cache=True, nogil=True)
def alternatives(lattice, texts):
    """Find the best spelling of each piece by other pieces. Return (scores, path, ends). scores:
    float32[pieces], the score of each piece's spelling, -inf if the piece has no spelling; path:
    int32[], the pieces of all spellings, as slots (nodes of the trie); ends: int64[pieces + 1],
    bounds of spellings in `path`. lattice: the result of `PieceTrie.scores`."""
    numbers, ends = texts
    count = len(ends) - 1
    sums = np.empty(LONGEST + 1, np.float32)
    slots, starts = np.empty(LONGEST + 1, np.int64), np.empty(LONGEST + 1, np.int64)
    totals = np.empty(count, np.float32)
    path, path_ends = np.empty(len(numbers), np.int32), np.zeros(count + 1, np.int64)
    w = np.int64(0)
    for piece in range(count):
        n = ends[piece + 1] - ends[piece]
        totals[piece] = _NOTHING
        if n > 1:
            totals[piece] = _best(lattice, numbers, ends[piece], n, False, sums, slots, starts)
            at, first = n, w
            while at > 0:
                path[w] = slots[at]
                w += 1
                at = starts[at]
            for k in range((w - first) // 2):
                path[first + k], path[w - 1 - k] = path[w - 1 - k], path[first + k]
        path_ends[piece + 1] = w
    return totals, path[:w], path_ends


@njit(cache=True, nogil=True)
def losses(frequencies, piece_at, first, path, ends):
    """Return float32[pieces]: the fall of the text's log-likelihood if a piece is dropped. Each
    fall is divided by the sum of `frequencies`. frequencies: float32[pieces], the occurrences in
    best paths; piece_at: the piece that ends at each slot (node of the trie); first: the piece that
    unknown characters count as; path, ends: from `alternatives`."""
    total = 0.0
    for k in range(len(frequencies)):
        total += np.float64(frequencies[k])
    total32 = np.float32(total)
    log_total = np.float32(np.log(np.float64(total32)))
    lost = np.zeros(len(frequencies), np.float32)
    for piece in range(len(frequencies)):
        frequency = frequencies[piece]
        size = ends[piece + 1] - ends[piece]
        if frequency == 0 or size == 0:
            continue
        with_piece = np.float32(np.log(np.float64(frequency)) - np.float64(log_total))
        total_without = total32 + frequency * np.float32(size - 1)
        log_total_without = np.float32(np.log(np.float64(total_without)))
        without = np.float32(0)
        for k in range(ends[piece], ends[piece + 1]):
            part = first if path[k] == _UNKNOWN else np.int64(piece_at[path[k]])
            joint = np.float64(frequencies[part] + frequency)
            without = np.float32(
                np.float64(without) + (np.log(joint) - np.float64(log_total_without))
            )
        lost[piece] = (frequency / total32) * (with_piece - without)
    return lost
