"""Arrays larger than memory: from 64 MB on they lie in mapped files, which the system may write out
and read again."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from curate.disk.files import TEMPORARY

SOME = 1_000_000  # numbers that are made at once
LARGE = 64 << 20  # bytes from which on an array is a file's


def new_array(shape: int | tuple[int, ...], dtype: Any, folder: Path) -> np.ndarray:
    """An array to be written to, of any values; a large one lies in a file of the folder that has
    no name any more, so that nothing of it stays."""
    count = int(np.prod(shape, dtype=np.int64))
    if count * np.dtype(dtype).itemsize < max(1, LARGE):
        return np.empty(shape, dtype)
    path = folder / f"{TEMPORARY}{os.getpid()}-room"
    array = np.memmap(path, dtype, "w+", shape=shape)
    path.unlink()
    return array.view(np.ndarray)


def count_up(array: np.ndarray) -> None:
    """Writes 0, 1, ... into the array."""
    for begin in range(0, len(array), SOME):
        stop = min(begin + SOME, len(array))
        array[begin:stop] = np.arange(begin, stop, dtype=array.dtype)


def load_array(path: Path, dtype: Any) -> np.ndarray:
    """The numbers in a file; a large one is mapped. What is written to them the file never sees."""
    if path.stat().st_size < max(1, LARGE):
        return np.fromfile(path, dtype)
    return np.memmap(path, dtype, "c").view(np.ndarray)


def map_array(path: Path, dtype: Any) -> np.ndarray:
    """The numbers in a file, mapped into memory to be read."""
    if path.stat().st_size == 0:  # which cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r")


def unmap(array: np.ndarray) -> None:
    """Unmaps the pages of a large array of `new_array` or `map_array`; the system may keep them
    cached."""
    held: Any = array
    while isinstance(held, np.ndarray):
        held = held.base
    if isinstance(held, mmap.mmap) and array.nbytes > LARGE:
        held.madvise(mmap.MADV_DONTNEED)
