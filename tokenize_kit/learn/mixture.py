"""The mixture that a tokenizer is trained on: a sample of the documents, and their weights.

The sample is drawn by a hash of the text, so it does not depend on the order or on the files of the
documents. To draw it, the corpus is read once more, with some 50 bytes of memory per document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from llmcurate.base.errors import UsageError
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import hash_bytes, mix_bits
from tokenize_kit.learn.options import TrainingOptions, parse_weights, tempered

NO_VALUE = ""  # the value of documents whose column is empty


@njit(cache=True, nogil=True)
def text_hashes(data, offsets, seed):
    """Return uint64[rows]: a hash of each text. data: uint8[]; offsets: int64[rows + 1]."""
    hashes = np.empty(len(offsets) - 1, np.uint64)
    salt = mix_bits(seed + np.uint64(1))
    for row in range(len(hashes)):
        hashes[row] = mix_bits(hash_bytes(data, offsets[row], offsets[row + 1]) ^ salt)
    return hashes


def _texts(batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    if not batch.num_rows:  # then there may be no buffers
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    column = pc.fill_null(batch.column("text").cast(pa.large_string()), "")
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data or b"", np.uint8), bounds


@dataclass(frozen=True)
class SampleDrawn:
    """A card's entry on the sample. documents_of, bytes_of: the size of the whole corpus."""

    bytes_asked: int
    seed: int
    by: str
    documents_of: int
    bytes_of: int


@dataclass(frozen=True)
class Share:
    """The documents with one value of the weighted column. share: these documents' share of all
    bytes, where each byte counts with the weight of its document."""

    weight: float
    documents: int
    bytes: int
    share: float


@dataclass(frozen=True)
class MixtureRead:
    """The entry in a tokenizer's card about the weights of the documents read. column: the column
    that decides the weights; values: the documents with each value of this column."""

    column: str
    temperature: float | None
    values: dict[str, Share]


class Mixture:
    """The documents of `batches()` with their weights. The batches have the column `text` and, if
    weights are used, the column that the options name. Read `documents` once; then `sample`,
    `mixture` and `warnings` describe what was read."""

    def __init__(
        self, batches: Callable[[], Iterator[pa.RecordBatch]], options: TrainingOptions
    ) -> None:
        self.batches, self.options = batches, options
        self.weights = parse_weights(options.weights) if options.weights else None
        self.limit: np.uint64 | None = None  # the highest hash that is in the sample
        self.column = options.column
        self.read: dict[str, list[int]] = {}  # value: documents, bytes
        self.whole = [0, 0]  # documents and bytes before the sample
        self._found_column = False
        if options.sample_bytes is not None or options.temperature is not None:
            self._census()

    @property
    def scale(self) -> int:
        """Return the integer that stands for a weight of 1."""
        return self.weights.scale if self.weights else 1

    def _values(self, batch: pa.RecordBatch) -> list[str]:
        if self.column not in batch.schema.names:
            return [NO_VALUE] * batch.num_rows
        self._found_column = True
        try:
            column = batch.column(self.column).cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            kind = batch.column(self.column).type
            raise UsageError(
                f"the column {self.column!r} is of type {kind}: weights need a column of text"
            ) from None
        return [value or NO_VALUE for value in column.to_pylist()]

    def _census(self) -> None:
        hashes, sizes, codes = [], [], []
        numbers: dict[str, int] = {}
        for batch in self.batches():
            data, offsets = _texts(batch)
            sizes.append(np.diff(offsets))
            if self.options.sample_bytes is not None:
                hashes.append(text_hashes(data, offsets, np.uint64(self.options.seed)))
            if self.options.temperature is not None:
                values = self._values(batch)
                codes.append(np.array([numbers.setdefault(v, len(numbers)) for v in values], "i4"))
        size = np.concatenate([np.empty(0, np.int64), *sizes])
        self.whole = [len(size), int(size.sum())]
        sampled = np.ones(len(size), np.bool_)
        if self.options.sample_bytes is not None and self.whole[1] > self.options.sample_bytes:
            hashed = np.concatenate(hashes)
            self.limit = _limit(hashed, size, self.options.sample_bytes)
            sampled = hashed <= self.limit
        if self.options.temperature is not None:
            self._check_column()
            code = np.concatenate([np.empty(0, "i4"), *codes])[sampled]
            sums = np.zeros(len(numbers), np.int64)
            np.add.at(sums, code, size[sampled])
            by_value = dict(zip(numbers, sums.tolist(), strict=True))
            self.weights = tempered(self.column or "", by_value, self.options.temperature)

    def _check_column(self) -> None:
        if self.column and not self._found_column:
            raise UsageError(f"no document has a column {self.column!r} to weigh by")

    def documents(self) -> Iterator[tuple[str, int]]:
        """Yield (text, weight times `scale`) for every document in the sample. Documents of weight
        0 are counted but not yielded."""
        for batch in self.batches():
            if self.limit is not None:
                data, offsets = _texts(batch)
                hashes = text_hashes(data, offsets, np.uint64(self.options.seed))
                batch = batch.filter(pa.array(hashes <= self.limit))
            texts = batch.column("text").to_pylist()
            values = self._values(batch) if self.column else [NO_VALUE] * len(texts)
            for text, value in zip(texts, values, strict=True):
                text = text or ""
                tally = self.read.setdefault(value, [0, 0])
                tally[0] += 1
                tally[1] += len(text.encode("utf-8")) if self.column else 0
                weight = self.weights.times(value) if self.weights else 1
                if weight:
                    yield text, weight
        self._check_column()
        if self.weights and self.read and not any(map(self.weights.times, self.read)):
            raise UsageError("weights: every document has weight 0")

    def sample(self) -> SampleDrawn | None:
        if (asked := self.options.sample_bytes) is None:
            return None
        return SampleDrawn(asked, self.options.seed, "hash of the text", *self.whole)

    def mixture(self) -> MixtureRead | None:
        if (weights := self.weights) is None:
            return None
        counted = {v: weights.times(v) * size for v, (_, size) in self.read.items()}
        whole = max(1, sum(counted.values()))
        values = {
            value: Share(
                weights.times(value) / weights.scale,
                documents,
                size,
                round(counted[value] / whole, 6),
            )
            for value, (documents, size) in sorted(self.read.items())
        }
        return MixtureRead(weights.column, self.options.temperature, values)

    def warnings(self) -> list[str]:
        """Return a warning for every value that has a weight but occurs in no document."""
        if self.weights is None:
            return []
        unmet = sorted(self.weights.by_value.keys() - self.read.keys())
        return [f"weights: no document has {self.weights.column} {value!r}" for value in unmet]


def _limit(hashes: np.ndarray, sizes: np.ndarray, most: int) -> np.uint64:
    order = np.argsort(hashes)
    ordered, ends = hashes[order], np.cumsum(sizes[order])
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    fitting = last[ends[last] <= most]
    if not len(fitting) or not ends[fitting[-1]]:
        raise UsageError(
            f"sample-bytes {most}: too few for the documents of this corpus, ask for at least"
            f" {ends[last][np.argmax(ends[last] > 0)]}"
        )
    return np.uint64(ordered[fitting[-1]])
