"""A Bloom filter stored in one file and read through a memory map.

File format: bytes that mark the kind of file; the header's length and its xxh3-64, each a
little-endian uint64; the header as JSON, padded with blanks to HEADER bytes; the blocks of all
slices as little-endian uint64 words.

If a filter is full, it gets another slice. The new slice is at least as large as all earlier ones
together, and its rate of false positives is TIGHTER times that of the previous slice (Almeida,
Baquero, Preguica and Hutchison 2007). False positives therefore stay below 1 / (1 - TIGHTER) = 1.2
times the requested rate, whatever the number of slices.

One process passes over all documents in order of arrival, and only this pass changes the filter.
The decisions therefore do not depend on the number of workers."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from curate.corpus.decisions import COLUMNS, Decided, completed
from curate.dedup.bloom import kernel
from curate.dedup.bloom.kernel import AHEAD, BLOCK_BITS, MOST_BLOCKS, insert_new, look_up, touch
from curate.documents.cutting import cut
from curate.documents.documents import Documents
from curate.documents.edits import Spans
from curate.text.lines import strip_space
from llmcurate.base.errors import UsageError
from llmcurate.base.kernels import njit
from llmcurate.base.settings import problem

if TYPE_CHECKING:
    from curate.corpus.sketches import Sketches


# The size of a blocked Bloom filter for a requested rate of false positives. The classical formula
# (1 - e^(-kn/m))^k, for n keys of k bits in m bits, assumes that bits are spread over the whole
# filter. In a blocked filter the number of keys per block varies, and crowded blocks add more false
# positives than sparse blocks save. The rate is therefore a mean over the Poisson distribution of
# that number (Putze et al. 2007, section 3).

MOST_PROBES = 32


def expected_rate(keys_a_block: float, probes: int) -> float:
    """Return the expected rate of false positives if blocks have `keys_a_block` keys on average."""
    if keys_a_block <= 0:
        return 0.0
    reach = 12 * math.sqrt(keys_a_block) + 40
    keys = np.arange(max(0, int(keys_a_block - reach)), int(keys_a_block + reach) + 1)
    log_factorial = np.array([math.lgamma(k + 1) for k in keys.tolist()])
    weight = np.exp(keys * math.log(keys_a_block) - keys_a_block - log_factorial)
    return float(np.sum(weight * _full(keys, probes)))


def _full(keys: np.ndarray, probes: int) -> np.ndarray:
    # Mean and variance of the share of set bits after `throws` draws of one of BLOCK_BITS bits.
    throws = keys * float(probes)
    miss, miss_both = 1 - 1 / BLOCK_BITS, 1 - 2 / BLOCK_BITS
    empty = miss**throws
    both = miss_both**throws
    variance = empty / BLOCK_BITS + both * (1 - 1 / BLOCK_BITS) - empty**2
    share = 1 - empty
    spread = np.divide(variance, share**2, out=np.zeros_like(share), where=share > 0)
    return np.minimum(1.0, share**probes * (1 + 0.5 * probes * (probes - 1) * spread))


@lru_cache(maxsize=64)
def best_load(rate: float) -> tuple[float, int]:
    """Return the best fill of a block for a rate of false positives: (load, probes). `load` is the
    largest average number of keys per block that keeps the rate at most `rate`. `probes` is the
    number of bits to set per key."""
    best = (0.0, 1)
    for probes in range(1, MOST_PROBES + 1):
        low, high = 0.0, float(BLOCK_BITS)
        for _ in range(60):
            middle = (low + high) / 2
            if expected_rate(middle, probes) > rate:
                high = middle
            else:
                low = middle
        if low > best[0]:
            best = (low, probes)
        elif low < best[0] * 0.9:
            break
    return best


def blocks_for(keys: int, rate: float) -> tuple[int, int]:
    """Return the number of blocks of a slice that holds `keys` keys at this rate of false
    positives, and the number of bits to set per key. Raises UsageError if the slice would exceed
    256 GiB."""
    load, probes = best_load(rate)
    blocks = max(1, math.ceil(keys / load)) if load > 0 else MOST_BLOCKS + 1
    if blocks > MOST_BLOCKS:
        raise UsageError(
            f"a Bloom filter of {keys:,} keys with {rate:g} false positives would exceed 256 GiB;"
            " raise false_positives or lower expected"
        )
    return blocks, probes


MAGIC = b"LLMCBLM\n"
HEADER = 16_384  # bytes before the blocks
BLOCK_BYTES = 64
TIGHTER = 1 / 6
PROBES = 1_000_000  # random keys with which the rate of false positives is measured
_FRONT = struct.Struct("<8sQQ")
_CHUNK = 1 << 24
_Count = Annotated[int, Field(ge=0)]


class Slice(BaseModel):
    """One slice of a filter: consecutive blocks."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    blocks: int = Field(ge=1, le=kernel.MOST_BLOCKS)
    probes: int = Field(ge=1, le=64)
    capacity: _Count  # keys that fit at the slice's rate of false positives
    inserted: _Count  # keys that were new to the slice
    rate: float = Field(gt=0, lt=1)  # of false positives


