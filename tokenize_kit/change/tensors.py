"""Matrices of a safetensors file: read one, write a few; nothing else of a checkpoint is touched.

Format (huggingface/safetensors, README): eight bytes little-endian, the size of a JSON header; the
header, name to dtype, shape and place; the data. Numbers are float32, float16 or bfloat16.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from tokenize_kit.errors import TokenizerError
from tokenize_kit.files import write_atomic

_SIZES = {"F32": 4, "F16": 2, "BF16": 2}
_MOST_HEADER = 100 << 20  # as the library's own limit


class Checkpoint:
    """The tensors of a file, or of all safetensors files of a folder.

    Raises TokenizerError naming the file where it is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
        if not files or not files[0].is_file():
            raise TokenizerError(f"{path}: no safetensors file", exit_code=2)
        self._places: dict[str, tuple[Path, int, dict[str, Any]]] = {}
        for file in files:
            start, header = _header(file)
            for name, about in header.items():
                self._places[name] = (file, start, about)

    @property
    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._places)

    def kind(self, name: str) -> str:
        """The dtype of a tensor as the file spells it."""
        return self._places[name][2]["dtype"]

    def matrix(self, name: str) -> np.ndarray:
        """Rows as float32[rows, width], or as uint16 for bfloat16 (`widened` makes it float32)."""
        if name not in self._places:
            raise TokenizerError(f"{self.path}: no tensor {name!r}", exit_code=2)
        file, start, about = self._places[name]
        kind, shape, (a, z) = about["dtype"], about["shape"], about["data_offsets"]
        if kind not in _SIZES or len(shape) != 2:
            raise TokenizerError(
                f"{file}: {name} is {kind} of shape {shape}; embeddings are matrices of"
                f" {', '.join(_SIZES)}",
                exit_code=2,
            )
        if z - a != shape[0] * shape[1] * _SIZES[kind]:
            raise TokenizerError(f"{file}: {name} is not as long as its shape says", exit_code=2)
        stored = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[kind]
        with file.open("rb") as opened:
            opened.seek(start + a)
            flat = np.fromfile(opened, stored, shape[0] * shape[1])
        return flat.reshape(shape)


def _header(file: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """(where data begins, tensors by name)."""
    size = file.stat().st_size
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if not 2 <= length <= min(_MOST_HEADER, size - 8):
                raise ValueError("a header of no sense")
            header = json.loads(opened.read(length))
        header.pop("__metadata__", None)
        for about in header.values():
            a, z = about["data_offsets"]
            if not 0 <= a <= z <= size - 8 - length or not all(n >= 0 for n in about["shape"]):
                raise ValueError("data that is not in the file")
            str(about["dtype"])
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise TokenizerError(
            f"{file}: not a whole safetensors file ({str(error) or 'cut short'})", exit_code=2
        ) from None
    return 8 + length, header


def widened(stored: np.ndarray) -> np.ndarray:
    """Stored numbers as float32."""
    if stored.dtype == np.uint16:  # bfloat16 is the upper half of a float32
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32)


def narrowed(values: np.ndarray, kind: str) -> np.ndarray:
    """float32 as a dtype stores it, rounded to the nearest, halves to even."""
    if kind == "BF16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return values.astype({"F32": "<f4", "F16": "<f2"}[kind])


def write_tensors(path: Path, tensors: dict[str, tuple[np.ndarray, str]]) -> None:
    """A safetensors file of matrices; each as stored, with its dtype."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (stored, kind) in tensors.items():
        shape = list(stored.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + stored.nbytes]}
        at += stored.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = [np.ascontiguousarray(stored).data.cast("B") for stored, _ in tensors.values()]
    write_atomic(path, struct.pack("<Q", len(text)), text, *data)
