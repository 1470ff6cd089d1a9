"""The header of a fastText model file, where its parts lie, and whether the file is whole.

Every size that the file states is checked against its length before anything is allocated or
followed (fastText's own loader trusts them). Only the dictionary is read through (one look at each
entry); matrices are skipped by their size.

Format: fastText's `FastText::loadModel`, `Dictionary::load`, `DenseMatrix::load`,
`QuantMatrix::load`, `ProductQuantizer::load` at version 0.9.2; all numbers little-endian.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from llmcurate.base.errors import UsageError

PREFIX = "__label__"
MAGIC, VERSIONS = 793712314, (11, 12)
SUPERVISED = 3
LOSSES = {1: "hs", 2: "ns", 3: "softmax", 4: "ova"}
CENTROIDS = 256  # of each subquantizer
_MOST_GRAMS = 1 << 10  # characters or words in an n-gram: more is no model, but hours of work
_MOST = 10**15  # what fastText takes for infinity among counts


@dataclass(frozen=True)
class Header:
    """What a supervised model says of itself. names: its labels as they stand in the file, in the
    file's order; labels: the same without `__label__`."""

    names: tuple[str, ...]
    words: int
    dim: int
    minn: int
    maxn: int
    word_ngrams: int
    buckets: int
    loss: str
    quantized: bool

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(name.removeprefix(PREFIX) for name in self.names)


@dataclass(frozen=True)
class Quantizer:
    """A product quantizer. at: where its centroids begin, float32[CENTROIDS * dim]; parts: codes a
    row; each, last: floats a code stands for, in all parts but the last, and in the last."""

    at: int
    parts: int
    each: int
    last: int


@dataclass(frozen=True)
class Matrix:
    """Where a matrix lies: float32[rows, dim] at `at`, or with a quantizer its codes, uint8[rows,
    parts]; with norms also uint8[rows] at norms_at, in a quantizer of their own."""

    rows: int
    dim: int
    at: int
    quantizer: Quantizer | None = None
    norms_at: int = 0
    norms: Quantizer | None = None


@dataclass(frozen=True)
class Layout:
    """Where the parts of a model file lie, in bytes from its start. entries_at: words, then
    labels; pruned_at: int32 pairs (n-gram, row), as many as pruned; -1: nothing is pruned."""

    size: int
    entries_at: int
    pruned_at: int
    pruned: int
    input: Matrix
    output: Matrix


class _Damaged(Exception):
    """What is wrong with the file, for the end of a sentence."""


def read_header(path: str | Path) -> Header:
    """The header of a whole supervised model file. UsageError says what else the file is."""
    return read_layout(path)[0]


def read_layout(path: str | Path) -> tuple[Header, Layout]:
    """The header of a whole supervised model file and where its parts lie. UsageError says what
    else the file is."""
    try:
        state = Path(path).stat()
    except OSError as error:
        raise UsageError(f"model {path}: {error.strerror}") from None
    return _checked(str(path), state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=8)
def _checked(path: str, size: int, changed: int) -> tuple[Header, Layout]:
    try:
        with open(path, "rb") as file:
            if size < 8:
                raise _Damaged("is no fastText model")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(data, size).parts()
    except (_Damaged, struct.error) as error:
        problem = error if isinstance(error, _Damaged) else "is cut short"
        raise UsageError(f"model {path} {problem}: fetch or train it again") from None
    except OSError as error:
        raise UsageError(f"model {path}: {error.strerror}") from None


