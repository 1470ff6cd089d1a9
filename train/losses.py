"""Cross-entropy in float32, in chunks: logits of all tokens are never held at once.

At a vocabulary of 50,000 the logits of 16,000 tokens and their gradient are 6 GB. A chunk's are
made, used and dropped, and made again in the backward pass: a third more work on the head.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from train.data.rows import IGNORED

Head = Callable[[Tensor], Tensor]
LOGITS = 1 << 26  # of a chunk: 256 MiB in float32


def chunk_of(vocab: int, asked: int = 0) -> int:
    """Tokens of a chunk: as ``asked``, or what ``LOGITS`` allows."""
    return asked or max(1, LOGITS // vocab)


def loss_sums(
    features: Tensor, targets: Tensor, head: Head, *, chunk: int, squares: bool
) -> tuple[Tensor, Tensor]:
    """Sums over the targets that count: of nats, and of squared log normalisers (else 0).

    ``features`` [tokens, hidden], ``targets`` [tokens], ``head`` from features to float32 logits.
    The mean of the squares is the z-loss (Chowdhery et al. 2022, section 5): it keeps the logits
    from drifting away together.
    """
    if len(targets) <= chunk:
        return _sums(features, targets, head, squares)
    pairs = [
        checkpoint(_sums, part, wanted, head, squares, use_reentrant=False)
        for part, wanted in zip(features.split(chunk), targets.split(chunk), strict=True)
    ]
    return torch.stack([a for a, _ in pairs]).sum(), torch.stack([b for _, b in pairs]).sum()


def _sums(features: Tensor, targets: Tensor, head: Head, squares: bool) -> tuple[Tensor, Tensor]:
    logits = head(features)
    nats = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
    if not squares:
        return nats, torch.zeros_like(nats)
    return nats, (logits.logsumexp(-1).square() * (targets != IGNORED)).sum()
