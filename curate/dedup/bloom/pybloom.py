"""Files of pybloom-live: written from a corpus, and documents that such a filter holds dropped.

The keys are URLs or texts themselves, so that both sides need to agree on nothing else. A filter of
`dedup_bloom` cannot be such a file: its keys are hashes of n-grams, placed in other bits.
"""

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

HEAD = struct.Struct("<dQQQQ")  # rate, slices, bits a slice, capacity, keys
MOST_SLICES = 64  # a rate of 2^-64


def need_library() -> None:
    """RunFailed with what to install, where pybloom-live is absent."""
    if find_spec("pybloom_live") is None:
        raise RunFailed("filters of pybloom-live need it: pip install 'llmcurate[verify]'")


def write_filter(path: Path, keys: Iterable[str], count: int, rate: float) -> int:
    """A filter of keys, at most `count` of them; returns how many set a bit."""
    need_library()
    from pybloom_live import BloomFilter

    bloom = BloomFilter(max(1, count), rate)
    for key in keys:
        bloom.add(key)
    with replacing(path) as aside, open(aside, "wb") as file:
        bloom.tofile(file)
    return len(bloom)


def read_filter(path: Path) -> Any:
    """The filter of a file; UsageError where it is none, or not whole."""
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
    raise UsageError(f"{path} is no whole filter of pybloom-live (BloomFilter.tofile)")


@step("bloom_file")
class BloomFile(Step, FromFiles):
    """Drops documents whose URL or text a filter of pybloom-live holds."""

    only_measures: ClassVar[bool] = True

    file: str = Field(
        min_length=1,
        description="The path of a file that pybloom-live's BloomFilter.tofile wrote, or that"
        " `llmcurate export --format bloom` did.",
    )
    key: Literal["url", "text"] = Field(
        "url", description="What of a document is looked up: its URL or its text."
    )
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