class _Reader:
    def __init__(self, data: mmap.mmap, size: int) -> None:
        self.data, self.size, self.at = data, size, 0

    def take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def skip(self, count: int) -> None:
        if count < 0 or self.at + count > self.size:
            raise _Damaged("is cut short")
        self.at += count

    def parts(self) -> tuple[Header, Layout]:
        magic, version = self.take("ii")
        if magic != MAGIC:
            raise _Damaged("is no fastText model")
        if version not in VERSIONS:
            raise _Damaged(f"has format version {version}, known are 11 and 12")
        dim, _, _, _, _, ngrams, loss, model, bucket, minn, maxn, _ = self.take("12i")
        self.skip(8)  # sampling threshold
        if model != SUPERVISED:
            raise _Damaged("holds word vectors, not a classifier")
        if version == 11:
            maxn = 0  # as the library does: such classifiers had no character n-grams
        if not 0 < dim <= 1 << 16 or bucket < 0 or ngrams < 0 or loss not in LOSSES:
            raise _Damaged("has settings that make no sense")
        if minn < 0 or not 0 <= maxn <= _MOST_GRAMS or ngrams > _MOST_GRAMS:
            raise _Damaged("has settings that make no sense")
        if bucket == 0 and (maxn > 0 or ngrams > 1):  # n-grams are numbered modulo the buckets
            raise _Damaged("has settings that make no sense")
        entries_at = self.at + 3 * 4 + 2 * 8
        words, names, pruned = self.dictionary()
        pruned_at = self.at - 8 * max(pruned, 0)
        rows = words + (pruned if pruned >= 0 else bucket)
        (quantized,) = self.take("?")
        if not quantized and pruned >= 0:
            raise _Damaged("has a pruned dictionary over a plain matrix")
        inputs = self.matrix(rows, dim, bool(quantized))
        (packed,) = self.take("?")
        outputs = self.matrix(len(names), dim, bool(quantized and packed))
        if self.at != self.size:
            raise _Damaged("goes on behind its end")
        header = Header(
            tuple(names), words, dim, minn, maxn, ngrams, bucket, LOSSES[loss], bool(quantized)
        )
        return header, Layout(self.size, entries_at, pruned_at, pruned, inputs, outputs)

    def dictionary(self) -> tuple[int, list[str], int]:
        """(words, names of labels, pruned n-grams or -1). Words come before labels, as ids do."""
        entries, words, count = self.take("3i")
        _, pruned = self.take("2q")
        if words < 0 or count < 1 or entries != words + count or pruned < -1:
            raise _Damaged("has a dictionary that makes no sense")
        names = []
        find, data, at = self.data.find, self.data, self.at
        for entry in range(entries):
            end = find(b"\0", at)
            if end < 0 or end + 10 > self.size:
                raise _Damaged("is cut short")
            if data[end + 9] != (entry >= words):
                raise _Damaged("has a dictionary that makes no sense")
            if entry >= words:
                (times,) = struct.unpack_from("<q", data, end + 1)
                if not 0 <= times < _MOST:  # the tree over labels is built from these
                    raise _Damaged("has a dictionary that makes no sense")
                names.append(data[at:end].decode("utf-8", "replace"))
            at = end + 10  # count: int64, type: one byte
        self.at = at
        if pruned > 0:
            at = self.at
            self.skip(8 * pruned)
            kept = np.frombuffer(data[at : self.at], "<i4")[1::2]
            if kept.min() < 0 or kept.max() >= pruned:
                raise _Damaged("has a dictionary that makes no sense")
        return words, names, pruned

    def matrix(self, rows: int, dim: int, quantized: bool) -> Matrix:
        """Passes over a matrix of that shape."""
        if not quantized:
            if self.take("2q") != (rows, dim):
                raise _Damaged("has a matrix of another shape than its dictionary")
            at = self.at
            self.skip(4 * rows * dim)
            return Matrix(rows, dim, at)
        (normed,) = self.take("?")
        shape = self.take("2q")
        (codes,) = self.take("i")
        if shape != (rows, dim):
            raise _Damaged("has a matrix of another shape than its dictionary")
        at = self.at
        self.skip(codes)
        quantizer = self.quantizer(dim)
        if codes != rows * quantizer.parts:
            raise _Damaged("has a matrix of another shape than its dictionary")
        if not normed:
            return Matrix(rows, dim, at, quantizer)
        norms_at = self.at
        self.skip(rows)
        return Matrix(rows, dim, at, quantizer, norms_at, self.quantizer(1))

    def quantizer(self, dim: int) -> Quantizer:
        """Passes over a product quantizer."""
        size, parts, each, last = self.take("4i")
        whole = each >= 1 and parts == -(-dim // each) and last == (dim % each or each)
        if size != dim or not whole:
            raise _Damaged("has a quantizer that makes no sense")
        at = self.at
        self.skip(4 * dim * CENTROIDS)
        return Quantizer(at, parts, each, last)
