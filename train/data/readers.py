"""The layouts of token files: llmcurate's, DataTrove's, Megatron's, OLMo's and nanoGPT's. Other
trainers' layouts are declared by ``layout``; train/lab/data has more of them."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as csv

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
_SCAN = 1 << 24  # tokens scanned at a time


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """Facts that the files of other trainers do not record. Ids are below ``vocab_size``. The id
    ``end_of_text`` ends documents. If one of the two is not given, it is read from ``tokenizer``, a
    tokenizer.json or its folder. ``dtype``: the type of the tokens, by default uint16 if all ids
    fit, else uint32."""

    vocab_size: int | None = None
    end_of_text: int | None = None
    tokenizer: str | None = None
    dtype: str | None = None

    def raw(self, default: str | None = None) -> np.dtype[Any]:
        """Return the type of the tokens in a file that does not record it: the field ``dtype``,
        else ``default``, else the smaller of uint16 and uint32 that fits all ids."""
        smallest = "<u2" if (self.vocab_size or 0) <= 1 << 16 else "<u4"
        return np.dtype(self.dtype or default or smallest).newbyteorder("<")


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """One token file. ``start`` and ``length`` of each document are in tokens. ``bytes`` has the
    number of UTF-8 bytes of each document's text. ``mask`` is uint8 per token, 1 where the token
    counts in training. The ids of documents come from ``table`` (a parquet file with a row per
    document) or ``ids``; without these they are "name:number"."""

    name: str
    tokens: npt.NDArray[Any]
    start: Ints
    length: Ints
    bytes: Ints | None = None
    mask: npt.NDArray[np.uint8] | None = None
    table: Path | None = None
    ids: pa.Array | None = None
    notes: tuple[str, ...] = ()


Files = Callable[[Path, set[str]], list[str]]  # selects a layout's files in a folder
Read = Callable[[Path, Foreign], Part]  # opens one of these files
LAYOUTS: dict[str, tuple[Files, Read]] = {}


def layout(name: str, files: Files) -> Callable[[Read], Read]:
    """Declare that the decorated function reads the files of a layout. ``files`` takes a folder and
    the names in it, and returns the names of the layout's token files in order."""

    def declare(read: Read) -> Read:
        LAYOUTS[name] = files, read
        return read

    return declare


def ending(suffix: str) -> Files:
    """Return a function that selects the files whose names end with ``suffix``."""
    return lambda folder, names: sorted(name for name in names if name.endswith(suffix))


def is_validation(name: str) -> bool:
    """Return True for the name of a file for evaluation, such as val.bin, fineweb_val_000000.bin or
    validation/index.json."""
    return not {"val", "valid", "validation"}.isdisjoint(re.split(r"[^a-z0-9]+", name.lower()))


def map_tokens(path: Path, dtype: np.dtype[Any], offset: int = 0) -> npt.NDArray[Any]:
    """Map a file's tokens, which begin after ``offset`` bytes, into memory."""
    size = path.stat().st_size - offset
    if size < 0 or size % dtype.itemsize:
        raise RunFailed(f"{path}: cut short: {size} bytes are no whole number of {dtype.name}")
    # An empty file cannot be mapped.
    if not size:
        return np.zeros(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset)


def from_ends(ends: npt.NDArray[Any], tokens: int, where: Path) -> tuple[Ints, Ints]:
    """Return (start, length) of documents without gaps between them, given their ``ends``."""
    if len(ends) and int(ends.max()) >= 1 << 63:
        raise RunFailed(f"{where}: the document ends do not fit the tokens")
    checked = ends.astype(np.int64)
    length = np.diff(checked, prepend=0)
    if (length < 0).any() or (int(checked[-1]) if len(checked) else 0) != tokens:
        raise RunFailed(f"{where}: the document ends do not fit the {counted(tokens, 'token')}")
    return checked - length, length


