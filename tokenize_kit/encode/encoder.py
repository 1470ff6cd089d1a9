"""Texts to ids: by our own kernels where they give what the library gives, else by the library."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from tokenize_kit.encode.json_pieces import Pieces, is_of_pieces
from tokenize_kit.encode.odd_rows import find_odd, form_table
from tokenize_kit.encode.reading import NotOurs, Plan, read
from tokenize_kit.encode.words import encode_pieces, new_cache
from tokenize_kit.errors import TokenizerError
from tokenize_kit.load import panicked
from tokenize_kit.pattern.scan import cut_rows

Encode = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
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


class Encoder:
    """Encodes as `tokenizer` does with `encode_special_tokens` set: no special token comes out of
    text. `reason` says why the library does the work, None where our kernels do; then threads may
    share one of these. `plan` is that of a byte-level vocabulary, else None.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.plan: Plan | None = None
        self.reason: str | None = None
        self._added: list[bytes] = []
        self._table: np.ndarray | None = None  # rows that it finds odd go to the library
        self._clusters = False
        parts = json.loads(tokenizer.to_str())
        try:
            if is_of_pieces(parts):
                pieces = Pieces(parts)
                self._kernels: Encode = pieces.encode
                self._table, self._clusters = pieces.table, True
            else:
                self.plan = read(parts)
                self._kernels = ByPlan(self.plan).encode
                self._added = [token.encode() for token in self.plan.added]
                if self.plan.form:
                    self._table = form_table(self.plan.form)
        except NotOurs as error:
            self.plan, self.reason = None, str(error)

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As ByPlan's."""
        if self.reason is not None:
            return self._by_library(data, offsets)
        if self._added:
            raw = data[offsets[0] : offsets[-1]].tobytes()
            if any(token in raw for token in self._added):
                return self._by_library(data, offsets)
        if self._table is None:
            return self._kernels(data, offsets)
        odd = find_odd(data, offsets, self._table, self._clusters)
        if not odd.any():
            return self._kernels(data, offsets)
        turns = [0, *(np.flatnonzero(np.diff(odd)) + 1).tolist(), len(odd)]
        parts = [
            (self._by_library if odd[a] else self._kernels)(data, offsets[a : z + 1])
            for a, z in pairwise(turns)
        ]
        return np.concatenate([ids for ids, _ in parts]), np.concatenate([n for _, n in parts])

    def _encoded(self, texts: list[str]) -> list[Any]:
        try:
            return list(self.tokenizer.encode_batch_fast(texts, add_special_tokens=False))
        except BaseException as error:  # the library raises bare Exception, and panics
            if not (isinstance(error, Exception) or panicked(error)):
                raise
            said = " ".join(str(error).split())[:200]
            raise TokenizerError(f"this tokenizer cannot encode the texts: {said}") from error

    def _by_library(self, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids, sizes = [], []
        for first in range(0, len(offsets) - 1, _ROWS):
            bounds = offsets[first : first + _ROWS + 1].tolist()
            texts = [data[a:z].tobytes().decode("utf-8") for a, z in pairwise(bounds)]
            for found in self._encoded(texts):
                ids.append(np.array(found.ids, np.uint32))
                sizes.append(len(found.ids))
        return np.concatenate([np.empty(0, np.uint32), *ids]), np.array(sizes, np.int64)
