"""Masked language modelling and its variants: predict hidden tokens from all others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from train import objective_settings as own
from train.data.packing import mix64
from train.data.readers import Flags, Floats, Ints
from train.data.rows import Piece, Takes
from train.data.vocabulary import Vocabulary
from train.model.heads import HeadWeights
from train.objectives.example import IGNORED, Draws, Example, Objective, causal_row, learns

if TYPE_CHECKING:
    from train.data.feed import Feed


LONGEST_NGRAM = 5  # words (Levine et al. 2021, section 4)
MIN_COUNT = 10  # n-grams occur more often (AI21Labs/pmi-masking, README.md: "over 10 occurrences")
WORDS = 1 << 22  # most words to count: the five tables take about 300 MB

_Keys = npt.NDArray[np.uint64]


class Collocations:
    """Collocations: n-grams of 2 to 5 words that occur over 10 times and have a high PMI (pointwise
    mutual information). The best ``share`` of each length is kept. The PMI of an n-gram is the
    least value of log(p(n-gram) / product of p(part)) among all divisions into parts, so one strong
    part is not enough (Levine et al. 2021, section 3). ``documents`` are pairs of token ids and
    flags, both [tokens], True for tokens that begin a word. Only the first 4 million words are
    counted."""

    def __init__(self, documents: Iterable[tuple[Ints, Flags]], share: float) -> None:
        parts, total = [], 0
        for ids, begins in documents:
            parts.append(words_of(ids, begins)[0])
            total += len(parts[-1])
            if total >= WORDS:
                break
        words = np.concatenate([np.zeros(0, np.uint64), *parts])[:WORDS]
        document = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[:WORDS]
        self.keys = [np.zeros(0, np.uint64)] * 2  # by n-gram length, sorted
        chances: list[Floats] = [np.zeros(0)]  # log p, by n-gram length
        for length in range(1, LONGEST_NGRAM + 1):
            grams = ngrams(words, length)
            inside = document[: len(grams)] == document[len(words) - len(grams) :]
            distinct, first, which, counts = np.unique(
                grams[inside], return_index=True, return_inverse=True, return_counts=True
            )
            log_p = np.full(len(words), -np.inf)
            starts = np.flatnonzero(inside)
            log_p[starts] = np.log(counts / max(1, len(starts)))[which]
            chances.append(log_p)
            if length > 1:
                often = counts > MIN_COUNT
                scores = pmi(chances, starts[first[often]], length)
                kept = np.argsort(-scores, kind="stable")[: int(share * len(scores))]
                self.keys.append(np.sort(distinct[often][kept]))

    def __len__(self) -> int:
        return sum(map(len, self.keys))

    def units(self, ids: Ints, begins: Flags) -> Ints:
        """Return the first token of each unit of a text. A unit is a collocation or a single word.
        From left to right, the longest collocation that begins at a word is taken."""
        words, first = words_of(ids, begins)
        longest = np.ones(len(words), np.int64)
        for length in range(2, LONGEST_NGRAM + 1):
            grams = ngrams(words, length)
            known = np.isin(grams, self.keys[length])
            longest[: len(grams)][known] = length
        starts, word = [], 0
        while word < len(words):
            starts.append(word)
            word += int(longest[word])
        return first[np.array(starts, np.int64)]


def words_of(ids: Ints, begins: Flags) -> tuple[_Keys, Ints]:
    """Return a hash of the tokens of each word, and the index of its first token."""
    first = np.flatnonzero(begins | (np.arange(len(ids)) == 0))
    if not len(ids):
        return np.zeros(0, np.uint64), first
    inside = np.arange(len(ids)) - np.repeat(first, np.diff(first, append=len(ids)))
    keys = mix64(ids.astype(np.uint64) + (inside.astype(np.uint64) << np.uint64(32)))
    return np.add.reduceat(keys, first), first


def ngrams(words: _Keys, length: int) -> _Keys:
    count = max(0, len(words) - length + 1)
    total = np.zeros(count, np.uint64)
    with np.errstate(over="ignore"):
        for place in range(length):
            total += mix64(words[place : place + count] + np.uint64(place))
    return total


def pmi(chances: list[Floats], starts: Ints, length: int) -> Floats:
    """Return the PMI of the n-grams of ``length`` words at ``starts``. ``chances[n][i]`` is the
    logarithm of the probability of the n words from word i on."""
    best = [np.zeros(len(starts))]  # entry n: largest sum of log p over the cuts of n first words
    for end in range(1, length + 1):
        cut = [
            best[end - last] + chances[last][starts + end - last]
            for last in range(1, min(end, length - 1) + 1)
        ]
        best.append(np.max(cut, axis=0))
    return chances[length][starts] - best[length]


LONGEST = 10  # most words of a span (Joshi et al. 2020)
# Shares of hidden tokens shown as the mask and as a random token.
MASKED, RANDOM = 0.8, 0.1


@learns(own.Masked, by=("encoder",))
class Masked(Objective):
    """Predict a share of the tokens from the other tokens of their document (Devlin et al. 2019).
    Of the tokens to predict, 80 % are shown as the mask, 10 % as a random token, 10 % unchanged.

    The inputs for a piece of a document are the token before the piece (at the document's start, an
    end-of-text token) and the piece without its last token. The next piece reads this last token,
    so no token is read twice. Each epoch hides different tokens (Liu et al. 2019), or with
    ``fixed`` the same tokens. A ``unit`` is hidden as a whole: a token, a word, a span of words of
    geometric length (Joshi et al. 2020), or a collocation (Levine et al. 2021)."""

    sparse = True
    likelihood = False

    def __init__(self, settings: own.Masked, tokens: Vocabulary) -> None:
        super().__init__(settings, tokens)
        self.rate, self.unit, self.fixed = settings.rate, settings.unit, settings.fixed
        self.span, self.mask = settings.span, tokens.special["mask"]
        self.collocations: Collocations | None = None

    def study(self, feed: Feed) -> None:
        """Find collocations in the training documents, if the unit is ``pmi``."""
        if self.unit != "pmi":
            return
        sources = np.repeat(np.arange(len(feed.train)), [len(d) for d in feed.train.values()])
        numbers = np.concatenate(list(feed.train.values()))
        shards = [feed.shards[path] for path in feed.train]
        order = np.argsort(mix64(np.arange(len(numbers), dtype=np.uint64)))
        documents = (
            shards[sources[index]].document(int(numbers[index])).astype(np.int64) for index in order
        )
        begins = self.tokens.begins_word
        texts = ((ids, begins[ids]) for ids in documents)
        self.collocations = Collocations(texts, self.settings.collocations)

    @staticmethod
    def needs(settings: own.Masked, context: int) -> tuple[str, ...]:
        return ("mask",)

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        row, places = causal_row(pieces, context)
        targets = torch.full_like(row.targets, IGNORED)
        for piece, place in places:
            shown, hidden = self.hide(piece, row.inputs[0, place].numpy(), draws)
            targets[0, place] = torch.from_numpy(hidden)
            row.inputs[0, place] = torch.from_numpy(shown)
        return Example(inputs=row.inputs, targets=targets, documents=row.documents)

    def hide(self, piece: Piece, ids: Ints, draws: Draws) -> tuple[Ints, Ints]:
        """Return a piece's inputs and targets. A token that is not hidden has target IGNORED."""
        if self.fixed:
            draws = Draws(draws.seed, 0)
        start = 0 if piece.first else 1  # an end-of-text token before the piece is never hidden
        units = self.units(piece, ids[start:], draws)
        wanted = max(1, round(self.rate * (len(ids) - start))) if len(ids) > start else 0
        chosen = np.zeros(len(ids), dtype=np.bool_)
        count = 0
        for first, last in units:
            if count >= wanted:
                break
            first, last = first + start, min(last, first + wanted - count) + start
            count += int((~chosen[first:last]).sum())
            chosen[first:last] = True
        if piece.counted is not None:  # shifted by one, as the input is
            chosen[1:] &= piece.counted[:-1]
            chosen[0] = False
        hidden = np.where(chosen, ids, IGNORED)
        kind = draws.shares(piece, len(ids), 2)
        other = draws.shares(piece, len(ids), 3) * len(self.tokens.plain)
        shown = np.where(chosen & (kind < MASKED), self.mask, ids)
        swapped = chosen & (kind >= MASKED) & (kind < MASKED + RANDOM)
        return np.where(swapped, self.tokens.plain[other.astype(np.int64)], shown), hidden

    def units(self, piece: Piece, ids: Ints, draws: Draws) -> Ints:
        """Return what may be masked (tokens, words or spans), in random order: int64 [units, 2],
        the index of each unit's first token and the index after its last."""
        if self.unit == "token":
            first = np.arange(len(ids))
        else:
            begins = self.tokens.begins_word[ids]
            begins[:1] = True
            first = np.flatnonzero(begins)
            if self.unit == "pmi":
                assert self.collocations is not None, "call study first"
                first = self.collocations.units(ids, begins)
        last = np.append(first, len(ids))[1:]
        order = np.argsort(draws.shares(piece, len(first), 0), kind="stable")
        if self.unit == "span":
            length = _lengths(draws.shares(piece, len(first), 1), self.span)
            last = last[np.minimum(np.arange(len(first)) + length, len(first)) - 1]
        return np.stack([first, last], 1)[order]


