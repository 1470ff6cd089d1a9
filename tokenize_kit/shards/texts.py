"""The texts of documents as buffers for the encoder; no text becomes a Python string."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from llmcurate.base.errors import RunFailed, UsageError
from tokenize_kit.shards.progress import BEGIN, InputChanged, Position

PIECE_BYTES = 2 << 20  # the most text encoded at once, or one document
NAMES = ("id", "source", "lang")


@dataclass(frozen=True)
class Texts:
    """The texts of some documents. names: the columns id, source and lang (string); data: uint8[],
    read-only, valid UTF-8; offsets: int64[rows + 1]; column: the extra column that the caller asked
    for; position: the position in the input after the last of these documents."""

    names: pa.Table
    data: np.ndarray
    offsets: np.ndarray
    column: pa.Array | None = None
    position: Position = BEGIN

    def size(self) -> int:
        return int(self.offsets[-1] - self.offsets[0])


def texts_of(
    batches: Iterable[pa.RecordBatch],
    column: str | None = None,
    start: Position = BEGIN,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[Texts]:
    """Cut batches into pieces of some documents each. The batches have the columns `id`, `text`,
    optionally `source` and `lang`, and the extra column that `column` names. start: documents
    before this position are skipped. Raises InputChanged if the skipped documents do not have the
    hash of `start`, and LlmcurateError for a missing column, a null text, or invalid UTF-8."""
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
            extra = of_column[part] if of_column is not None else None
            yield Texts(names[part], data, offsets[first : last + 1], extra, position)
            first = last
    if before < start.documents:
        raise InputChanged


def _hash(hashed: xxhash.xxh3_128, column: pa.Array) -> None:
    """Hash the values of a column, not its memory, because parts of the memory may be undefined."""
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
    _, offsets, data = text.buffers()
    positions = np.frombuffer(offsets, np.int64, len(text) + 1, text.offset * 8).copy()
    return np.frombuffer(data or b"", np.uint8), positions
