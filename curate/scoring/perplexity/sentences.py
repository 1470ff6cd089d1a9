"""Texts as sentences of word ids: normal form, ends of sentences, words and pieces.

Variant `plain`: each line (as `str.splitlines()` cuts) that holds a word is a sentence. `ccnet`:
the whole document in CCNet's normal form is one (`ccnet_text`). Units: `whitespace`
(`str.split()`), `words` (the word table of text/words.py, as written) or `pieces` of a
SentencePiece model, which is trained with CCNet's settings (the Makefile of cc_net, Wenzek et al.
2020: unigram, coverage 0.9995, texts normalised before). It draws at most a million sentences, by a
fixed seed.

Words have numbers by a hash table from bytes to ids, exact, since it compares the bytes. 0 is
<unk>, 1 <s>, 2 </s>; a text that holds these as words holds unknown words.
"""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from curate.text.buffers import text_buffers
from curate.text.folding import CCNET_CONTROLS, CCNET_PUNCTUATION
from curate.text.tables import segment
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8, load_few, prefetch, stir

SPECIAL = (b"<unk>", b"<s>", b"</s>")
UNK, EOS = 0, 2
BUCKET = 4  # slots of 16 bytes: what one load from memory brings
BLOCK = 512  # words that are looked up together
_ONE, _2, _4, _6 = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(6)
_8, _32 = np.uint64(8), np.uint64(32)
_WIDE = np.uint64(2 * BUCKET)  # numbers of a bucket
_LOW = np.uint64(0xFFFFFFFF)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@njit(nogil=True, inline="always")
def _bytes(data, i, n):
    """The first n <= 8 bytes from i as `load8` places them."""
    if i + _8 <= np.uint64(len(data)):  # loads what is behind them too, and takes it off
        short = n < _8
        mask = ~(_ALL << ((n if short else np.uint64(0)) * _8))
        return load8(data, i) & (mask if short else _ALL)
    return load_few(data, i, n)


@njit(nogil=True)
def word_key(data, start, size):
    """What a word is known by, beside its size: up to 8 bytes themselves, else a hash of them."""
    i, n = np.uint64(start), np.uint64(size)
    value = _bytes(data, i, n if n < _8 else _8)
    if n > _8:
        value = stir(value)
        stop = i + n
        i += _8
        while i < stop:
            value = stir(value ^ _bytes(data, i, stop - i if stop - i < _8 else _8))
            i += _8
    return value