def scan(name: str, tokens: npt.NDArray[Any], foreign: Foreign) -> Part:
    """Return the documents of a file without an index. A document ends with an end-of-text id, or
    at the end of the file."""
    total, end = len(tokens), foreign.end_of_text
    parts = [
        np.flatnonzero(tokens[first : first + _SCAN] == end) + first + 1
        for first in range(0, 0 if end is None else total, _SCAN)
    ]
    ends = np.concatenate([np.zeros(0, np.int64), *parts])
    if total and (not len(ends) or ends[-1] != total):
        ends = np.append(ends, total)
    note = "no index, so it is one document; give end_of_text to find its documents"
    if end is not None:
        note = f"no index, documents end at token {end}"
    length = np.diff(ends, prepend=0)
    return Part(name=name, tokens=tokens, start=ends - length, length=length, notes=(note,))


def from_records(name: str, tokens: npt.NDArray[Any], length: Ints, foreign: Foreign) -> Part:
    """Return the documents of a file of records. If all records have one length, they are blocks of
    one text, in which end-of-text ids end documents. Otherwise each record is a document."""
    blocks = len(length) > 0 and (length[:-1] == length[0]).all() and length[-1] <= length[0]
    if blocks and foreign.end_of_text is not None:
        return scan(name, tokens, foreign)
    notes = ("each record is a document",)
    return Part(
        name=name, tokens=tokens, start=np.cumsum(length) - length, length=length, notes=notes
    )


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


@layout("datatrove", ending(".ds"))
def read_datatrove(path: Path, foreign: Foreign) -> Part:
    """Read DataTrove's NAME.ds: raw uint16 or uint32 tokens. NAME.ds.index has the uint64 ends of
    documents, in tokens. NAME.ds.loss, which is optional, has a byte per token, 1 where the token
    counts in training (huggingface/datatrove, src/datatrove/pipeline/tokens/tokenizer.py)."""
    index = path.with_name(path.name + ".index")
    if not index.is_file() or index.stat().st_size % 8:
        raise RunFailed(f"{index}: missing or cut short")
    ends = np.fromfile(index, dtype="<u8")
    size, count = path.stat().st_size, int(ends[-1]) if len(ends) else 0
    # The file does not record its dtype. The bytes per token follow from its size.
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
# Codes in the headers of Megatron and lit-gpt; 6 and 7 are floats.
_TYPE_CODES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
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


@layout("megatron", megatron_files)
def read_megatron(path: Path, foreign: Foreign) -> Part:
    """Read Megatron's IndexedDataset. NAME.bin has the tokens. NAME.idx says where each sequence of
    tokens is in NAME.bin, and which sequences make each document.

    .idx: "MMIDIDX\\0\\0", uint64 version 1, uint8 type of tokens, uint64 S (number of sequences),
    uint64 N (number of document bounds), int32[S] lengths of sequences in tokens, int64[S] byte
    offsets of sequences, int64[N] document bounds: document k has the sequences from bounds[k] to
    bounds[k + 1] - 1 (NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py)."""
    index = path.with_suffix(".idx")
    raw = index.read_bytes()
    if len(raw) < _MEGATRON_HEADER or not raw.startswith(_MEGATRON_MAGIC):
        raise RunFailed(f"{index}: not a Megatron index, or cut short")
    version, kind, sequences, bounds = struct.unpack_from("<QBQQ", raw, len(_MEGATRON_MAGIC))
    if version != 1 or kind not in _TYPE_CODES:
        raise RunFailed(f"{index}: version {version} with token type {kind} is not supported")
    if len(raw) != _MEGATRON_HEADER + 12 * sequences + 8 * bounds:
        raise RunFailed(f"{index}: its size does not fit {sequences} sequences and {bounds} bounds")
    sizes = np.frombuffer(raw, "<i4", sequences, _MEGATRON_HEADER).astype(np.int64)
    offsets = np.frombuffer(raw, "<i8", sequences, _MEGATRON_HEADER + 4 * sequences)
    edges = np.frombuffer(raw, "<i8", bounds, _MEGATRON_HEADER + 12 * sequences)
    dtype = np.dtype(_TYPE_CODES[kind])
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


