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
