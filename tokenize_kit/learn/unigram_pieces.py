"""Learning of a Unigram's pieces, as SentencePiece 0.2.3 learns them (Kudo 2018).

Seeds, then rounds: expectation and maximisation twice, and a quarter of the pieces dropped whose
loss is least, until a tenth more are left than asked; the best of them are the vocabulary
(unigram_model_trainer.cc, TrainDiscretePruning and FinalizeSentencePieces). Where it rounds to
float32 it is rounded here, but for the sums over the text.
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

_ROUNDS = 2  # of expectation and maximisation, before pieces are dropped
_LEAST = np.float32(0.5)  # expected occurrences of a piece
# Where seeds are not SentencePiece's, as BPE's min_frequency: a word of a dictionary met once
# takes what its parts would count.
_LEAST_OWN = np.float32(2.0)
_SHRINK = 0.75
_MORE = 1.1  # pieces to the vocabulary, when dropping ends
_STEP = np.float32(0.0001)  # between the scores of characters that have none


@dataclass(frozen=True)
class Seeds:
    """The pieces to begin with, and the distinct segments that they are learned from; least: the
    expected occurrences of a piece; scale: what an occurrence counts in a text that counts once."""

    pieces: Pieces
    texts: Texts
    counts: np.ndarray
    alphabet: int
    least: np.float32
    scale: int


class OwnLearner:
    """The distinct words of texts. characters: how often each occurs."""

    def __init__(
        self,
        documents: Iterable[tuple[str, int]],
        space_cuts: bool = False,
        dictionary: Dictionary | None = None,
        characters_differ: bool = False,
        scale: int = 1,
    ) -> None:
        """As unigram_segments.count_sentences; characters_differ: as find_seeds; scale: the weight
        of a text that counts once."""
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
        """As unigram.Learner says."""
        if self._seeds is None or self._seeds[0] != len(kept):  # the commonest, so the same ones
            self._seeds = len(kept), self._seed_pieces(self._words, kept, symbols)
        seeds = self._seeds[1]
        pieces = learn_pieces(seeds, room + len(symbols) + 2)  # SentencePiece has newline and tab
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
    """Seeds of all characters that occur, and of substrings. kept, symbols: of cut_segments; kept
    are sorted; ends_differ, characters_differ: as find_seeds; without both all is SentencePiece's.
    """
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
    """About a tenth more pieces than `vocab`, without those that others spell better."""
    desired = int(vocab * _MORE)
    trie = PieceTrie(seeds.pieces, seeds.alphabet)
    while True:
        for _ in range(_ROUNDS):
            trie = maximised(trie, seeds, desired)
        trie = _pruned(trie, seeds, desired)
        if len(trie.pieces) <= desired:
            break
    pieces = trie.pieces
    others, _, _ = alternatives(trie.scores(), pieces.texts)
    order = pieces.order
    return pieces.select(order[others[order] <= pieces.scores[order]], pieces.scores)


def maximised(trie: PieceTrie, seeds: Seeds, desired: int) -> PieceTrie:
    """The pieces that are expected often enough, with new scores: digamma in place of the
    logarithm (Liang and Klein 2007). Where not `desired` pieces are, as in a small text, rare ones
    stay."""
    from scipy.special import digamma

    pieces = trie.pieces
    slots = expected_counts(trie.probabilities(), seeds.texts, seeds.counts)
    expected = (trie.of_pieces(slots) / seeds.scale).astype(np.float32)
    enough = np.count_nonzero(expected >= seeds.least) >= desired
    least = min(seeds.least if enough else _LEAST, expected.max())  # of a text of a few characters
    order = pieces.order[expected[pieces.order] >= least]
    total = np.cumsum(expected[order])[-1]  # one after the other, in float32
    log_total = np.float64(np.float32(digamma(np.float64(total))))
    scores = np.full(len(pieces), -np.inf, np.float32)
    scores[order] = (digamma(expected[order].astype(np.float64)) - log_total).astype(np.float32)
    return trie.select(order, scores)


def _pruned(trie: PieceTrie, seeds: Seeds, desired: int) -> PieceTrie:
    """Three quarters of the pieces, `desired` at least."""
    pieces, lattice = trie.pieces, trie.scores()
    others, path, ends = alternatives(lattice, pieces.texts)
    slots = best_counts(lattice, seeds.texts, seeds.counts)
    frequencies = trie.of_pieces(slots).astype(np.float32)
    lost = losses(frequencies, trie.piece_at, pieces.order[0], path, ends)
    order = pieces.order
    order = order[(frequencies[order] > 0) & (others[order] <= pieces.scores[order])]
    alone = np.diff(ends)[order] == 0
    kept, candidates = order[alone], order[~alone]
    room = max(desired, int(np.float32(_SHRINK) * len(pieces))) - len(kept)
    best = candidates[np.argsort(-lost[candidates], kind="stable")]
    return trie.select(np.append(kept, best[: max(0, room)]), pieces.scores)


def final_scores(
    pieces: Pieces, kept: Sequence[str], required: Counter[str], room: int
) -> list[tuple[str, float]]:
    """The vocabulary, best first: all `required` characters and the best pieces, `room` in all.

    kept: the characters by their numbers from 1; required: how often each occurs.
    """
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
    """A name as SentencePiece spells it, by which equals are sorted."""
    return name.replace(" ", "\u2581")
