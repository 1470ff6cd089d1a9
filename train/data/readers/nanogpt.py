"""nanoGPT's .bin: uint16 tokens and nothing else (karpathy/nanoGPT, data/openwebtext/prepare.py).

And llm.c's, which modded-nanogpt reads too: 256 int32 of header (magic, version, tokens) before
the tokens; 20240520 for uint16, 20240801 for uint32 (karpathy/llm.c, dev/data/data_common.py).
Neither says where documents end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from train.data.part import Foreign, Part, map_tokens, scan
from train.errors import TrainError

_HEADER = 1024
_MAGIC: dict[int, np.dtype[Any]] = {20240520: np.dtype("<u2"), 20240801: np.dtype("<u4")}


def files(names: set[str]) -> list[str]:
    """Those to train on: what is called val is for evaluation."""
    return sorted(name for name in names if name.endswith(".bin") and not is_val(name))


def is_val(name: str) -> bool:
    """val.bin, fineweb_val_000000.bin"""
    return "val" in name.removesuffix(".bin").split("_")


def read(path: Path, foreign: Foreign) -> Part:
    """A file with or without llm.c's header."""
    header = _header(path)
    if header is None:
        tokens = map_tokens(path, np.dtype("<u2"))
    else:
        dtype, count = header
        tokens = map_tokens(path, dtype, _HEADER)
        if len(tokens) != count:
            raise TrainError(f"{path}: its header says {count} tokens, it holds {len(tokens)}")
    start, length, note = scan(tokens, foreign, path.name)
    return Part(name=path.name, tokens=tokens, start=start, length=length, notes=(note,))


def _header(path: Path) -> tuple[np.dtype[Any], int] | None:
    """(type, number) of tokens where there is a header: magic, version, tokens, then zeros."""
    with path.open("rb") as file:
        head = np.frombuffer(file.read(_HEADER // 4 * 4)[:_HEADER], dtype=np.uint8)
    if len(head) < 12:
        return None
    magic, version, count = (int(value) for value in head[:12].view("<i4"))
    dtype = _MAGIC.get(magic)
    # The magic number could be two tokens; a header is zeros behind its three numbers.
    if dtype is None or version not in range(1, 100) or head[12:].any():
        return None
    if len(head) < _HEADER:
        raise TrainError(f"{path}: cut short within its header of {_HEADER} bytes")
    return dtype, count
