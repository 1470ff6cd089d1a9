"""Labelled samples as tokens, in windows that fit in a row.

    begin text separator second text closing

A text begins with the tokenizer's [CLS] or <s>, or else with the token that ends texts, as in
pre-training; the separator is [SEP] or </s>, or else that token; the closing one is the separator,
where the tokenizer has both. Of a text to be classified what does not fit is cut off; words and
questions' texts that do not fit are read in several windows, the latter overlapping by half
(Devlin et al. 2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from llmcurate.base.errors import UsageError
from train.data.labelled import Sample
from train.data.readers import Ints
from train.data.shards import end_of_text, load_tokenizer
from train.data.vocabulary import names_of

Characters = list[tuple[int, int]]  # first and end of each token


@dataclass(frozen=True, kw_only=True, eq=False)
class Window:
    """What is read of a sample, ``sample`` its number. ``tokens`` and ``segments`` (0 or 1) have
    one length. ``places``: the tokens that the head is asked at; ``labels``: what is to be said
    there, by number. Of a span one place, the first token, and two labels, the tokens where the
    answer begins and ends: both 0 where it is not in this window. ``words``: the number of the word
    of each place. ``characters`` [tokens, 2]: of a span's text, -1 elsewhere.
    """

    sample: int
    tokens: Ints
    segments: Ints
    places: Ints
    labels: Ints
    words: Ints | None = None
    characters: npt.NDArray[np.int64] | None = None


class Encoder:
    """``read_last``: a text is judged by its last token, as a decoder must; else by its first."""

    def __init__(self, tokenizer: Path, context: int, *, read_last: bool) -> None:
        self.context, self.read_last = context, read_last
        self.tokenizer = load_tokenizer(tokenizer)
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        ids = self.tokenizer.get_vocab(with_added_tokens=True)
        added = self.tokenizer.get_added_tokens_decoder()
        self.special = {token.content: number for number, token in added.items() if token.special}
        self.size = max(ids.values(), default=-1) + 1
        end = end_of_text(self.special)
        begin, separator = (
            next((ids[name] for name in names_of(role) if name in ids), None)
            for role in ("cls", "sep")
        )
        if begin is None and end is None:
            raise UsageError(
                f"{tokenizer}: no token that begins or ends texts, as [CLS] or <|endoftext|>"
            )
        self.end = end
        self.begin = end if begin is None else begin
        self.separator = self.begin if separator is None else separator
        self.closing = [] if begin is None or separator is None else [separator]
        self.cut = 0  # texts that were too long

    def windows(self, task: str, samples: Sequence[Sample], names: Sequence[str]) -> list[Window]:
        """The windows of samples, in order; ``names``: of the labels, by number."""
        numbers = {name: number for number, name in enumerate(names)}
        make = {"classify": self._classify, "token": self._words, "span": self._span}[task]
        return [w for n, sample in enumerate(samples) for w in make(n, sample, numbers)]

    def _encode(self, text: str) -> tuple[list[int], Characters]:
        encoded = self.tokenizer.encode(text, add_special_tokens=False)
        return encoded.ids, encoded.offsets

    def _joined(self, *texts: list[int]) -> tuple[Ints, Ints]:
        """Tokens and segments of one or two texts."""
        ids, segments = [self.begin, *texts[0]], [0] * (1 + len(texts[0]))
        for text in texts[1:]:
            ids += [self.separator, *text]
            segments += [0, *[1] * len(text)]
        ids += self.closing
        segments += [segments[-1]] * len(self.closing)
        return np.array(ids, np.int64), np.array(segments, np.int64)

    def room(self, texts: int) -> int:
        """Tokens of texts that fit in a row."""
        room = self.context - texts - len(self.closing)
        if room < 2:
            raise UsageError(f"context is {self.context}: too short, raise it")
        return room

    def _classify(self, number: int, sample: Sample, names: dict[str, int]) -> Iterator[Window]:
        texts = [self._encode(text)[0] for text in sample.texts]
        room = self.room(len(texts))
        self.cut += sum(map(len, texts)) > room
        if len(texts) == 2:  # the longer one is cut to what the other leaves
            first, second = texts
            texts = [first[: max(room // 2, room - len(second))], second]
            texts[1] = second[: room - len(texts[0])]
        tokens, segments = self._joined(*(text[:room] for text in texts))
        yield Window(
            sample=number,
            tokens=tokens,
            segments=segments,
            places=np.array([len(tokens) - 1 if self.read_last else 0]),
            labels=np.array([names[label] for label in sample.labels] or [0]),
        )

    def _words(self, number: int, sample: Sample, names: dict[str, int]) -> Iterator[Window]:
        """A word is judged by its first token; words are joined by spaces."""
        ids, characters = self._encode(" ".join(sample.texts))
        ends = np.array([end for _, end in characters], np.int64)
        lengths = np.array([len(word) + 1 for word in sample.texts], np.int64)
        starts = np.cumsum(lengths) - lengths
        first = np.searchsorted(ends, starts, side="right")  # the token that reaches into the word
        first = np.minimum(first, max(0, len(ids) - 1))
        labels = np.array([names[label] for label in sample.labels] or [0] * len(first), np.int64)
        room, word = self.room(1), 0
        while word < len(first):
            begin = int(first[word])
            last = int(np.searchsorted(first, begin + room, side="left"))
            if begin + room < len(ids) and last > word + 1:
                last -= 1  # it may go on behind this window: it is judged in the next
            tokens, segments = self._joined(ids[begin : begin + room])
            yield Window(
                sample=number,
                tokens=tokens,
                segments=segments,
                places=np.minimum(first[word:last] - begin + 1, len(tokens) - 1),
                labels=labels[word:last],
                words=np.arange(word, last),
            )
            word = last

    def _span(self, number: int, sample: Sample, names: dict[str, int]) -> Iterator[Window]:
        room = self.room(2)
        question = self._encode(sample.texts[0])[0][: room // 2]
        ids, characters = self._encode(sample.texts[1])
        size = room - len(question)
        answer = self._answer(sample, characters)
        step = max(1, size // 2)
        for first in range(0, max(1, len(ids) - size + step), step):
            tokens, segments = self._joined(question, ids[first : first + size])
            shift = len(question) + 2 - first
            inside = answer is not None and first <= answer[0] and answer[1] < first + size
            places = np.full((len(tokens), 2), -1, np.int64)
            part = characters[first : first + size]
            places[first + shift : first + shift + len(part)] = np.array(part).reshape(-1, 2)
            labels = (np.array(answer) + shift) if answer is not None and inside else np.zeros(2)
            yield Window(
                sample=number,
                tokens=tokens,
                segments=segments,
                places=np.zeros(1, np.int64),
                labels=labels.astype(np.int64),
                characters=places,
            )

    def _answer(self, sample: Sample, characters: Characters) -> tuple[int, int] | None:
        """The first and the last token of the answer, or None where no token reaches into it."""
        if not sample.labels:
            return None
        begin, end = sample.start, sample.start + len(sample.labels[0])
        inside = [n for n, (first, last) in enumerate(characters) if first < end and last > begin]
        return (inside[0], inside[-1]) if inside else None
