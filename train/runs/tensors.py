"""The tensors of a checkpoint on disk, in safetensors: whole in ``model.safetensors``, or divided
among ``model-00001-of-00004.safetensors`` and so on. The header of a file with parts of tensors
has, for each part, its offset in the whole tensor, the tensor's shape and the part's checksum.
state.json has the header's checksum. So each tensor can be read and verified without the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from torch import Tensor

from llmcurate.base.disk.sealed_json import checksum
from llmcurate.base.errors import LlmcurateError

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_HEADER_BYTES = 100_000_000  # safetensors' own limit


class Damaged(LlmcurateError):
    """A checkpoint that differs from what was written. ``what``: the file and the reason."""

    def __init__(self, file: Path, reason: object) -> None:
        self.what = f"{file}: damaged ({reason})"
        super().__init__(f"{self.what}; delete {file.parent}")


def tensor_checksum(tensor: Tensor) -> str:
    """Return the xxh3-128 of a tensor's dtype, shape and bytes, without a copy if contiguous."""
    hashed = xxhash.xxh3_128(f"{tensor.dtype} {list(tensor.shape)} ".encode())
    if tensor.numel():
        hashed.update(_bytes(tensor))
    return hashed.hexdigest()


# For each file: the checksum of its header, or the checksums of its tensors by name.
Sums = dict[str, str | dict[str, str]]


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    view: memoryview = flat.numpy().data
    return view


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    metadata: dict[str, str] | None = None,
    values: Callable[[str], Tensor] | None = None,
) -> bytes:
    """Write a safetensors file tensor by tensor, and return its header. Tensors on a GPU or not
    contiguous are copied, one at a time. If ``tensors`` are on the meta device, ``values`` must
    return the tensor of a name.
    """
    value_of = values or tensors.__getitem__
    header: dict[str, dict[str, str] | dict[str, str | list[int]]] = (
        {} if metadata is None else {"__metadata__": metadata}
    )
    # Wide types first, so that each tensor starts at a multiple of its item size.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    end = 0
    for name in order:
        tensor = tensors[name]
        begin, end = end, end + tensor.numel() * tensor.element_size()
        place: dict[str, str | list[int]] = {"dtype": _NAMES[tensor.dtype]}
        header[name] = place | {"shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            if tensors[name].numel():
                file.write(_bytes(value_of(name)))
    return text


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a tensor: the file, name, first index in each dimension, shape, and checksum."""

    file: Path
    name: str
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    sum: str


class Stored(Mapping[str, Tensor]):
    """The tensors in safetensors files, by name, each compared with its checksum when it is read.
    ``files`` has, for each file with whole tensors, their checksums by name. For each file with
    parts of tensors it has the checksum of the file's header, which has the checksums of the parts.
    Raises ``Damaged`` if a checksum differs."""

    def __init__(self, files: Mapping[Path, Any]) -> None:
        self.files = list(files)
        self.shapes: dict[str, torch.Size] = {}
        self.dtypes: dict[str, torch.dtype] = {}
        self.parts: dict[str, list[Part]] = {}
        self._open: dict[Path, Any] = {}
        for path, sums in files.items():
            try:
                self._add(path, sums)
            except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
                raise Damaged(path, f"cannot be read: {error}") from error
        for name, parts in self.parts.items():
            held = sum(torch.Size(part.shape).numel() for part in parts)
            if held != self.shapes[name].numel():
                raise Damaged(parts[0].file, f"parts of {name} are missing")

    def _add(self, path: Path, sums: Any) -> None:
        file = self._open[path] = safe_open(path, framework="pt")
        names, places = set(file.keys()), None
        if isinstance(sums, str):
            with path.open("rb") as raw:
                length = int.from_bytes(raw.read(8), "little")
                if length > _HEADER_BYTES:
                    raise Damaged(path, f"its header is larger than {_HEADER_BYTES} bytes")
                header = raw.read(length)
            if checksum(header) != sums:
                raise Damaged(path, "the checksum of its header differs")
            places = json.loads(file.metadata()["parts"])
            sums = {name: place["sum"] for name, place in places.items()}
        if not isinstance(sums, dict) or sums.keys() != names:
            raise Damaged(path, "it does not have the tensors that were written")
        for name in sorted(names):
            view = file.get_slice(name)
            shape = tuple(view.get_shape())
            place = (
                {"offsets": [0] * len(shape), "shape": shape} if places is None else places[name]
            )
            whole, offsets = torch.Size(place["shape"]), place["offsets"]
            if len(whole) != len(shape) or any(
                first < 0 or first + size > most
                for first, size, most in zip(offsets, shape, whole, strict=True)
            ):
                raise ValueError(f"{name} is not a part of a tensor of shape {list(whole)}")
            if self.shapes.setdefault(name, whole) != whole:
                raise ValueError(f"{name} has several shapes")
            self.dtypes[name] = DTYPES[view.get_dtype()]
            part = Part(file=path, name=name, offsets=tuple(offsets), shape=shape, sum=sums[name])
            self.parts.setdefault(name, []).append(part)

    @property
    def bytes(self) -> int:
        return sum(
            shape.numel() * self.dtypes[name].itemsize for name, shape in self.shapes.items()
        )

    def read(self, part: Part) -> Tensor:
        """Return a part of a tensor, memory-mapped."""
        try:
            tensor: Tensor = self._open[part.file].get_tensor(part.name)
        except (OSError, SafetensorError) as error:
            raise Damaged(part.file, f"cannot be read: {error}") from error
        if tensor_checksum(tensor) != part.sum:
            raise Damaged(part.file, f"the checksum of {part.name} differs")
        return tensor

    def __getitem__(self, name: str) -> Tensor:
        shape, parts = self.shapes[name], self.parts[name]
        if len(parts) == 1 and parts[0].shape == shape:
            return self.read(parts[0])
        whole = torch.zeros(shape, dtype=self.dtypes[name])
        for part in parts:
            extents = zip(part.offsets, part.shape, strict=True)
            whole[tuple(slice(first, first + size) for first, size in extents)] = self.read(part)
        return whole

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)
