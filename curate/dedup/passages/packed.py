"""Keys and places of a document's passages as one value of a sketch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KEY_BYTES = 16


def packed(values: np.ndarray, rows: np.ndarray) -> pa.LargeBinaryArray:
    """values: [passages, 2] as one value a document; rows: int64[documents + 1]."""
    data = np.ascontiguousarray(values)
    width = data.dtype.itemsize * 2
    buffers = [None, pa.py_buffer(np.ascontiguousarray(rows * width)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(rows) - 1, buffers)


def unpacked(column: pa.LargeBinaryArray, dtype: type[np.generic]) -> tuple[np.ndarray, np.ndarray]:
    """What was packed: (values: dtype[passages, 2], rows: int64[documents + 1])."""
    width = np.dtype(dtype).itemsize * 2
    if len(column) == 0:
        return np.empty((0, 2), dtype), np.zeros(1, np.int64)
    _, offsets, data = column.buffers()
    at = np.frombuffer(offsets, np.int64, len(column) + 1, column.offset * 8)
    first, stop = int(at[0]), int(at[-1])
    if first == stop:
        return np.empty((0, 2), dtype), np.zeros(len(column) + 1, np.int64)
    count = (stop - first) // (width // 2)
    values = np.frombuffer(data, dtype, count, first).reshape(-1, 2)
    return values, (at - first) // width


def passages_about(metadata: pq.FileMetaData) -> int:
    """About how many passages a file of sketches holds, by its footer alone."""
    at = metadata.schema.names.index("keys")
    groups = range(metadata.num_row_groups)
    size = sum(metadata.row_group(g).column(at).total_uncompressed_size for g in groups)
    return max(metadata.num_rows, size // KEY_BYTES)
