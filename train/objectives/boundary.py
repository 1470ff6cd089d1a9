"""Hidden tokens from what stands beside their span (SpanBERT, Joshi et al. 2020, section 3.2)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from train.model.heads import PLACES
from train.objectives.example import IGNORED


class Beside(NamedTuple):
    """Of each token of the flattened rows, [rows * context]: where the tokens ``left`` and
    ``right`` of its span stand, its ``place`` in the span, from 0, and whether it is ``known`` by
    them: it is hidden, the span lies within its document, and its place is below 20.
    """

    left: Tensor
    right: Tensor
    place: Tensor
    known: Tensor

    def at(self, places: Tensor) -> Beside:
        """Of some of the tokens."""
        return Beside(*(part.index_select(0, places) for part in self))


def beside(targets: Tensor, documents: Tensor | None) -> Beside:
    """What stands beside the spans of hidden tokens of rows [rows, context]. Spans that meet are
    one.
    """
    rows, context = targets.shape
    documents = torch.zeros_like(targets) if documents is None else documents
    hidden = targets != IGNORED
    numbers = torch.arange(context, device=targets.device).expand_as(targets)
    left = numbers.masked_fill(hidden, -1).cummax(-1).values
    right = numbers.masked_fill(hidden, context).flip(-1).cummin(-1).values.flip(-1)
    place = numbers - left - 1
    known = hidden & (left >= 0) & (right < context) & (place < PLACES)
    left, right = left.clamp(min=0), right.clamp(max=context - 1)
    for side in (left, right):
        known = known & (documents.gather(-1, side) == documents)
    first = torch.arange(rows, device=targets.device)[:, None] * context
    place = place.clamp(0, PLACES - 1)
    return Beside(*(part.flatten() for part in (first + left, first + right, place, known)))
