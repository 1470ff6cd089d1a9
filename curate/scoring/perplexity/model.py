"""A language model that scores texts: documents and sentences to log10 probabilities.

CCNet's own models (Wenzek et al. 2020) are scored with too, and there are cut-offs published for
them. A perplexity means something only beside others of the same model, so the cut-offs are for
CCNet's models alone: KenLM binaries `{lang}.arpa.bin` with `{lang}.sp.model` beside them, known by
sha256. KenLM reads them: pip install kenlm.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.scoring.perplexity.model_file import ModelData, is_kenlm, read_model
from curate.scoring.perplexity.sentences import (
    Sentences,
    Vocabulary,
    ccnet_text,
    load_pieces,
    of_pieces,
    of_words,
    piece_ids,
)
from curate.scoring.perplexity.table import BOS, score
from curate.text.buffers import text_buffers
from curate.text.unicode import line_end_bytes, space_bytes
from llmcurate.base.disk.files import file_digest
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.kernels import njit

# Lines and words are those of `str.splitlines()` and `str.split()`. A row without white space
# other than space, tab and line feed is cut without a branch a byte.
_ONE = np.uint64(1)
_TAB, _LINE_FEED, _SPACE = np.uint8(9), np.uint8(10), np.uint8(32)


@njit(nogil=True)
def _simple(text):
    """Whether the white space of text: uint8[] is space, tab and line feed alone, and no other byte
    is under 33. May say no where a text ends in the middle of a character."""
    odd = np.uint8(0)
    for i in range(len(text) - 2):
        a, b, c = text[i], text[i + 1], text[i + 2]
        odd |= np.uint8(
            ((a < _SPACE) & (a != _TAB) & (a != _LINE_FEED))
            | ((a == 0xC2) & ((b == 0x85) | (b == 0xA0)))
            | ((a == 0xE1) & (b == 0x9A) & (c == 0x80))
            | ((a == 0xE2) & (b == 0x80) & ((c < 0x8B) | (c == 0xA8) | (c == 0xA9) | (c == 0xAF)))
            | ((a == 0xE2) & (b == 0x81) & (c == 0x9F))
            | ((a == 0xE3) & (b == 0x80) & (c == 0x80))
        )
    for a in text[max(0, len(text) - 2) :]:
        odd |= np.uint8(((a < _SPACE) & (a != _TAB) & (a != _LINE_FEED)) | (a == 0xC2))
    return odd == 0


@njit(cache=True, nogil=True)
def _split(data, offsets):
    """(start, end: int64[words], words so far at the end of each line that holds any, first line of
    each row and the end)."""
    rows = len(offsets) - 1
    # Upper bounds, cut to size as views; memory that is never touched is never used.
    limit = (offsets[rows] - offsets[0]) // 2 + rows + 2
    start, end = np.empty(limit, np.int64), np.empty(limit, np.int64)
    line_ends, row_lines = np.empty(limit, np.int64), np.empty(rows + 1, np.int64)
    begun = ended = lines = np.uint64(0)
    before = np.int64(0)  # words up to the last line
    for r in range(rows):
        row_lines[r] = lines
        if _simple(data[offsets[r] : offsets[r + 1]]):
            outside = _ONE
            for k in range(offsets[r], offsets[r + 1]):
                b = data[k]
                now = np.uint64(b <= _SPACE)
                start[begun] = k
                begun += outside & (now ^ _ONE)
                end[ended] = k
                ended += now & (outside ^ _ONE)
                outside = now
                if b == _LINE_FEED and np.int64(ended) > before:
                    before = np.int64(ended)
                    line_ends[lines] = before
                    lines += _ONE
            end[ended] = offsets[r + 1]
            ended += outside ^ _ONE
        else:
            i: Any = np.uint64(offsets[r])
            stop: Any = np.uint64(offsets[r + 1])
            while i < stop:
                width = space_bytes(data, i, stop)
                if width:
                    line_end = line_end_bytes(data, i, stop)
                    if line_end and np.int64(ended) > before:
                        before = np.int64(ended)
                        line_ends[lines] = before
                        lines += _ONE
                    i += np.uint64(max(width, line_end))
                    continue
                start[begun] = i
                while i < stop and not space_bytes(data, i, stop):
                    i += _ONE
                end[ended] = i
                begun += _ONE
                ended += _ONE
        if np.int64(ended) > before:
            before = np.int64(ended)
            line_ends[lines] = before
            lines += _ONE
    row_lines[rows] = lines
    words, count = np.int64(ended), np.int64(lines)
    return start[:words], end[:words], line_ends[:count], row_lines


def numbered_lines(
    data: np.ndarray, offsets: np.ndarray, words: Vocabulary
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ids: uint32[words], ends: int64[lines], rows: int64[rows + 1]) of texts (data: uint8[],
    offsets: int64[rows + 1]): lines without a word are left out; rows: the first line of each."""
    start, end, ends, rows = _split(data, offsets)
    return words.ids(data, start, end), ends, rows


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
        sentences = self.sentences(texts)
        exact, floats = self.log10(sentences.ids, sentences.ends)
        # CCNet's numbers come from KenLM's binding, which sums in float32.
        sums = floats.astype(np.float64) if self.data.variant == "ccnet" else exact
        return Scores(sums, np.diff(sentences.ends, prepend=0) + 1), sentences.rows

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
        values = self.by_document(texts).perplexity()
        if self.data.variant == "ccnet":
            return np.array([round(x, 1) for x in values.tolist()])
        return values

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
        for row, row_lines in enumerate(lines):
            z = at + len(row_lines)
            first = dict(zip(row_lines[::-1], range(z - 1, at - 1, -1), strict=True))
            log10[row] = scores.log10[sorted(first.values())].sum()
            length[row] = scores.length[at:z].sum()
            at = z
        return Scores(log10, length).perplexity()


