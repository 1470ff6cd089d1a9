"""The layouts of token files: llmcurate's, DataTrove's, Megatron's, OLMo's and nanoGPT's.
``NAME_files`` selects the files of a layout, and ``read_NAME`` opens one file as a ``Part``."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as csv

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed

Ints = npt.NDArray[np.int64]
_SCAN = 1 << 24  # tokens scanned at a time


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """Facts that the files of other trainers do not record. Ids are below ``vocab_size``; the id
    ``end_of_text`` ends documents. If not given, both are read from ``tokenizer``, a tokenizer.json
    or its folder. ``dtype``: type of raw tokens, by default uint16 if ids fit, else uint32."""

    vocab_size: int | None = None
    end_of_text: int | None = None
    tokenizer: str | None = None
    dtype: str | None = None

    @property
    def raw(self) -> np.dtype[Any]:
        """The type of the tokens in a file that has no header."""
        if self.dtype is not None:
            return np.dtype(self.dtype).newbyteorder("<")
        return np.dtype("<u2" if (self.vocab_size or 0) <= 1 << 16 else "<u4")


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """One token file. ``start`` and ``length`` of documents are in tokens; ``bytes`` has the number
    of UTF-8 bytes of each text. ``mask`` is uint8 per token, 1 where the token counts in training.
    The ids of documents come from ``table`` (a parquet file with a row per document) or ``ids``;
    without these they are "name:number"."""

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
    """Map a file's tokens, which begin after ``offset`` bytes, into memory."""
    size = path.stat().st_size - offset
    if size < 0 or size % dtype.itemsize:
        raise RunFailed(f"{path}: cut short, {size} bytes are not whole {dtype.name} tokens")
    # An empty file cannot be mapped.
    if not size:
        return np.zeros(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset)


def from_ends(ends: npt.NDArray[Any], tokens: int, where: Path) -> tuple[Ints, Ints]:
    """Return (start, length) of documents that follow each other without gaps."""
    if len(ends) and int(ends.max()) >= 1 << 63:
        raise RunFailed(f"{where}: the document ends do not fit the tokens")
    checked = ends.astype(np.int64)
    length = np.diff(checked, prepend=0)
    if (length < 0).any() or (int(checked[-1]) if len(checked) else 0) != tokens:
        raise RunFailed(f"{where}: the document ends do not fit the {counted(tokens, 'token')}")
    return checked - length, length


def scan(tokens: npt.NDArray[Any], foreign: Foreign, name: str) -> tuple[Ints, Ints, str]:
    """Return (start, length, note) of the documents in a file without an index. A document ends
    with an end-of-text id, or with the file."""
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


def own_files(names: set[str]) -> list[str]:
    return sorted(name for name in names if name.startswith("tokens-") and name.endswith(".bin"))


def read_own(path: Path, dtype: np.dtype[Any], *, masked: bool) -> Part:
    """Read a shard of llmcurate: raw tokens, uint64 document ends, and if ``masked``, a mask."""
    index = path.with_suffix(".idx")
    tokens = map_tokens(path, dtype)
    if index.stat().st_size % 8:
        raise RunFailed(f"{index}: cut short")
    start, length = from_ends(np.fromfile(index, dtype="<u8"), len(tokens), index)
    mask = None
    if masked:
        beside = path.with_name(path.name.replace("tokens-", "loss-")).with_suffix(".mask")
        mask = map_mask(beside, len(tokens))
    return Part(name=path.name, tokens=tokens, start=start, length=length, mask=mask)


def map_mask(path: Path, tokens: int) -> np.ndarray:
    """Map a mask into memory: a byte per token, 1 where the token counts in training."""
    if not path.is_file() or path.stat().st_size != tokens:
        raise RunFailed(f"{path}: missing, or not one byte per token")
    return np.memmap(path, dtype=np.uint8, mode="r") if tokens else np.zeros(0, dtype=np.uint8)


def read_datatrove(path: Path) -> Part:
    """Read DataTrove's NAME.ds: raw uint16 or uint32 tokens. NAME.ds.index has the uint64 ends of
    documents, in tokens. NAME.ds.loss, which is optional, has a byte per token, 1 where the token
    counts in training (huggingface/datatrove, src/datatrove/pipeline/tokens/tokenizer.py)."""
    index = path.with_name(path.name + ".index")
    if not index.is_file() or index.stat().st_size % 8:
        raise RunFailed(f"{index}: missing or cut short")
    ends = np.fromfile(index, dtype="<u8")
    size, count = path.stat().st_size, int(ends[-1]) if len(ends) else 0
    # The file records no type: the width follows from its size.
    width = next((width for width in (2, 4) if width * count == size), None)
    if width is None:
        raise RunFailed(
            f"{path}: {size} bytes are not the {counted(count, 'token')} of {index.name}"
        )
    tokens = map_tokens(path, np.dtype(f"<u{width}"))
    start, length = from_ends(ends, count, index)
    loss = path.with_name(path.name + ".loss")
    mask = map_mask(loss, count) if loss.is_file() else None
    return Part(name=path.name, tokens=tokens, start=start, length=length, mask=mask)


_MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
_MEGATRON_TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}  # 6 and 7 are floats
_MEGATRON_HEADER = len(_MEGATRON_MAGIC) + 25


def megatron_files(folder: Path, names: set[str]) -> list[str]:
    """Return the .bin files that have an .idx file which begins with Megatron's magic bytes."""
    paths = []
    for name in sorted(names):
        if name.endswith(".idx") and name.removesuffix(".idx") + ".bin" in names:
            with (folder / name).open("rb") as file:
                if file.read(len(_MEGATRON_MAGIC)) == _MEGATRON_MAGIC:
                    paths.append(name.removesuffix(".idx") + ".bin")
    return paths


def read_megatron(path: Path) -> Part:
    """Read Megatron's IndexedDataset: NAME.bin with tokens, NAME.idx with bounds of sequences
    and documents.

    .idx: "MMIDIDX\\0\\0", uint64 version 1, uint8 type of tokens, uint64 sequences, uint64
    document bounds, then int32 lengths and int64 byte offsets of sequences, and int64 bounds of
    documents, in sequences (NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py).
    """
    index = path.with_suffix(".idx")
    raw = index.read_bytes()
    if len(raw) < _MEGATRON_HEADER or not raw.startswith(_MEGATRON_MAGIC):
        raise RunFailed(f"{index}: not a Megatron index, or cut short")
    version, kind, sequences, bounds = struct.unpack_from("<QBQQ", raw, len(_MEGATRON_MAGIC))
    if version != 1 or kind not in _MEGATRON_TYPES:
        raise RunFailed(f"{index}: version {version} with token type {kind} is not supported")
    if len(raw) != _MEGATRON_HEADER + 12 * sequences + 8 * bounds:
        raise RunFailed(f"{index}: its size does not fit {sequences} sequences and {bounds} bounds")
    sizes = np.frombuffer(raw, "<i4", sequences, _MEGATRON_HEADER).astype(np.int64)
    offsets = np.frombuffer(raw, "<i8", sequences, _MEGATRON_HEADER + 4 * sequences)
    edges = np.frombuffer(raw, "<i8", bounds, _MEGATRON_HEADER + 12 * sequences)
    dtype = np.dtype(_MEGATRON_TYPES[kind])
    tokens = map_tokens(path, dtype)
    if (sizes < 0).any() or (offsets < 0).any() or (offsets % dtype.itemsize).any():
        raise RunFailed(f"{index}: the byte offset of a sequence is impossible")
    first = offsets // dtype.itemsize
    if (first > len(tokens)).any() or (first + sizes > len(tokens)).any():
        raise RunFailed(
            f"{index}: a sequence lies beyond the {counted(len(tokens), 'token')} of {path.name}"
        )
    if not len(edges):
        edges = np.arange(sequences + 1)
    if edges[0] != 0 or edges[-1] != sequences or (np.diff(edges) < 0).any():
        raise RunFailed(f"{index}: the documents are not ranges of its {sequences} sequences")
    inside = np.ones(sequences, dtype=bool)
    inside[edges[:-1][edges[:-1] < sequences]] = False
    if (inside[1:] & (first[1:] != first[:-1] + sizes[:-1])).any():
        raise RunFailed(f"{index}: sequences of one document do not follow each other")
    total = np.concatenate([[0], np.cumsum(sizes)])
    begins = np.append(first, 0)[edges[:-1]]
    length = total[edges[1:]] - total[edges[:-1]]
    return Part(name=path.name, tokens=tokens, start=np.where(length, begins, 0), length=length)


def read_olmo(path: Path, foreign: Foreign) -> Part:
    """Read OLMo's .npy: raw tokens without a NumPy header, in the smallest type that holds the
    vocabulary. NAME.csv.gz, which is optional, has start, end and id of each document
    (allenai/OLMo, olmo/data/memmap_dataset.py; allenai/dolma,
    python/dolma/tokenizer/executor.py)."""
    with path.open("rb") as file:
        if file.read(6) == b"\x93NUMPY":
            raise RunFailed(f"{path}: has a NumPy header; OLMo's files are raw tokens")
    tokens = map_tokens(path, foreign.raw)
    bounds = path.with_suffix(".csv.gz")
    if not bounds.is_file():
        start, length, note = scan(tokens, foreign, path.name)
        return Part(name=path.name, tokens=tokens, start=start, length=length, notes=(note,))
    table = _olmo_bounds(bounds, len(tokens))
    start, end = table["f0"].to_numpy(), table["f1"].to_numpy()
    if len(start) and (
        (start < 0).any()
        or (end < start).any()
        or (end > len(tokens)).any()
        or (start[1:] < end[:-1]).any()
    ):
        raise RunFailed(
            f"{bounds}: its documents overlap or lie beyond {counted(len(tokens), 'token')}"
        )
    remainder = len(tokens) - int((end - start).sum())
    notes = (
        (f"{path.name}: {counted(remainder, 'token')} outside the documents of {bounds.name}",)
        if remainder
        else ()
    )
    ids = table["f2"].combine_chunks() if "f2" in table.column_names else None
    return Part(
        name=path.name, tokens=tokens, start=start, length=end - start, ids=ids, notes=notes
    )


