"""A language model that scores texts: documents and sentences to log10 probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.perplexity.keys import BOS
from curate.perplexity.lines import numbered_lines
from curate.perplexity.model_file import ModelData, read_model
from curate.perplexity.sentences import Sentences, load_pieces, of_pieces, of_words, piece_ids
from curate.perplexity.table import score
from curate.text.buffers import text_buffers


@dataclass(frozen=True)
class Scores:
    """Of rows or sentences: log10: float64[n], the probability of all words and ends of sentences;
    length: int64[n], words and ends of sentences."""

    log10: np.ndarray
    length: np.ndarray

    def perplexity(self) -> np.ndarray:
        """float64[n]: 10 ** (-log10 / length); not a number where there is no word."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return 10.0 ** (-self.log10 / np.where(self.length, self.length, np.nan))


class NgramModel:
    """A model's tables and what its texts are cut into."""

    def __init__(self, data: ModelData, path: Path | str = "model") -> None:
        self.data, self.path = data, str(path)
        self._values = data.entries.view(np.float32)

    @classmethod
    def open(cls, path: Path, whole: bool = False) -> NgramModel:
        """Loads a file (model_file.py); UsageError where it is none, or damaged."""
        return cls(read_model(path, whole), path)

    @cached_property
    def _pieces(self) -> tuple[Any, np.ndarray]:
        processor = load_pieces(self.data.pieces, f"the tokenizer in {self.path}")
        return processor, piece_ids(self.data.words.ids, processor)

    def sentences(self, texts: pa.LargeStringArray) -> Sentences:
        """The texts as ids of words; a null is an empty text."""
        if self.data.unit == "pieces":
            number = self.data.words.ids
            return of_pieces(texts, self.data.variant, *self._pieces, number)
        if self.data.unit == "whitespace" and self.data.variant == "plain":
            return Sentences(*numbered_lines(*text_buffers(texts), self.data.words))
        return of_words(texts, self.data.variant, self.data.unit, self.data.words.ids)

    def log10(self, ids: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(float64[sentences], the same as float32 sums) of ids: uint32[words]; ends:
        int64[sentences]. ValueError where an id is no word, or <s>."""
        if len(ids) and (int(ids.max()) >= len(self.data.words) or bool((ids == BOS).any())):
            raise ValueError("ids must be below the vocabulary's size, and not <s>")
        if len(ends) and (ends[-1] != len(ids) or (np.diff(ends, prepend=0) < 0).any()):
            raise ValueError("ends must rise to the number of ids")
        sums, floats = np.empty(len(ends)), np.empty(len(ends), np.float32)
        d = self.data
        score(
            d.entries, self._values, d.firsts, d.word_prob, d.word_backoff, ids, ends, sums,
            floats,
        )  # fmt: skip
        return sums, floats

    def by_sentence(self, texts: pa.LargeStringArray) -> tuple[Scores, np.ndarray]:
        """(the scores of all sentences, rows: int64[rows + 1], the first sentence of each)."""
        found = self.sentences(texts)
        exact, floats = self.log10(found.ids, found.ends)
        # CCNet's numbers come from KenLM's binding, which sums in float32.
        sums = floats.astype(np.float64) if self.data.variant == "ccnet" else exact
        return Scores(sums, np.diff(found.ends, prepend=0) + 1), found.rows

    def by_document(self, texts: pa.LargeStringArray) -> Scores:
        """The scores of texts: all their sentences together."""
        scores, rows = self.by_sentence(texts)
        total = np.concatenate([[0.0], np.cumsum(scores.log10)])
        length = np.concatenate([[0], np.cumsum(scores.length)])
        single = np.diff(rows) == 1  # as it is: a difference of sums would round
        log10 = np.diff(total[rows])
        log10[single] = scores.log10[rows[:-1][single]]
        return Scores(log10, np.diff(length[rows]))

    def perplexity(self, texts: pa.LargeStringArray) -> np.ndarray:
        """float64[rows]; NaN where a text has no word. Variant `ccnet`: rounded to one decimal."""
        found = self.by_document(texts).perplexity()
        if self.data.variant == "ccnet":
            return np.array([round(x, 1) for x in found.tolist()])
        return found

    def first_occurrences(self, texts: pa.LargeStringArray) -> np.ndarray:
        """float64[rows]: perplexity where a line that the text had before is taken as certain.

        An n-gram model does not remember: a line over and over is as unexpected each time. Here it
        costs nothing from the second time on, so a text that says little new is low. NaN where a
        text has no word. For models whose sentences are lines: variant `plain`.
        """
        lines = [(text or "").splitlines() for text in texts.to_pylist()]
        scores = self.by_document(pa.array([x for row in lines for x in row], pa.large_string()))
        log10, length = np.zeros(len(texts)), np.zeros(len(texts), np.int64)
        at = 0
        for row, found in enumerate(lines):
            z = at + len(found)
            first = dict(zip(found[::-1], range(z - 1, at - 1, -1), strict=True))
            log10[row] = scores.log10[sorted(first.values())].sum()
            length[row] = scores.length[at:z].sum()
            at = z
        return Scores(log10, length).perplexity()
