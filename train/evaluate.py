"""Held-out text: loss per token, and bits per byte, which compares models across tokenizers."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from train.data.permutation import scatter
from train.data.rows import IGNORED, Batch, Rows
from train.data.shards import Shards
from train.errors import TrainError
from train.model.decoder import Decoder


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """``loss``: nats per token, the end-of-text tokens included. ``bits_per_byte``: the same nats
    over ln 2 and over the UTF-8 bytes of the text; None where the shards do not know them.
    """

    loss: float
    bits_per_byte: float | None
    documents: int
    tokens: int
    bytes: int | None


def choose(shards: Shards, held_out: npt.NDArray[np.int64], budget: int) -> npt.NDArray[np.int64]:
    """Whole documents from all over the shards that fit in ``budget`` tokens together; if none
    does, the shortest one. In shard order.

    Documents longer than what is left are passed over, so a small budget leans to short ones.
    """
    taken, left = [], budget
    for place in np.argsort(scatter(held_out.astype(np.uint64)), kind="stable"):
        length = int(shards.length[held_out[place]])
        if length <= left:
            taken.append(int(place))
            left -= length
        if not left:
            break
    return held_out[sorted(taken) or [int(np.argmin(shards.length[held_out]))]]


@torch.no_grad()
def evaluate(
    model: Decoder,
    rows: Rows,
    *,
    batch_rows: int,
    autocast: AbstractContextManager[Any],
) -> HeldOut:
    """Score every token of the rows once, with the context its row gives it."""
    device = model.embedding.weight.device
    model.eval()
    nats, tokens = 0.0, 0
    for first in range(0, rows.count, batch_rows):
        batch = rows.batch(list(range(first, min(first + batch_rows, rows.count))))
        with autocast:
            losses = token_losses(model, batch, device)
        nats += float(losses.double().sum())
        tokens += batch.tokens
    model.train()
    known = rows.shards.bytes
    size = None if known is None else int(known[rows.documents].sum())
    if size == 0:
        raise TrainError("the held-out documents are empty: drop documents without text first")
    return HeldOut(
        loss=nats / tokens,
        bits_per_byte=None if size is None else nats / math.log(2) / size,
        documents=len(rows.documents),
        tokens=tokens,
        bytes=size,
    )


def token_losses(model: Decoder, batch: Batch, device: torch.device) -> torch.Tensor:
    """Nats of each target, [rows * context]; 0 where the target is ignored."""
    logits = model(batch.inputs.to(device), documents=batch.documents.to(device))
    targets = batch.targets.to(device).flatten()
    return F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=IGNORED, reduction="none")
