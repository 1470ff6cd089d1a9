"""The layouts of token files: our own, DataTrove's, Megatron's, OLMo's and nanoGPT's.

A layout names its files among those of a folder (``NAME_files``) and opens one of them as a
``Part`` (``read_NAME``).
"""

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


def own_files(names: set[str]) -> list[str]:
    """The token files among those of a folder."""
    return sorted(name for name in names if name.startswith("tokens-") and name.endswith(".bin"))


def read_own(path: Path, dtype: np.dtype[Any], *, masked: bool) -> Part:
    """Our shards (docs/design/contracts.md): raw tokens, uint64 ends of documents, and a mask."""
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
    """A byte a token, 1 where it counts in training."""
    if not path.is_file() or path.stat().st_size != tokens:
        raise RunFailed(f"{path}: not a byte a token")
    return np.memmap(path, dtype=np.uint8, mode="r") if tokens else np.zeros(0, dtype=np.uint8)


def read_datatrove(path: Path) -> Part:
    """DataTrove's NAME.ds: raw uint16 or uint32 tokens; NAME.ds.index: uint64 ends of documents, in
    tokens; NAME.ds.loss, if there: a byte a token, 1 where it counts (huggingface/datatrove,
    src/datatrove/pipeline/tokens/tokenizer.py).
    """
    index = path.with_name(path.name + ".index")
    if not index.is_file() or index.stat().st_size % 8:
        raise RunFailed(f"{index}: missing or cut short")
    ends = np.fromfile(index, dtype="<u8")
    size, count = path.stat().st_size, int(ends[-1]) if len(ends) else 0
    # The file names no type: it is what makes the last end the end of the file.
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
    """The .bin files beside an .idx that begins as Megatron's do."""
    paths = []
    for name in sorted(names):
        if name.endswith(".idx") and name.removesuffix(".idx") + ".bin" in names:
            with (folder / name).open("rb") as file:
                if file.read(len(_MEGATRON_MAGIC)) == _MEGATRON_MAGIC:
                    paths.append(name.removesuffix(".idx") + ".bin")
    return paths


def read_megatron(path: Path) -> Part:
    """Megatron's IndexedDataset: NAME.bin with tokens, NAME.idx with bounds of sequences and
    documents.

    .idx: "MMIDIDX\\0\\0", uint64 version 1, uint8 type of tokens, uint64 sequences, uint64 document
    bounds, then int32 lengths and int64 byte offsets of sequences, and int64 bounds of documents,
    in sequences (NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py).
    """
    index = path.with_suffix(".idx")
    raw = index.read_bytes()
    if len(raw) < _MEGATRON_HEADER or not raw.startswith(_MEGATRON_MAGIC):
        raise RunFailed(f"{index}: no index of Megatron's, or cut short")
    version, kind, sequences, bounds = struct.unpack_from("<QBQQ", raw, len(_MEGATRON_MAGIC))
    if version != 1 or kind not in _MEGATRON_TYPES:
        raise RunFailed(f"{index}: version {version} and type {kind} of tokens are not read here")
    if len(raw) != _MEGATRON_HEADER + 12 * sequences + 8 * bounds:
        raise RunFailed(f"{index}: says {sequences} sequences, {bounds} bounds; its size differs")
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
            f"{index}: a sequence lies behind the {counted(len(tokens), 'token')} of {path.name}"
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
    """OLMo's .npy: tokens as np.memmap writes them, no NumPy header, of the smallest type that
    holds the vocabulary; beside it NAME.csv.gz with start, end, id of documents, or nothing
    (allenai/OLMo, olmo/data/memmap_dataset.py; allenai/dolma,
    python/dolma/tokenizer/executor.py).
    """
    with path.open("rb") as file:
        if file.read(6) == b"\x93NUMPY":
            raise RunFailed(f"{path}: a NumPy file with a header; OLMo's are tokens alone")
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
            f"{bounds}: its documents overlap or lie behind {counted(len(tokens), 'token')}"
        )
    remainder = len(tokens) - int((end - start).sum())
    notes = (
        (f"{path.name}: {counted(remainder, 'token')} outside of the documents of {bounds.name}",)
        if remainder
        else ()
    )
    ids = table["f2"].combine_chunks() if "f2" in table.column_names else None
    return Part(
        name=path.name, tokens=tokens, start=start, length=end - start, ids=ids, notes=notes
    )


def _olmo_bounds(path: Path, tokens: int) -> pa.Table:
    """start, end (tokens) and, if there, id; no more rows than tokens are taken."""
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
            kept = [name for name in ("f0", "f1", "f2") if name in stream.schema.names]
            for batch in stream:
                rows += batch.num_rows
                if rows > tokens + 1:
                    raise RunFailed(f"{path}: more documents than tokens")
                batches.append(batch.select(kept))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise RunFailed(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error
    return pa.Table.from_batches(batches)


_LLMC_HEADER = 1024
_LLMC_MAGIC: dict[int, np.dtype[Any]] = {20240520: np.dtype("<u2"), 20240801: np.dtype("<u4")}


def nanogpt_files(folder: Path, names: set[str]) -> list[str]:
    """The .bin files to train on: those called val are for evaluation."""
    return sorted(name for name in names if name.endswith(".bin") and not is_validation(name))


def is_validation(name: str) -> bool:
    """val.bin, fineweb_val_000000.bin"""
    return "val" in name.removesuffix(".bin").split("_")


def read_nanogpt(path: Path, foreign: Foreign) -> Part:
    """nanoGPT's .bin: uint16 tokens and nothing else (karpathy/nanoGPT,
    data/openwebtext/prepare.py). And llm.c's, which modded-nanogpt reads too: 256 int32 of header
    (magic, version, tokens) before the tokens; 20240520 for uint16, 20240801 for uint32
    (karpathy/llm.c, dev/data/data_common.py). Neither says where documents end.
    """
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
    """(type, number) of tokens where there is a header: magic, version, tokens, then zeros."""
    with path.open("rb") as file:
        head = np.frombuffer(file.read(_LLMC_HEADER // 4 * 4)[:_LLMC_HEADER], dtype=np.uint8)
    if len(head) < 12:
        return None
    magic, version, count = (int(value) for value in head[:12].view("<i4"))
    dtype = _LLMC_MAGIC.get(magic)
    # The magic number could be two tokens; a header is zeros behind its three numbers.
    if dtype is None or version not in range(1, 100) or head[12:].any():
        return None
    if len(head) < _LLMC_HEADER:
        raise RunFailed(f"{path}: cut short within its header of {_LLMC_HEADER} bytes")
    return dtype, count


Files = Callable[[Path, set[str]], list[str]]  # those of a layout, among the names of a folder


def ending(suffix: str) -> Files:
    """The files whose names end so."""
    return lambda folder, names: sorted(name for name in names if name.endswith(suffix))


# The layouts of other trainers, in the order in which files without a manifest are tried: those
# with marks of their own first.
FOREIGN_FILES: dict[str, Files] = {
    "datatrove": ending(".ds"),
    "megatron": megatron_files,
    "olmo": ending(".npy"),
    "nanogpt": nanogpt_files,
}


def read_foreign(layout: str, path: Path, foreign: Foreign) -> Part:
    """A token file of another trainer."""
    if layout == "datatrove":
        return read_datatrove(path)
    if layout == "megatron":
        return read_megatron(path)
    return read_olmo(path, foreign) if layout == "olmo" else read_nanogpt(path, foreign)
