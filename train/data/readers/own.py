"""Our own shards: raw tokens, and uint64 ends of documents (docs/architecture.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from train.data.part import Part, from_ends, map_tokens
from train.errors import TrainError


def files(names: set[str]) -> list[str]:
    """The token files among those of a folder."""
    return sorted(name for name in names if name.startswith("tokens-") and name.endswith(".bin"))


def read(path: Path, dtype: np.dtype[Any], *, masked: bool) -> Part:
    """One shard and the files beside it."""
    index = path.with_suffix(".idx")
    tokens = map_tokens(path, dtype)
    if index.stat().st_size % 8:
        raise TrainError(f"{index}: cut short")
    start, length = from_ends(np.fromfile(index, dtype="<u8"), len(tokens), index)
    mask = None
    if masked:
        where = path.with_name(path.name.replace("tokens-", "loss-")).with_suffix(".mask")
        mask = map_mask(where, len(tokens))
    return Part(name=path.name, tokens=tokens, start=start, length=length, mask=mask)


def map_mask(path: Path, tokens: int) -> np.ndarray:
    """A byte a token, 1 where it counts in training."""
    if not path.is_file() or path.stat().st_size != tokens:
        raise TrainError(f"{path}: not a byte a token")
    return np.memmap(path, dtype=np.uint8, mode="r") if tokens else np.zeros(0, dtype=np.uint8)