@njit(nogil=True, inline="always")
def home(key, size, slots):
    """Where the bucket begins that is looked at first."""
    spread = stir(key ^ np.uint64(size)) >> _32
    return ((spread * (np.uint64(len(slots)) // _WIDE)) >> _32) * _WIDE


@njit(nogil=True)
def _same(data, start, size, blob, a):
    """Whether blob[a:] begins with data[start : start + size]."""
    for k in range(size):
        if blob[a + k] != data[start + k]:
            return False
    return True


@njit(nogil=True)
def _place(data, start, size, key, blob, offsets, slots, at):
    """(where it stands in slots, id) of a word, looked for from `at` on; id -1 where it is not in
    the table, and then len(slots) where the table is full."""
    meant = np.uint64(size) << _32
    for _ in range(len(slots) // 2):
        have = slots[at + _ONE]
        if have == 0:
            return at, np.int64(-1)
        if slots[at] == key and have & ~_LOW == meant:
            word = np.int64(have & _LOW) - 1
            if size <= 8:
                return at, word
            if word < len(offsets) - 1:
                a = offsets[word]
                if offsets[word + 1] - a == size and _same(data, start, size, blob, a):
                    return at, word
        at += _2
        if at == np.uint64(len(slots)):
            at = np.uint64(0)
    return np.uint64(len(slots)), np.int64(-1)


@njit(nogil=True)
def resolve(data, start, size, keys, places, count, blob, offsets, slots, out, first):
    """out[first:]: uint32, the ids of `count` words whose keys and first buckets are known."""
    most = np.uint64(len(offsets) - 1)
    for i in range(count):
        key, at = keys[i], places[i]
        meant = np.uint64(size[i]) << _32
        # Without branches: which slot of the bucket it is cannot be foretold.
        h0, h1 = slots[at + _ONE], slots[at + _2 + _ONE]
        h2, h3 = slots[at + _4 + _ONE], slots[at + _6 + _ONE]
        w0 = np.uint64((slots[at] == key) & (h0 & ~_LOW == meant))
        w1 = np.uint64((slots[at + _2] == key) & (h1 & ~_LOW == meant))
        w2 = np.uint64((slots[at + _4] == key) & (h2 & ~_LOW == meant))
        w3 = np.uint64((slots[at + _6] == key) & (h3 & ~_LOW == meant))
        number = (h0 * w0 | h1 * w1 | h2 * w2 | h3 * w3) & _LOW
        sure = size[i] <= 8 or number == 0
        if not sure and number <= most and size[i] <= 16:
            # The key is a hash: compares the first eight bytes and the last ones.
            a, back = np.uint64(offsets[number - _ONE]), np.uint64(size[i]) - _8
            position = np.uint64(start[i])
            sure = (
                np.uint64(offsets[number]) - a == np.uint64(size[i])
                and load8(blob, a) == load8(data, position)
                and load8(blob, a + back) == load8(data, position + back)
            )
        if not sure or (number == 0 and h3 != 0):
            _, place = _place(data, start[i], size[i], key, blob, offsets, slots, at)
            number = np.uint64(place + 1)
        out[first + i] = number - _ONE if _4 <= number <= most else np.uint64(0)


@njit(cache=True, nogil=True)
def word_ids(data, start, end, blob, offsets, slots):
    """uint32[words]: the ids of data[start:end]; 0 where a word is not known."""
    out = np.zeros(len(start), np.uint32)
    keys, places = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    sizes = end - start
    for begin in range(0, len(start), BLOCK):
        stop = min(begin + BLOCK, len(start))
        for i in range(begin, stop):
            keys[i - begin] = word_key(data, start[i], sizes[i])
            places[i - begin] = home(keys[i - begin], sizes[i], slots)
            prefetch(slots, places[i - begin])
        resolve(
            data, start[begin:], sizes[begin:], keys, places, stop - begin, blob, offsets, slots,
            out, begin,
        )  # fmt: skip
    return out


@njit(cache=True, nogil=True)
def _grow(data, start, end, blob, offsets, slots, words, out):
    """Ids of all words, new ones added; returns the number of words. There must be room."""
    for i in range(len(start)):
        size = end[i] - start[i]
        key = word_key(data, start[i], size)
        at = home(key, size, slots)
        at, word = _place(data, start[i], size, key, blob, offsets[: words + 1], slots, at)
        if word < 0:
            a = offsets[words]
            for k in range(size):
                blob[a + k] = data[start[i] + k]
            offsets[words + 1] = a + size
            word = np.int64(words)
            slots[at] = key
            slots[at + _ONE] = (np.uint64(size) << _32) | np.uint64(word + 1)
            words += 1
        out[i] = word if word > 2 else 0
    return words


@njit(cache=True, nogil=True)
def _fill(blob, offsets, slots):
    """Puts all words into an empty table; returns an id that is there twice, or -1."""
    for i in range(len(offsets) - 1):
        size = offsets[i + 1] - offsets[i]
        key = word_key(blob, offsets[i], size)
        at = home(key, size, slots)
        at, word = _place(blob, offsets[i], size, key, blob, offsets[: i + 1], slots, at)
        if word >= 0:
            return i
        slots[at] = key
        slots[at + _ONE] = (np.uint64(size) << _32) | np.uint64(i + 1)
    return -1


@dataclass(frozen=True)
class Vocabulary:
    """blob: uint8[], the words; offsets: int64[words + 1]; slots: uint64[], two a slot: the word's
    key, then its size (32 bits) and its id + 1; 0 is free. Slots are looked through from the
    beginning of a bucket on. Another key needs another version of the model's file."""

    blob: np.ndarray
    offsets: np.ndarray
    slots: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def ids(self, data: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """uint32[words] of data[start:end]; data: uint8[]; start, end: int64[words]."""
        return word_ids(data, start, end, self.blob, self.offsets, self.slots)

    def words(self) -> list[bytes]:
        """All words, by id."""
        blob, ends = self.blob.tobytes(), self.offsets.tolist()
        return [blob[a:z] for a, z in pairwise(ends)]


def _slots(words: int) -> np.ndarray:
    return np.zeros(2 * BUCKET * (words // 2 + 1), np.uint64)


def vocabulary(words: Sequence[bytes]) -> Vocabulary:
    """The vocabulary of words by id; ValueError where one is there twice."""
    blob = np.frombuffer(bytearray().join(words), np.uint8)
    offsets = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(w) for w in words], out=offsets[1:])
    slots = _slots(len(words))
    twice = _fill(blob, offsets, slots)
    if twice >= 0:
        raise ValueError(f"the word {words[twice].decode('utf-8', 'replace')!r} is there twice")
    return Vocabulary(blob, offsets, slots)


class Growing:
    """A vocabulary that takes in new words, numbered as they come, and counts them."""

    def __init__(self) -> None:
        start = vocabulary(SPECIAL)
        self.words = len(SPECIAL)
        self._blob, self._offsets = np.empty(1 << 16, np.uint8), np.zeros(1 << 12, np.int64)
        self._blob[: len(start.blob)] = start.blob
        self._offsets[: len(start.offsets)] = start.offsets
        self._slots = _slots(0)
        self.counts = np.zeros(len(SPECIAL), np.int64)

    def add(self, data: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """uint32[words]: ids of data[start:end]."""
        out = np.empty(len(start), np.uint32)
        step = 1 << 16  # words that get room at once
        for a in range(0, len(start), step):
            part, stop = start[a : a + step], end[a : a + step]
            self._room(len(part), int((stop - part).sum()))
            self.words = _grow(
                data,
                part,
                stop,
                self._blob,
                self._offsets,
                self._slots,
                self.words,
                out[a : a + step],
            )
        if len(self.counts) < self.words:
            self.counts = np.concatenate(
                [self.counts, np.zeros(2 * self.words - len(self.counts), np.int64)]
            )
        counts = np.bincount(out)
        self.counts[: len(counts)] += counts
        return out

    def _room(self, words: int, size: int) -> None:
        if self.words + words + 1 > len(self._offsets):
            more = np.zeros(2 * (self.words + words + 1), np.int64)
            more[: self.words + 1] = self._offsets[: self.words + 1]
            self._offsets = more
        used = int(self._offsets[self.words])
        if used + size > len(self._blob):
            blob = np.empty(2 * (used + size), np.uint8)
            blob[:used] = self._blob[:used]
            self._blob = blob
        if 3 * (self.words + words) > len(self._slots):
            self._slots = _slots(self.words + words)
            _fill(self._blob, self._offsets[: self.words + 1], self._slots)

    def settled(self, least: int, first: int = 0) -> tuple[Vocabulary, np.ndarray]:
        """The first words as they came, then those that came `least` times and more, the most
        frequent first, equal ones by their bytes; and uint32[words so far]: the new ids, 0 of the
        others."""
        ends = self._offsets[: self.words + 1].tolist()
        blob = self._blob.tobytes()
        words = [blob[a:z] for a, z in pairwise(ends)]
        counts = self.counts[: self.words].tolist()
        stay = len(SPECIAL) + first
        kept = [i for i in range(stay, self.words) if counts[i] >= least]
        kept.sort(key=lambda i: (-counts[i], words[i]))
        kept = [*range(len(SPECIAL), stay), *kept]
        new = np.zeros(self.words, np.uint32)
        new[kept] = np.arange(3, len(kept) + 3, dtype=np.uint32)
        return vocabulary([*SPECIAL, *(words[i] for i in kept)]), new


# What stands for each of CCNET_PUNCTUATION; that of `１` is a quotation mark there, but digits are
# 0 before it is looked at.
_REPLACED = (
    ",", ".", ",", '"', '"', '"', '"', '"', '"', '"', '"', '"', '"', "'", ":", ":", "?", "!",
    "(", ")", ";", "-", " - ", ". ", "~", "'", "...", "-", "<", ">", "[", "]", "%", "-",
)  # fmt: skip
_CHARACTERS = {ord(c): r for c, r in zip(CCNET_PUNCTUATION, _REPLACED, strict=True)}
_CHARACTERS |= dict.fromkeys(CCNET_CONTROLS, "")
_DIGIT = re.compile(r"\d")


def ccnet_text(text: str) -> str:
    """Stripped, in lower case, without accents (NFD without Mn), each digit 0, 34 punctuation
    characters as ASCII, without control characters."""
    text = text.strip().lower()
    if not text.isascii():
        split = unicodedata.normalize("NFD", text)
        text = "".join(c for c in split if unicodedata.category(c) != "Mn")
    return _DIGIT.sub("0", text).translate(_CHARACTERS)


Variant = Literal["plain", "ccnet"]
Unit = Literal["whitespace", "words", "pieces"]
Numbers = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Sentences:
    """ids: uint32[words]; ends: int64[sentences], where each ends; rows: int64[rows + 1], the first
    sentence of each row."""

    ids: np.ndarray
    ends: np.ndarray
    rows: np.ndarray


def of_words(
    texts: pa.LargeStringArray, variant: Variant, unit: Unit, number: Numbers
) -> Sentences:
    """Sentences of words; number: (data, start, end) -> ids of words."""
    if variant == "ccnet":
        texts = pa.array([ccnet_text(t or "") for t in texts.to_pylist()], pa.large_string())
    data, offsets = text_buffers(texts)
    tables = segment(data, offsets)
    if unit == "words":
        from curate.text.words import word_table

        words = word_table(data, tables.lines.raw)
        start, end, lines = words.start, words.end, words.rows
    else:
        start, end, lines = tables.words.start, tables.words.end, tables.words.lines
    ids = number(data, start, end)
    filled = np.diff(lines) > 0
    before = np.concatenate([[0], np.cumsum(filled)])
    return Sentences(ids, lines[1:][filled], before[tables.lines.rows])


def of_pieces(
    texts: pa.LargeStringArray, variant: Variant, processor: Any, ids: np.ndarray, number: Numbers
) -> Sentences:
    """Sentences of pieces; ids: uint32[pieces], the word id of each piece of the model.

    What SentencePiece has no piece for is a word by its letters (number), as where its output goes
    to a language model as text: else another script would be a row of one and the same word.
    """
    rows = np.zeros(len(texts) + 1, np.int64)
    lines: list[str] = []
    for r, text in enumerate(texts.to_pylist()):
        lines += [ccnet_text(text or "")] if variant == "ccnet" else (text or "").splitlines()
        rows[r + 1] = len(lines)
    pieces = processor.encode(lines, out_type=int, num_threads=1) if lines else []
    sizes = np.array([len(p) for p in pieces], np.int64)
    filled = sizes > 0
    flat = np.fromiter((i for p in pieces for i in p), np.int64, int(sizes.sum()))
    before, ends = np.concatenate([[0], np.cumsum(filled)]), np.cumsum(sizes)
    word_ids = ids[flat]
    at = np.flatnonzero(flat == processor.unk_id())
    if len(at):
        odd = np.unique(np.searchsorted(ends, at, "right")).tolist()
        written = processor.encode([lines[k] for k in odd], out_type=str, num_threads=1)
        unknown = processor.unk_id()
        letters = [
            word.encode("utf-8")
            for k, words in zip(odd, written, strict=True)
            for word, piece in zip(words, pieces[k], strict=True)
            if piece == unknown
        ]
        word_ids[at] = number(*_joined(letters))
    return Sentences(word_ids, ends[filled], before[rows])


def _joined(words: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(data, start, end) of words one behind the other."""
    ends = np.cumsum([len(w) for w in words], dtype=np.int64)
    start = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    return np.frombuffer(bytearray().join(words), np.uint8), start[: len(words)], ends


def load_pieces(model: bytes, source: str) -> Any:
    """A SentencePiece model from its file's bytes; UsageError where it is none."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
        size = processor.GetPieceSize()
        processor.IdToPiece(list(range(size)))
    except (RuntimeError, OSError, ValueError):  # the last of a piece that is not UTF-8
        size = 0
    if not size:
        raise UsageError(f"{source} is no SentencePiece model")
    return processor


def piece_words(processor: Any) -> tuple[list[bytes], np.ndarray]:
    """The pieces as words, by piece id; and bool[pieces], which of them texts are cut into."""
    names = processor.IdToPiece(list(range(processor.GetPieceSize())))
    real = [
        not (processor.IsControl(i) or processor.IsUnknown(i) or n.encode() in SPECIAL)
        for i, n in enumerate(names)
    ]
    return [n.encode("utf-8") for n in names], np.array(real, np.bool_)


def piece_ids(number: Numbers, processor: Any) -> np.ndarray:
    """uint32[pieces]: the word id of each piece by number, 0 of those that are no words."""
    names, real = piece_words(processor)
    ids = np.zeros(len(names), np.uint32)
    ids[real] = number(*_joined([n for n, r in zip(names, real.tolist(), strict=True) if r]))
    return ids


_COVERAGE = 0.9995
_SENTENCES = 1_000_000
_LONGEST = 16_384  # bytes of a sentence; what is longer is passed over, so it is cut before
_THREADS = 4  # fixed, since sums of their floats depend on their number


def _no_pieces(vocab: int, why: str) -> LlmcurateError:
    """What SentencePiece says of a vocabulary that does not fit the text, for a user."""
    if most := re.search(r"size too high.* value <= (\d+)", why):
        return UsageError(
            f"vocab {vocab}: the text gives {most[1]} pieces at most; ask for fewer, or give more"
            " text"
        )
    if least := re.search(r"smaller than required_chars\. \d+ vs (\d+)", why):
        return UsageError(
            f"vocab {vocab}: the characters of the text need {least[1]} pieces or more"
        )
    return RunFailed(f"no {vocab} pieces can be trained on this text: {why[-160:]}")


def train_pieces(
    texts: Callable[[], Iterable[pa.LargeStringArray]], variant: Variant, vocab: int
) -> bytes:
    """A SentencePiece model's file. RunFailed where the text is too little for so many pieces."""
    import sentencepiece

    def lines() -> Iterator[str]:
        for batch in texts():
            for value in batch.to_pylist():
                text = value or ""
                parts = [ccnet_text(text)] if variant == "ccnet" else text.splitlines()
                for line in parts:
                    for a in range(0, len(line), _LONGEST // 4):
                        if part := line[a : a + _LONGEST // 4].strip().replace("\0", " "):
                            yield part

    out = io.BytesIO()
    sentencepiece.set_random_generator_seed(0)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines(),
            model_writer=out,
            vocab_size=vocab,
            model_type="unigram",
            character_coverage=_COVERAGE,
            input_sentence_size=_SENTENCES,
            shuffle_input_sentence=True,
            max_sentence_length=_LONGEST,
            num_threads=_THREADS,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise _no_pieces(vocab, " ".join(str(error).split())) from None
    return out.getvalue()
