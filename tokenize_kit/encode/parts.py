"""Encode one text of any length part by part, so that the whole text need not be in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

# (data: uint8[], offsets: int64[rows + 1]) -> (ids: uint32[], number of ids per row: int64[rows])
Encode = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
# (data: uint8[]) -> (the ids of its first bytes, the number of these bytes). No text after `data`
# can change these ids. Tokenizers that encode whole texts alone return no ids.
EncodeSettled = Callable[[np.ndarray], tuple[np.ndarray, int]]
PART_BYTES = 4 << 20
NOTHING_SETTLED = np.empty(0, np.uint32), 0


def pack(rows: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate rows; return (data: uint8[], offsets: int64[rows + 1])."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.frombuffer(bytearray().join(rows), np.uint8), offsets


def encode_parts(
    chunks: Iterable[np.ndarray],
    encode: Encode,
    encode_settled: EncodeSettled,
    part_bytes: int = PART_BYTES,
) -> Iterator[np.ndarray]:
    """Yield the ids of one text, one uint32[] array per part. chunks: the text, as uint8[] arrays
    of valid UTF-8. Memory holds one part, one chunk, and text whose ids may still change: a long
    word, or the whole text if the tokenizer can only encode whole texts."""
    waiting, size, enough = [np.empty(0, np.uint8)], 0, part_bytes
    for chunk in chunks:
        for part in _parts(chunk, part_bytes):
            waiting.append(part)
            size += len(part)
            if size < enough:
                continue
            data = np.concatenate(waiting)
            ids, end = encode_settled(data)
            if end:
                yield ids
            waiting, size = [data[end:]], size - end
            enough = max(part_bytes, 2 * size)
    yield encode(np.concatenate(waiting), np.array([0, size]))[0]


def _parts(data: np.ndarray, size: int) -> Iterator[np.ndarray]:
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
    encode_settled: EncodeSettled,
    part_bytes: int = PART_BYTES,
) -> tuple[np.ndarray, np.ndarray]:
    """Encode texts with `encode`, a group of rows at a time, and long rows in parts, because the
    tables of `encode` take several times the memory of the text. Return the result."""
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
            ids += encode_parts([row], encode, encode_settled, part_bytes)
            sizes.append(np.array([sum(map(len, ids[before:]))], np.int64))
        first = last
    return np.concatenate(ids), np.concatenate(sizes)