class Header(BaseModel):
    """The header of a filter file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: Literal[1] = 1
    hash: Literal["blocked512-mul"] = "blocked512-mul"
    keys: str  # what was hashed to 64 bits, and how
    seed: _Count
    rate: float = Field(gt=0, lt=1)  # the requested rate of false positives
    slices: list[Slice]
    parents: list[str]  # checksums of the filters from which this one was built
    checksum: str  # the xxh3-128 of the blocks


def read_header(path: Path) -> Header:
    """Read the header of a filter file. Raises UsageError if the file is not a whole filter."""
    try:
        with open(path, "rb") as file:
            front = file.read(HEADER)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise UsageError(f"{path}: cannot read the Bloom filter: {error.strerror}") from None
    if len(front) < HEADER or front[:8] != MAGIC:
        raise UsageError(f"{path} is not a Bloom filter of llmcurate")
    _, length, digest = _FRONT.unpack_from(front)
    text = front[_FRONT.size : _FRONT.size + length]
    if len(text) != length or xxhash.xxh3_64_intdigest(text) != digest:
        raise UsageError(f"{path}: the header of this Bloom filter is damaged; make it again")
    try:
        header = Header.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(
            f"{path} was made by another version of llmcurate ({problem(error)}); make this Bloom"
            " filter again"
        ) from None
    whole_size = HEADER + BLOCK_BYTES * sum(s.blocks for s in header.slices)
    if size != whole_size:
        raise UsageError(
            f"{path}: this Bloom filter has {size:,} bytes instead of {whole_size:,}; make it again"
        )
    if any(max(s.capacity, s.inserted) > BLOCK_BITS * s.blocks for s in header.slices):
        raise UsageError(f"{path}: a slice has more keys than bits; make this filter again")
    return header


class BloomFilter:
    """A Bloom filter over 64-bit keys, made of slices (smaller Bloom filters). The array `slices`
    (int64[n, 5]) describes each of the n slices in one row; kernel.py names its columns. The array
    `words` (uint64) holds the bits of all slices."""

    def __init__(self, path: Path, header: Header, mode: Literal["r", "r+"]) -> None:
        self.path, self.keys, self.seed, self.rate = path, header.keys, header.seed, header.rate
        self.parents = list(header.parents)
        self.checksum = header.checksum
        self._mode = mode
        self._rates = [s.rate for s in header.slices]
        self.slices = np.zeros((0, 5), np.int64)
        for s in header.slices:
            self._append(s.blocks, s.probes, s.capacity, s.inserted)
        self._map()

    @classmethod
    def create(cls, path: Path, keys: str, rate: float, seed: int = 0) -> BloomFilter:
        """Create an empty filter. `keys` and `rate` are as in the class `Header`."""
        with open(path, "wb") as file:
            file.truncate(HEADER)
        header = Header(keys=keys, seed=seed, rate=rate, slices=[], parents=[], checksum="")
        return cls(path, header, "r+")

    def _append(self, *numbers: int) -> None:
        first = int(self.slices[:, kernel.BLOCKS].sum())
        self.slices = np.vstack([self.slices, np.array([[first, *numbers]], np.int64)])

    def _map(self) -> None:
        count = int(self.slices[:, kernel.BLOCKS].sum()) * kernel.BLOCK_WORDS
        self.words: np.ndarray = np.zeros(0, np.uint64)
        if count:
            self.words = np.memmap(self.path, "<u8", self._mode, HEADER, (count,))

    @property
    def bytes(self) -> int:
        return int(self.slices[:, kernel.BLOCKS].sum()) * BLOCK_BYTES

    @property
    def capacity(self) -> int:
        """Number of keys that all slices together can hold."""
        return int(self.slices[:, kernel.CAPACITY].sum())

    @property
    def inserted(self) -> int:
        """Number of keys that were new to the filter when they were inserted."""
        return int(self.slices[:, kernel.INSERTED].sum())

    def reserve(self, keys: int) -> bool:
        """Add a slice if fewer than `keys` keys still fit. Return True if a slice was added."""
        spare = self.slices[:, kernel.CAPACITY] - self.slices[:, kernel.INSERTED]
        missing = max(1, keys) - int(np.maximum(spare, 0).sum())
        if missing <= 0:
            return False
        rate = self.rate * TIGHTER ** len(self.slices)
        capacity = max(missing, self.capacity)
        blocks, probes = blocks_for(capacity, rate)
        size = HEADER + self.bytes
        with open(self.path, "r+b") as file:
            # Reserve the space now: a full disk is an error here, but a fatal signal in the map.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), size, blocks * BLOCK_BYTES)
            else:
                file.truncate(size + blocks * BLOCK_BYTES)
        self._append(blocks, probes, capacity, 0)
        self._rates.append(rate)
        self._map()
        return True

    def append_from(self, path: Path) -> None:
        """Append the slices of the finished filter at `path`. Raises UsageError if that filter is
        damaged or has other kinds of keys."""
        header = read_header(path)
        if (header.keys, header.seed) != (self.keys, self.seed):
            raise UsageError(
                f"{path} is a Bloom filter of other keys: {header.keys}, not {self.keys}"
            )
        if not header.slices:
            return
        digest = xxhash.xxh3_128()
        with open(path, "rb") as old, open(self.path, "r+b") as new:
            old.seek(HEADER)
            new.seek(HEADER + self.bytes)
            while chunk := old.read(_CHUNK):
                digest.update(chunk)
                new.write(chunk)
        if digest.hexdigest() != header.checksum:
            raise UsageError(f"{path}: the blocks of this Bloom filter are damaged; make it again")
        for s in header.slices:
            self._append(s.blocks, s.probes, s.capacity, s.inserted)
            self._rates.append(s.rate)
        self.parents += [p for p in (*header.parents, header.checksum) if p not in self.parents]
        self._map()

    def count(self, keys: np.ndarray) -> int:
        """Return the number of keys (uint64[n]) that the filter seems to contain."""
        return int(kernel.count_hits(self.words, self.slices, keys))

    def fill(self) -> float:
        return int(kernel.count_bits(self.words)) / (8 * self.bytes) if self.bytes else 0.0

    def measured_rate(self, probes: int = PROBES) -> float:
        """Return the share of false positives among `probes` random keys. A random key is almost
        certainly new: a filter holds few of the 2^64 possible keys."""
        keys = np.random.default_rng((self.seed, PROBES)).integers(0, 2**64, probes, np.uint64)
        return self.count(keys) / probes

    def modelled_rate(self) -> float:
        """Return the expected rate of false positives with the present number of keys."""
        wrong = 1.0
        for _, blocks, probes, _, inserted in self.slices.tolist():
            wrong *= 1 - expected_rate(inserted / blocks, probes)
        return 1 - wrong

    def finish(self) -> None:
        """Write the header, which completes the file."""
        digest = xxhash.xxh3_128()
        view = self.words.view(np.uint8)
        for at in range(0, len(view), _CHUNK):
            digest.update(view[at : at + _CHUNK])  # type: ignore[arg-type]
        self.checksum = digest.hexdigest()
        slices = [
            Slice(blocks=int(b), probes=int(p), capacity=int(c), inserted=int(n), rate=rate)
            for (_, b, p, c, n), rate in zip(self.slices, self._rates, strict=True)
        ]
        header = Header(
            keys=self.keys,
            seed=self.seed,
            rate=self.rate,
            slices=slices,
            parents=self.parents,
            checksum=self.checksum,
        )
        text = json.dumps(header.model_dump()).encode()
        if len(text) > HEADER - _FRONT.size:
            raise UsageError(
                f"{self.path}: this Bloom filter has grown to {len(slices)} slices, which is too"
                " many; make a new one with a larger `expected`"
            )
        if isinstance(self.words, np.memmap):
            self.words.flush()
        front = _FRONT.pack(MAGIC, len(text), xxhash.xxh3_64_intdigest(text)) + text
        with open(self.path, "r+b") as file:
            file.write(front.ljust(HEADER))


def grown_from(paths: list[Path]) -> list[Path]:
    """Return the paths without redundant filters. A filter is redundant if it repeats an earlier
    one, or if another filter of `paths` was built from it."""
    headers = [read_header(p) for p in paths]
    inside = {parent for header in headers for parent in header.parents}
    checksums: set[str] = set()
    outermost = []
    for path, header in zip(paths, headers, strict=True):
        if header.checksum not in inside and header.checksum not in checksums:
            outermost.append(path)
        checksums.add(header.checksum)
    return outermost


CUT = "seen_paragraph"  # the name of the rule that cuts passages
# Documents per batch: a single book may hold a million keys.
ROWS = 500
READ = ["keys", "count", "start", "end"]
# A filter does not know which documents set its bits, so clusters and partners stay empty.
SCHEMA = pa.schema([*COLUMNS, ("overlap", pa.float64())])


@njit(cache=True, nogil=True)
def check_in_order(words, slices, key_rows, keys, unit_rows, count, threshold, hits, seen):
    """Look up all keys, one unit (a paragraph or document) after the other. If the share of a
    unit's keys that were in the filter before is at most `threshold`, insert its keys. Unit u has
    count[u] of the keys, and seen[u] is set to the number that were in the filter before. Ignore
    the return value; it only keeps the compiler from removing the loads of memory ahead of use."""
    read = np.uint64(0)
    ahead = np.int64(0)
    for r in range(len(key_rows) - 1):
        at = key_rows[r]
        for u in range(unit_rows[r], unit_rows[r + 1]):
            stop = at + count[u]
            if stop > ahead:
                reach = min(np.int64(len(keys)), stop + AHEAD)
                read |= touch(words, slices, keys, ahead, reach)
                ahead = reach
            seen[u] = look_up(words, slices, keys, at, stop, hits)
            if seen[u] / count[u] <= threshold:
                insert_new(words, slices, keys, at, stop, hits)
            at = stop
    return read


def _lists(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    offsets = column.offsets.to_numpy()
    return offsets - offsets[0], column.values.to_numpy()[offsets[0] : offsets[-1]]


def own_batches(sketches: Sketches, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the keys of this run's documents in batches, in order. Documents of earlier runs are
    skipped, because the filter already holds their keys."""
    files = tuple(f for f in sketches.files if not f.corpus)
    return replace(sketches, files=files).batches(columns, ROWS)


