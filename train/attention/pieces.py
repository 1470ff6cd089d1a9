"""Packed documents on a CPU: causal attention a document at a time.

A mask over the whole row would be read, and computed, for all its pairs of queries and keys. Within
one document the plain causal kernel serves, and what lies between documents costs nothing.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from train.attention.mask import Mask

SHORTEST = 32  # tokens a document, on average: below, calls cost more than they save

Lengths = tuple[tuple[int, ...], ...]


def lengths_of(mask: Mask) -> Lengths | None:
    """Of each row the lengths of its documents, where attention can go document by document: on a
    CPU, causal and nothing else, and not while the step is traced. Looked at once a mask.
    """
    documents = mask.documents
    if (
        documents is None
        or mask.features != {"causal", "documents"}
        or type(documents) is not Tensor  # a tensor without storage cannot be looked at
        or documents.device.type != "cpu"
        or torch.compiler.is_compiling()
    ):
        return None
    if "_lengths" not in mask.__dict__:
        mask.__dict__["_lengths"] = _lengths(documents)
    found: Lengths | None = mask.__dict__["_lengths"]
    return found


def _lengths(documents: Tensor) -> Lengths | None:
    rows, length = documents.shape
    found = []
    for row in documents:
        fresh = (torch.nonzero(row[1:] != row[:-1])[:, 0] + 1).tolist()
        if len(fresh) + 1 != len(torch.unique(row)):
            return None  # an id that comes again is one document to a mask
        found.append(tuple(b - a for a, b in pairwise([0, *fresh, length])))
    return tuple(found) if sum(map(len, found)) * SHORTEST <= rows * length else None


def by_document(q: Tensor, k: Tensor, v: Tensor, lengths: Lengths) -> Tensor:
    """Causal attention within each document; q, k, v [batch, heads, length, head_dim]."""
    if all(len(sizes) == 1 for sizes in lengths):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    rows = []
    for sizes, *row in zip(lengths, q, k, v, strict=True):
        parts = zip(*(x[None].split(sizes, dim=2) for x in row), strict=True)
        out = [F.scaled_dot_product_attention(a, b, c, is_causal=True) for a, b, c in parts]
        # The kernel's own order in memory, heads inside, which is that of the next product.
        rows.append(torch.cat([one.transpose(1, 2) for one in out], dim=1))
    return torch.cat(rows).transpose(1, 2)
