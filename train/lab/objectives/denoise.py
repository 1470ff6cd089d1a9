"""Denoising objectives: those that T5's paper compares (Raffel et al. 2020), and later ones.

The source is the corrupted text, and the target is what the model writes. Both are arrays of codes.
A code n >= 0 is the token with id n, such as a sentinel. A code ~n = -1 - n < 0 is the text's token
at index n."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from train.data.readers import Flags, Floats, Ints
from train.data.rows import Piece, Takes, longest
from train.data.vocabulary import Vocabulary
from train.objective_settings import (
    Bart,
    BertStyle,
    Continuation,
    Denoiser,
    Deshuffling,
    DroppedTokens,
    MassStyle,
    Spans,
    Ul2,
)
from train.objectives.example import Draws, Example, Objective, causal_row, learns

Draw = Callable[[int, int], Floats]  # (count, stream): see Draws.shares


def ids_of(codes: Ints, text: Ints) -> Ints:
    ids = codes.copy()
    ids[codes < 0] = text[~codes[codes < 0]]
    return ids


class Noise(ABC):
    """A corruption of texts, with its settings and the vocabulary of the run."""

    def __init__(self, settings: Any, tokens: Vocabulary) -> None:
        self.settings, self.tokens = settings, tokens

    @staticmethod
    def needs(settings: Any, length: int) -> tuple[str, ...]:
        """Return the special tokens for texts of up to ``length`` tokens, such as "mask"."""
        return ()

    @staticmethod
    def lengths(settings: Any, length: Ints) -> tuple[Ints, Ints]:
        """Return (most tokens in the source, most in the target) for texts of these lengths."""
        return length, length

    @abstractmethod
    def corrupt(self, text: Ints, draw: Draw) -> tuple[Ints, Ints]:
        """Return (source, target): the corrupted text, and the output to learn. Both are arrays of
        codes: a token id, or ~n for the text's token at index n."""
        ...

    def fill(self, hidden: Flags) -> tuple[Ints, Ints, Flags]:
        """Return (source, target, counted) for a text whose ``hidden`` tokens are to be filled in.
        ``counted``: True for the target's hidden tokens and for sentinels, which mark spans."""
        raise NotImplementedError


class SpanNoise(Noise):
    """T5's span corruption (Raffel et al. 2020, sections 3.1.4 and 3.3.4); see ``replaced``."""

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
            hidden = choose(len(text), noise, draw(len(text), 0))
        else:
            hidden = random_spans(len(text), noise, spans, draw)
        return replaced(hidden, self._sentinels())

    def fill(self, hidden: Flags) -> tuple[Ints, Ints, Flags]:
        source, target = replaced(hidden, self._sentinels())
        return source, target, np.ones(len(target), np.bool_)

    def _sentinels(self) -> Ints:
        special = self.tokens.special
        count = sum(role.startswith("sentinel ") for role in special)
        return np.array([special[f"sentinel {number}"] for number in range(count)], np.int64)


class Mixture(Noise):
    """UL2's corruptions (Tay et al. 2022, section 3.1). One corruption is drawn for each text. The
    source begins with a special token that names the mode of this corruption."""

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

    def fill(self, hidden: Flags) -> tuple[Ints, Ints, Flags]:
        names = [one.mode for one in self.settings.denoisers]
        regular = names.index("R") if "R" in names else 0
        source, target, scored = self.noises[regular].fill(hidden)
        return np.append(self.modes[regular], source), target, scored


def _spans(settings: Ul2) -> list[Spans]:
    return [Spans(rate=one.rate, span=one.span) for one in settings.denoisers]


def _counts(settings: Spans, length: Ints) -> tuple[Ints, Ints]:
    noise = hidden_of(settings.rate, length)
    if settings.unit == "token":
        return noise, np.minimum(noise, length - noise + 1) * (noise > 0)
    return noise, spans_of(settings.span, noise, length)


def hidden_of(rate: float, length: Ints) -> Ints:
    """Return the number of tokens to hide in texts of these lengths: at least 1 and never all. In a
    text of a single token no token is hidden, as in T5."""
    hidden = np.rint(length * rate).astype(np.int64)
    return np.clip(hidden, 1, np.maximum(length - 1, 1)) * (length > 1)


def spans_of(mean: float | None, hidden: Ints, length: Ints) -> Ints:
    """Return the number of spans into which ``hidden`` tokens are divided. ``mean`` is the mean
    length of spans (None: one span). There are at most as many spans as visible tokens."""
    spans = np.maximum(np.rint(hidden / (mean or np.inf)).astype(np.int64), 1)
    return np.minimum(spans, length - hidden) * (hidden > 0)


