"""Documents as tokens: what the encoder gives, the shuffle orders and the shard files take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

DOCUMENTS = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("lang", pa.string()),
        ("tokens", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Encoded:
    """tokens: [], those of all documents one after the other; table: DOCUMENTS, a row each; mask:
    uint8[tokens], 1 where a token counts in training, None where all do."""

    tokens: np.ndarray
    table: pa.Table
    mask: np.ndarray | None = None

    def __len__(self) -> int:
        return self.table.num_rows

    @property
    def lengths(self) -> np.ndarray:
        """int64[rows]: tokens of each document."""
        return self.table["tokens"].to_numpy()

    @property
    def bytes(self) -> int:
        """Bytes of the texts."""
        return int(self.table["bytes"].to_numpy().sum())

    def take(self, order: np.ndarray) -> Encoded:
        """The rows of these numbers, in that order."""
        lengths = self.lengths
        starts = np.cumsum(lengths) - lengths
        starts, lengths = starts[order], lengths[order]
        mask = None if self.mask is None else gather(self.mask, starts, lengths)
        return Encoded(gather(self.tokens, starts, lengths), self.table.take(order), mask)


def gather(tokens: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The stretches of tokens that begin there, one after the other."""
    before = np.cumsum(lengths) - lengths
    positions = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    gathered: np.ndarray = tokens[positions]
    return gathered


def concatenate(parts: list[Encoded]) -> Encoded:
    """All parts as one."""
    if len(parts) == 1:
        return parts[0]
    table = pa.concat_tables([part.table for part in parts]).combine_chunks()
    masks = [part.mask for part in parts if part.mask is not None]
    mask = np.concatenate(masks) if masks else None
    return Encoded(np.concatenate([part.tokens for part in parts]), table, mask)


def add_edges(
    ids: np.ndarray, counts: np.ndarray, begin: int | None, end: int | None, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """(tokens: dtype[], lengths: int64[rows]): each document's ids between the tokens that begin
    and end it. ids: uint32[]; counts: int64[rows]."""
    lengths = counts + (begin is not None) + (end is not None)
    if begin is None and end is None:
        return ids.astype(dtype), lengths
    ends = np.cumsum(lengths)
    text = np.ones(int(lengths.sum()), np.bool_)
    tokens = np.empty(len(text), dtype)
    for token, positions in ((begin, ends - lengths), (end, ends - 1)):
        if token is not None:
            text[positions] = False
            tokens[positions] = token
    tokens[text] = ids
    return tokens, lengths
