"""Read the header and layout of a fastText model file, and check that the file is complete.

Every size in the file is checked against the file's length before memory is allocated (fastText's
own loader trusts them). Each dictionary entry is checked; matrices are skipped.

Format: fastText's `FastText::loadModel`, `Dictionary::load`, `DenseMatrix::load`,
`QuantMatrix::load`, `ProductQuantizer::load` at version 0.9.2; all numbers little-endian."""

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
_MOST_GRAMS = 1 << 10  # most characters or words of an n-gram: a damaged value could take hours
_MOST = 10**15  # fastText's infinity for counts


@dataclass(frozen=True)
class Header:
    """The settings of a supervised model."""

    names: tuple[str, ...]  # labels in the file, in its order
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
    """A product quantizer of matrix rows: it cuts a row into parts, and replaces each by a code."""

    at: int  # offset of the centroids, float32[CENTROIDS * dim]
    parts: int  # codes per row
    each: int  # floats per code
    last: int  # floats of a row's last code


@dataclass(frozen=True)
class Matrix:
    """The place of a matrix in the file. Rows may be quantized, and then the norms of rows may be
    too."""

    rows: int
    dim: int
    at: int  # offset of float32[rows, dim]; if quantized, of the codes, uint8[rows, parts]
    quantizer: Quantizer | None = None
    norms_at: int = 0  # offset of the codes of norms, uint8[rows]
    norms: Quantizer | None = None  # quantizer of the norms


@dataclass(frozen=True)
class Layout:
    """The positions of a model file's parts, in bytes."""

    size: int
    entries_at: int  # the dictionary: words, then labels
    pruned_at: int  # pairs (n-gram, row) of int32
    pruned: int  # number of these pairs; -1 if no n-gram was pruned
    input: Matrix
    output: Matrix


class _Damaged(Exception):
    pass


def read_header(path: str | Path) -> Header:
    """Return the header of a model file. Raises UsageError if the file is not a whole model."""
    return read_layout(path)[0]


def read_layout(path: str | Path) -> tuple[Header, Layout]:
    """Return header and layout of a model file. Raises UsageError if it is not a whole model."""
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
                raise _Damaged("is not a fastText model")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(data, size).parts()
    except (_Damaged, struct.error) as error:
        problem = error if isinstance(error, _Damaged) else "is truncated"
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
            raise _Damaged("is truncated")
        self.at += count

    def parts(self) -> tuple[Header, Layout]:
        magic, version = self.take("ii")
        if magic != MAGIC:
            raise _Damaged("is not a fastText model")
        if version not in VERSIONS:
            raise _Damaged(f"has format version {version}, but only 11 and 12 can be read")
        dim, _, _, _, _, ngrams, loss, model, bucket, minn, maxn, _ = self.take("12i")
        self.skip(8)  # sampling threshold
        if model != SUPERVISED:
            raise _Damaged("holds word vectors, not a classifier")
        if version == 11:
            maxn = 0  # like the library: such classifiers had no character n-grams
        if not 0 < dim <= 1 << 16 or bucket < 0 or ngrams < 0 or loss not in LOSSES:
            raise _Damaged("has invalid settings")
        if minn < 0 or not 0 <= maxn <= _MOST_GRAMS or ngrams > _MOST_GRAMS:
            raise _Damaged("has invalid settings")
        if bucket == 0 and (maxn > 0 or ngrams > 1):  # n-grams are numbered modulo the buckets
            raise _Damaged("has invalid settings")
        entries_at = self.at + 3 * 4 + 2 * 8
        words, names, pruned = self.dictionary()
        pruned_at = self.at - 8 * max(pruned, 0)
        rows = words + (pruned if pruned >= 0 else bucket)
        (quantized,) = self.take("?")
        if not quantized and pruned >= 0:
            raise _Damaged("has a pruned dictionary but no quantized matrix")
        inputs = self.matrix(rows, dim, bool(quantized))
        (packed,) = self.take("?")
        outputs = self.matrix(len(names), dim, bool(quantized and packed))
        if self.at != self.size:
            raise _Damaged("has extra bytes at its end")
        header = Header(
            tuple(names), words, dim, minn, maxn, ngrams, bucket, LOSSES[loss], bool(quantized)
        )
        return header, Layout(self.size, entries_at, pruned_at, pruned, inputs, outputs)

    def dictionary(self) -> tuple[int, list[str], int]:
        """Return (number of words, labels, number of n-grams left after pruning; -1 without
        pruning)."""
        entries, words, count = self.take("3i")
        _, pruned = self.take("2q")
        if words < 0 or count < 1 or entries != words + count or pruned < -1:
            raise _Damaged("has an invalid dictionary")
        names = []
        find, data, at = self.data.find, self.data, self.at
        for entry in range(entries):
            end = find(b"\0", at)
            if end < 0 or end + 10 > self.size:
                raise _Damaged("is truncated")
            if data[end + 9] != (entry >= words):
                raise _Damaged("has an invalid dictionary")
            if entry >= words:
                (times,) = struct.unpack_from("<q", data, end + 1)
                if not 0 <= times < _MOST:  # the tree over labels is built from these
                    raise _Damaged("has an invalid dictionary")
                names.append(data[at:end].decode("utf-8", "replace"))
            at = end + 10  # count: int64, type: one byte
        self.at = at
        if pruned > 0:
            at = self.at
            self.skip(8 * pruned)
            kept = np.frombuffer(data[at : self.at], "<i4")[1::2]
            if kept.min() < 0 or kept.max() >= pruned:
                raise _Damaged("has an invalid dictionary")
        return words, names, pruned

    def matrix(self, rows: int, dim: int, quantized: bool) -> Matrix:
        if not quantized:
            if self.take("2q") != (rows, dim):
                raise _Damaged("has a matrix whose shape does not match the dictionary")
            at = self.at
            self.skip(4 * rows * dim)
            return Matrix(rows, dim, at)
        (normed,) = self.take("?")
        shape = self.take("2q")
        (codes,) = self.take("i")
        if shape != (rows, dim):
            raise _Damaged("has a matrix whose shape does not match the dictionary")
        at = self.at
        self.skip(codes)
        quantizer = self.quantizer(dim)
        if codes != rows * quantizer.parts:
            raise _Damaged("has a matrix whose shape does not match the dictionary")
        if not normed:
            return Matrix(rows, dim, at, quantizer)
        norms_at = self.at
        self.skip(rows)
        return Matrix(rows, dim, at, quantizer, norms_at, self.quantizer(1))

    def quantizer(self, dim: int) -> Quantizer:
        size, parts, each, last = self.take("4i")
        whole = each >= 1 and parts == -(-dim // each) and last == (dim % each or each)
        if size != dim or not whole:
            raise _Damaged("has an invalid quantizer")
        at = self.at
        self.skip(4 * dim * CENTROIDS)
        return Quantizer(at, parts, each, last)