def choose(length: int, count: int, shares: Floats) -> Flags:
    """Draw ``count`` of ``length`` positions by the random numbers ``shares``, one per position.
    Return bool [length]."""
    chosen = np.zeros(length, np.bool_)
    chosen[np.argsort(shares[:length], kind="stable")[:count]] = True
    return chosen


def segments(total: int, count: int, shares: Floats) -> Ints:
    """Draw ``count`` positive integers with the sum ``total``, by the uniform random numbers
    ``shares``. All lists are equally likely."""
    cuts = np.flatnonzero(choose(total - 1, count - 1, shares)) + 1
    return np.diff(cuts, prepend=0, append=total)


def random_spans(length: int, hidden: int, spans: int, draw: Draw) -> Flags:
    """Draw ``spans`` spans that have ``hidden`` tokens together; return bool [length], True for
    hidden tokens. The first token stays visible (T5's ``random_spans_noise_mask``)."""
    if not hidden:
        return np.zeros(length, np.bool_)
    shown = segments(length - hidden, spans, draw(length, 0))
    noise = segments(hidden, spans, draw(length, 1))
    runs = np.stack([shown, noise], 1).ravel()
    return np.repeat(np.arange(2 * spans) % 2 == 1, runs)


def replaced(hidden: Flags, sentinels: Ints) -> tuple[Ints, Ints]:
    """Return (source, target) as codes: a token id, or ~n for the text's token at index n. In the
    source (the model's input), a sentinel (a special token) replaces each ``hidden`` span. The
    target (the output to learn) has the sentinel of each span, followed by the span's tokens."""
    first = hidden & ~np.append(False, hidden[:-1])
    marks = sentinels[: int(first.sum())]
    text = ~np.arange(len(hidden))
    source = np.where(hidden, 0, text)
    source[first] = marks
    target = np.insert(text[hidden], np.flatnonzero(first[hidden]), marks)
    return source[first | ~hidden], target


def unchanged(text: npt.NDArray[Any]) -> Ints:
    """Return the codes of the whole text: -1, -2 and so on. Code -1 - n is its token at index n."""
    return ~np.arange(len(text))


class MaskNoise(Noise):
    """The source has masks and random tokens; the target is the text (Raffel et al. 3.3.1)."""

    @staticmethod
    def needs(settings: BertStyle, length: int) -> tuple[str, ...]:
        return ("mask",)

    def corrupt(self, text: Ints, draw: Draw) -> tuple[Ints, Ints]:
        length, plain = len(text), self.tokens.plain
        count = int(hidden_of(self.settings.rate, np.array(length)))
        order = np.argsort(draw(length, 0), kind="stable")[:count]
        source = unchanged(text)
        source[order] = self.tokens.special["mask"]
        swapped = order[: round(self.settings.random * count)]
        source[swapped] = plain[(draw(length, 1)[swapped] * len(plain)).astype(np.int64)]
        return source, unchanged(text)

    def fill(self, hidden: Flags) -> tuple[Ints, Ints, Flags]:
        text = unchanged(hidden)
        return np.where(hidden, self.tokens.special["mask"], text), text, hidden


class DropNoise(Noise):
    """The source lacks some tokens, which are the target (Raffel et al. 2020, table 3)."""

    @staticmethod
    def lengths(settings: DroppedTokens, length: Ints) -> tuple[Ints, Ints]:
        hidden = hidden_of(settings.rate, length)
        return length - hidden, hidden

    def corrupt(self, text: Ints, draw: Draw) -> tuple[Ints, Ints]:
        hidden = _hidden(len(text), self.settings.rate, draw)
        return unchanged(text)[~hidden], unchanged(text)[hidden]

    def fill(self, hidden: Flags) -> tuple[Ints, Ints, Flags]:
        text = unchanged(hidden)
        return text[~hidden], text[hidden], hidden[hidden]


class ShuffleNoise(Noise):
    """The source has the tokens shuffled, the target is the text (Raffel et al. 2020, 3.3.1)."""

    def corrupt(self, text: Ints, draw: Draw) -> tuple[Ints, Ints]:
        return unchanged(text)[np.argsort(draw(len(text), 0), kind="stable")], unchanged(text)


