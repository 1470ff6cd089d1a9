"""One file of tokens, opened: what every reader returns, and what readers share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed

Ints = npt.NDArray[np.int64]
_SCAN = 1 << 24  # tokens looked at together


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """What files of other trainers do not say of themselves.

    ``vocab_size``: ids are below it. ``end_of_text``: the id that ends documents. ``tokenizer``: a
    tokenizer.json, or its folder, from which both are read if they are not given. ``dtype``: of raw
    tokens; by default uint16 where the vocabulary fits, else uint32.
    """

    vocab_size: int | None = None
    end_of_text: int | None = None
    tokenizer: str | None = None
    dtype: str | None = None

    @property
    def raw(self) -> np.dtype[Any]:
        """The type of tokens in a file that has no header."""
        if self.dtype is not None:
            return np.dtype(self.dtype).newbyteorder("<")
        return np.dtype("<u2" if (self.vocab_size or 0) <= 1 << 16 else "<u4")


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """``start`` and ``length`` of documents, in tokens of ``tokens``. ``bytes``: UTF-8 bytes of
    their texts, where known. ``mask``: uint8 a token, 1 where it counts. ``table``: a parquet file
    with a row a document (id, source); else ``ids``; else a document is called "name:number".
    """

    name: str
    tokens: npt.NDArray[Any]
    start: Ints
    length: Ints
    bytes: Ints | None = None
    mask: npt.NDArray[np.uint8] | None = None
    table: Path | None = None
    ids: pa.Array | None = None
    notes: tuple[str, ...] = ()


def map_tokens(path: Path, dtype: np.dtype[Any], offset: int = 0) -> npt.NDArray[Any]:
    """The tokens behind ``offset`` bytes, as a memory map."""
    size = path.stat().st_size - offset
    if size < 0 or size % dtype.itemsize:
        raise RunFailed(f"{path}: cut short, {size} bytes are no whole {dtype.name} tokens")
    # An empty file cannot be mapped.
    if not size:
        return np.zeros(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset)


def from_ends(ends: npt.NDArray[Any], tokens: int, where: Path) -> tuple[Ints, Ints]:
    """(start, length) of documents that lie one behind the other up to the last token."""
    if len(ends) and int(ends.max()) >= 1 << 63:
        raise RunFailed(f"{where}: its document ends do not fit the tokens")
    checked = ends.astype(np.int64)
    length = np.diff(checked, prepend=0)
    if (length < 0).any() or (int(checked[-1]) if len(checked) else 0) != tokens:
        raise RunFailed(f"{where}: its document ends do not fit the {counted(tokens, 'token')}")
    return checked - length, length


def scan(tokens: npt.NDArray[Any], foreign: Foreign, name: str) -> tuple[Ints, Ints, str]:
    """Documents of a file without an index: up to each end-of-text id; without one, all of it.

    What follows the last such id is a document too. Returns (start, length, what was done).
    """
    total = len(tokens)
    if foreign.end_of_text is None:
        note = f"{name}: no index, so it is one document; give end_of_text to find its documents"
        return np.zeros(min(total, 1), np.int64), np.full(min(total, 1), total, np.int64), note
    parts = [
        np.flatnonzero(tokens[first : first + _SCAN] == foreign.end_of_text) + first + 1
        for first in range(0, total, _SCAN)
    ]
    ends = np.concatenate([np.zeros(0, np.int64), *parts])
    if total and (not len(ends) or ends[-1] != total):
        ends = np.append(ends, total)
    note = f"{name}: no index, documents end at token {foreign.end_of_text}"
    return ends - np.diff(ends, prepend=0), np.diff(ends, prepend=0), note
