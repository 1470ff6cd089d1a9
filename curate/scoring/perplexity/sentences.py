"""Convert texts to sentences of word ids: normalization, sentence ends, words and pieces.

Variant `plain`: each line (as in `str.splitlines()`) with a word is a sentence. Variant `ccnet`:
the whole document in CCNet's normal form is one sentence (`ccnet_text`). The setting `unit` defines
words: `whitespace` (`str.split()`), `words` (text/words.py, with upper and lower case kept), or
`pieces` of a SentencePiece model. This model is trained with CCNet's settings (the Makefile of
cc_net, Wenzek et al. 2020: unigram, coverage 0.9995, texts normalised before), on at most a million
sentences drawn with a fixed seed.

A hash table maps words to ids. It compares bytes, so it is exact. Id 0 is <unk>, 1 <s>, 2 </s>. If
a text contains one of these as a word, that word is unknown."""

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
from llmcurate.base.kernels.intrinsics import load8, load_few, mix_bits, prefetch

SPECIAL = (b"<unk>", b"<s>", b"</s>")
UNK, EOS = 0, 2
BUCKET = 4  # slots of 16 bytes: one cache line
BLOCK = 512  # words looked up together
_ONE, _2, _4, _6 = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(6)
_8, _32 = np.uint64(8), np.uint64(32)
_WIDE = np.uint64(2 * BUCKET)  # uint64 numbers per bucket
_LOW = np.uint64(0xFFFFFFFF)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@njit(nogil=True, inline="always")
def _bytes(data, i, n):
    if i + _8 <= np.uint64(len(data)):  # loads 8 bytes and masks the excess
        short = n < _8
        mask = ~(_ALL << ((n if short else np.uint64(0)) * _8))
        return load8(data, i) & (mask if short else _ALL)
    return load_few(data, i, n)


@njit(nogil=True)
def word_key(data, start, size):
    """Return the key of a word: the bytes of the word if it has up to 8 bytes, else a hash."""
    i, n = np.uint64(start), np.uint64(size)
    value = _bytes(data, i, n if n < _8 else _8)
    if n > _8:
        value = mix_bits(value)
        stop = i + n
        i += _8
        while i < stop:
            value = mix_bits(value ^ _bytes(data, i, stop - i if stop - i < _8 else _8))
            i += _8
    return value


