"""Texts of documents as the buffers that the encoder takes; none becomes a Python string."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from llmcurate.base.errors import RunFailed, UsageError
from tokenize_kit.shards.progress import BEGIN, InputChanged, Position

PIECE_BYTES = 2 << 20  # of text that is encoded at once, or one document
NAMES = ("id", "source", "lang")


@dataclass(frozen=True)
class Texts:
    """Some documents. names: id, source, lang (string); data: uint8[], read only, and offsets:
    int64[rows + 1]: their texts, valid UTF-8; column: one more, that was asked for; position:
    behind the last of them."""

    names: pa.Table
    data: np.ndarray
    offsets: np.ndarray
    column: pa.Array | None = None
    position: Position = BEGIN

    def size(self) -> int:
        """Bytes of text."""
        return int(self.offsets[-1] - self.offsets[0])


def texts_of(
    batches: Iterable[pa.RecordBatch],
    column: str | None = None,
    start: Position = BEGIN,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[Texts]:
    """Pieces of batches with columns ``id, source, lang, text`` (``source``, ``lang`` may be
    missing), and one more by name. start: a position to which documents are passed over;
    InputChanged where they are others. Raises ``LlmcurateError`` for a missing column, a null text,
    and text that is not UTF-8."""
    hashed, before = xxhash.xxh3_128(), 0
    for batch in batches:
        for name in ("id", "text", *([column] if column else [])):
            if name not in batch.schema.names:
                raise UsageError(f"the documents have no column {name!r}")
        if not batch.num_rows:
            continue
        strings = {name: _strings(batch, name) for name in NAMES}
        names = pa.table(strings)
        text = batch.column("text")
        if text.type != pa.large_string():
            text = text.cast(pa.large_string())
        of_column = batch.column(column) if column else None
        for values in (*strings.values(), text, *([] if of_column is None else [of_column])):
            _hash(hashed, values)
        digest = hashed.hexdigest()
        first, number = min(max(start.documents - before, 0), len(text)), before
        before += len(text)
        if number < start.documents <= before and digest != start.digest:
            raise InputChanged
        if first == len(text):
            continue
        _check(text, names)
        data, offsets = _buffers(text)
        while first < len(text):
            last = int(np.searchsorted(offsets, offsets[first] + piece_bytes, "right")) - 1
            last = min(max(last, first + 1), len(text))
            part, position = slice(first, last), Position(number + last, digest)
            more = of_column[part] if of_column is not None else None
            yield Texts(names[part], data, offsets[first : last + 1], more, position)
            first = last
    if before < start.documents:
        raise InputChanged


def _hash(hashed: xxhash.xxh3_128, column: pa.Array) -> None:
    """Adds the values of a column, not how they lie in memory, of which a part may be undefined."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        hashed.update(repr(column.to_pylist()).encode())
        return
    data, offsets = _buffers(column.cast(pa.large_string()))
    hashed.update(np.diff(offsets).tobytes())
    hashed.update(data[offsets[0] : offsets[-1]].data)
    if column.null_count:
        hashed.update(column.is_null().to_numpy(zero_copy_only=False).tobytes())


def _strings(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.string())
    return batch.column(name).cast(pa.string())


def _check(text: pa.LargeStringArray, names: pa.Table) -> None:
    if text.null_count:
        row = text.is_null().index(True).as_py()
        raise RunFailed(f"document {names['id'][row]}: its text is null; drop it first")
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        for row in range(len(text)):
            try:
                text[row].as_py()
            except UnicodeDecodeError:
                raise RunFailed(
                    f"document {names['id'][row]}: its text is not UTF-8; drop it first"
                ) from None
        raise


def _buffers(text: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """Views: data is read only, as the kernels are compiled for; the few offsets are a copy."""
    _, offsets, data = text.buffers()
    positions = np.frombuffer(offsets, np.int64, len(text) + 1, text.offset * 8).copy()
    return np.frombuffer(data or b"", np.uint8), positions
