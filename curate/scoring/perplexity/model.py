"""Score texts with an n-gram language model: log10 probabilities of documents and sentences.

CCNet's own models (Wenzek et al. 2020) can be used too: KenLM binaries `{lang}.arpa.bin`, each with
a `{lang}.sp.model`, which need `pip install kenlm`. Perplexities of different models are not
comparable. So CCNet's published cut-offs need CCNet's models, which are identified by sha256."""

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

# Lines and words are those of `str.splitlines()` and `str.split()`. Rows whose only white space is
# space, tab and line feed are split without a branch per byte.
_ONE = np.uint64(1)
_TAB, _LINE_FEED, _SPACE = np.uint8(9), np.uint8(10), np.uint8(32)


@njit(nogil=True)
def _simple(text):
    """Return True if the only white space in text: uint8[] is space, tab and line feed, and no
    other byte is below 32. May return False if the text ends in the middle of a character."""
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
    rows = len(offsets) - 1
    # Arrays of the largest possible size, returned as views: untouched memory costs nothing.
    limit = (offsets[rows] - offsets[0]) // 2 + rows + 2
    start, end = np.empty(limit, np.int64), np.empty(limit, np.int64)
    line_ends, row_lines = np.empty(limit, np.int64), np.empty(rows + 1, np.int64)
    begun = ended = lines = np.uint64(0)
    before = np.int64(0)  # number of words up to the end of the last line
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
    """Split texts into lines of word ids. Return (ids: uint32[words]; ends: int64[lines], each
    line's end in `ids`; rows: int64[rows + 1], each row's first line). `data` (uint8[]) and
    `offsets` (int64[rows + 1]) are the texts. Lines without words are omitted."""
    start, end, ends, rows = _split(data, offsets)
    return words.ids(data, start, end), ends, rows


@dataclass(frozen=True)
class Scores:
    """Scores of rows or sentences."""

    log10: np.ndarray  # float64[n]: log10 probability of all words and sentence ends together
    length: np.ndarray  # int64[n]: number of these words and sentence ends

    def perplexity(self) -> np.ndarray:
        """Return float64[n]: 10 ** (-log10 / length), or NaN if there are no words."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return 10.0 ** (-self.log10 / np.where(self.length, self.length, np.nan))


class NgramModel:
    """An n-gram model of llmcurate: its tables, and the way to split texts into sentences."""

    def __init__(self, data: ModelData, path: Path | str = "model") -> None:
        self.data, self.path = data, str(path)
        self._values = data.entries.view(np.float32)

    @classmethod
    def open(cls, path: Path, whole: bool = False) -> NgramModel:
        """Load a model file. Raises UsageError if the file is damaged or not a model."""
        return cls(read_model(path, whole), path)

    @cached_property
    def _pieces(self) -> tuple[Any, np.ndarray]:
        processor = load_pieces(self.data.pieces, f"the tokenizer in {self.path}")
        return processor, piece_ids(self.data.words.ids, processor)

    def sentences(self, texts: pa.LargeStringArray) -> Sentences:
        """Return the texts as sentences of word ids. A null counts as an empty text."""
        if self.data.unit == "pieces":
            number = self.data.words.ids
            return of_pieces(texts, self.data.variant, *self._pieces, number)
        if self.data.unit == "whitespace" and self.data.variant == "plain":
            return Sentences(*numbered_lines(*text_buffers(texts), self.data.words))
        return of_words(texts, self.data.variant, self.data.unit, self.data.words.ids)

    def log10(self, ids: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (float64[sentences], float32[sentences]): the log10 probability of each sentence,
        summed in these two types. `ids` is uint32[words], the words of all sentences. `ends` is
        int64[sentences], the end of each sentence in `ids`. Raises ValueError if an id is not a
        word or is <s>."""
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
        """Return (the scores of all sentences, int64[rows + 1]: the number of each row's first
        sentence)."""
        sentences = self.sentences(texts)
        exact, floats = self.log10(sentences.ids, sentences.ends)
        # KenLM's binding, which CCNet uses, sums in float32.
        sums = floats.astype(np.float64) if self.data.variant == "ccnet" else exact
        return Scores(sums, np.diff(sentences.ends, prepend=0) + 1), sentences.rows

    def by_document(self, texts: pa.LargeStringArray) -> Scores:
        """Return one score per text, over all sentences of the text."""
        scores, rows = self.by_sentence(texts)
        total = np.concatenate([[0.0], np.cumsum(scores.log10)])
        length = np.concatenate([[0], np.cumsum(scores.length)])
        single = np.diff(rows) == 1  # texts of one sentence; a difference of sums would round
        log10 = np.diff(total[rows])
        log10[single] = scores.log10[rows[:-1][single]]
        return Scores(log10, np.diff(length[rows]))

    def perplexity(self, texts: pa.LargeStringArray) -> np.ndarray:
        """Return each text's perplexity, NaN without words; rounded to 0.1 for variant `ccnet`."""
        values = self.by_document(texts).perplexity()
        if self.data.variant == "ccnet":
            return np.array([round(x, 1) for x in values.tolist()])
        return values

    def first_occurrences(self, texts: pa.LargeStringArray) -> np.ndarray:
        """Return float64[rows]: each text's perplexity, with probability 1 for every line that
        repeats an earlier line of the text, so repetitive texts have low values. A text without
        words has NaN. Only for models of variant `plain`, for which each line is a sentence."""
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


