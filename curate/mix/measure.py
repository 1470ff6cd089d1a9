"""Measure the sources of a mix: read them once, and choose the documents of each epoch.

Reading writes one small row per document to a parquet file: stratum (number of a group and score
bucket), key, size, bytes and hash of the text. So documents are chosen without the texts in memory.
The decoded documents also go to disk, so writing the mix does not read the sources again. Sizes are
tokens, bytes or documents. Tokens are counted by a tokenizer; without one they are estimated as
bytes / 4.

The repetitions and positions of a document depend only on seed, source and id. An epoch is all
documents of a source once, ordered by 64-bit keys. If a source has E epochs, a document's copy in
epoch e (from 0) is placed at (e + k) / E of the mix, where k is the document's key in this epoch,
as a fraction in [0, 1). So an epoch is complete before the next one begins. The first four bits of
a key are the same in every epoch, the others are drawn anew. So a document stays in the same
sixteenth of each epoch, and its repetitions are at least 15/16 of an epoch apart, but its
neighbours change from epoch to epoch. A partial epoch takes the documents with the smallest keys.
All sources are interleaved in this way, so each keeps its share in every stretch of the mix, up to
the noise of a random order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.mix.design import Key, Strata
from curate.mix.sources import SOURCE, Source
from curate.text.buffers import as_large_string, text_buffers
from llmcurate.base.disk.parquet_writer import writing
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from curate.mix.spill import Copy


BYTES_A_TOKEN = 4  # estimate without a tokenizer, as in the report (inspect/report/page.py)
Size = Callable[[np.ndarray, np.ndarray], np.ndarray]  # data, offsets -> int64[rows]


def sizes_in(unit: str, tokenizer: Path | None = None) -> Size:
    """Return the function that measures documents in a unit, by their texts (uint8[bytes]) and
    offsets (int64[rows + 1]). Raises UsageError if the tokenizer cannot be used."""
    if unit == "documents":
        return lambda data, offsets: np.ones(len(offsets) - 1, np.int64)
    if unit == "bytes":
        return lambda data, offsets: np.diff(offsets)
    if tokenizer is None:  # rounded, so that the sum is about bytes / 4
        return lambda data, offsets: (np.diff(offsets) + BYTES_A_TOKEN // 2) // BYTES_A_TOKEN
    from llmcurate.base.errors import LlmcurateError
    from tokenize_kit.encode.vocabulary import open_vocabulary

    if tokenizer.is_dir():
        tokenizer = tokenizer / "tokenizer.json"
    try:
        encode = open_vocabulary(tokenizer).encode
    except LlmcurateError as error:
        raise UsageError(f"mix: {error}") from None
    return lambda data, offsets: encode(data, offsets.copy())[1]


ROWS = 200_000


@dataclass
class Measured:
    """The measured documents."""

    path: Path  # file with one row per document
    strata: Strata
    documents: np.ndarray  # int64[strata]: number
    sizes: np.ndarray  # int64[strata]: in the unit of the mix
    bytes: np.ndarray  # int64[strata]: of text

    def keyed(self, values: np.ndarray) -> dict[Key, int]:
        return {key: int(values[number]) for key, number in self.strata.keys.items()}

    def rows(self, *columns: str) -> Iterator[list[np.ndarray]]:
        """Yield the named columns of all documents in reading order, up to ROWS at a time."""
        with pq.ParquetFile(self.path, pre_buffer=False) as file:
            for batch in file.iter_batches(ROWS, columns=list(columns), use_threads=False):
                yield [batch[name].to_numpy(zero_copy_only=False) for name in columns]


class Rows:
    """Columns that arrive in batches and are taken in pieces of any length."""

    def __init__(self, parts: Iterator[list[np.ndarray]]) -> None:
        self._parts, self._left = parts, next(parts, [])

    def take(self, count: int) -> list[np.ndarray]:
        pieces = []
        while count:
            if not len(self._left[0]):
                self._left = next(self._parts)
            pieces.append([column[:count] for column in self._left])
            self._left = [column[count:] for column in self._left]
            count -= len(pieces[-1][0])
        return [np.concatenate(columns) for columns in zip(*pieces, strict=True)]


def text_hashes(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return uint8[rows, 16]: the xxh3-128 of each text. Exact deduplication has the same hashes,
    but its module loads numba, which takes longer than hashing a gigabyte."""
    from xxhash import xxh3_128_digest

    view = data.data
    joined = b"".join(xxh3_128_digest(view[a:z]) for a, z in pairwise(offsets.tolist()))
    return np.frombuffer(joined, np.uint8).reshape(-1, 16)


