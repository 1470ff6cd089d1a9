"""Token files as other trainers write them, by the layouts that they publish."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

Documents = list[list[int]]


def records(parts: list[bytes], between: bytes = b"") -> bytes:
    """The number of records and their offsets, then ``between``, then the records."""
    first = 4 * (len(parts) + 2) + len(between)
    offsets = np.cumsum([first, *map(len, parts)])
    return (
        struct.pack("<I", len(parts)) + offsets.astype("<u4").tobytes() + between + b"".join(parts)
    )


def litdata(folder: Path, documents: Documents, dtype: str = "<i4", **config: Any) -> Path:
    """A chunk as litdata.optimize(..., item_loader=TokensLoader()) writes it, and its index."""
    folder.mkdir(exist_ok=True)
    number = {"<u2": 20, "<i4": 16, "<i8": 18}[dtype]
    facts = {
        "compression": None,
        "data_format": [f"no_header_tensor:{number}"],
        "encryption": None,
        "item_loader": "TokensLoader",
    }
    index = {"chunks": [{"filename": "chunk-0-0.bin"}], "config": facts | config}
    (folder / "index.json").write_text(json.dumps(index))
    data = records([np.array(document, dtype).tobytes() for document in documents])
    (folder / "chunk-0-0.bin").write_bytes(data)
    return folder


def mds(folder: Path, parts: list[bytes], columns: dict[str, tuple[str, int | None]]) -> Path:
    """A shard of MosaicML's MDSWriter. ``columns`` has encoding and fixed size of each column."""
    folder.mkdir(exist_ok=True)
    facts = {
        "column_encodings": [encoding for encoding, _ in columns.values()],
        "column_names": list(columns),
        "column_sizes": [size for _, size in columns.values()],
        "format": "mds",
        "version": 2,
    }
    head = json.dumps(facts, sort_keys=True).encode()
    (folder / "shard.00000.mds").write_bytes(records(parts, head))
    (folder / "index.json").write_text('{"version": 2, "shards": []}')
    return folder


def mds_of(folder: Path, documents: Documents, encoding: str) -> Path:
    """A shard with one column of tokens: bytes (int64), ndarray:TYPE or ndarray:TYPE:SIZE."""
    form, _, rest = encoding.partition(":")
    name, _, shape = rest.partition(":")
    size = np.dtype(name).itemsize * int(shape) if shape else None
    parts = []
    for document in documents:
        values = np.array(document, name or "<i8")
        data = values.tobytes()
        if form == "ndarray" and not shape:  # one dimension, its size as uint8
            data = bytes([1 << 2, len(document)]) + data
        parts.append(data if size else struct.pack("<I", len(data)) + data)
    return mds(folder, parts, {"tokens": (encoding, size)})


def litgpt(folder: Path, documents: Documents) -> Path:
    """A file of lit-gpt's PackedDataset, whose chunk has exactly these tokens."""
    folder.mkdir(exist_ok=True)
    tokens = np.concatenate(documents).astype("<u2")
    head = b"LITPKDS" + struct.pack("<QBQ", 1, 8, len(tokens))
    (folder / "0.bin").write_bytes(head + tokens.tobytes())
    return folder


def megatron(folder: Path, documents: Documents) -> Path:
    folder.mkdir(exist_ok=True)
    np.concatenate(documents).astype("<u2").tofile(folder / "part.bin")
    sizes = np.array([len(document) for document in documents])
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(sizes), len(sizes) + 1)
    offsets = 2 * (np.cumsum(sizes) - sizes)
    edges = np.arange(len(sizes) + 1)
    rest = sizes.astype("<i4").tobytes() + offsets.astype("<i8").tobytes()
    (folder / "part.idx").write_bytes(head + rest + edges.astype("<i8").tobytes())
    return folder


def nanogpt(folder: Path, documents: Documents) -> Path:
    folder.mkdir(exist_ok=True)
    np.concatenate(documents).astype("<u2").tofile(folder / "part.bin")
    return folder
