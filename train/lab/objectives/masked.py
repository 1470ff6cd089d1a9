"""Some of the tokens, hidden, from all others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from train import objective_settings as own
from train.data.packing import scatter
from train.data.readers import Ints
from train.data.rows import Piece, Takes
from train.data.vocabulary import Vocabulary
from train.objectives.example import IGNORED, Draws, Example, Objective, laid_out, learns

if TYPE_CHECKING:
    from train.data.feed import Feed


LONGEST_NGRAM = 5  # words (Levine et al. 2021, section 4)
SEEN = 10  # times, and once more (AI21Labs/pmi-masking, README.md: "over 10 occurrences")
WORDS = 1 << 22  # that are counted at most: the five tables take some 300 MB

_Keys = npt.NDArray[np.uint64]


class Collocations:
    """The n-grams of 2 to 5 words that occur over 10 times and whose words go together most:
    of each length this ``share`` of them, by their PMI. That of an n-gram is the least, over all
    ways to cut it, of log p(n-gram) / product of p(part): so none is high by a part of it alone
    (Levine et al. 2021, section 3). ``documents``: ids [tokens] of each, with a bool of whether a
    word begins there; the first 4 million words count.
    """

    def __init__(
        self, documents: Iterable[tuple[Ints, npt.NDArray[np.bool_]]], share: float
    ) -> None:
        parts, total = [], 0
        for ids, begins in documents:
            parts.append(words_of(ids, begins)[0])
            total += len(parts[-1])
            if total >= WORDS:
                break
        words = np.concatenate([np.zeros(0, np.uint64), *parts])[:WORDS]
        document = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[:WORDS]
        self.keys = [np.zeros(0, np.uint64)] * 2  # of n-grams by their length, sorted
        chances: list[npt.NDArray[np.float64]] = [np.zeros(0)]  # log p of that which begins there
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
                often = counts > SEEN
                scores = pmi(chances, starts[first[often]], length)
                kept = np.argsort(-scores, kind="stable")[: int(share * len(scores))]
                self.keys.append(np.sort(distinct[often][kept]))

    def __len__(self) -> int:
        return sum(map(len, self.keys))

    def units(self, ids: Ints, begins: npt.NDArray[np.bool_]) -> Ints:
        """Where each unit of a text begins: a word, or words that go together, the longest first
        from the left.
        """
        words, first = words_of(ids, begins)
        longest = np.ones(len(words), np.int64)
        for length in range(2, LONGEST_NGRAM + 1):
            grams = ngrams(words, length)
            there = np.isin(grams, self.keys[length])
            longest[: len(grams)][there] = length
        starts, word = [], 0
        while word < len(words):
            starts.append(word)
            word += int(longest[word])
        return first[np.array(starts, np.int64)]


def words_of(ids: Ints, begins: npt.NDArray[np.bool_]) -> tuple[_Keys, Ints]:
    """A key of each word, the same for the same tokens, and its first token's place."""
    first = np.flatnonzero(begins | (np.arange(len(ids)) == 0))
    if not len(ids):
        return np.zeros(0, np.uint64), first
    inside = np.arange(len(ids)) - np.repeat(first, np.diff(first, append=len(ids)))
    keys = scatter(ids.astype(np.uint64) + (inside.astype(np.uint64) << np.uint64(32)))
    return np.add.reduceat(keys, first), first


def ngrams(words: _Keys, length: int) -> _Keys:
    """A key of each run of so many words."""
    count = max(0, len(words) - length + 1)
    total = np.zeros(count, np.uint64)
    with np.errstate(over="ignore"):
        for place in range(length):
            total += scatter(words[place : place + count] + np.uint64(place))
    return total


def pmi(
    chances: list[npt.NDArray[np.float64]], starts: Ints, length: int
) -> npt.NDArray[np.float64]:
    """Of the n-grams that begin at ``starts``; ``chances[n]``: log p of that of n words by where it
    begins.
    """
    best = [np.zeros(len(starts))]  # of the ways to cut the first words
    for end in range(1, length + 1):
        cut = [
            best[end - last] + chances[last][starts + end - last]
            for last in range(1, min(end, length - 1) + 1)
        ]
        best.append(np.max(cut, axis=0))
    return chances[length][starts] - best[length]


LONGEST = 10  # words of a span (Joshi et al. 2020)
# What stands in a hidden token's place: the mask, a random token, or the token itself.
MASKED, RANDOM = 0.8, 0.1


