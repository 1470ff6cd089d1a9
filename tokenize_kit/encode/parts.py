"""A text in parts: the ids of one document of any length, in memory for a part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

# (data: uint8[], offsets: int64[rows + 1]) to (ids: uint32[], how many of each row: int64[rows])
Encode = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
# (data: uint8[]) to the ids of its first bytes, as far as no text behind `data` can change them,
# and how many bytes that are: 0 where only a whole text has ids.
Settle = Callable[[np.ndarray], tuple[np.ndarray, int]]
PART_BYTES = 4 << 20
NOTHING = np.empty(0, np.uint32), 0


def pack(rows: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """(data: uint8[], offsets: int64[rows + 1]) of rows, one behind the other."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.frombuffer(bytearray().join(rows), np.uint8), offsets


def whole_alone(data: np.ndarray) -> tuple[np.ndarray, int]:
    """The `Settle` of a tokenizer that only takes whole texts."""
    return NOTHING


def encode_parts(
    chunks: Iterable[np.ndarray], encode: Encode, settle: Settle, part_bytes: int = PART_BYTES
) -> Iterator[np.ndarray]:
    """The ids of one text, uint32[] a part. chunks: uint8[], valid UTF-8 each.

    In memory are a part, a chunk, and what is not settled: a long word, or the whole text where
    only that has ids.
    """
    waiting, size, enough = [np.empty(0, np.uint8)], 0, part_bytes
    for chunk in chunks:
        for part in _parts(chunk, part_bytes):
            waiting.append(part)
            size += len(part)
            if size < enough:
                continue
            data = np.concatenate(waiting)
            ids, end = settle(data)
            if end:
                yield ids
            waiting, size = [data[end:]], size - end
            enough = max(part_bytes, 2 * size)
    yield encode(np.concatenate(waiting), np.array([0, size]))[0]


def _parts(data: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Valid UTF-8 in parts of whole characters."""
    start = 0
    while start < len(data):
        end = min(start + size, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
        yield data[start:end]
        start = end


def encode_rows(
    data: np.ndarray,
    offsets: np.ndarray,
    encode: Encode,
    settle: Settle,
    part_bytes: int = PART_BYTES,
) -> tuple[np.ndarray, np.ndarray]:
    """`encode`, whose tables take some times the size of its text, of rows and parts of rows."""
    if offsets[-1] - offsets[0] <= part_bytes:
        return encode(data, offsets)
    ids, sizes = [], []
    first = 0
    while first < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[first] + part_bytes, "right")) - 1
        if last > first:
            rows = encode(data, offsets[first : last + 1])
            ids.append(rows[0])
            sizes.append(rows[1])
        else:
            last = first + 1
            row = data[offsets[first] : offsets[last]]
            before = len(ids)
            ids += encode_parts([row], encode, settle, part_bytes)
            sizes.append(np.array([sum(map(len, ids[before:]))], np.int64))
        first = last
    return np.concatenate(ids), np.concatenate(sizes)