class CutNoise(Noise):
    """The source is the beginning of the text, the target its end (Raffel et al. 2020, 3.2.1)."""

    def corrupt(self, text: Ints, draw: Draw) -> tuple[Ints, Ints]:
        cut = int(draw(1, 0)[0] * len(text))  # 0 to len(text) - 1
        return unchanged(text)[:cut], unchanged(text)[cut:]


class BartNoise(Noise):
    """BART's corruptions (Lewis et al. 2020, 2.2), in the order of the settings. None of them makes
    a text longer.

    permutation  sentences in random order
    rotation     the text begins at a random token; the tokens before it follow at the end
    deletion     tokens are dropped
    infilling    a mask replaces each span of Poisson length; for length 0 a mask is inserted
    masking      tokens become masks
    """

    def __init__(self, settings: Bart, tokens: Vocabulary) -> None:
        super().__init__(settings, tokens)
        self.steps = [getattr(self, name) for name in settings.noises]

    @staticmethod
    def needs(settings: Bart, length: int) -> tuple[str, ...]:
        return ("mask",) if {"masking", "infilling"} & set(settings.noises) else ()

    def corrupt(self, text: Ints, draw: Draw) -> tuple[Ints, Ints]:
        self.text, source = text, unchanged(text)
        for number, step in enumerate(self.steps):
            source = step(source, lambda count, what, n=number: draw(count, 8 * n + what))
        return source, unchanged(text)

    def fill(self, hidden: Flags) -> tuple[Ints, Ints, Flags]:
        text, first = unchanged(hidden), hidden & ~np.append(False, hidden[:-1])
        names = self.settings.noises
        shown = ~hidden | (first if "infilling" in names else hidden & ("masking" in names))
        return np.where(hidden, self.tokens.special.get("mask", 0), text)[shown], text, hidden

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
        # Place the spans among the kept tokens, uniformly.
        items = len(source) - hidden + len(spans)
        lengths = np.ones(items, np.int64)
        masks = choose(items, len(spans), draw(items, 1))
        lengths[masks] = spans
        first = np.cumsum(lengths) - lengths
        kept = source[np.minimum(first, len(source) - 1)]
        return np.where(masks, self.tokens.special["mask"], kept)


def poisson_spans(hidden: int, mean: float, draw: Draw) -> Ints:
    """Draw lengths of spans from a Poisson distribution until their sum is ``hidden``; the last
    length is shortened to fit. Each span becomes one mask, even a span of length 0. The last spans
    of length 0 are left out if there are more spans than hidden tokens."""
    shares = draw(2 * hidden + 16, 0)
    largest = int(mean + 12 * mean**0.5) + 12
    chances = np.cumsum(np.exp(-mean + np.cumsum(np.log(mean / np.arange(1, largest)))))
    bounds = np.exp(-mean) + np.append(0, chances)
    lengths = np.searchsorted(bounds, shares, side="right")
    before = np.cumsum(lengths) - lengths
    lengths = np.minimum(lengths, hidden - before)[before < hidden]
    rest = hidden - int(lengths.sum())  # if the drawn lengths do not add up to hidden
    lengths = np.append(lengths, rest) if rest else lengths
    empty = np.flatnonzero(lengths == 0)
    room = hidden - (len(lengths) - len(empty))
    return np.delete(lengths, empty[room:])


def _hidden(length: int, rate: float, draw: Draw) -> Flags:
    return choose(length, int(hidden_of(rate, np.array(length))), draw(length, 0))


NOISES: dict[type, type[Noise]] = {
    Spans: SpanNoise,
    BertStyle: MaskNoise,
    MassStyle: MaskNoise,
    DroppedTokens: DropNoise,
    Deshuffling: ShuffleNoise,
    Continuation: CutNoise,
    Bart: BartNoise,
    Ul2: Mixture,
}


