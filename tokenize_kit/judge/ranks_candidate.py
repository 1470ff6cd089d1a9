"""A file of tiktoken's ranks as a candidate, encoded by our kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tokenize_kit.byte_level import spelled
from tokenize_kit.vocabulary import open_ranks


class Ranks:
    """tokens: as byte-level vocabularies spell them. pattern: the name of a published one."""

    engine: str = "llmcurate"
    unknown: int | None = None

    def __init__(self, file: Path, path: Path, pattern: str | None) -> None:
        self.path = str(path)
        vocabulary, ranks = open_ranks(file, pattern)
        self._encode = vocabulary.encode
        self._bytes = {rank: token for token, rank in ranks.items()}
        self._bytes |= {index: name.encode() for name, index in vocabulary.special.items()}
        self.special = frozenset(vocabulary.special.values())
        self.tokens = {rank: spelled(token) for token, rank in ranks.items()}
        self.tokens |= {index: name for name, index in vocabulary.special.items()}
        self.byte_ids: frozenset[int] = frozenset()
        self._lengths = np.zeros(vocabulary.size, np.int64)
        for rank, token in self._bytes.items():
            self._lengths[rank] = len(token)

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._encode(data, offsets)

    def spans(
        self, data: np.ndarray, offsets: np.ndarray, ids: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        ends = np.cumsum(self._lengths[ids]) + offsets[0]
        return ends - self._lengths[ids], ends

    def decode(self, ids: list[int]) -> str:
        return b"".join(self._bytes.get(one, b"") for one in ids).decode("utf-8", "replace")
