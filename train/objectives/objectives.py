"""Objectives: the targets that count, and the tokens that all may see.

An objective turns the rows of a step into what the decoder reads. Its randomness derives from the
seed and the step, so that there is nothing to save. Masked, span-corruption and denoising
objectives join here: they replace ``inputs`` and ``targets`` too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from train.data.rows import IGNORED, Batch
from train.errors import TrainError


@dataclass(frozen=True, kw_only=True)
class Example:
    """``batch``: inputs, targets, documents; ``prefix``: bool [rows, context], tokens that all of
    their document see, or None.
    """

    batch: Batch
    prefix: Tensor | None = None


Objective = Callable[[Batch, int, int], Example]


def causal(batch: Batch, seed: int, step: int) -> Example:
    """Each token from those before it (Radford et al. 2018)."""
    return Example(batch=batch)


def prefix(batch: Batch, seed: int, step: int) -> Example:
    """The beginning of each document, of a length drawn evenly, is read both ways and not scored;
    the rest is predicted causally (Liu et al. 2018; Raffel et al. 2020, section 3.2.1).

    A part of a document that a row holds counts as a document; one token at least is scored.
    """
    documents = batch.documents
    rows, length = documents.shape
    fresh = torch.ones_like(documents, dtype=torch.bool)
    fresh[:, 1:] = documents[:, 1:] != documents[:, :-1]
    index = torch.arange(length).expand(rows, length)
    start = torch.where(fresh, index, 0).cummax(dim=1).values
    number = (fresh.flatten().cumsum(0) - 1).view(rows, length)
    sizes = torch.bincount(number.flatten())
    generator = torch.Generator().manual_seed(_mix(seed, step))
    drawn = torch.rand(len(sizes), generator=generator, dtype=torch.float64)
    lengths = (drawn * sizes).long()[number]  # 0 to size - 1 input tokens
    inside = (index - start < lengths) & (documents >= 0)
    # The last token of a prefix has the first scored target; those before it are seen already.
    seen_next = inside & (index - start + 1 < lengths)
    targets = batch.targets.masked_fill(seen_next, IGNORED)
    return Example(batch=replace(batch, targets=targets), prefix=inside)


def _mix(seed: int, step: int) -> int:
    """A seed for a step; different (seed, step) give different streams."""
    digest = hashlib.blake2b(f"{seed} {step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


OBJECTIVES: dict[str, Objective] = {"causal": causal, "prefix": prefix}


def objective(name: str) -> Objective:
    """The objective of that name; raises ``TrainError``."""
    if name not in OBJECTIVES:
        raise TrainError(f"objective {name!r}: choose one of {', '.join(OBJECTIVES)}", exit_code=2)
    return OBJECTIVES[name]
