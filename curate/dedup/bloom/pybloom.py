"""Files of pybloom-live 4.0 (`BloomFilter.tofile`): read, written, and asked without the package.

For exchange of small filters over strings, such as URLs; hashing is done in Python, a key at a
time. The file: `<dQQQQ` (error rate, slices, bits a slice, capacity, count), then the bits, the
first one lowest in its byte. A key sets one bit in each slice: the digest of salt + key, for as
many salts as it takes, cut into numbers modulo the bits of a slice. The hash depends on how many
bits of digest are needed: xxh3-128, sha1, sha256, sha384 or sha512. Versions 3.0 and 3.1 took md5
where 4.0 takes xxh3-128; a file does not say which version made it.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from curate.disk.atomic import replacing
from curate.errors import UsageError

_FRONT = struct.Struct("<dQQQQ")
MOST_BYTES = 1 << 30
MOST_SLICES = 64


def _hash_of(digest_bits: int) -> Callable[..., Any]:
    for most, made in ((128, xxhash.xxh3_128), (160, hashlib.sha1), (256, hashlib.sha256)):
        if digest_bits <= most:
            return made
    return hashlib.sha384 if digest_bits <= 384 else hashlib.sha512


@dataclass
class PybloomFilter:
    """A filter as pybloom-live keeps it. bits: uint8[bytes]; count: keys that set a bit."""

    error_rate: float
    slices: int
    slice_bits: int
    capacity: int
    count: int
    bits: np.ndarray
    _salts: list[Any] = field(init=False, repr=False)
    _format: struct.Struct = field(init=False, repr=False)

    def __post_init__(self) -> None:
        code, size = "H", 2
        if self.slice_bits >= 1 << 31:
            code, size = "Q", 8
        elif self.slice_bits >= 1 << 15:
            code, size = "I", 4
        made = _hash_of(8 * self.slices * size)
        numbers = made().digest_size // size
        self._format = struct.Struct(code * numbers)
        salts = -(-self.slices // numbers)
        self._salts = [made(made(struct.pack("I", i)).digest()) for i in range(salts)]

    @classmethod
    def create(cls, capacity: int, error_rate: float) -> PybloomFilter:
        """An empty filter for so many keys."""
        if not 0 < error_rate < 1 or capacity < 1:
            raise UsageError("a Bloom filter needs a capacity of at least 1 and 0 < error rate < 1")
        slices = math.ceil(math.log2(1 / error_rate))
        bits = capacity * abs(math.log(error_rate)) / (slices * math.log(2) ** 2)
        size = math.ceil(bits)
        return cls(error_rate, slices, size, capacity, 0, _zeros(slices * size))

    def _places(self, key: str) -> Iterator[int]:
        """The bits of a key, one in each slice."""
        data = key.encode()
        numbers = (n for salt in self._salts for n in self._numbers(salt, data))
        for i, number in enumerate(islice(numbers, self.slices)):
            yield i * self.slice_bits + number % self.slice_bits

    def _numbers(self, salt: Any, data: bytes) -> tuple[int, ...]:
        state = salt.copy()
        state.update(data)
        return self._format.unpack(state.digest())

    def __contains__(self, key: str) -> bool:
        return all(self.bits[p >> 3] >> (p & 7) & 1 for p in self._places(key))

    def add(self, key: str) -> bool:
        """Inserts a key; returns whether it seemed to be there before. UsageError where more keys
        than the capacity came."""
        if self.count > self.capacity:
            raise UsageError(f"this Bloom filter is full: it was made for {self.capacity:,} keys")
        places = np.fromiter(self._places(key), np.int64)
        before = bool((self.bits[places >> 3] >> (places & 7) & 1).all())
        np.bitwise_or.at(self.bits, places >> 3, np.uint8(1) << (places & 7).astype(np.uint8))
        self.count += not before
        return before

    def write(self, path: Path) -> None:
        """The file that `BloomFilter.fromfile` reads."""
        front = (self.error_rate, self.slices, self.slice_bits, self.capacity, self.count)
        with replacing(path) as aside:
            aside.write_bytes(_FRONT.pack(*front) + self.bits.tobytes())


def _zeros(bits: int) -> np.ndarray:
    if bits > 8 * MOST_BYTES:
        raise UsageError("a filter of pybloom-live may have 1 GiB here; use dedup_bloom's own")
    return np.zeros(-(-bits // 8), np.uint8)


def read_pybloom(path: Path) -> PybloomFilter:
    """The filter in a file; UsageError in one line where it is none or not whole."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            front = file.read(_FRONT.size)
            if len(front) < _FRONT.size:
                raise UsageError(f"{path} is no file of pybloom-live: it has {size:,} bytes")
            rate, slices, slice_bits, capacity, count = _FRONT.unpack(front)
            sane = 0 < rate < 1 and 0 < slices <= MOST_SLICES and 0 < slice_bits < 2**40
            if not sane:
                raise UsageError(f"{path} is no file of pybloom-live (or of a scalable filter)")
            bits = slices * slice_bits
            # Its reader takes a full byte more where the bits fill the last one.
            if size - _FRONT.size not in (-(-bits // 8), bits // 8 + 1):
                raise UsageError(
                    f"{path}: this filter has {size:,} bytes instead of"
                    f" {_FRONT.size + -(-bits // 8):,}; copy it again"
                )
            array = _zeros(bits)
            array[:] = np.frombuffer(file.read(len(array)), np.uint8)
    except OSError as error:
        raise UsageError(f"{path}: cannot read the filter: {error.strerror}") from None
    return PybloomFilter(rate, slices, slice_bits, capacity, count, array)
