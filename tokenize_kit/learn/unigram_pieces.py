"""Learn the pieces of a Unigram as SentencePiece 0.2.3 learns them (Kudo 2018).

Learning starts with seeds. Each round runs expectation and maximisation twice, then drops the
quarter of the pieces with the smallest loss, until 1.1 times the asked number of pieces is left.
The best of these are the vocabulary (unigram_model_trainer.cc, TrainDiscretePruning and
FinalizeSentencePieces). Values are rounded to float32 where SentencePiece rounds, except for sums
over the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tokenize_kit.encode.trie import make_alphabet, numbers_of
from tokenize_kit.learn.unigram_em import (
    Pieces,
    PieceTrie,
    Texts,
    alternatives,
    best_counts,
    expected_counts,
    losses,
)
from tokenize_kit.learn.unigram_seeds import find_seeds
from tokenize_kit.learn.unigram_segments import (
    Words,
    character_kinds,
    count_sentences,
    cut_segments,
    without_following,
)
from tokenize_kit.segment import Dictionary

_ROUNDS = 2  # expectation and maximisation steps before pieces are dropped
_LEAST = np.float32(0.5)  # the fewest expected occurrences of a piece
# The same for seeds that differ from SentencePiece's; 2 is BPE's min_frequency. Otherwise a
# dictionary word that occurs once would take the counts of its parts.
_LEAST_OWN = np.float32(2.0)
_SHRINK = 0.75
_SURPLUS = 1.1  # pieces are dropped until this many times the vocabulary are left
_STEP = np.float32(0.0001)  # score difference of required characters that are not pieces


@dataclass(frozen=True)
class Seeds:
    """The starting point of learning: initial pieces, and the distinct segments of text with their
    counts. alphabet: the number of characters; least: the fewest expected occurrences that a piece
    must have; scale: the integer that stands for a weight of 1."""

    pieces: Pieces
    texts: Texts
    counts: np.ndarray
    alphabet: int
    least: np.float32
    scale: int


class PieceLearner:
    """Learns vocabularies of any size after one reading of the texts. The attribute `characters`
    counts each character. documents: texts with integer weights; space_cuts: True if spaces end
    sentences; dictionary: words that are cut out as sentences; characters_differ: True if only
    substrings that different characters follow may become pieces, False if different bytes are
    enough; scale: the integer for a weight of 1."""

    def __init__(
        self,
        documents: Iterable[tuple[str, int]],
        space_cuts: bool = False,
        dictionary: Dictionary | None = None,
        characters_differ: bool = False,
        scale: int = 1,
    ) -> None:
        self._words = count_sentences(documents, space_cuts, dictionary)
        self._seed_pieces = partial(
            seed_pieces,
            ends_differ=dictionary is not None,
            characters_differ=characters_differ,
            scale=scale,
        )
        self.characters = self._words.frequencies()
        self._seeds: tuple[int, Seeds] | None = None

    def learn(
        self, kept: Sequence[str], required: str, symbols: Sequence[str], room: int
    ) -> list[tuple[str, float]]:
        """Learn `room` pieces and return them with their scores, best first. kept: the characters
        that may be in pieces, sorted by code point; required: characters that always become pieces;
        symbols: strings that no piece may contain."""
        # `kept` holds the commonest characters, so an equal number means equal characters.
        if self._seeds is None or self._seeds[0] != len(kept):
            self._seeds = len(kept), self._seed_pieces(self._words, kept, symbols)
        seeds = self._seeds[1]
        pieces = learn_pieces(seeds, room + len(symbols) + 2)  # 2: newline and tab
        counts = Counter(dict.fromkeys(required, 0))
        counts.update({character: self.characters[character] for character in kept})
        return final_scores(pieces, kept, counts, room)


def seed_pieces(
    words: Words,
    kept: Sequence[str],
    symbols: Sequence[str],
    ends_differ: bool = False,
    characters_differ: bool = False,
    scale: int = 1,
) -> Seeds:
    """Return the Seeds: the initial pieces (all characters that occur, and substrings of the text)
    and the text to learn from. kept: the characters that may be in pieces, sorted by code point;
    symbols: strings that no piece may overlap; ends_differ, characters_differ: see find_seeds (both
    False: SentencePiece's pieces); scale: the integer that stands for a weight of 1."""
    alphabet, size = make_alphabet([*kept])
    segments = cut_segments(words, kept, symbols)
    kinds = character_kinds(kept)
    begins, sizes, scores = find_seeds(
        segments,
        alphabet,
        kinds,
        ends_differ=ends_differ,
        characters_differ=characters_differ,
    )
    raw = segments.letters.tobytes()
    ends = (begins + sizes).tolist()
    substrings = [raw[a:z].decode() for a, z in zip(begins.tolist(), ends, strict=True)]
    del raw
    letters, ends_of, counts = without_following(segments)
    numbers = numbers_of(alphabet, [letters.tobytes().decode()])[0]
    starts = np.append(0, np.cumsum(letters & 0xC0 != 0x80))[ends_of]
    frequencies = np.bincount(numbers, np.repeat(counts, np.diff(starts)), len(kept) + 1)[1:]
    used = np.flatnonzero(frequencies)
    used = used[np.argsort(-frequencies[used], kind="stable")]
    names = [kept[k] for k in used.tolist()] + substrings
    weights = np.append(frequencies[used], scores).astype(np.float32).astype(np.float64)
    logs = (np.log(weights) - np.log(weights.sum())).astype(np.float32)
    by_bytes = sorted(range(len(names)), key=names.__getitem__)
    order = np.empty(len(names), np.int64)
    order[by_bytes] = np.arange(len(names))
    texts = Texts(*numbers_of(alphabet, [names[k] for k in by_bytes]))
    pieces = Pieces(texts, logs[by_bytes], order)
    least = _LEAST_OWN if ends_differ or characters_differ else _LEAST
    return Seeds(pieces, Texts(numbers, starts), counts, size, least, scale)


def learn_pieces(seeds: Seeds, vocab: int) -> Pieces:
    desired = int(vocab * _SURPLUS)
    trie = PieceTrie(seeds.pieces, seeds.alphabet)
    while True:
        for _ in range(_ROUNDS):
            trie = maximise(trie, seeds, desired)
        trie = _prune(trie, seeds, desired)
        if len(trie.pieces) <= desired:
            break
    pieces = trie.pieces
    alternative_scores, _, _ = alternatives(trie.scores(), pieces.texts)
    order = pieces.order
    return pieces.select(order[alternative_scores[order] <= pieces.scores[order]], pieces.scores)


def maximise(trie: PieceTrie, seeds: Seeds, desired: int) -> PieceTrie:
    """Drop pieces with fewer expected occurrences than seeds.least, and compute new scores. Scores
    use the digamma function in place of the logarithm (Liang and Klein 2007). If fewer than
    `desired` pieces would be left, as in a small text, SentencePiece's own, lower limit is used."""
    from scipy.special import digamma

    pieces = trie.pieces
    slots = expected_counts(trie.probabilities(), seeds.texts, seeds.counts)
    expected = (trie.piece_counts(slots) / seeds.scale).astype(np.float32)
    enough = np.count_nonzero(expected >= seeds.least) >= desired
    least = min(seeds.least if enough else _LEAST, expected.max())  # a tiny text may have no more
    order = pieces.order[expected[pieces.order] >= least]
    total = np.cumsum(expected[order])[-1]  # sequential sum in float32
    log_total = np.float64(np.float32(digamma(np.float64(total))))
    scores = np.full(len(pieces), -np.inf, np.float32)
    scores[order] = (digamma(expected[order].astype(np.float64)) - log_total).astype(np.float32)
    return trie.select(order, scores)


def _prune(trie: PieceTrie, seeds: Seeds, desired: int) -> PieceTrie:
    pieces, lattice = trie.pieces, trie.scores()
    alternative_scores, path, ends = alternatives(lattice, pieces.texts)
    slots = best_counts(lattice, seeds.texts, seeds.counts)
    frequencies = trie.piece_counts(slots).astype(np.float32)
    lost = losses(frequencies, trie.piece_at, pieces.order[0], path, ends)
    order = pieces.order
    order = order[(frequencies[order] > 0) & (alternative_scores[order] <= pieces.scores[order])]
    alone = np.diff(ends)[order] == 0
    kept, candidates = order[alone], order[~alone]
    room = max(desired, int(np.float32(_SHRINK) * len(pieces))) - len(kept)
    best = candidates[np.argsort(-lost[candidates], kind="stable")]
    return trie.select(np.append(kept, best[: max(0, room)]), pieces.scores)


def final_scores(
    pieces: Pieces, kept: Sequence[str], required: Counter[str], room: int
) -> list[tuple[str, float]]:
    """Choose the vocabulary of `room` pieces: all `required` characters and the best pieces. Return
    the pieces with scores, best first. `pieces.texts` has numbers for characters: 1 is the first
    character in `kept`, 2 the second. required: the occurrences of each required character."""
    names = [""] * len(pieces)
    for k, (a, z) in enumerate(zip(pieces.texts.ends[:-1], pieces.texts.ends[1:], strict=True)):
        names[k] = "".join(kept[n - 1] for n in pieces.texts.numbers[a:z])
    scores = dict(zip(names, pieces.scores.tolist(), strict=True))
    least, penalty = pieces.scores.min(), np.float32(0)
    final: dict[str, float] = {}
    for character, _ in sorted(required.items(), key=lambda item: (-item[1], _spelled(item[0]))):
        if character in scores:
            final[character] = scores[character]
        else:
            final[character] = float(least + penalty)
            penalty = np.float32(penalty + _STEP)
    for name, score in sorted(scores.items(), key=lambda item: (-item[1], _spelled(item[0]))):
        if len(final) >= room:
            break
        final.setdefault(name, score)
    return sorted(final.items(), key=lambda item: (-item[1], _spelled(item[0])))


def _spelled(name: str) -> str:
    return name.replace(" ", "\u2581")