def count_keys(sketches: Sketches) -> int:
    return sum(int(_lists(b.column(0))[1].sum()) for b in own_batches(sketches, ["count"]))


@dataclass
class Tally:
    """Counts of one pass over documents."""

    keys: int = 0  # read
    documents: int = 0  # removed
    passages: int = 0  # removed
    grown: int = 0  # slices added to the filter


def decide(
    sketches: Sketches, bloom: BloomFilter, threshold: float, documents: bool, method: str
) -> Tally:
    """Write the decisions, and insert the keys of kept text into the filter. A unit (paragraph or
    document) is removed if more than a share `threshold` of its keys was seen before; with
    `documents`, the same rule also removes whole documents. Every document with a key that was seen
    before gets one row: `overlap` is the share of such keys, and `drop` is true if the document is
    removed. Each passage cut from a kept document gets another row."""
    tally = Tally()
    with pq.ParquetWriter(sketches.decisions, SCHEMA) as writer:
        for batch in own_batches(sketches, READ):
            writer.write_table(_batch(batch, bloom, threshold, documents, method, tally))
    return tally


def _batch(
    batch: pa.RecordBatch,
    bloom: BloomFilter,
    threshold: float,
    documents: bool,
    method: str,
    tally: Tally,
) -> pa.Table:
    key_rows, keys = _lists(batch.column("keys"))
    unit_rows, count = _lists(batch.column("count"))
    tally.keys += len(keys)
    tally.grown += bloom.reserve(len(keys))
    hits = np.zeros(len(keys), np.uint8)
    seen = np.zeros(len(count), np.int64)
    layout = key_rows, keys, unit_rows, count
    check_in_order(bloom.words, bloom.slices, *layout, threshold, hits, seen)
    total = np.concatenate([[0], np.cumsum(seen)])
    total = total[unit_rows[1:]] - total[unit_rows[:-1]]
    all_keys = np.diff(key_rows)
    share = np.divide(total, all_keys, out=np.zeros(len(batch)), where=all_keys > 0)
    dropped = documents & (share > threshold)
    rows = np.repeat(np.arange(len(batch)), np.diff(unit_rows))
    cut = np.flatnonzero((seen / count > threshold) & ~dropped[rows])
    recorded = np.flatnonzero((total > 0) | dropped)
    tally.documents += int(dropped.sum())
    tally.passages += len(cut)
    spans = [_lists(batch.column(c))[1][cut] for c in ("start", "end")]
    # A document's own row, then its passages.
    at = np.concatenate([recorded, rows[cut]])
    order = np.argsort(at, kind="stable")
    passage = np.repeat([False, True], [len(recorded), len(cut)])
    drop = np.concatenate([dropped[recorded], np.ones(len(cut), np.bool_)])
    similar = np.concatenate([share[recorded], seen[cut] / count[cut]])
    spans = [np.concatenate([np.zeros(len(recorded), np.int64), s]) for s in spans]
    columns = {
        "part": batch.column("part").take(pa.array(at[order])),
        "n": batch.column("n").take(pa.array(at[order])),
        "drop": pa.array(drop[order]),
        "id": batch.column("id").take(pa.array(at[order])),
        "similarity": pa.array(similar[order], mask=~drop[order]),
        "method": pa.repeat(pa.scalar(method), len(at)),
        "span_start": pa.array(spans[0][order], mask=~passage[order]),
        "span_end": pa.array(spans[1][order], mask=~passage[order]),
        "overlap": pa.array(share[at[order]]),
    }
    return pa.Table.from_batches([completed(SCHEMA, len(at), columns)])


