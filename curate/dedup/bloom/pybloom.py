"""Write pybloom-live filters from a corpus, and drop documents that such a filter contains.

The keys are URLs or texts, so anybody can look one up in the filter. The filter of `dedup_bloom`
cannot be exported to this format: its keys are hashes of n-grams, and each key sets other bits than
in pybloom-live."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, PrivateAttr

from curate.documents.documents import Documents
from curate.steps.contracts import FromFiles, Identity, Step, step
from llmcurate.base.disk.files import check_regular, replacing
from llmcurate.base.errors import RunFailed, UsageError

HEAD = struct.Struct("<dQQQQ")  # rate, slices, bits per slice, capacity, keys
MOST_SLICES = 64  # a rate of 2^-64


def need_library() -> None:
    """Raise RunFailed with the install command if pybloom-live is not installed."""
    if find_spec("pybloom_live") is None:
        raise RunFailed("pybloom-live is not installed; run: pip install 'llmcurate[verify]'")


def write_filter(path: Path, keys: Iterable[str], count: int, rate: float) -> int:
    """Write a filter with room for `count` keys. Return the number of keys that seemed new to the
    filter when they were added."""
    need_library()
    from pybloom_live import BloomFilter

    bloom = BloomFilter(max(1, count), rate)
    for key in keys:
        bloom.add(key)
    with replacing(path) as aside, open(aside, "wb") as file:
        bloom.tofile(file)
    return len(bloom)


def read_filter(path: Path) -> Any:
    """Read a filter file. Raises UsageError if it is not a whole filter of pybloom-live."""
    need_library()
    from pybloom_live import BloomFilter

    try:
        check_regular(path)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(HEAD.size)
            if len(head) == HEAD.size:
                rate, slices, bits, capacity, _ = HEAD.unpack(head)
                right = 0 < rate < 1 and 0 < slices <= MOST_SLICES and min(bits, capacity) > 0
                if right and size == HEAD.size + -(-slices * bits // 8):
                    file.seek(0)
                    return BloomFilter.fromfile(file)
    except OSError as error:
        raise UsageError(f"cannot read the filter {path}: {error.strerror}") from None
    raise UsageError(f"{path} is damaged or not a filter of pybloom-live (BloomFilter.tofile)")


@step("bloom_file")
class BloomFile(Step, FromFiles):
    """Drops documents whose URL or text is in a pybloom-live filter."""

    only_measures: ClassVar[bool] = True

    file: str = Field(min_length=1)
    """Path of a filter file, written by pybloom-live's BloomFilter.tofile or by `llmcurate export
    --format bloom`."""
    key: Literal["url", "text"] = "url"
    """The field of a document to look up: its URL or its text."""
    _filter: Any = PrivateAttr(default=None)

    def identity(self) -> Identity:
        read_filter(Path(self.file))
        return super().identity()

    def resources(self) -> list[str]:
        return [self.file]

    def open(self) -> None:
        self._filter = read_filter(Path(self.file))

    def apply(self, docs: Documents) -> Documents:
        if self._filter is None:
            self.open()
        keys = docs.table[self.key].to_pylist()
        held = np.array([key is not None and key in self._filter for key in keys], np.bool_)
        return docs.drop(held, "in_filter")