# Percentiles 30 and 60 of perplexity in CCNet's sample of Common Crawl (cc_net/data/cutoff.csv).
CUTOFFS: dict[str, tuple[float, float]] = {
    "en": (340.0, 520.0),
    "de": (370.0, 590.0),
    "fr": (180.0, 330.0),
    "ru": (210.0, 310.0),
    "zh": (1460.0, 1950.0),
}
_SUFFIX = ".arpa.bin"


class KenlmModel:
    """A model for the kenlm library, with its SentencePiece model. Scores are as in CCNet."""

    def __init__(self, path: Path, pieces: Path) -> None:
        self.path, self.pieces = path, pieces

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        try:
            import kenlm
        except ModuleNotFoundError:
            raise UsageError(f"{self.path} is a KenLM binary: pip install kenlm") from None
        try:
            data = self.pieces.read_bytes()
        except OSError as error:
            raise UsageError(f"{self.path} needs {self.pieces}: {error.strerror}") from None
        config = kenlm.Config()
        config.show_progress = False
        config.arpa_complain = kenlm.ARPALoadComplain.NONE
        try:
            return kenlm.Model(str(self.path), config), load_pieces(data, str(self.pieces))
        except OSError as error:
            raise UsageError(f"{self.path}: {str(error).splitlines()[0]}") from None

    def perplexity(self, texts: pa.LargeStringArray) -> np.ndarray:
        """Return each text's perplexity to one decimal, NaN for a text without pieces."""
        model, processor = self._loaded
        values = np.full(len(texts), np.nan)
        for i, text in enumerate(texts.to_pylist()):
            pieces = processor.encode(ccnet_text(text or ""), out_type=str)
            if pieces:
                log10 = model.score(" ".join(pieces))
                values[i] = round(10.0 ** (-log10 / (len(pieces) + 1)), 1)
        return values


def kenlm_beside(path: Path) -> KenlmModel:
    return KenlmModel(path, path.with_name(path.name.removesuffix(_SUFFIX) + ".sp.model"))


def check_own(label: str, models: dict[str, Path], sha256: dict[str, str]) -> None:
    """Raise UsageError if the published cut-offs would be used with models other than CCNet's."""
    for lang, path in models.items():
        if lang not in CUTOFFS:
            continue
        scope = f"{label}: the published cut-offs hold only for CCNet's own models"
        if path.name != lang + _SUFFIX or not is_kenlm(path):
            raise UsageError(
                f"{scope} ({{lang}}.arpa.bin, KenLM binaries), and {path} is not one;"
                " use cutoffs: own"
            )
        if lang not in sha256:
            raise UsageError(f"{scope}: give its sha256, ccnet_sha256: {{{lang}: ...}}")
        try:
            digest = file_digest(path)
        except OSError as error:
            raise RunFailed(f"cannot read {path}: {error.strerror}") from None
        if digest != sha256[lang].lower():
            raise UsageError(f"{label}: the sha256 of {path} differs from ccnet_sha256")
