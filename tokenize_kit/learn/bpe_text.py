"""The text that a BPE trainer merges in: each distinct word once, in cells, those that weigh most
first.

Gigabytes of text have hundreds of millions of bytes of distinct words, so what there is one of for
every cell is 32 bits and there is one such array. Weights are found by place instead: words of one
weight lie side by side.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kernel_cache import njit
from tokenize_kit.encode.bytes8 import njit_within
from tokenize_kit.errors import TokenizerError

BLOCK = np.int64(6)  # bits of a place within the block of cells that it lies in

# cells: int32[]: words with -1 before, between and behind; a token's number stands in its first and
# its last cell, the second of two merged begins with -2. lengths: int32[]: cells of each token.
# values: int64[classes]: weights, falling; bounds: int64[classes + 1]: where the cells of each
# begin; blocks: int32[]: the class of the first cell of each block; pairs: occurrences of any pair,
# by weight.
Text = namedtuple("Text", "cells lengths blocks bounds values pairs")


def lay_out(
    symbols: np.ndarray,
    ends: np.ndarray,
    weights: np.ndarray,
    numbers: np.ndarray | None = None,
) -> Text:
    """The text of words that lie one after the other, without lengths of tokens.

    symbols: uint8[] or int32[]; ends: int64[words + 1]; weights: int64[words]; numbers: int32[]:
    what stands for each symbol, else itself. Words of one symbol, and of no weight, have no pair
    and are left out. Raises TokenizerError over 2^31 symbols.
    """
    words = np.flatnonzero((np.diff(ends) > 1) & (weights > 0))
    words = words[np.argsort(-weights[words], kind="stable")]
    sizes = ends[words + 1] - ends[words]
    total = int(sizes.sum()) + len(words) + 1
    if total >= 2**31:
        raise TokenizerError(
            f"the corpus has {total:,} bytes of distinct pieces, and 2,147,483,647 are the most:"
            " train on a sample (--sample-bytes)"
        )
    if numbers is None:
        numbers = np.arange(int(symbols.max(initial=0)) + 1, dtype=np.int32)
    sorted_weights = weights[words]
    first = np.flatnonzero(np.diff(sorted_weights, prepend=-1))
    cells, bounds = _cells(symbols, ends, words, numbers, first, total)
    places = np.arange(0, total, 1 << BLOCK)
    blocks = np.maximum(np.searchsorted(bounds, places, side="right") - 1, 0).astype(np.int32)
    pairs = int(np.dot(sorted_weights, sizes - 1))
    return Text(cells, np.zeros(0, np.int32), blocks, bounds, sorted_weights[first], pairs)


@njit(cache=True, nogil=True)
def _cells(symbols, ends, words, numbers, first, total):
    """(cells, where those of the words numbered `first` begin, and the last ones end)."""
    cells = np.full(total, -1, np.int32)
    bounds = np.empty(len(first) + 1, np.int64)
    at, k = np.int64(1), 0
    for w in range(len(words)):
        if k < len(first) and first[k] == w:
            bounds[k] = at
            k += 1
        for place in range(ends[words[w]], ends[words[w] + 1]):
            cells[at] = numbers[symbols[place]]
            at += 1
        at += 1
    bounds[k] = total
    return cells, bounds


@njit_within
def weight_at(blocks, bounds, values, at):
    """Of the word that a cell is of."""
    k = np.int64(blocks[at >> BLOCK])
    while at >= bounds[k + 1]:
        k += 1
    return values[k]
