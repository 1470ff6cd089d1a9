"""Sizes of documents in the unit of the mix: tokens, bytes, or one each.

Tokens are counted by a tokenizer, or taken from token shards that it made of the source before;
without one they are a quarter of the bytes, and tables say so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.steps.contracts import sha256
from llmcurate.base.errors import UsageError

BYTES_A_TOKEN = 4  # where nobody counts: the report's rule of thumb (inspect/report/page.py)
Size = Callable[[np.ndarray, np.ndarray], np.ndarray]  # data, offsets -> int64[rows]
COLUMNS = ["id", "tokens", "bytes"]


class Sizes:
    """`of` each batch of one reading of all sources, in their order, then `end`.

    shards: folders by name of source. UsageError where the tokenizer or shards cannot be used.
    """

    def __init__(
        self, unit: str, tokenizer: Path | None = None, shards: Mapping[str, str] | None = None
    ) -> None:
        self._count = _counter(unit, tokenizer)
        self._shards = {
            name: ShardCounts(name, Path(folder), tokenizer)
            for name, folder in sorted((shards or {}).items())
        }

    def of(
        self, source: str, batch: pa.RecordBatch, data: np.ndarray, offsets: np.ndarray
    ) -> np.ndarray:
        """int64[rows]: of a source's next documents, whose texts are data: uint8[] at offsets."""
        if source in self._shards:
            return self._shards[source].next(batch["id"], np.diff(offsets))
        return self._count(data, offsets)

    def end(self) -> None:
        """UsageError where shards hold documents that their source does not."""
        for counts in self._shards.values():
            counts.end()


def tokenizer_file(tokenizer: Path) -> Path:
    """The file of a tokenizer that is named by its folder or itself."""
    return tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer


def _counter(unit: str, tokenizer: Path | None) -> Size:
    if unit == "documents":
        return lambda data, offsets: np.ones(len(offsets) - 1, np.int64)
    if unit == "bytes":
        return lambda data, offsets: np.diff(offsets)
    if tokenizer is None:  # half a token up, so that the sum is a quarter of the bytes
        return lambda data, offsets: (np.diff(offsets) + BYTES_A_TOKEN // 2) // BYTES_A_TOKEN
    from llmcurate.base.errors import LlmcurateError
    from tokenize_kit.encode.vocabulary import open_vocabulary

    try:
        encode = open_vocabulary(tokenizer_file(tokenizer)).encode
    except LlmcurateError as error:
        raise UsageError(f"mix: {error}") from None
    return lambda data, offsets: encode(data, offsets.copy())[1]


class ShardCounts:
    """Tokens of a source's documents, as shards of it list them in the order of the source."""

    def __init__(self, name: str, folder: Path, tokenizer: Path | None) -> None:
        self.name, self.folder = name, folder
        try:
            manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
            made_by = manifest["tokenizer_sha256"]
        except OSError as error:
            raise self._wrong(error.strerror or str(error)) from None
        except (ValueError, KeyError, TypeError):
            raise self._wrong("its manifest is not one of token shards") from None
        if tokenizer is None or made_by != sha256(tokenizer_file(tokenizer)):
            raise self._wrong("they are of another tokenizer than --tokenizer")
        if manifest.get("shuffle") is not None or manifest.get("val_fraction"):
            raise self._wrong("they are shuffled, or partly held out: their order is another")
        self._framing = int(manifest.get("bos", False)) + int(manifest.get("eos", True))
        self._tables = self._read()
        self._left = next(self._tables, None)

    def _wrong(self, problem: str) -> UsageError:
        return UsageError(f"mix: shards {self.folder} of {self.name}: {problem}")

    def _read(self) -> Iterator[pa.Table]:
        for path in sorted(self.folder.glob("documents-*.parquet")):
            try:
                with pq.ParquetFile(path) as file:
                    for batch in file.iter_batches(columns=COLUMNS, use_threads=False):
                        yield pa.Table.from_batches([batch])
            except (pa.ArrowException, OSError) as error:
                raise self._wrong(f"{path.name}: {str(error).splitlines()[0][:120]}") from None

    def next(self, ids: pa.Array, sizes: np.ndarray) -> np.ndarray:
        """int64[rows]: tokens of the next documents, whose ids and bytes must be those."""
        parts: list[Any] = []
        missing = len(ids)
        while missing:
            if self._left is None:
                raise self._wrong(f"they end before document {ids[len(ids) - missing]}")
            part = self._left.slice(0, missing)
            rest = self._left.slice(part.num_rows)
            self._left = rest if rest.num_rows else next(self._tables, None)
            missing -= part.num_rows
            if part.num_rows:
                parts.append(part)
        rows = pa.concat_tables(parts)
        same = pc.equal(rows["id"].cast(pa.string()), ids.cast(pa.string()))
        alike = same.to_numpy(zero_copy_only=False) & (rows["bytes"].to_numpy() == sizes)
        if not alike.all():
            row = int(np.flatnonzero(~alike)[0])
            raise self._wrong(
                f"they have document {rows['id'][row]} of {rows['bytes'][row]} bytes where the"
                f" source has {ids[row]} of {sizes[row]}"
            )
        counted: np.ndarray = rows["tokens"].to_numpy() - self._framing
        return counted

    def end(self) -> None:
        """UsageError where documents are left."""
        if self._left is not None:
            raise self._wrong(f"they go on with document {self._left['id'][0]} behind the source")
