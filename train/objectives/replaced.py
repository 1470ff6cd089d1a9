"""Tokens that a generator has replaced, to be told from the others (ELECTRA, Clark et al. 2020)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from train.data.rows import Piece
from train.objectives.example import IGNORED, Draws, Example
from train.objectives.masked import Masked


class Replaced(Masked):
    """Hidden tokens, as those of ``Masked``, each shown as the mask: a generator learns to find
    them. What it draws in their place, by the ``chances`` of the example, a discriminator learns to
    tell from what was there; a token that is drawn as it was counts as not replaced (section 2).
    """

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        row = super().example(pieces, context, draws)
        inputs = torch.where(row.targets == IGNORED, row.inputs, self.mask)
        chances = torch.zeros(1, context, dtype=torch.float64)
        filled = 0
        for piece in pieces:
            place = slice(filled, filled + len(piece.tokens))
            chances[0, place] = torch.from_numpy(draws.shares(piece, len(piece.tokens), 8))
            filled = place.stop
        return dataclasses.replace(row, inputs=inputs, chances=chances)


@torch.no_grad()
def sampled(
    read: Tensor, weight: Tensor, bias: Tensor | None, chances: Tensor, chunk: int
) -> Tensor:
    """A token for each row of ``read`` [tokens, hidden], drawn from softmax(read @ weight.T + bias)
    by its number of ``chances`` [tokens], float64: the first whose share, with those of all before
    it, is over that.
    """
    drawn = []
    for x, chance in zip(read.split(chunk), chances.split(chunk), strict=True):
        shares = F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
        below = shares.float().softmax(-1).cumsum(-1, dtype=torch.float64)
        drawn.append(torch.searchsorted(below, (chance * below[:, -1])[:, None], right=True)[:, 0])
    return torch.cat(drawn).clamp(max=len(weight) - 1)


def put_in(example: Example, places: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The rows with these tokens at ``places`` of the flattened rows, and which of all are others
    than they were: int64 and bool [rows, context].
    """
    before = torch.where(example.targets == IGNORED, example.inputs, example.targets)
    ids = before.flatten().index_copy(0, places, tokens).view_as(before)
    return ids, ids != before