def _lengths(shares: Floats, mean: float) -> Ints:
    """Draw span lengths in words from a geometric distribution with p = 1 / ``mean`` (SpanBERT:
    0.2). They are at most 10."""
    low, high = 1e-6, 1 - 1e-9
    lengths = np.arange(1, LONGEST + 1)
    for _ in range(50):
        p = (low + high) / 2
        weights = (1 - p) ** (lengths - 1)
        if (weights * lengths).sum() / weights.sum() > mean:
            low = p
        else:
            high = p
    bounds = np.cumsum(weights / weights.sum())
    return 1 + np.minimum(np.searchsorted(bounds, shares, side="right"), LONGEST - 1)


@learns(own.NextSentence, own.SentenceOrder)
class Pairs(Objective):
    """Classify pairs of segments. Each piece of a document is cut in two, with a separator between
    the segments. The cut is at the sentence end nearest to a random place in the middle half of the
    piece, or at this place if the piece has only one sentence. Tokens are hidden as in ``Masked``.
    In half of the pairs, ``NextSentence`` takes the second segment from another document (Devlin et
    al. 2019), and ``SentenceOrder`` swaps the segments (Lan et al. 2020)."""

    sparse = True
    likelihood = False

    def __init__(self, settings: own.Masked, tokens: Vocabulary) -> None:
        super().__init__(settings, tokens)
        self.masked, self.next = Masked(settings, tokens), isinstance(settings, own.NextSentence)
        self.separator = tokens.special["sep"]

    def study(self, feed: Feed) -> None:
        self.masked.study(feed)

    @staticmethod
    def needs(settings: own.Masked, context: int) -> tuple[str, ...]:
        return (*Masked.needs(settings, context), "sep")

    @staticmethod
    def takes(settings: own.Masked) -> Takes:
        return lambda length, context: length + 1  # one position for the separator

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        ids, targets, documents, segments, pairs = (
            np.full((1, context), fill, np.int64) for fill in (0, IGNORED, -1, 0, IGNORED)
        )
        filled = 0
        for piece in pieces:
            begin, first, second = self._halves(piece, draws)
            wrong = draws.shares(piece, 1, 4)[0] < 0.5
            if wrong and not self.next:
                first, second = second, first
            elif wrong:
                other = draws.of_other_document(piece)
                wrong = other is not None
                if other is not None:
                    second = self._halves(other, draws)[2][:, : second.shape[1]]
            separator = np.array([[self.separator], [IGNORED]])
            row = np.concatenate([begin, first, separator, second], axis=1)
            place = slice(filled, filled + row.shape[1])
            ids[0, place], targets[0, place] = row
            documents[0, place] = piece.document
            segments[0, filled + 2 + first.shape[1] : place.stop] = 1
            pairs[0, filled] = int(wrong)
            filled = place.stop
        tensors = (torch.from_numpy(x) for x in (ids, targets, documents, segments, pairs))
        names = ("inputs", "targets", "documents", "segments", "pairs")
        return Example(**dict(zip(names, tensors, strict=True)))

    def _halves(self, piece: Piece, draws: Draws) -> tuple[Ints, ...]:
        read = np.append(piece.before, piece.tokens[:-1])
        both = np.stack(self.masked.hide(piece, read, draws))
        middle = 1 + int((0.25 + 0.5 * draws.shares(piece, 1, 5)[0]) * (len(read) - 1))
        ends = self.tokens.ends_sentence[read]
        cuts = 2 + np.flatnonzero(ends[1:-1] & ~ends[2:])  # after the last of adjacent marks
        if len(cuts):
            middle = int(cuts[np.argmin(np.abs(cuts - middle))])
        return both[:, :1], both[:, 1:middle], both[:, middle:]