# Percentiles 30 and 60 over CCNet's sample of Common Crawl: cc_net/data/cutoff.csv.
CUTOFFS: dict[str, tuple[float, float]] = {
    "en": (340.0, 520.0),
    "de": (370.0, 590.0),
    "fr": (180.0, 330.0),
    "ru": (210.0, 310.0),
    "zh": (1460.0, 1950.0),
}
_SUFFIX = ".arpa.bin"


class KenlmModel:
    """A model that the library kenlm reads, with its SentencePiece model; scores as CCNet does."""

    def __init__(self, path: Path, pieces: Path) -> None:
        self.path, self.pieces = path, pieces

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        try:
            import kenlm
        except ModuleNotFoundError:
            raise UsageError(f"{self.path} is KenLM's: pip install kenlm") from None
        try:
            data = self.pieces.read_bytes()
        except OSError as error:
            raise UsageError(
                f"{self.path} needs {self.pieces} beside it: {error.strerror}"
            ) from None
        config = kenlm.Config()
        config.show_progress = False
        config.arpa_complain = kenlm.ARPALoadComplain.NONE
        try:
            return kenlm.Model(str(self.path), config), load_pieces(data, str(self.pieces))
        except OSError as error:
            raise UsageError(f"{self.path}: {str(error).splitlines()[0]}") from None

    def perplexity(self, texts: pa.LargeStringArray) -> np.ndarray:
        """float64[rows], rounded to one decimal; NaN where a text has no piece."""
        model, processor = self._loaded
        values = np.full(len(texts), np.nan)
        for i, text in enumerate(texts.to_pylist()):
            pieces = processor.encode(ccnet_text(text or ""), out_type=str)
            if pieces:
                log10 = model.score(" ".join(pieces))
                values[i] = round(10.0 ** (-log10 / (len(pieces) + 1)), 1)
        return values


def kenlm_beside(path: Path) -> KenlmModel:
    """CCNet's model at a path `{lang}.arpa.bin`."""
    return KenlmModel(path, path.with_name(path.name.removesuffix(_SUFFIX) + ".sp.model"))


def check_own(label: str, models: dict[str, Path], sha256: dict[str, str]) -> None:
    """UsageError where the published cut-offs would be put to models that are not CCNet's own."""
    for lang, path in models.items():
        if lang not in CUTOFFS:
            continue
        meant = f"{label}: the published cut-offs hold for CCNet's own models alone"
        if path.name != lang + _SUFFIX or not is_kenlm(path):
            raise UsageError(
                f"{meant} ({{lang}}.arpa.bin, KenLM's binary), and {path} is another;"
                " use cutoffs: own"
            )
        if lang not in sha256:
            raise UsageError(f"{meant}: give its sha256, ccnet_sha256: {{{lang}: ...}}")
        try:
            digest = file_digest(path)
        except OSError as error:
            raise RunFailed(f"cannot read {path}: {error.strerror}") from None
        if digest != sha256[lang].lower():
            raise UsageError(f"{label}: {path} has another sha256 than ccnet_sha256 says")
