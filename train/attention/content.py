"""Scores that follow from what tokens say and from how far apart they are: of relative positions
that are vectors (Shaw et al. 2018; Dai et al. 2019; He et al. 2021).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Relation:
    """``index`` int64 [batch or 1, queries, keys]: the row of each pair of query and key; ``rows``
    [distances, size]: a vector for each distance, the same for all layers, or None where each layer
    has its own.
    """

    index: Tensor
    rows: Tensor | None = None


def of_queries(q: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """q_i . rows[index_ij]: q [batch, heads, queries, head_dim] and rows [heads or 1, distances,
    head_dim] to [batch, heads, queries, keys].
    """
    scores = q @ rows.transpose(-2, -1)
    return scores.gather(-1, index[:, None].expand(*scores.shape[:2], *index.shape[1:]))


def of_keys(k: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """k_j . rows[index_ij]: k [batch, heads, keys, head_dim] and rows [heads or 1, distances,
    head_dim] to [batch, heads, queries, keys].
    """
    return of_queries(k, rows, index.transpose(1, 2)).transpose(2, 3)
