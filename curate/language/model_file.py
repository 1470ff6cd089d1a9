"""The header of a fastText model file, and whether the file is whole.

fastText's loader trusts its input: sizes are allocated as written and offsets followed. So every
size that the file states is checked against its length before the library sees it. Only the
dictionary is read through (one look at each entry); matrices are skipped by their size.

Format: fastText's `FastText::loadModel`, `Dictionary::load`, `DenseMatrix::load`,
`QuantMatrix::load`, `ProductQuantizer::load` at version 0.9.2; all numbers little-endian.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from curate.errors import UsageError
from curate.language.codes import PREFIX

MAGIC, VERSIONS = 793712314, (11, 12)
SUPERVISED = 3
LOSSES = {1: "hs", 2: "ns", 3: "softmax", 4: "ova"}
_CENTROIDS = 256  # of each subquantizer
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


class _Damaged(Exception):
    """What is wrong with the file, for the end of a sentence."""


def read_header(path: str | Path) -> Header:
    """The header of a whole supervised model file. UsageError says what else the file is."""
    try:
        state = Path(path).stat()
    except OSError as error:
        raise UsageError(f"language model {path}: {error.strerror}") from None
    return _checked(str(path), state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=8)
def _checked(path: str, size: int, changed: int) -> Header:
    try:
        with open(path, "rb") as file:
            if size < 8:
                raise _Damaged("is no fastText model")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(data, size).header()
    except (_Damaged, struct.error) as error:
        what = error if isinstance(error, _Damaged) else "is cut short"
        raise UsageError(f"language model {path} {what}: fetch or train it again") from None
    except OSError as error:
        raise UsageError(f"language model {path}: {error.strerror}") from None


def sha256(path: str | Path) -> str:
    """Of a file's content, in hexadecimal."""
    state = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()


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

    def header(self) -> Header:
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
        if minn < 0 or not maxn <= 1 << 10:
            raise _Damaged("has settings that make no sense")
        if bucket == 0 and (maxn > 0 or ngrams > 1):  # n-grams are numbered modulo the buckets
            raise _Damaged("has settings that make no sense")
        words, names, pruned = self.dictionary()
        rows = words + (pruned if pruned >= 0 else bucket)
        (quantized,) = self.take("?")
        if not quantized and pruned >= 0:
            raise _Damaged("has a pruned dictionary over a plain matrix")
        self.matrix(rows, dim, bool(quantized))
        (packed,) = self.take("?")
        self.matrix(len(names), dim, bool(quantized and packed))
        if self.at != self.size:
            raise _Damaged("goes on behind its end")
        return Header(
            tuple(names), words, dim, minn, maxn, ngrams, bucket, LOSSES[loss], bool(quantized)
        )

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

    def matrix(self, rows: int, dim: int, quantized: bool) -> None:
        """Passes over a matrix of that shape."""
        if not quantized:
            if self.take("2q") != (rows, dim):
                raise _Damaged("has a matrix of another shape than its dictionary")
            self.skip(4 * rows * dim)
            return
        (normed,) = self.take("?")
        shape = self.take("2q")
        (codes,) = self.take("i")
        if shape != (rows, dim):
            raise _Damaged("has a matrix of another shape than its dictionary")
        self.skip(codes)
        parts = self.quantizer(dim)
        if codes != rows * parts:
            raise _Damaged("has a matrix of another shape than its dictionary")
        if normed:
            self.skip(rows)
            self.quantizer(1)

    def quantizer(self, dim: int) -> int:
        """Passes over a product quantizer; how many codes it has a row."""
        size, parts, each, last = self.take("4i")
        whole = each >= 1 and parts == -(-dim // each) and last == (dim % each or each)
        if size != dim or not whole:
            raise _Damaged("has a quantizer that makes no sense")
        self.skip(4 * dim * _CENTROIDS)
        return parts
