"""The one function of attention."""

from __future__ import annotations

from torch import Tensor

from train.attention.backends import BACKENDS
from train.attention.choice import resolve
from train.attention.mask import Mask


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, backend: str = "auto") -> Tensor:
    """Attention of q [batch, heads, queries, head_dim] over k, v [batch, kv_heads, keys, head_dim].

    ``heads`` is a multiple of ``kv_heads``. Returns [batch, heads, queries, head_dim] in v's dtype.
    Raises ``TrainError`` where the back end is unknown or does not support the case.
    """
    return BACKENDS[resolve(backend, q, mask).backend].attention(q, k, v, mask)


def prepare(q: Tensor, mask: Mask, backend: str = "auto") -> None:
    """Make what the back end keeps with a mask for all layers; of q nothing is read but its kind.
    Whoever attends inside a checkpoint calls this before: made there, it would be a side effect.
    """
    make = BACKENDS[resolve(backend, q, mask).backend].prepare
    if make is not None:
        make(mask)