def report(
    bloom: BloomFilter, tally: Tally, before: int, unit: str, expected: int | None
) -> Decided:
    """Return the counts, notes and false-positive curve of this run for its file run.json. `before`
    is the number of keys inserted by earlier runs. `unit` is the plural name of the filter's keys,
    such as `n-grams`."""
    asked = bloom.rate
    rate, fill, new = bloom.measured_rate(), bloom.fill(), bloom.inserted - before
    measured = f"{rate:.4g}" if rate else f"none of {PROBES:,}"
    slices = len(bloom.slices)
    notes = [
        f"The filter holds {bloom.inserted:,} {unit} ({new:,} of this run's {tally.keys:,}) in"
        f" {bloom.bytes:,} bytes; {fill:.1%} of its bits are set.",
        f"False positives: {asked:g} requested for a full filter, {measured} measured with"
        f" {PROBES:,} random keys, {bloom.modelled_rate():.4g} expected at this fill.",
        "A Bloom filter does not record which document a key came from, so decisions name no"
        " partner.",
    ]
    if before:
        notes.append(f"{before:,} of its {unit} come from earlier runs.")
    if expected is not None and tally.grown:
        notes.append(
            f"There were more {unit} than the {expected:,} expected: the filter has grown to"
            f" {slices} slices, so it is larger and slower than a filter made for all of them."
        )
    removed = tally.documents + tally.passages
    counts = {
        "clusters": 0,
        "members": removed,
        "dropped": removed,
        "documents": tally.documents,
        "passages": tally.passages,
        "keys": tally.keys,
        "inserted": new,
        "slices": slices,
        "filter_bytes": bloom.bytes,
        "false_positives": rate,
        "fill": fill,
    }
    return Decided(counts, notes)