@learns(*NOISES, by=("decoder", "encoder-decoder"))
class Denoising(Objective):
    """Predict the target of a corrupted text from its source. Both end with an end-of-text token
    (Raffel et al. 2020, section 3.1.4). The setting ``form`` decides who reads the source (table 2
    of the paper). In ``encoder-decoder``, an encoder does. In ``prefix`` and ``causal``, source and
    target share a row: ``prefix`` has bidirectional attention in the source and scores only the
    target, ``causal`` scores both. An end-of-text token at the end of a piece is not corrupted."""

    sparse = True
    likelihood = False

    def __init__(self, settings: Denoiser, tokens: Vocabulary) -> None:
        super().__init__(settings, tokens)
        self.noise = NOISES[type(settings)](settings, tokens)
        self.form, self.end = settings.form, tokens.special["end"]

    @staticmethod
    def needs(settings: Denoiser, context: int) -> tuple[str, ...]:
        length = longest(Denoising.takes(settings), context)
        return (*NOISES[type(settings)].needs(settings, length), "end")

    @staticmethod
    def takes(settings: Denoiser) -> Takes:
        def takes(length: Ints, context: int) -> Ints:
            source, target = _lengths(settings, length)
            if settings.form != "encoder-decoder":
                return source + target
            # Scale targets, so that a row of targets fills up with its row of sources.
            room = width(settings, context)
            return np.maximum(source, -(-target * context // room))

        return takes

    @staticmethod
    def targets(settings: Denoiser, context: int) -> int:
        return width(settings, context)

    @staticmethod
    def both_ways(settings: Denoiser) -> bool:
        return settings.form == "prefix"

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        parts = [self.parts(piece, draws) for piece in pieces]
        return self.joined(parts, context, width(self.settings, context))

    def joined(self, parts: Sequence[tuple[Piece, Piece]], context: int, room: int) -> Example:
        """Return a row with these pairs of source and target. For an encoder-decoder, the targets
        are a separate row of ``room`` positions."""
        if self.form == "encoder-decoder":
            started = [(source, replace(target, before=self.end)) for source, target in parts]
            return apart(started, context, room)
        learned = self.form == "causal"
        joined = [
            replace(
                source,
                tokens=np.concatenate([source.tokens, target.tokens]),
                counted=np.concatenate([_counted(source) & learned, _counted(target)]),
            )
            for source, target in parts
        ]
        row, places = causal_row(joined, context)
        if learned:
            return row
        prefix = torch.zeros(1, context, dtype=torch.bool)
        for (_, place), (source, _) in zip(places, parts, strict=True):
            # The last token of the source is read and predicts the first of the target.
            prefix[0, place.start : place.start + len(source.tokens) + 1] = True
        return replace(row, prefix=prefix)

    def parts(self, piece: Piece, draws: Draws) -> tuple[Piece, Piece]:
        text = piece.tokens[:-1] if piece.tokens[-1] == self.end else piece.tokens
        source, target = self.noise.corrupt(text, lambda *asked: draws.shares(piece, *asked))
        return self._ended(piece, text, source), self._ended(piece, text, target)

    def ended(self, piece: Piece, source: Ints, target: Ints) -> tuple[Piece, Piece]:
        """Return (source, target) as pieces of token ids, each ended by end-of-text. ``source`` and
        ``target`` are given as codes: a token id, or ~n for the token of ``piece`` at index n."""
        text = piece.tokens
        return self._ended(piece, text, source), self._ended(piece, text, target)

    def _ended(self, piece: Piece, text: Ints, codes: Ints) -> Piece:
        counted = None
        if piece.counted is not None:
            counted = np.append((codes >= 0) | piece.counted[~np.minimum(codes, -1)], True)
        return replace(piece, tokens=np.append(ids_of(codes, text), self.end), counted=counted)


def apart(parts: Sequence[tuple[Piece, Piece]], context: int, room: int) -> Example:
    """Return an example with these (source, target) pairs: sources in a row of ``context``
    positions, targets in a row of ``room``. Each target token is predicted from those before it."""
    row, _ = causal_row([target for _, target in parts], room)
    ids, documents = np.zeros((1, context), np.int64), np.full((1, context), -1, np.int64)
    filled = 0
    for source, _ in parts:
        place = slice(filled, filled + len(source.tokens))
        ids[0, place], documents[0, place] = source.tokens, source.document
        filled = place.stop
    read = {"source": torch.from_numpy(ids), "source_documents": torch.from_numpy(documents)}
    return replace(row, **read)


def _counted(piece: Piece) -> Flags:
    return np.ones(len(piece.tokens), np.bool_) if piece.counted is None else piece.counted


def _lengths(settings: Denoiser, length: Ints) -> tuple[Ints, Ints]:
    source, target = NOISES[type(settings)].lengths(settings, length)
    return source + 1, target + 1


def width(settings: Denoiser, context: int) -> int:
    """Return the number of positions in a row of targets: the target's length for the longest text
    whose source fits ``context`` (in T5, 114 for a context of 512), but at most ``context``."""
    text = longest(lambda length, _: _lengths(settings, length)[0], context)
    return min(context, int(_lengths(settings, np.array([text]))[1][0]))
