"""A Bloom filter in a file of its own format, used through a memory map.

The file: the magic; the length of the header and its xxh3-64, little-endian uint64 each; the header
as JSON, padded with blanks to HEADER bytes; the blocks of all slices, little-endian uint64 words.
A filter that is full gets a further slice, at least as large as all before it and with a rate
TIGHTER times as high (Almeida, Baquero, Preguica and Hutchison 2007), so that with any number of
slices false positives stay below 1 / (1 - TIGHTER) = 1.2 times the rate asked for.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import xxhash
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from curate.dedup.bloom import kernel
from curate.dedup.bloom.kernel import BLOCK_BITS, MOST_BLOCKS
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import problem

# The size of a blocked Bloom filter for a wanted rate of false positives: the classical formula (1
# - e^(-kn/m))^k holds for bits spread over the whole filter. In blocks the number of keys a block
# holds varies, and full blocks answer wrongly more often than empty ones do rightly, so the rate is
# a mean over the Poisson distribution of that number (Putze et al. 2007, section 3). This file
# computes that mean and searches the size for which it is what was asked.

MOST_PROBES = 32


def expected_rate(keys_a_block: float, probes: int) -> float:
    """False positives of a slice whose blocks hold that many keys in the mean."""
    if keys_a_block <= 0:
        return 0.0
    reach = 12 * math.sqrt(keys_a_block) + 40
    keys = np.arange(max(0, int(keys_a_block - reach)), int(keys_a_block + reach) + 1)
    log_factorial = np.array([math.lgamma(k + 1) for k in keys.tolist()])
    weight = np.exp(keys * math.log(keys_a_block) - keys_a_block - log_factorial)
    return float(np.sum(weight * _full(keys, probes)))


def _full(keys: np.ndarray, probes: int) -> np.ndarray:
    """The chance that all probes of an absent key hit set bits of a block with `keys` keys."""
    # Mean and variance of the share of set bits after `throws` throws at BLOCK_BITS bits.
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
    """(keys a block, probes): the most keys a block may hold in the mean for that rate."""
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
    """(blocks, probes) of a slice that holds so many keys at that rate.

    UsageError where no slice is large enough.
    """
    load, probes = best_load(rate)
    blocks = max(1, math.ceil(keys / load)) if load > 0 else MOST_BLOCKS + 1
    if blocks > MOST_BLOCKS:
        raise UsageError(
            f"a Bloom filter of {keys:,} keys with {rate:g} false positives is larger than 256 GiB;"
            " raise false_positives or lower expected"
        )
    return blocks, probes


MAGIC = b"LLMCBLM\n"
HEADER = 16_384  # bytes before the blocks
BLOCK_BYTES = 64
TIGHTER = 1 / 6
PROBES = 1_000_000  # random keys that the rate is measured with
_FRONT = struct.Struct("<8sQQ")
_CHUNK = 1 << 24
_Count = Annotated[int, Field(ge=0)]


class Slice(BaseModel):
    """A run of blocks. capacity: keys it holds at its rate; inserted: keys that set a bit."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    blocks: int = Field(ge=1, le=kernel.MOST_BLOCKS)
    probes: int = Field(ge=1, le=64)
    capacity: _Count
    inserted: _Count
    rate: float = Field(gt=0, lt=1)


class Header(BaseModel):
    """The header of a filter's file. keys: what was hashed to 64 bits and how; rate: false
    positives asked for; parents: checksums of the filters that it grew from; checksum: xxh3-128 of
    the blocks."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: Literal[1] = 1
    hash: Literal["blocked512-mul"] = "blocked512-mul"
    keys: str
    seed: _Count
    rate: float = Field(gt=0, lt=1)
    slices: list[Slice]
    parents: list[str]
    checksum: str


def read_header(path: Path) -> Header:
    """The header of a filter's file; UsageError in one line where it is none or not whole."""
    try:
        with open(path, "rb") as file:
            front = file.read(HEADER)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise UsageError(f"{path}: cannot read the Bloom filter: {error.strerror}") from None
    if len(front) < HEADER or front[:8] != MAGIC:
        raise UsageError(f"{path} is no Bloom filter of llmcurate")
    _, length, digest = _FRONT.unpack_from(front)
    text = front[_FRONT.size : _FRONT.size + length]
    if len(text) != length or xxhash.xxh3_64_intdigest(text) != digest:
        raise UsageError(f"{path}: the header of this Bloom filter is damaged; make it again")
    try:
        header = Header.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(
            f"{path} is a Bloom filter of another version of llmcurate ({problem(error)}); make it"
            " again"
        ) from None
    whole_size = HEADER + BLOCK_BYTES * sum(s.blocks for s in header.slices)
    if size != whole_size:
        raise UsageError(
            f"{path}: this Bloom filter has {size:,} bytes instead of {whole_size:,}; make it again"
        )
    if any(max(s.capacity, s.inserted) > BLOCK_BITS * s.blocks for s in header.slices):
        raise UsageError(f"{path}: one of its slices has more keys than bits; make it again")
    return header