@njit(cache=True, nogil=True)
def blank_without(data, offsets, rows, start, end):
    """Return bool[texts]: True where a cut text has only white space left. Text r is
    data[offsets[r]:offsets[r + 1]]. Span s, which is cut, is the bytes start[s]:end[s] of text
    rows[s]. Spans are in order. A text without spans gives False."""
    blank = np.zeros(len(offsets) - 1, np.bool_)
    s = 0
    while s < len(rows):
        r = rows[s]
        a = offsets[r]
        empty = True
        while s < len(rows) and rows[s] == r:
            if empty:
                first, stop = strip_space(data, a, offsets[r] + start[s])
                empty = first >= stop
            a = offsets[r] + end[s]
            s += 1
        if empty:
            first, stop = strip_space(data, a, offsets[r + 1])
            empty = first >= stop
        blank[r] = empty
    return blank


def drop_seen(docs: Documents, at: np.ndarray, decisions: pa.Table, limit: float) -> Documents:
    """Apply the decisions to a batch of documents: drop documents, and cut passages from the
    others. Decision k is about document at[k]. Each document is annotated with `overlap`, its share
    of keys seen before. `limit` is the threshold to record with each drop."""
    overlap = np.full(len(docs), np.nan)
    overlap[at] = decisions["overlap"].to_numpy()
    docs = docs.annotate("overlap", pa.array(overlap, mask=np.isnan(overlap)))
    drop = decisions["drop"].to_numpy(zero_copy_only=False)
    passage = decisions["span_start"].is_valid().to_numpy(zero_copy_only=False)
    above = np.zeros(len(docs), np.bool_)
    above[at[drop & ~passage]] = True
    docs = docs.drop(above, "seen_before", overlap, limit)
    spans = pa.array(passage)
    rows = at[passage]
    start = decisions["span_start"].filter(spans).to_numpy()
    end = decisions["span_end"].filter(spans).to_numpy()
    blank = blank_without(*docs.buffers(), rows, start, end)
    docs = docs.drop(blank, "nothing_left", overlap, limit)
    in_kept = ~blank[rows]
    rows, start, end = rows[in_kept], start[in_kept], end[in_kept]
    zeros = np.zeros(len(rows), np.uint8)
    return cut(docs, Spans(rows, start, end, zeros, (CUT,), zeros))
