"""What is done to a text that is to be put right again: a source, which is damaged, and a target.

Of both, a number 0 or above is the id of a token, and ~n, which is below, stands for the text's
token n. So it is known of each where it is from, and nothing of a text is lost by mistake.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from train.data.token_file import Ints
from train.data.vocabulary import Vocabulary
from train.objective_settings import Spans, Ul2

Draw = Callable[[int, int], npt.NDArray[np.float64]]  # (count, what), as Draws.shares of a piece
Flags = npt.NDArray[np.bool_]


def ids_of(codes: Ints, text: Ints) -> Ints:
    """The tokens that ``codes`` stand for."""
    ids = codes.copy()
    ids[codes < 0] = text[~codes[codes < 0]]
    return ids


class Noise(ABC):
    """Built with its settings and the run's vocabulary."""

    def __init__(self, settings: Any, tokens: Vocabulary) -> None:
        self.settings, self.tokens = settings, tokens

    @staticmethod
    def needs(settings: Any, length: int) -> tuple[str, ...]:
        """The roles of the special tokens that it puts into texts of so many tokens at most."""
        return ()

    @staticmethod
    @abstractmethod
    def lengths(settings: Any, length: Ints) -> tuple[Ints, Ints]:
        """The most tokens of source and target of texts of so many."""
        ...

    @abstractmethod
    def corrupt(self, text: Ints, draw: Draw) -> tuple[Ints, Ints]:
        """The source and the target of a text."""
        ...


class SpanNoise(Noise):
    """T5's span corruption (Raffel et al. 2020, 3.1.4 and 3.3.4): each hidden span is a sentinel in
    the source; in the target it stands behind that sentinel.
    """

    @staticmethod
    def needs(settings: Spans, length: int) -> tuple[str, ...]:
        count = int(_counts(settings, np.array([length]))[1][0])
        return tuple(f"sentinel {number}" for number in range(count))

    @staticmethod
    def lengths(settings: Spans, length: Ints) -> tuple[Ints, Ints]:
        noise, spans = _counts(settings, length)
        return length - noise + spans, noise + spans

    def corrupt(self, text: Ints, draw: Draw) -> tuple[Ints, Ints]:
        noise, spans = (int(c[0]) for c in _counts(self.settings, np.array([len(text)])))
        if self.settings.unit == "token":
            hidden = some(len(text), noise, draw(len(text), 0))
        else:
            hidden = random_spans(len(text), noise, spans, draw)
        return replaced(hidden, self._sentinels())

    def _sentinels(self) -> Ints:
        """Their ids, in order."""
        special = self.tokens.special
        count = sum(role.startswith("sentinel ") for role in special)
        return np.array([special[f"sentinel {number}"] for number in range(count)], np.int64)


class Mixture(Noise):
    """UL2's denoisers, of which a text draws one; the token of its mode is the source's first (Tay
    et al. 2022, 3.1).
    """

    def __init__(self, settings: Ul2, tokens: Vocabulary) -> None:
        super().__init__(settings, tokens)
        self.noises = [SpanNoise(spans, tokens) for spans in _spans(settings)]
        self.modes = [tokens.special[f"mode {one.mode}"] for one in settings.denoisers]
        weights = np.cumsum([one.weight for one in settings.denoisers])
        self.bounds = weights / weights[-1]

    @staticmethod
    def needs(settings: Ul2, length: int) -> tuple[str, ...]:
        modes = {f"mode {one.mode}": None for one in settings.denoisers}
        sentinels = [SpanNoise.needs(spans, length) for spans in _spans(settings)]
        return (*modes, *max(sentinels, key=len))

    @staticmethod
    def lengths(settings: Ul2, length: Ints) -> tuple[Ints, Ints]:
        each = [SpanNoise.lengths(spans, length) for spans in _spans(settings)]
        source, target = (np.max(lengths, axis=0) for lengths in zip(*each, strict=True))
        return source + 1, target

    def corrupt(self, text: Ints, draw: Draw) -> tuple[Ints, Ints]:
        chosen = int(np.searchsorted(self.bounds, draw(1, 7)[0], side="right"))  # below 1
        source, target = self.noises[chosen].corrupt(text, draw)
        return np.append(self.modes[chosen], source), target


def _spans(settings: Ul2) -> list[Spans]:
    return [Spans(rate=one.rate, span=one.span) for one in settings.denoisers]


def _counts(settings: Spans, length: Ints) -> tuple[Ints, Ints]:
    """Hidden tokens, and the most spans, of texts of these lengths."""
    noise = hidden_of(settings.rate, length)
    if settings.unit == "token":
        return noise, np.minimum(noise, length - noise + 1) * (noise > 0)
    return noise, spans_of(settings.span, noise, length)


def hidden_of(rate: float, length: Ints) -> Ints:
    """How many tokens of texts are hidden: that share, at least one, and not all; of a single token
    none, as in T5's code.
    """
    hidden = np.rint(length * rate).astype(np.int64)
    return np.clip(hidden, 1, np.maximum(length - 1, 1)) * (length > 1)


def spans_of(mean: float | None, hidden: Ints, length: Ints) -> Ints:
    """How many spans of that mean length they are, with a token at least before each."""
    spans = np.maximum(np.rint(hidden / (mean or np.inf)).astype(np.int64), 1)
    return np.minimum(spans, length - hidden) * (hidden > 0)


def some(length: int, count: int, shares: npt.NDArray[np.float64]) -> Flags:
    """``count`` of ``length``, drawn evenly."""
    chosen = np.zeros(length, np.bool_)
    chosen[np.argsort(shares[:length], kind="stable")[:count]] = True
    return chosen


def segments(total: int, count: int, shares: npt.NDArray[np.float64]) -> Ints:
    """``total`` as a sum of ``count`` numbers of 1 or more, each such sum as likely as another."""
    cuts = np.flatnonzero(some(total - 1, count - 1, shares)) + 1
    return np.diff(cuts, prepend=0, append=total)


def random_spans(length: int, hidden: int, spans: int, draw: Draw) -> Flags:
    """Which tokens of a text are hidden: so many, in so many spans, none of them at its beginning
    (``random_spans_noise_mask`` of T5's code).
    """
    if not hidden:
        return np.zeros(length, np.bool_)
    shown = segments(length - hidden, spans, draw(length, 0))
    noise = segments(hidden, spans, draw(length, 1))
    runs = np.stack([shown, noise], 1).ravel()
    return np.repeat(np.arange(2 * spans) % 2 == 1, runs)


def replaced(hidden: Flags, sentinels: Ints) -> tuple[Ints, Ints]:
    """The text with each hidden span as a sentinel, and the spans, each behind its own."""
    first = hidden & ~np.append(False, hidden[:-1])
    marks = sentinels[: int(first.sum())]
    text = ~np.arange(len(hidden))
    source = np.where(hidden, 0, text)
    source[first] = marks
    target = np.insert(text[hidden], np.flatnonzero(first[hidden]), marks)
    return source[first | ~hidden], target