class BloomFilter:
    """A filter over 64-bit keys. slices: int64[slices, 5] as in bloom_kernel; words: uint64[]."""

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
        """A filter without a slice in a new file."""
        with open(path, "wb") as file:
            file.truncate(HEADER)
        header = Header(keys=keys, seed=seed, rate=rate, slices=[], parents=[], checksum="")
        return cls(path, header, "r+")

    @classmethod
    def open(cls, path: Path) -> BloomFilter:
        """A finished filter, for looking up; UsageError where the file is not a whole one."""
        return cls(path, read_header(path), "r")

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
        """Of the blocks."""
        return int(self.slices[:, kernel.BLOCKS].sum()) * BLOCK_BYTES

    @property
    def capacity(self) -> int:
        """Keys that all slices together hold."""
        return int(self.slices[:, kernel.CAPACITY].sum())

    @property
    def inserted(self) -> int:
        """Keys that set a bit."""
        return int(self.slices[:, kernel.INSERTED].sum())

    @property
    def free_keys(self) -> int:
        """Keys that still fit."""
        spare = self.slices[:, kernel.CAPACITY] - self.slices[:, kernel.INSERTED]
        return int(np.maximum(spare, 0).sum())

    def reserve(self, keys: int) -> bool:
        """Adds a slice if fewer than that many keys fit; returns whether it did."""
        missing = max(1, keys) - self.free_keys
        if missing <= 0:
            return False
        rate = self.rate * TIGHTER ** len(self.slices)
        capacity = max(missing, self.capacity)
        blocks, probes = blocks_for(capacity, rate)
        self._extend(blocks)
        self._append(blocks, probes, capacity, 0)
        self._rates.append(rate)
        self._map()
        return True

    def _extend(self, blocks: int) -> None:
        """Reserves the bytes, so that a full disk is an error here and no signal later."""
        size = HEADER + self.bytes
        with open(self.path, "r+b") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), size, blocks * BLOCK_BYTES)
            else:
                file.truncate(size + blocks * BLOCK_BYTES)

    def take_over(self, path: Path) -> None:
        """Appends the slices of a finished filter; UsageError where its blocks are damaged or its
        keys are others."""
        header = read_header(path)
        if (header.keys, header.seed) != (self.keys, self.seed):
            raise UsageError(f"{path} is a Bloom filter of other keys ({header.keys})")
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

    def add(self, keys: np.ndarray) -> np.ndarray:
        """Test-and-insert of keys: uint64[n], in order: bool[n], whether each was there before."""
        hits = np.zeros(len(keys), np.uint8)
        self.reserve(len(keys))
        kernel.add_keys(self.words, self.slices, keys, hits)
        return hits.view(np.bool_)

    def count(self, keys: np.ndarray) -> int:
        """Number of the keys: uint64[n] that seem to be in the filter."""
        return int(kernel.count_hits(self.words, self.slices, keys))

    def fill(self) -> float:
        """The share of set bits."""
        return int(kernel.count_bits(self.words)) / (8 * self.bytes) if self.bytes else 0.0

    def measured_rate(self, probes: int = PROBES) -> float:
        """False positives among random keys, of which none was inserted (all but surely: of 2^64
        possible ones a filter holds few)."""
        keys = np.random.default_rng((self.seed, PROBES)).integers(0, 2**64, probes, np.uint64)
        return self.count(keys) / probes

    def modelled_rate(self, inserted: Iterable[float] | None = None) -> float:
        """The rate that is expected with so many keys in each slice (by default as it is)."""
        wrong = 1.0
        counts = self.slices[:, kernel.INSERTED] if inserted is None else inserted
        for keys, row in zip(counts, self.slices, strict=True):
            load = float(keys) / int(row[kernel.BLOCKS])
            wrong *= 1 - expected_rate(load, int(row[kernel.PROBES]))
        return 1 - wrong

    def _chunks(self) -> Iterator[Any]:
        view = self.words.view(np.uint8)
        for i in range(0, len(view), _CHUNK):
            yield view[i : i + _CHUNK]

    def finish(self) -> None:
        """Writes the header; the file is then complete."""
        digest = xxhash.xxh3_128()
        for chunk in self._chunks():
            digest.update(chunk)
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
                f"{self.path}: this Bloom filter grew {len(slices)} times, which is too often;"
                " start a new one with a larger `expected`"
            )
        if isinstance(self.words, np.memmap):
            self.words.flush()
        front = _FRONT.pack(MAGIC, len(text), xxhash.xxh3_64_intdigest(text)) + text
        with open(self.path, "r+b") as file:
            file.write(front.ljust(HEADER))


def grown_from(paths: list[Path]) -> list[Path]:
    """The filters among `paths` that are not already inside another of them."""
    headers = [read_header(p) for p in paths]
    inside = {parent for header in headers for parent in header.parents}
    checksums: set[str] = set()
    outermost = []
    for path, header in zip(paths, headers, strict=True):
        if header.checksum not in inside and header.checksum not in checksums:
            outermost.append(path)
        checksums.add(header.checksum)
    return outermost
