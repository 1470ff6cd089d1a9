"""First embeddings of new tokens as blends of those of known ones that stand in like contexts.

FOCUS (Dobler and de Melo 2023, "FOCUS: Effective Embedding Initialization for Monolingual
Specialization of Multilingual Models", section 3): vectors of all tokens of the new tokenizer are
learned from text; the cosines of a new token's vector with those of tokens that both tokenizers
have go through sparsemax, and the old embeddings of these are added up by what comes out. There
the vectors are fastText's; here they are of positive pointwise mutual information, factorised
(Levy et al. 2015, "Improving Distributional Similarity"), which needs no training and is the same
twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenize_kit.card.figures import Sample
from tokenize_kit.change.verify import Encode, Texts

TEXT_BYTES = 8 << 20  # of text at most, drawn by hash
_WINDOW = 5  # tokens to either side, as fastText's
_DIMENSIONS = 100
_SMOOTHING = 0.75  # of the counts of contexts (Levy et al. 2015, section 3.2)
_OVERSAMPLED = 10
_BLOCK = 512  # new tokens at once


def drawn(batches: Texts, size: int = TEXT_BYTES) -> Sample:
    """A sample of texts that no order of them changes."""
    sample = Sample(most=size)
    for data, offsets in batches():
        sample.add_rows(data, offsets)
    return sample


def focus(
    encode: Encode,
    size: int,
    batches: Texts,
    new: np.ndarray,
    known: np.ndarray,
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """New ids to (positions in `known`, weights: float64[], which sum to one); those that the texts
    do not have are left out.

    encode, size: of the new tokenizer; new, known: int64[], its ids without and with an embedding.
    """
    vectors = token_vectors(*encode(*drawn(batches).buffers()), size)
    here = np.linalg.norm(vectors, axis=1) > 0
    usable = np.flatnonzero(here[known])
    asked = new[here[new]]
    blends: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for first in range(0, len(asked), _BLOCK) if len(usable) else ():
        block = asked[first : first + _BLOCK]
        weights = sparsemax(vectors[block] @ vectors[known[usable]].T)
        for number, row in zip(block.tolist(), weights, strict=True):
            positions = np.flatnonzero(row)
            blends[number] = usable[positions], row[positions]
    return blends


def token_vectors(ids: np.ndarray, sizes: np.ndarray, size: int) -> np.ndarray:
    """float64[size, up to 100]: vectors of length one, zero for tokens that do not come up.

    ids: of all texts, one after the other; sizes: how many each has; size: ids there are.
    """
    from scipy.sparse import coo_array

    text = np.repeat(np.arange(len(sizes)), sizes)
    tokens = ids.astype(np.int64)
    pairs = []
    for distance in range(1, min(_WINDOW, len(ids) - 1) + 1):
        together = text[distance:] == text[:-distance]
        pairs.append(tokens[:-distance][together] * size + tokens[distance:][together])
    keys, counts = np.unique(np.concatenate(pairs or [np.zeros(0, np.int64)]), return_counts=True)
    left, right = np.divmod(keys, size)
    near = coo_array((counts.astype(np.float64), (left, right)), (size, size)).tocsr()
    near = (near + near.T).tocoo()
    total = near.sum(axis=1)
    context = total**_SMOOTHING
    if not total.any():
        return np.zeros((size, 1))
    ratio = near.data / total[near.row] / (context[near.col] / context.sum())
    near.data = np.maximum(np.log(ratio), 0)
    vectors = _left_vectors(near.tocsr(), min(_DIMENSIONS, int((total > 0).sum())))
    vectors[total == 0] = 0
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 1e-12)


def _left_vectors(matrix: Any, rank: int) -> np.ndarray:
    """float64[rows, rank]: left singular vectors times the roots of their values (Halko et al.
    2011, algorithm 4.4, two turns)."""
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((matrix.shape[1], min(rank + _OVERSAMPLED, matrix.shape[1])))
    for _ in range(2):
        basis = np.linalg.qr(matrix.T @ np.linalg.qr(matrix @ basis)[0])[0]
    left, values, _ = np.linalg.svd(matrix @ basis, full_matrices=False)
    return np.asarray(left[:, :rank] * np.sqrt(values[:rank]))


def sparsemax(scores: np.ndarray) -> np.ndarray:
    """The nearest point of the simplex to each row of scores: float64[rows, n] (Martins and
    Astudillo 2016, algorithm 1); most of what it gives is zero."""
    ordered = -np.sort(-scores, axis=1)
    sums = np.cumsum(ordered, axis=1)
    ranks = np.arange(1, scores.shape[1] + 1)
    support = (1 + ranks * ordered > sums).sum(axis=1)
    threshold = (sums[np.arange(len(scores)), support - 1] - 1) / support
    return np.asarray(np.maximum(scores - threshold[:, None], 0))