def measure(
    sources: list[Source],
    strata: Strata,
    sizes: Size,
    seed: int,
    path: Path,
    hashed: bool,
    copy: Copy | None = None,
) -> Measured:
    """Read all sources once and write a file with one row of measures per document of the mix
    (`strata` leaves some out, for example by date). `hashed` adds a hash of the text. The same
    documents are added to `near` and `copy`, if given; `copy` also gets the name of the source."""
    from tokenize_kit.shards.shuffle import keys as id_keys

    sums: list[np.ndarray] = []
    strata.begin()
    with writing(path) as writer:
        nothing = np.empty(0, np.int64)
        writer.write(_rows(nothing, nothing, nothing, nothing, None))
        for source in sources:
            for batch in source.read():
                if not batch.num_rows:
                    continue
                number = strata.of(source.name, batch)
                data, offsets = text_buffers(as_large_string(batch["text"]))
                counted = sizes(data, offsets)
                length = np.diff(offsets)
                key = id_keys(batch["id"], seed_of(source.name, seed))
                hashes = text_hashes(data, offsets) if hashed else None
                inside = number >= 0
                if not inside.all():
                    number, key = number[inside], key[inside]
                    counted, length = counted[inside], length[inside]
                    hashes = hashes[inside] if hashes is not None else None
                    batch = batch.filter(pa.array(inside))
                if copy is not None and batch.num_rows:
                    named = pa.repeat(source.name, batch.num_rows)
                    copy.add(pa.Table.from_batches([batch]).append_column(SOURCE, named))
                strata_count = len(strata.keys)
                sums.append(_sums(number, strata_count, counted, length))
                writer.write(_rows(number, key, counted, length, hashes))
    if copy is not None:
        copy.close()
    strata_count = len(strata.keys)
    total = np.zeros((3, strata_count), np.int64)
    for batch_sums in sums:
        total[:, : batch_sums.shape[1]] += batch_sums
    return Measured(path, strata, *total)


def _sums(number: np.ndarray, strata_count: int, *values: np.ndarray) -> np.ndarray:
    totals = np.zeros((3, strata_count), np.int64)
    np.add.at(totals[0], number, 1)
    for row, value in enumerate(values, 1):
        np.add.at(totals[row], number, value)
    return totals


def _rows(
    number: np.ndarray,
    key: np.ndarray,
    size: np.ndarray,
    length: np.ndarray,
    hashes: np.ndarray | None,
) -> pa.Table:
    kind = pa.binary(16)
    if hashes is None:
        text = pa.nulls(len(number), kind)
    else:
        flat = pa.py_buffer(np.ascontiguousarray(hashes))
        text = pa.FixedSizeBinaryArray.from_buffers(kind, len(number), [None, flat])
    return pa.table(
        {
            "stratum": pa.array(number, pa.int32()),
            "key": pa.array(key, pa.uint64()),
            "size": pa.array(size, pa.int64()),
            "bytes": pa.array(length, pa.int64()),
            "hash": text,
        }
    )


BLOCK = np.uint64(60)  # bits drawn anew in every epoch; the other four keep repetitions apart
_GAMMA = 0x9E3779B97F4A7C15  # increment of SplitMix64 (Steele et al. 2014)
_ONE = 2.0**-64


def seed_of(source: str, seed: int) -> int:
    """Return the seed for a source's ids, so that equal ids of two sources get independent keys."""
    import xxhash

    return xxhash.xxh3_64_intdigest(source.encode("utf-8", "surrogatepass"), seed)