@layout("olmo", ending(".npy"))
def read_olmo(path: Path, foreign: Foreign) -> Part:
    """Read OLMo's .npy: raw tokens without a NumPy header, in the smallest type that holds the
    vocabulary. The optional NAME.csv.gz has start and end (in tokens) and id of each document
    (allenai/OLMo, olmo/data/memmap_dataset.py; allenai/dolma,
    python/dolma/tokenizer/executor.py)."""
    with path.open("rb") as file:
        if file.read(6) == b"\x93NUMPY":
            raise RunFailed(f"{path}: has a NumPy header; OLMo's files are raw tokens")
    tokens = map_tokens(path, foreign.raw())
    bounds = path.with_suffix(".csv.gz")
    if not bounds.is_file():
        return scan(path.name, tokens, foreign)
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
        (f"{counted(remainder, 'token')} outside the documents of {bounds.name}",)
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
_LITGPT_MAGIC, _LITGPT_HEADER = b"LITPKDS", 24


def bin_files(folder: Path, names: set[str]) -> list[str]:
    """Return the .bin files in a folder, without those of LitData. Return no file if any of these
    .bin files has an index (.idx), because `read_bin` would ignore the ends of documents there."""
    paths = [n for n in ending(".bin")(folder, names) if not Path(n).name.startswith("chunk-")]
    return [] if any(name.removesuffix(".bin") + ".idx" in names for name in paths) else paths


@layout("nanogpt", bin_files)
def read_bin(path: Path, foreign: Foreign) -> Part:
    """Read a .bin file of one of three kinds. None of them marks the ends of documents.

    nanoGPT's: uint16 tokens and nothing else (karpathy/nanoGPT, data/openwebtext/prepare.py).
    llm.c's, as modded-nanogpt reads it: a header of 256 int32 (magic, version, number of tokens),
    then uint16 tokens for the magic 20240520, uint32 tokens for 20240801 (karpathy/llm.c,
    dev/data/data_common.py). lit-gpt's PackedDataset, also of TinyLlama: "LITPKDS", uint64 version
    1, uint8 type of tokens, uint64 number of tokens in a chunk. A file has one or more chunks. The
    last chunk is filled up with the separator, the id ``end_of_text`` (Lightning-AI/litgpt before
    0.4, lit_gpt/packed_dataset.py)."""
    with path.open("rb") as file:
        head = file.read(_LLMC_HEADER)
    padded = head.startswith(_LITGPT_MAGIC)
    header = _litgpt_header(head, path) if padded else _llmc_header(head, path)
    dtype, offset, count = header or (np.dtype("<u2"), 0, None)
    tokens = map_tokens(path, dtype, offset)
    # A file of lit-gpt may hold several chunks.
    many = padded and count and len(tokens) >= count and len(tokens) % count == 0
    if count is not None and len(tokens) != count and not many:
        raise RunFailed(
            f"{path}: its header says {counted(count, 'token')}, it holds {len(tokens)}"
        )
    part = scan(path.name, tokens, foreign)
    documents = int((np.flatnonzero(part.length > 1)[-1:] + 1).sum()) if padded else None
    return replace(part, start=part.start[:documents], length=part.length[:documents])


def _litgpt_header(head: bytes, path: Path) -> tuple[np.dtype[Any], int, int]:
    """Return (type of tokens, bytes of the header, number of tokens)."""
    if len(head) < _LITGPT_HEADER:
        raise RunFailed(f"{path}: cut short within its header of {_LITGPT_HEADER} bytes")
    version, kind, count = struct.unpack_from("<QBQ", head, len(_LITGPT_MAGIC))
    if version != 1 or kind not in _TYPE_CODES:
        raise RunFailed(f"{path}: version {version} with token type {kind} is not supported")
    return np.dtype(_TYPE_CODES[kind]), _LITGPT_HEADER, count


def _llmc_header(head: bytes, path: Path) -> tuple[np.dtype[Any], int, int] | None:
    """Return (type of tokens, bytes of the header, number of tokens), or None if the file does not
    begin with magic, version, number of tokens and zeros."""
    if len(head) < 12:
        return None
    magic, version, count = struct.unpack_from("<3i", head)
    dtype = _LLMC_MAGIC.get(magic)
    # The magic number could be two tokens; in a header, zeros follow its three numbers.
    if dtype is None or version not in range(1, 100) or any(head[12:]):
        return None
    if len(head) < _LLMC_HEADER:
        raise RunFailed(f"{path}: cut short within its header of {_LLMC_HEADER} bytes")
    return dtype, _LLMC_HEADER, count