@learns(own.Replaced)
class Replaced(Masked):
    """Detect replaced tokens (Clark et al. 2020, section 2). Tokens are chosen as in ``Masked``,
    and all are shown as the mask token. A generator predicts them. Tokens sampled from its
    predictions then take their places, and a discriminator learns which tokens differ from the
    text."""

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        row = super().example(pieces, context, draws)
        inputs = torch.where(row.targets == IGNORED, row.inputs, self.mask)
        chances = torch.zeros(1, context, dtype=torch.float64)
        filled = 0
        for piece in pieces:
            place = slice(filled, filled + len(piece.tokens))
            chances[0, place] = torch.from_numpy(draws.shares(piece, len(piece.tokens), 8))
            filled = place.stop
        return dataclasses.replace(row, inputs=inputs, chances=chances)


_BITS = 48  # of a probability as a whole number: more than float32's 24, and sums fit int64


@torch.no_grad()
def sampled(read: Tensor, head: HeadWeights, chances: Tensor, chunk: int) -> Tensor:
    """Sample a token for each row of ``read`` [tokens, hidden] from the softmax of the head's
    logits. ``chances`` are uniform random numbers, float64 [tokens] in [0, 1), at which the
    cumulative distribution is inverted. Probabilities are added up as whole numbers, because sums
    of floats on a GPU depend on the order of threads."""
    bias = None if head.bias is None else head.bias.to(read.dtype)
    cast, drawn = head._replace(weight=head.weight.to(read.dtype), bias=bias), []
    for x, chance in zip(read.split(chunk), chances.split(chunk), strict=True):
        below = (cast.logits(x).softmax(-1).double() * 2**_BITS).long().cumsum(-1)
        place = (chance * below[:, -1]).long()
        drawn.append(torch.searchsorted(below, place[:, None], right=True)[:, 0])
    return torch.cat(drawn).clamp(max=len(head.weight) - 1)


def insert_tokens(example: Example, places: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return (inputs, changed), both [rows, context]. The inputs have ``tokens`` at ``places``,
    indices into the flattened rows. ``changed`` is True where a token differs from the text."""
    before = torch.where(example.targets == IGNORED, example.inputs, example.targets)
    ids = before.flatten().index_copy(0, places, tokens).view_as(before)
    return ids, ids != before