def keys(base: np.ndarray, epoch: int) -> np.ndarray:
    """Return uint64[rows]: the documents' keys in an epoch. `base` has their keys in epoch 0."""
    if epoch == 0:
        return base
    z = base + np.uint64(_GAMMA * epoch % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (base >> BLOCK << BLOCK) | (z >> np.uint64(64 - int(BLOCK)))


def positions(key: np.ndarray, epoch: int, epochs: float) -> np.ndarray:
    """Return float64[rows] in [0, 1): the place in the mix of each document of one epoch of a
    source, (epoch + key) / epochs. `key`: uint64[rows], the documents' random sort keys in this
    epoch, taken as fractions. `epochs`: the number of epochs of the source in the mix."""
    return np.minimum((epoch + key * _ONE) / epochs, np.nextafter(1.0, 0.0))


_BITS = 12  # sizes are first summed by this many leading bits of the key, to bound memory


@dataclass
class EpochPlan:
    """The documents that the mix takes, per stratum. `full` counts complete epochs. The next epoch
    is partial: it takes the documents with a key below `cut`, and the first `ties` documents with
    the key `cut`. If `cut` and `ties` are 0, it takes no documents."""

    full: np.ndarray  # int64
    cut: np.ndarray  # uint64
    ties: np.ndarray  # int64

    @property
    def epochs(self) -> np.ndarray:
        """The number of epochs of each stratum in the mix: float64[strata]."""
        part = np.array([int(cut) * _ONE for cut in self.cut], np.float64)
        return np.maximum(self.full + part, np.finfo(np.float64).tiny)


class PartialEpoch:
    """Selects documents of incomplete last epochs. Each pass over the corpus needs a new object."""

    def __init__(self, chosen: EpochPlan) -> None:
        self.chosen, self._ties = chosen, chosen.ties.copy()

    def last(self, number: np.ndarray, key: np.ndarray) -> np.ndarray:
        """Return bool[rows]: True for a document in the incomplete last epoch of its stratum.
        `number` is int64[rows], each document's stratum. `key` is uint64[rows], each document's
        sort key in that epoch (keys differ from epoch to epoch)."""
        taken = key < self.chosen.cut[number]
        if self._ties.any():
            for row in np.flatnonzero((key == self.chosen.cut[number]) & (self._ties[number] > 0)):
                stratum = number[row]
                if self._ties[stratum] > 0:
                    self._ties[stratum] -= 1
                    taken[row] = True
        return taken


def last_keys(base: np.ndarray, full: np.ndarray) -> np.ndarray:
    """Return uint64[rows]: the documents' random sort keys in the last epoch, which takes only some
    documents, those with the smallest keys. `base`: uint64[rows], the keys in epoch 0. `full`:
    int64[rows], the number of complete epochs before the last one."""
    result = base.copy()
    for epoch in np.unique(full).tolist():
        of_epoch = full == epoch
        result[of_epoch] = keys(base[of_epoch], int(epoch))
    return result


def choose(measured: Measured, quota: np.ndarray) -> EpochPlan:
    """Choose documents of each stratum whose total size is nearest to its quota. `quota`
    (int64[strata]) is in the unit of the mix. A stratum is off by at most half a document; it is
    exact if the unit is documents."""
    size = np.maximum(measured.sizes, 1)
    full = np.where(measured.sizes > 0, quota // size, 0)
    remainder = np.where(measured.sizes > 0, quota - full * size, 0)
    chosen = EpochPlan(full, np.zeros(len(full), np.uint64), np.zeros(len(full), np.int64))
    open_ = np.flatnonzero(remainder)
    if not len(open_):
        return chosen
    row_of = np.full(len(full), -1)
    row_of[open_] = np.arange(len(open_))
    sums = np.zeros(len(open_) << _BITS, np.int64)
    for number, base, weight in measured.rows("stratum", "key", "size"):
        open_rows = row_of[number] >= 0
        number, base, weight = number[open_rows], base[open_rows], weight[open_rows]
        first = last_keys(base, full[number]) >> np.uint64(64 - _BITS)
        np.add.at(sums, (row_of[number] << _BITS) + first.astype(np.int64), weight)
    ends = np.cumsum(sums.reshape(len(open_), 1 << _BITS), axis=1)
    crossed = np.array([np.searchsorted(e, remainder[s]) for e, s in zip(ends, open_, strict=True)])
    before = np.where(crossed > 0, ends[np.arange(len(open_)), np.maximum(crossed - 1, 0)], 0)
    near_keys: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in open_]
    for number, base, weight in measured.rows("stratum", "key", "size"):
        row = row_of[number]
        open_rows = row >= 0
        row, number, base, weight = (x[open_rows] for x in (row, number, base, weight))
        key = last_keys(base, full[number])
        near = (key >> np.uint64(64 - _BITS)).astype(np.int64) == crossed[row]
        for index in np.unique(row[near]).tolist():
            selected = near & (row == index)
            near_keys[index].append((key[selected], weight[selected]))
    for index, stratum in enumerate(open_.tolist()):
        key = np.concatenate([k for k, _ in near_keys[index]])
        weight = np.concatenate([w for _, w in near_keys[index]])
        _cut(
            chosen,
            stratum,
            key,
            weight,
            int(remainder[stratum] - before[index]),
            int(crossed[index]),
        )
    return chosen


def _cut(
    chosen: EpochPlan,
    stratum: int,
    key: np.ndarray,
    weight: np.ndarray,
    missing: int,
    beginning: int,
) -> None:
    order = np.argsort(key, kind="stable")
    key = key[order]
    reached = np.concatenate([[0], np.cumsum(weight[order])])
    count = int(np.argmin(np.abs(reached - missing)))
    if count < len(key):
        chosen.cut[stratum] = key[count]
        chosen.ties[stratum] = count - np.searchsorted(key, key[count])
    elif beginning + 1 < 1 << _BITS:
        chosen.cut[stratum] = (beginning + 1) << (64 - _BITS)
    else:  # the documents of the whole epoch come nearest
        chosen.full[stratum] += 1
