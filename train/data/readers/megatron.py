"""Megatron's IndexedDataset: NAME.bin with tokens, NAME.idx with bounds of sequences and documents.

.idx: "MMIDIDX\\0\\0", uint64 version 1, uint8 type of tokens, uint64 sequences, uint64 document
bounds, then int32 lengths and int64 byte offsets of sequences, and int64 bounds of documents, in
sequences (NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py).
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from train.data.part import Part, map_tokens
from train.errors import TrainError

MAGIC = b"MMIDIDX\x00\x00"
_TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}  # 6 and 7 are floats
_HEADER = len(MAGIC) + 25


def files(folder: Path, names: set[str]) -> list[str]:
    """The .bin files beside an .idx that begins as Megatron's do."""
    paths = []
    for name in sorted(names):
        if name.endswith(".idx") and name.removesuffix(".idx") + ".bin" in names:
            with (folder / name).open("rb") as file:
                if file.read(len(MAGIC)) == MAGIC:
                    paths.append(name.removesuffix(".idx") + ".bin")
    return paths


def read(path: Path) -> Part:
    """A .bin and the .idx beside it."""
    index = path.with_suffix(".idx")
    raw = index.read_bytes()
    if len(raw) < _HEADER or not raw.startswith(MAGIC):
        raise TrainError(f"{index}: no index of Megatron's, or cut short")
    version, kind, sequences, bounds = struct.unpack_from("<QBQQ", raw, len(MAGIC))
    if version != 1 or kind not in _TYPES:
        raise TrainError(f"{index}: version {version} and type {kind} of tokens are not read here")
    if len(raw) != _HEADER + 12 * sequences + 8 * bounds:
        raise TrainError(f"{index}: says {sequences} sequences, {bounds} bounds; its size differs")
    sizes = np.frombuffer(raw, "<i4", sequences, _HEADER).astype(np.int64)
    offsets = np.frombuffer(raw, "<i8", sequences, _HEADER + 4 * sequences)
    edges = np.frombuffer(raw, "<i8", bounds, _HEADER + 12 * sequences)
    dtype = np.dtype(_TYPES[kind])
    tokens = map_tokens(path, dtype)
    if (sizes < 0).any() or (offsets < 0).any() or (offsets % dtype.itemsize).any():
        raise TrainError(f"{index}: a sequence has no possible place")
    first = offsets // dtype.itemsize
    if (first > len(tokens)).any() or (first + sizes > len(tokens)).any():
        raise TrainError(f"{index}: a sequence lies behind the {len(tokens)} tokens of {path.name}")
    if not len(edges):
        edges = np.arange(sequences + 1)
    if edges[0] != 0 or edges[-1] != sequences or (np.diff(edges) < 0).any():
        raise TrainError(f"{index}: the documents are not ranges of its {sequences} sequences")
    inside = np.ones(sequences, dtype=bool)
    inside[edges[:-1][edges[:-1] < sequences]] = False
    if (inside[1:] & (first[1:] != first[:-1] + sizes[:-1])).any():
        raise TrainError(f"{index}: sequences of one document do not follow each other")
    total = np.concatenate([[0], np.cumsum(sizes)])
    begins = np.append(first, 0)[edges[:-1]]
    length = total[edges[1:]] - total[edges[:-1]]
    return Part(name=path.name, tokens=tokens, start=np.where(length, begins, 0), length=length)
