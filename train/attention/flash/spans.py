"""A mask as a few numbers per position, for any device and without Triton."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Spans:
    """A mask as a few numbers per position.

    The kernels assume that each document is contiguous and its positions rise by one, which is so
    everywhere in training.

    ``starts``, ``ends``: int32 [batch, keys]. Start and end of the document of each position. None:
        the row is one document.
    ``origins``: int32 [batch or 1, keys]. The index in the row at which the document begins,
        negative if it begins before the row. Sinks are counted from this index. None: 0.
    ``prefix``: bool [batch, keys], True for keys that all queries of their document see. None: no
        prefix.
    ``reach``: int32 [batch, keys]. One past the last prefix key of the document, or 0. None: no
        prefix.
    """

    starts: Tensor | None = None
    ends: Tensor | None = None
    origins: Tensor | None = None
    prefix: Tensor | None = None
    reach: Tensor | None = None


def bounds(documents: Tensor) -> tuple[Tensor, Tensor]:
    """Return start and end of each token's document, int32 [batch, keys], from document numbers."""
    batch, keys = documents.shape
    index = torch.arange(keys, device=documents.device, dtype=torch.int32).expand(batch, keys)
    fresh = torch.ones_like(documents, dtype=torch.bool)
    fresh[:, 1:] = documents[:, 1:] != documents[:, :-1]
    last = torch.ones_like(fresh)
    last[:, :-1] = fresh[:, 1:]
    starts = torch.where(fresh, index, 0).cummax(dim=1).values
    ends = torch.where(last, index + 1, keys).flip(1).cummin(dim=1).values.flip(1)
    return starts.int(), ends.int().contiguous()


def reach_of(prefix: Tensor, starts: Tensor | None, ends: Tensor | None) -> Tensor:
    """Return int32 [batch, keys]: one past the last prefix key in each token's document, or 0.
    ``prefix``: bool [batch, keys], True for prefix keys. ``starts``, ``ends``: bounds of the
    documents."""
    batch, keys = prefix.shape
    index = torch.arange(keys, device=prefix.device, dtype=torch.int32).expand(batch, keys)
    latest = torch.where(prefix, index + 1, 0).cummax(dim=1).values.int()
    if starts is None or ends is None:
        return latest[:, -1:].expand(batch, keys).contiguous()
    reach = latest.gather(1, (ends.long() - 1).clamp(min=0))
    return torch.where(reach > starts, reach, 0).contiguous()


def spans(
    *,
    keys: int,
    documents: Tensor | None,
    prefix: Tensor | None,
    positions: Tensor | None,
) -> Spans:
    """Return a mask as ``Spans``, from the document of each key and the prefix keys. ``positions``:
    int [batch or 1, keys], the position of each key in its document. It is needed only for sinks,
    the first keys of a document that stay visible outside of a window."""
    starts = ends = origins = reach = None
    if documents is not None:
        starts, ends = bounds(documents)
    if prefix is not None:
        reach = reach_of(prefix, starts, ends)
        prefix = prefix.contiguous()
    if positions is not None:
        index = torch.arange(keys, device=positions.device)
        origins = (index - positions).int().contiguous()
    return Spans(starts=starts, ends=ends, origins=origins, prefix=prefix, reach=reach)
