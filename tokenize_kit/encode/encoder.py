"""Texts to ids: by our own kernels where they give what the library gives, else by the library."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from tokenizers import Tokenizer

from tokenize_kit.encode.reading import NotOurs, Plan, read
from tokenize_kit.encode.words import encode_pieces, new_cache
from tokenize_kit.pattern.scan import cut_rows

_ROWS = 256  # texts given to the library at once


class ByPlan:
    """Encodes by our kernels. Ids do not depend on what was encoded before, nor on how texts come
    in batches; threads may share one of these."""

    def __init__(self, plan: Plan) -> None:
        self.plan: Plan | None = plan
        self._bpe = plan.bpe
        self._idle = [new_cache()]  # a thread takes one while it encodes
        self._tables = tuple(table.kernel for table in plan.tables)

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ids: uint32[], how many of each row: int64[rows]).

        data: uint8[], valid UTF-8; offsets: int64[rows + 1].
        """
        ends, counts = cut_rows(data, offsets, self._tables)
        try:
            cache = self._idle.pop()
        except IndexError:
            cache = new_cache()
        ids, sizes = encode_pieces(data, offsets, ends, counts, self._bpe, cache)
        self._idle.append(cache)
        return ids, sizes


class Encoder(ByPlan):
    """Encodes as `tokenizer` does with `encode_special_tokens` set: no special token comes out of
    text. `reason` says why the library does the work, None where our kernels do.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.plan = None
        self.reason: str | None = None
        try:
            plan = read(tokenizer.to_str())
        except NotOurs as error:
            self.reason = str(error)
        else:
            super().__init__(plan)
            self._added = [token.encode() for token in plan.added]

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As ByPlan's."""
        if self.plan is None:
            return self._by_library(data, offsets)
        if self._added:
            raw = data[offsets[0] : offsets[-1]].tobytes()
            if any(token in raw for token in self._added):
                return self._by_library(data, offsets)
        return super().encode(data, offsets)

    def _by_library(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids, sizes = [], []
        for first in range(0, len(offsets) - 1, _ROWS):
            bounds = offsets[first : first + _ROWS + 1].tolist()
            texts = [data[a:z].tobytes().decode("utf-8") for a, z in pairwise(bounds)]
            for found in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False):
                ids.append(np.array(found.ids, np.uint32))
                sizes.append(len(found.ids))
        return np.concatenate([np.empty(0, np.uint32), *ids]), np.array(sizes, np.int64)