def _olmo_bounds(path: Path, tokens: int) -> pa.Table:
    options = csv.ConvertOptions(
        column_types={"f0": pa.int64(), "f1": pa.int64(), "f2": pa.string()},
        null_values=[],
        strings_can_be_null=False,
    )
    names = csv.ReadOptions(autogenerate_column_names=True, use_threads=False)
    batches: list[pa.RecordBatch] = []
    rows = 0
    try:
        with csv.open_csv(path, names, convert_options=options) as stream:
            if not {"f0", "f1"} <= set(stream.schema.names):
                raise RunFailed(f"{path}: expected lines of start,end,id")
            columns = [name for name in ("f0", "f1", "f2") if name in stream.schema.names]
            for batch in stream:
                rows += batch.num_rows
                if rows > tokens + 1:
                    raise RunFailed(f"{path}: more documents than tokens")
                batches.append(batch.select(columns))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise RunFailed(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error
    return pa.Table.from_batches(batches)


_LLMC_HEADER = 1024
_LLMC_MAGIC: dict[int, np.dtype[Any]] = {20240520: np.dtype("<u2"), 20240801: np.dtype("<u4")}


def nanogpt_files(folder: Path, names: set[str]) -> list[str]:
    """Return the .bin files for training; those with "val" in the name are for evaluation."""
    return sorted(name for name in names if name.endswith(".bin") and not is_validation(name))


def is_validation(name: str) -> bool:
    """Return whether a file is for evaluation, like val.bin or fineweb_val_000000.bin."""
    return "val" in name.removesuffix(".bin").split("_")


def read_nanogpt(path: Path, foreign: Foreign) -> Part:
    """Read a .bin of nanoGPT: uint16 tokens and nothing else (karpathy/nanoGPT,
    data/openwebtext/prepare.py), or of llm.c, as modded-nanogpt reads it: a header of 256 int32
    (magic, version, number of tokens), then uint16 tokens for the magic 20240520, uint32 tokens for
    20240801 (karpathy/llm.c, dev/data/data_common.py). Neither marks the ends of documents."""
    header = _llmc_header(path)
    if header is None:
        tokens = map_tokens(path, np.dtype("<u2"))
    else:
        dtype, count = header
        tokens = map_tokens(path, dtype, _LLMC_HEADER)
        if len(tokens) != count:
            raise RunFailed(
                f"{path}: its header says {counted(count, 'token')}, it holds {len(tokens)}"
            )
    start, length, note = scan(tokens, foreign, path.name)
    return Part(name=path.name, tokens=tokens, start=start, length=length, notes=(note,))


def _llmc_header(path: Path) -> tuple[np.dtype[Any], int] | None:
    """Return (type of tokens, number of tokens) from llm.c's header (magic, version, number of
    tokens, zeros), or None if the file has no such header."""
    with path.open("rb") as file:
        head = np.frombuffer(file.read(_LLMC_HEADER // 4 * 4)[:_LLMC_HEADER], dtype=np.uint8)
    if len(head) < 12:
        return None
    magic, version, count = (int(value) for value in head[:12].view("<i4"))
    dtype = _LLMC_MAGIC.get(magic)
    # The magic number could be two tokens; in a header, zeros follow its three numbers.
    if dtype is None or version not in range(1, 100) or head[12:].any():
        return None
    if len(head) < _LLMC_HEADER:
        raise RunFailed(f"{path}: cut short within its header of {_LLMC_HEADER} bytes")
    return dtype, count


Files = Callable[[Path, set[str]], list[str]]  # selects a layout's files in a folder


def ending(suffix: str) -> Files:
    return lambda folder, names: sorted(name for name in names if name.endswith(suffix))


# The layouts of other trainers, tried in this order for files without a manifest: the most
# distinctive first.
FOREIGN_FILES: dict[str, Files] = {
    "datatrove": ending(".ds"),
    "megatron": megatron_files,
    "olmo": ending(".npy"),
    "nanogpt": nanogpt_files,
}


def read_foreign(layout: str, path: Path, foreign: Foreign) -> Part:
    if layout == "datatrove":
        return read_datatrove(path)
    if layout == "megatron":
        return read_megatron(path)
    return read_olmo(path, foreign) if layout == "olmo" else read_nanogpt(path, foreign)