@njit(nogil=True, inline="always")
def home(key, size, slots):
    """Return the position in `slots` of the first bucket to search for a word's key and size."""
    spread = mix_bits(key ^ np.uint64(size)) >> _32
    return ((spread * (np.uint64(len(slots)) // _WIDE)) >> _32) * _WIDE


@njit(nogil=True)
def _same(data, start, size, blob, a):
    for k in range(size):
        if blob[a + k] != data[start + k]:
            return False
    return True


@njit(nogil=True)
def _place(data, start, size, key, blob, offsets, slots, at):
    wanted = np.uint64(size) << _32
    for _ in range(len(slots) // 2):
        stored = slots[at + _ONE]
        if stored == 0:
            return at, np.int64(-1)
        if slots[at] == key and stored & ~_LOW == wanted:
            word = np.int64(stored & _LOW) - 1
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
    """Write the ids of `count` words to out[first:]: uint32. The keys of the words, and the first
    bucket to search for each, are given in `keys` and `places`."""
    most = np.uint64(len(offsets) - 1)
    for i in range(count):
        key, at = keys[i], places[i]
        wanted = np.uint64(size[i]) << _32
        # Without branches, because the slot within the bucket cannot be predicted.
        h0, h1 = slots[at + _ONE], slots[at + _2 + _ONE]
        h2, h3 = slots[at + _4 + _ONE], slots[at + _6 + _ONE]
        w0 = np.uint64((slots[at] == key) & (h0 & ~_LOW == wanted))
        w1 = np.uint64((slots[at + _2] == key) & (h1 & ~_LOW == wanted))
        w2 = np.uint64((slots[at + _4] == key) & (h2 & ~_LOW == wanted))
        w3 = np.uint64((slots[at + _6] == key) & (h3 & ~_LOW == wanted))
        number = (h0 * w0 | h1 * w1 | h2 * w2 | h3 * w3) & _LOW
        sure = size[i] <= 8 or number == 0
        if not sure and number <= most and size[i] <= 16:
            # The key is a hash: compare the first and the last eight bytes.
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
    """Return uint32[words]: the id of each word data[start[k]:end[k]], 0 for unknown words."""
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
    """The words of a model, and the hash table `slots` from words to ids. Model files hold the
    table, so if words get other keys in it (`word_key`), the file format needs a new version."""

    blob: np.ndarray  # uint8[]: the bytes of all words
    offsets: np.ndarray  # int64[words + 1]: the start of each word in `blob`
    slots: np.ndarray  # uint64[2 * slots]: a word's key; its size (32 bits) and id + 1; 0 if free

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def ids(self, data: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return uint32[words]: the id of each word data[start[k]:end[k]] (data: uint8[])."""
        return word_ids(data, start, end, self.blob, self.offsets, self.slots)

    def words(self) -> list[bytes]:
        blob, ends = self.blob.tobytes(), self.offsets.tolist()
        return [blob[a:z] for a, z in pairwise(ends)]


def _slots(words: int) -> np.ndarray:
    return np.zeros(2 * BUCKET * (words // 2 + 1), np.uint64)


def vocabulary(words: Sequence[bytes]) -> Vocabulary:
    """Return a vocabulary with ids in this order. Raises ValueError if a word appears twice."""
    blob = np.frombuffer(bytearray().join(words), np.uint8)
    offsets = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(w) for w in words], out=offsets[1:])
    slots = _slots(len(words))
    twice = _fill(blob, offsets, slots)
    if twice >= 0:
        raise ValueError(f"the word {words[twice].decode('utf-8', 'replace')!r} appears twice")
    return Vocabulary(blob, offsets, slots)


class VocabularyBuilder:
    """A vocabulary that adds new words as they appear, and counts how often each word occurs."""

    def __init__(self) -> None:
        start = vocabulary(SPECIAL)
        self.words = len(SPECIAL)
        self._blob, self._offsets = np.empty(1 << 16, np.uint8), np.zeros(1 << 12, np.int64)
        self._blob[: len(start.blob)] = start.blob
        self._offsets[: len(start.offsets)] = start.offsets
        self._slots = _slots(0)
        self.counts = np.zeros(len(SPECIAL), np.int64)

    def add(self, data: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Add the words data[start[k]:end[k]]. Return uint32[words]: the id of each word."""
        out = np.empty(len(start), np.uint32)
        step = 1 << 16  # words per reservation
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
        """Return (final vocabulary, uint32[words]: the new id of each old id, 0 if the word was
        dropped). After the special words come the oldest words, `first` of them, in the order of
        their ids. Then come words with at least `least` occurrences, most frequent first; equally
        frequent words are sorted by their bytes."""
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


# The replacement for each character of CCNET_PUNCTUATION. CCNet maps `１` to a quotation mark,
# without effect, because digits have become 0 before.
_REPLACED = (
    ",", ".", ",", '"', '"', '"', '"', '"', '"', '"', '"', '"', '"', "'", ":", ":", "?", "!",
    "(", ")", ";", "-", " - ", ". ", "~", "'", "...", "-", "<", ">", "[", "]", "%", "-",
)  # fmt: skip
_CHARACTERS = {ord(c): r for c, r in zip(CCNET_PUNCTUATION, _REPLACED, strict=True)}
_CHARACTERS |= dict.fromkeys(CCNET_CONTROLS, "")
_DIGIT = re.compile(r"\d")


def ccnet_text(text: str) -> str:
    """Return the text in CCNet's normal form: stripped, in lower case, without accents (NFD without
    Mn) and control characters, each digit as 0, and 34 punctuation characters as ASCII."""
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
    """Sentences of word ids."""

    ids: np.ndarray  # uint32[words]
    ends: np.ndarray  # int64[sentences]: the end of each sentence in `ids`
    rows: np.ndarray  # int64[rows + 1]: the first sentence of each row


def of_words(
    texts: pa.LargeStringArray, variant: Variant, unit: Unit, number: Numbers
) -> Sentences:
    """Return texts as sentences of words. `number` converts (data, start, end) to word ids."""
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
    """Convert texts to sentences of SentencePiece pieces. `ids` is uint32[pieces], the word id of
    each piece. A run of letters without a piece counts as one word, whose id the function `number`
    returns. With SentencePiece's single id for unknown text, all these words would be one word."""
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
    ends = np.cumsum([len(w) for w in words], dtype=np.int64)
    start = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    return np.frombuffer(bytearray().join(words), np.uint8), start[: len(words)], ends


def load_pieces(model: bytes, source: str) -> Any:
    """Load a SentencePiece model from its file's bytes. Raises UsageError if it is not one."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
        size = processor.GetPieceSize()
        processor.IdToPiece(list(range(size)))
    except (RuntimeError, OSError, ValueError):  # ValueError: a piece is not UTF-8
        size = 0
    if not size:
        raise UsageError(f"{source} is not a SentencePiece model")
    return processor


def piece_words(processor: Any) -> tuple[list[bytes], np.ndarray]:
    """Return (words, real) of a SentencePiece model: a list of each piece's bytes, by piece id; and
    bool[pieces], True for a piece that can occur in texts."""
    names = processor.IdToPiece(list(range(processor.GetPieceSize())))
    real = [
        not (processor.IsControl(i) or processor.IsUnknown(i) or n.encode() in SPECIAL)
        for i, n in enumerate(names)
    ]
    return [n.encode("utf-8") for n in names], np.array(real, np.bool_)


def piece_ids(number: Numbers, processor: Any) -> np.ndarray:
    """Return uint32[pieces]: the word id of each SentencePiece piece, 0 if no text can have it."""
    names, real = piece_words(processor)
    ids = np.zeros(len(names), np.uint32)
    ids[real] = number(*_joined([n for n, r in zip(names, real.tolist(), strict=True) if r]))
    return ids


_COVERAGE = 0.9995
_SENTENCES = 1_000_000
_LONGEST = 16_384  # bytes; longer sentences would be skipped, so they are cut before training
_THREADS = 4  # fixed: float sums depend on the number of threads


def _no_pieces(vocab: int, why: str) -> LlmcurateError:
    if most := re.search(r"size too high.* value <= (\d+)", why):
        return UsageError(
            f"vocab {vocab}: the text gives at most {most[1]} pieces; ask for fewer or add text"
        )
    if least := re.search(r"smaller than required_chars\. \d+ vs (\d+)", why):
        return UsageError(
            f"vocab {vocab}: the characters of the text need at least {least[1]} pieces"
        )
    return RunFailed(f"cannot train {vocab} pieces on this text: {why[-160:]}")


def train_pieces(
    texts: Callable[[], Iterable[pa.LargeStringArray]], variant: Variant, vocab: int
) -> bytes:
    """Train a SentencePiece model and return the bytes of its file. Raises UsageError if the text
    does not fit the vocabulary size, RunFailed if training fails otherwise."""
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
