"""The files of token shards in the formats of trainers.

llmcurate  tokens-00000.bin and .idx, as in docs/design/contracts.md
megatron   tokens-00000.bin and .idx: IndexedDataset, one sequence per document; give Megatron the
           path without .bin (NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py:
           _IndexWriter, DType.optimal_dtype)
nanogpt    train.bin and val.bin: only uint16 tokens (karpathy/nanoGPT,
           data/openwebtext/prepare.py)
olmo       tokens-00000.npy: tokens as np.memmap writes them, no NumPy header (allenai/OLMo,
           olmo/data/memmap_dataset.py; allenai/OLMo-core, docs/source/guides/data_loading.rst)

Tokens are little-endian. Every format also has documents-*.parquet.
"""

from __future__ import annotations

import os
import struct
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from llmcurate.base.disk.files import sync_path
from llmcurate.base.errors import UsageError
from llmcurate.base.messages import Message

DOCUMENTS = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("lang", pa.string()),
        ("tokens", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Encoded:
    """Encoded documents. tokens: the tokens of all documents, concatenated; table: one row of
    DOCUMENTS per document; mask: uint8[tokens], 1 for tokens that count in training, None if all
    count; undrawn: how many documents random sampling could not handle (BPE dropout);
    unknown: how many tokens are the unknown token."""

    tokens: np.ndarray
    table: pa.Table
    mask: np.ndarray | None = None
    undrawn: int = 0
    unknown: int = 0

    def __len__(self) -> int:
        return self.table.num_rows

    @property
    def lengths(self) -> np.ndarray:
        """Return int64[rows]: the number of tokens of each document."""
        return self.table["tokens"].to_numpy()

    @property
    def bytes(self) -> int:
        return int(self.table["bytes"].to_numpy().sum())

    def select(self, order: np.ndarray) -> Encoded:
        """Return the documents with these row numbers, in that order."""
        lengths = self.lengths
        starts = np.cumsum(lengths) - lengths
        starts, lengths = starts[order], lengths[order]
        mask = None if self.mask is None else gather(self.mask, starts, lengths)
        return Encoded(gather(self.tokens, starts, lengths), self.table.take(order), mask)


def gather(tokens: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the tokens of the given ranges, concatenated."""
    tokens = np.asarray(tokens)  # slices of a memmap are slow to make
    stretches = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
    return np.concatenate([tokens[:0], *(tokens[first:end] for first, end in stretches)])


def concatenate(parts: list[Encoded]) -> Encoded:
    if len(parts) == 1:
        return parts[0]
    table = pa.concat_tables([part.table for part in parts]).combine_chunks()
    masks = [part.mask for part in parts if part.mask is not None]
    mask = np.concatenate(masks) if masks else None
    return Encoded(np.concatenate([part.tokens for part in parts]), table, mask)


def add_edges(
    ids: np.ndarray, counts: np.ndarray, begin: int | None, end: int | None, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Put `begin` before and `end` after each document's tokens, unless None. Return (tokens:
    dtype[], lengths: int64[rows]). ids: uint32[]; counts: int64[rows], the ids per document."""
    lengths = counts + (begin is not None) + (end is not None)
    if begin is None and end is None:
        return ids.astype(dtype), lengths
    ends = np.cumsum(lengths)
    text = np.ones(int(lengths.sum()), np.bool_)
    tokens = np.empty(len(text), dtype)
    for token, positions in ((begin, ends - lengths), (end, ends - 1)):
        if token is not None:
            text[positions] = False
            tokens[positions] = token
    tokens[text] = ids
    return tokens, lengths


Format = Literal["llmcurate", "megatron", "nanogpt", "olmo"]
FORMATS: tuple[str, ...] = get_args(Format)
_MEGATRON_UINT16 = 65_500  # Megatron uses uint16 for smaller vocabularies, int32 for others
_MEGATRON_CODES = {"int32": 4, "uint16": 8}
# All files of shards, in any format.
PATTERNS = (
    "tokens-*.bin",
    "tokens-*.idx",
    "tokens-*.npy",
    "documents-*.parquet",
    "loss-*.mask",
    "train.bin",
    "val.bin",
)


def token_dtype(form: str, vocab: int) -> np.dtype[Any]:
    """Return the smallest type of tokens that the format has for a vocabulary of this size."""
    if form == "megatron":
        return np.dtype("<u2" if vocab < _MEGATRON_UINT16 else "<i4")
    if vocab <= 1 << 16:
        return np.dtype("<u2")
    if form == "nanogpt":
        raise UsageError(
            f"nanoGPT reads 16-bit tokens, but the tokenizer has {vocab} ids: use a smaller "
            "vocabulary or another --format"
        )
    return np.dtype("<u4")


def megatron_index(lengths: np.ndarray, dtype: np.dtype[Any]) -> bytes:
    """Return the .idx of an IndexedDataset with one sequence per document, of these lengths."""
    pointers = (np.cumsum(lengths) - lengths) * dtype.itemsize
    return b"".join(
        [
            b"MMIDIDX\x00\x00",
            struct.pack("<QB", 1, _MEGATRON_CODES[dtype.name]),
            struct.pack("<QQ", len(lengths), len(lengths) + 1),
            lengths.astype("<i4").tobytes(),
            pointers.astype("<i8").tobytes(),
            np.arange(len(lengths) + 1, dtype="<i8").tobytes(),
        ]
    )


@dataclass(frozen=True)
class ShardState:
    """The saved state of an open shard. tokens: the number of tokens; rows: the names of the files
    to which its document table is saved."""

    tokens: int = 0
    rows: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SideState(Message):
    """The saved state of one side of the split, the training texts (train) or the held-out texts
    (val): names of finished files, counts, the number of the open shard, and this shard's state."""

    files: list[str] = field(default_factory=list)
    documents: int = 0
    tokens: int = 0
    bytes: int = 0
    loss_tokens: int = 0
    number: int = 0
    shard: ShardState = field(default_factory=ShardState)


class _Shard:
    """An open shard. Tokens are written to disk at once; the table of documents stays in memory.
    before: a state to resume from; rows: the folder in which `checkpoint` saves the table."""

    def __init__(
        self,
        folder: Path,
        names: tuple[str, str | None, str],
        mask: str | None,
        rows: Path,
        dtype: np.dtype[Any],
        before: ShardState,
    ) -> None:
        tokens, self.index, self.documents = names
        self.folder, self.rows = folder, rows
        self.names = [name for name in (*names, mask) if name]
        self.tokens, self._saved = before.tokens, list(before.rows)
        self.tables = [
            pa.ipc.open_file((rows / name).read_bytes()).read_all() for name in self._saved
        ]
        self._new: list[pa.Table] = []
        self.file = open_at(folder / tokens, self.tokens * dtype.itemsize)
        self.mask = open_at(folder / mask, self.tokens) if mask else None

    def add(self, tokens: np.ndarray, table: pa.Table, mask: np.ndarray | None) -> None:
        self.file.write(tokens.data)
        if self.mask is not None and mask is not None:
            self.mask.write(mask.data)
        self.tokens += len(tokens)
        self.tables.append(table)
        self._new.append(table)

    def checkpoint(self, side: str) -> tuple[ShardState, list[Path]]:
        """Sync everything to disk; return (state, the files needed to resume from the state).
        `side` (train or val) goes into file names."""
        files = [file for file in (self.file, self.mask) if file is not None]
        for file in files:
            sync_open(file)
        if self._new:
            name = f"{side}-{self.documents}-{len(self._saved)}"
            with pa.ipc.new_file(str(self.rows / name), DOCUMENTS) as writer:
                writer.write_table(pa.concat_tables(self._new))
            sync_path(self.rows / name)
            self._saved.append(name)
            self._new = []
        paths = [*(Path(file.name) for file in files), *(self.rows / name for name in self._saved)]
        return ShardState(self.tokens, list(self._saved)), paths

    def close(self, form: str, dtype: np.dtype[Any]) -> None:
        self.file.close()
        if self.mask is not None:
            self.mask.close()
        # One chunk, so that the file does not depend on the batches.
        table = pa.concat_tables([DOCUMENTS.empty_table(), *self.tables]).combine_chunks()
        lengths = table["tokens"].to_numpy()
        if self.index and form == "megatron":
            (self.folder / self.index).write_bytes(megatron_index(lengths, dtype))
        elif self.index:
            (self.folder / self.index).write_bytes(np.cumsum(lengths).astype("<u8").tobytes())
        pq.write_table(table, self.folder / self.documents, compression="zstd")


@dataclass
class Side:
    """The shards of one side of the split, `train` or `val` (its name), with their counts. masked:
    True if a loss mask is written next to each shard; rows: the folder in which checkpoints save
    the open shard's table of documents; before: the saved state to resume from."""

    folder: Path
    name: Literal["train", "val"]
    form: str
    dtype: np.dtype[Any]
    shard_tokens: int
    masked: bool
    rows: Path
    before: InitVar[SideState]

    def __post_init__(self, before: SideState) -> None:
        self.folder.mkdir(exist_ok=True)
        self._closed: list[Path] = []  # since the last checkpoint
        self.files, self._number = list(before.files), before.number
        self.documents, self.tokens = before.documents, before.tokens
        self.bytes, self.loss_tokens = before.bytes, before.loss_tokens
        self._shard = self._open(before.shard)

    def _open(self, before: ShardState) -> _Shard:
        number = f"{self._number:05d}"
        self._number += 1
        names: tuple[str, str | None, str]
        mask = None
        if self.form == "nanogpt":
            names = (f"{self.name}.bin", None, f"documents-{self.name}.parquet")
        elif self.form == "olmo":
            names = (f"tokens-{number}.npy", None, f"documents-{number}.parquet")
        else:
            names = (f"tokens-{number}.bin", f"tokens-{number}.idx", f"documents-{number}.parquet")
            mask = f"loss-{number}.mask" if self.masked else None
        shard = _Shard(self.folder, names, mask, self.rows, self.dtype, before)
        self.files += shard.names
        return shard

    def checkpoint(self) -> tuple[SideState, list[Path]]:
        for path in self._closed:
            sync_path(path)
        self._closed = []
        shard, paths = self._shard.checkpoint(self.name)
        whole = self.files[: -len(self._shard.names)]
        counts = (self.documents, self.tokens, self.bytes, self.loss_tokens)
        state = SideState(whole, *counts, self._number - 1, shard)
        return state, [*(self.folder / name for name in whole), *paths]

    def add(self, documents: Encoded) -> None:
        """Write whole documents. A new shard begins before a document that would exceed
        `shard_tokens`, except for nanoGPT, which reads a single file."""
        ends = np.cumsum(documents.lengths)
        first = 0
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            last = len(ends)
            if self.form != "nanogpt":
                room = self.shard_tokens - self._shard.tokens
                last = int(np.searchsorted(ends, before + room, "right"))
            if last <= first:
                if self._shard.tokens:
                    self.close()
                    self._shard = self._open(ShardState())
                    continue
                last = first + 1
            part = slice(before, int(ends[last - 1]))
            mask = None if documents.mask is None else documents.mask[part]
            table = documents.table.slice(first, last - first)
            self._shard.add(documents.tokens[part], table, mask)
            first = last
        self.documents += len(documents)
        self.tokens += len(documents.tokens)
        self.bytes += documents.bytes
        if documents.mask is not None:
            self.loss_tokens += int(documents.mask.sum())

    def close(self) -> None:
        self._shard.close(self.form, self.dtype)
        self._closed += [self.folder / name for name in self._shard.names]


def open_at(path: Path, size: int) -> BinaryIO:
    """Open a file for appending after its first `size` bytes; later bytes are dropped. The file is
    created if `size` is 0."""
    if not size:
        return path.open("wb")
    file = path.open("r+b")
    file.truncate(size)
    file.seek(size)
    return file


def sync_open(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
