"""Noises whose targets are the tokens of the text themselves: T5's comparison, and BART's five."""

from __future__ import annotations

from typing import Any

import numpy as np

from train.data.token_file import Ints
from train.data.vocabulary import Vocabulary
from train.objective_settings import Bart, BertStyle, DroppedTokens
from train.objectives.noise import Draw, Flags, Noise, hidden_of, ids_of, some


def same(text: Ints) -> Ints:
    """The text, as it is."""
    return ~np.arange(len(text))


class MaskNoise(Noise):
    """BERT-style and MASS-style: the whole text from one of which some tokens are masks, or random
    (Raffel et al. 2020, 3.3.1).
    """

    @staticmethod
    def needs(settings: BertStyle, length: int) -> tuple[str, ...]:
        return ("mask",)

    @staticmethod
    def lengths(settings: BertStyle, length: Ints) -> tuple[Ints, Ints]:
        return length, length

    def corrupt(self, text: Ints, draw: Draw) -> tuple[Ints, Ints]:
        length, plain = len(text), self.tokens.plain
        count = int(hidden_of(self.settings.rate, np.array(length)))
        order = np.argsort(draw(length, 0), kind="stable")[:count]
        source = same(text)
        source[order] = self.tokens.special["mask"]
        swapped = order[: round(self.settings.random * count)]
        source[swapped] = plain[(draw(length, 1)[swapped] * len(plain)).astype(np.int64)]
        return source, same(text)


class DropNoise(Noise):
    """Dropped tokens (Raffel et al. 2020, table 3)."""

    @staticmethod
    def lengths(settings: DroppedTokens, length: Ints) -> tuple[Ints, Ints]:
        hidden = hidden_of(settings.rate, length)
        return length - hidden, hidden

    def corrupt(self, text: Ints, draw: Draw) -> tuple[Ints, Ints]:
        hidden = _hidden(len(text), self.settings.rate, draw)
        return same(text)[~hidden], same(text)[hidden]


class ShuffleNoise(Noise):
    """Deshuffling (Raffel et al. 2020, 3.3.1)."""

    @staticmethod
    def lengths(settings: Any, length: Ints) -> tuple[Ints, Ints]:
        return length, length

    def corrupt(self, text: Ints, draw: Draw) -> tuple[Ints, Ints]:
        return same(text)[np.argsort(draw(len(text), 0), kind="stable")], same(text)


class CutNoise(Noise):
    """A beginning, and the rest, of which there is a token at least (Raffel et al. 2020, 3.2.1)."""

    @staticmethod
    def lengths(settings: Any, length: Ints) -> tuple[Ints, Ints]:
        return length, length

    def corrupt(self, text: Ints, draw: Draw) -> tuple[Ints, Ints]:
        cut = int(draw(1, 0)[0] * len(text))  # 0 to one less than all
        return same(text)[:cut], same(text)[cut:]


class BartNoise(Noise):
    """BART's noises, one after the other (Lewis et al. 2020, 2.2). Each works on what those before
    it left, and none makes a text longer.

    permutation  sentences in any order
    rotation     a token is drawn, with which the text begins; what was before it follows at its end
    deletion     tokens are left out
    infilling    spans of lengths by Poisson are one mask each, with spans of length 0, which are
                 masks put in
    masking      tokens are masks
    """

    def __init__(self, settings: Bart, tokens: Vocabulary) -> None:
        super().__init__(settings, tokens)
        self.steps = [getattr(self, name) for name in settings.noises]

    @staticmethod
    def needs(settings: Bart, length: int) -> tuple[str, ...]:
        return ("mask",) if {"masking", "infilling"} & set(settings.noises) else ()

    @staticmethod
    def lengths(settings: Bart, length: Ints) -> tuple[Ints, Ints]:
        return length, length

    def corrupt(self, text: Ints, draw: Draw) -> tuple[Ints, Ints]:
        self.text, source = text, same(text)
        for number, step in enumerate(self.steps):
            source = step(source, lambda count, what, n=number: draw(count, 8 * n + what))
        return source, same(text)

    def permutation(self, source: Ints, draw: Draw) -> Ints:
        ids = ids_of(source, self.text)
        ends = np.flatnonzero(self.tokens.ends_sentence[ids]) + 1
        sentences = np.split(source, ends[ends < len(source)])
        order = np.argsort(draw(len(sentences), 0), kind="stable")
        return np.concatenate([sentences[number] for number in order])

    def rotation(self, source: Ints, draw: Draw) -> Ints:
        return np.roll(source, -int(draw(1, 0)[0] * len(source)))

    def deletion(self, source: Ints, draw: Draw) -> Ints:
        return source[~_hidden(len(source), self.settings.rate, draw)]

    def masking(self, source: Ints, draw: Draw) -> Ints:
        hidden = _hidden(len(source), self.settings.rate, draw)
        return np.where(hidden, self.tokens.special["mask"], source)

    def infilling(self, source: Ints, draw: Draw) -> Ints:
        hidden = int(hidden_of(self.settings.rate, np.array(len(source))))
        if not hidden:
            return source
        spans = poisson_spans(hidden, self.settings.span, draw)
        # Spans and tokens that stay, in an order in which each place is as likely as another.
        items = len(source) - hidden + len(spans)
        lengths = np.ones(items, np.int64)
        masks = some(items, len(spans), draw(items, 1))
        lengths[masks] = spans
        first = np.cumsum(lengths) - lengths
        kept = source[np.minimum(first, len(source) - 1)]
        return np.where(masks, self.tokens.special["mask"], kept)


def poisson_spans(hidden: int, mean: float, draw: Draw) -> Ints:
    """Lengths by Poisson with this mean, as they come, until they have ``hidden`` tokens together,
    of which the last may have fewer. Those of length 0 are as many at most as the others save.
    """
    shares = draw(2 * hidden + 16, 0)
    largest = int(mean + 12 * mean**0.5) + 12
    chances = np.cumsum(np.exp(-mean + np.cumsum(np.log(mean / np.arange(1, largest)))))
    bounds = np.exp(-mean) + np.append(0, chances)
    lengths = np.searchsorted(bounds, shares, side="right")
    before = np.cumsum(lengths) - lengths
    lengths = np.minimum(lengths, hidden - before)[before < hidden]
    rest = hidden - int(lengths.sum())  # where hardly any is drawn
    lengths = np.append(lengths, rest) if rest else lengths
    empty = np.flatnonzero(lengths == 0)
    room = hidden - (len(lengths) - len(empty))
    return np.delete(lengths, empty[room:])


def _hidden(length: int, rate: float, draw: Draw) -> Flags:
    """Which tokens are hidden, each by itself."""
    return some(length, int(hidden_of(rate, np.array(length))), draw(length, 0))