@learns(own.Masked, by=("encoder",))
class Masked(Objective):
    """A share of the tokens is to be found from all of their document (Devlin et al. 2019): of
    these 8 of 10 are shown as the mask, 1 as a random token, 1 as it is.

    A piece is read with the end-of-text token before it, and without its last token, which is read
    in the next piece or is an end of text. So each token of a document is read in one place, and
    may be hidden there, in another choice in each epoch (Liu et al. 2019), or with ``fixed`` in the
    same. What is hidden as one is a ``unit``: a token, a word, a span of words of a geometric
    length (Joshi et al. 2020), or words that go together (Levine et al. 2021).
    """

    sparse = True
    likelihood = False

    def __init__(self, settings: own.Masked, tokens: Vocabulary) -> None:
        super().__init__(settings, tokens)
        self.rate, self.unit, self.fixed = settings.rate, settings.unit, settings.fixed
        self.span, self.mask = settings.span, tokens.special["mask"]
        self.collocations: Collocations | None = None

    def study(self, feed: Feed) -> None:
        """Of ``pmi`` the words that go together in the documents that are trained on."""
        if self.unit != "pmi":
            return
        sources = np.repeat(np.arange(len(feed.train)), [len(d) for d in feed.train.values()])
        numbers = np.concatenate(list(feed.train.values()))
        shards = [feed.shards[path] for path in feed.train]
        order = np.argsort(scatter(np.arange(len(numbers), dtype=np.uint64)))
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
        row, places = laid_out(pieces, context)
        targets = torch.full_like(row.targets, IGNORED)
        for piece, place in places:
            shown, hidden = self.hide(piece, row.inputs[0, place].numpy(), draws)
            targets[0, place] = torch.from_numpy(hidden)
            row.inputs[0, place] = torch.from_numpy(shown)
        return Example(inputs=row.inputs, targets=targets, documents=row.documents)

    def hide(self, piece: Piece, ids: Ints, draws: Draws) -> tuple[Ints, Ints]:
        """Of a piece's tokens as they are read, what is shown, and what is to be found."""
        if self.fixed:
            draws = Draws(draws.seed, 0)
        start = 0 if piece.first else 1  # an end of text is given
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
        if piece.counted is not None:  # of the token before, which is not in the piece, none
            chosen[1:] &= piece.counted[:-1]
            chosen[0] = False
        hidden = np.where(chosen, ids, IGNORED)
        kind = draws.shares(piece, len(ids), 2)
        other = draws.shares(piece, len(ids), 3) * len(self.tokens.plain)
        shown = np.where(chosen & (kind < MASKED), self.mask, ids)
        swapped = chosen & (kind >= MASKED) & (kind < MASKED + RANDOM)
        return np.where(swapped, self.tokens.plain[other.astype(np.int64)], shown), hidden

    def units(self, piece: Piece, ids: Ints, draws: Draws) -> npt.NDArray[np.int64]:
        """[units, 2]: first token and end of what is hidden as one, in the order of choice."""
        if self.unit == "token":
            first = np.arange(len(ids))
        else:
            begins = self.tokens.begins_word[ids]
            begins[:1] = True
            first = np.flatnonzero(begins)
            if self.unit == "pmi":
                assert self.collocations is not None, "study comes first"
                first = self.collocations.units(ids, begins)
        last = np.append(first, len(ids))[1:]
        order = np.argsort(draws.shares(piece, len(first), 0), kind="stable")
        if self.unit == "span":
            length = _lengths(draws.shares(piece, len(first), 1), self.span)
            last = last[np.minimum(np.arange(len(first)) + length, len(first)) - 1]
        return np.stack([first, last], 1)[order]


def _lengths(shares: npt.NDArray[np.float64], mean: float) -> npt.NDArray[np.int64]:
    """Words of a span: a geometric distribution cut off at 10, with this mean. SpanBERT's, which
    is cut off too, has p = 0.2.
    """
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
    """A piece is cut in two, near its middle, with a separator between them: do they belong
    together? Tokens are hidden as by ``Masked``.

    Of ``NextSentence`` half of the second segments are taken from other documents (Devlin et al.
    2019), of ``SentenceOrder`` half of the pieces have their segments in the wrong order (Lan et
    al. 2020).
    """

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
        return lambda length, context: length + 1  # the separator

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
                other = draws.other(piece)
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

    def _halves(self, piece: Piece, draws: Draws) -> tuple[npt.NDArray[np.int64], ...]:
        """What a piece begins with, and its segments: [2, tokens] each, shown and to be found."""
        read = np.append(piece.before, piece.tokens[:-1])
        both = np.stack(self.masked.hide(piece, read, draws))
        middle = 1 + int((0.25 + 0.5 * draws.shares(piece, 1, 5)[0]) * (len(read) - 1))
        return both[:, :1], both[:, 1:middle], both[:, middle:]


@learns(own.Replaced)
class Replaced(Masked):
    """Hidden tokens, as those of ``Masked``, each shown as the mask: a generator learns to find
    them. What it draws in their place, by the ``chances`` of the example, a discriminator learns to
    tell from what was there; a token that is drawn as it was counts as not replaced (section 2).
    """

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


@torch.no_grad()
def sampled(
    read: Tensor, weight: Tensor, bias: Tensor | None, chances: Tensor, chunk: int
) -> Tensor:
    """A token for each row of ``read`` [tokens, hidden], drawn from softmax(read @ weight.T + bias)
    by its number of ``chances`` [tokens], float64: the first whose share, with those of all before
    it, is over that.
    """
    drawn = []
    for x, chance in zip(read.split(chunk), chances.split(chunk), strict=True):
        shares = F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
        below = shares.float().softmax(-1).cumsum(-1, dtype=torch.float64)
        drawn.append(torch.searchsorted(below, (chance * below[:, -1])[:, None], right=True)[:, 0])
    return torch.cat(drawn).clamp(max=len(weight) - 1)


def put_in(example: Example, places: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The rows with these tokens at ``places`` of the flattened rows, and which of all are others
    than they were: int64 and bool [rows, context].
    """
    before = torch.where(example.targets == IGNORED, example.inputs, example.targets)
    ids = before.flatten().index_copy(0, places, tokens).view_as(before)
    return ids, ids != before
