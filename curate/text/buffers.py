"""Texts and bytes: payloads of any encoding decoded, and Arrow columns as flat byte buffers."""

from __future__ import annotations

import codecs

import numpy as np
import pyarrow as pa

BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# WHATWG names that Python knows by another name.
PYTHON_NAMES = {"windows-874": "cp874", "x-mac-cyrillic": "mac-cyrillic", "macintosh": "mac-roman"}


def _codec(label: str | None) -> str | None:
    if not label:
        return None
    from resiliparse.parse.encoding import map_encoding_to_html5

    try:
        mapped = map_encoding_to_html5(label.strip().lower(), False)
        return codecs.lookup(PYTHON_NAMES.get(mapped, mapped)).name if mapped else None
    except (LookupError, ValueError, TypeError):
        return None


def decode(payload: bytes, charset: str | None = None, *, html: bool = True) -> tuple[str, str]:
    """(text, encoding): undecodable bytes and lone surrogates become replacement characters.

    The encoding is, in this order, that of the byte order mark; UTF-8 where the bytes are valid
    UTF-8, whatever the page claims; the charset of the HTTP header; that of the page's meta tag;
    what uchardet detects. Labels mean what the WHATWG Encoding Standard says (iso-8859-1 means
    windows-1252).
    """
    for mark, encoding in BOMS:
        if payload.startswith(mark):
            return payload[len(mark) :].decode(encoding, "replace"), encoding
    try:
        return payload.decode("utf-8"), "utf-8"
    except UnicodeDecodeError as error:
        # A page cut off inside a character is still UTF-8.
        if error.start > 0 and error.start >= len(payload) - 3:
            return payload.decode("utf-8", "replace"), "utf-8"
    from resiliparse.parse.encoding import detect_encoding

    name = _codec(charset)
    if name in (None, "utf-8", "ascii"):
        name = _codec(detect_encoding(payload, from_html_meta=html)) or "windows-1252"
    text = payload.decode(name or "windows-1252", "replace")
    return text.encode("utf-8", "replace").decode("utf-8"), name or "windows-1252"


def as_large_string(column: pa.Array | pa.ChunkedArray) -> pa.LargeStringArray:
    """One contiguous large_string array of the column; copies only where it must."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # no chunk at all
            column = (
                pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], "string")
            )
    if column.type != pa.large_string():
        column = column.cast(pa.large_string())
    return column


def text_buffers(array: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """(data: uint8[bytes], offsets: int64[rows + 1]); a null row is an empty one.

    The arrays are views of the Arrow buffers, offsets are absolute positions in `data`.
    """
    if len(array) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, data = array.buffers()
    positions = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    if data is None:
        return np.empty(0, np.uint8), positions
    return np.frombuffer(data, np.uint8), positions


def text_array(data: np.ndarray, offsets: np.ndarray) -> pa.LargeStringArray:
    """The large_string array over `data: uint8[bytes]`, `offsets: int64[rows + 1]`."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)
