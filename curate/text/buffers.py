"""Arrow columns of texts as flat byte buffers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def as_large_string(column: pa.Array | pa.ChunkedArray) -> pa.LargeStringArray:
    """Return the column as one contiguous large_string array, which is copied only if needed."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # it has no chunks
            column = (
                pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], "string")
            )
    if column.type != pa.large_string():
        column = column.cast(pa.large_string())
    return column


def text_buffers(array: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return (data: uint8[bytes], offsets: int64[rows + 1]); a null text is empty. Both arrays are
    views of the Arrow buffers, so the first offset may be above 0."""
    if len(array) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, data = array.buffers()
    positions = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    if data is None:
        return np.empty(0, np.uint8), positions
    return np.frombuffer(data, np.uint8), positions


def text_array(data: np.ndarray, offsets: np.ndarray) -> pa.LargeStringArray:
    """Return the large_string array over `data: uint8[bytes]` and `offsets: int64[rows + 1]`."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)
