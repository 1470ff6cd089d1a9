"""Load the checked file of a model as arrays for kernels. Dense matrices stay memory-mapped."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np

from curate.scoring.fasttext.features import (
    Words,
    end_entry,
    entries,
    kept_slots,
    sieve_of,
    word_slots,
)
from curate.scoring.fasttext.model_file import (
    CENTROIDS,
    Header,
    Layout,
    Matrix,
    Quantizer,
    read_layout,
)
from llmcurate.base.errors import UsageError
from llmcurate.base.kernels import read_only

HS, SIGMOID, SOFTMAX = 0, 1, 2
KIND = {"hs": HS, "ns": SIGMOID, "ova": SIGMOID, "softmax": SOFTMAX}
DECODED = 1 << 28  # quantized matrices up to this size in bytes are decoded when loaded


class Rows(NamedTuple):
    """The input matrix of a model. Only one of `dense` and `codes` has rows."""

    dense: np.ndarray  # float32[rows, dim], empty if the matrix stays quantized
    codes: np.ndarray  # uint8[rows, parts], of a quantized matrix
    centroids: np.ndarray  # float32[]
    each: int  # floats per code
    norms: np.ndarray  # float32[rows]


class Output(NamedTuple):
    """The output matrix and the loss of a model. Hierarchical softmax has a tree of nodes: the
    labels are leaves, and the last node is the root."""

    kind: int  # HS, SIGMOID or SOFTMAX
    dense: np.ndarray  # float32[labels, dim]
    norms: np.ndarray  # float32[labels]: factors for the products with the rows
    left: np.ndarray  # int32[2 * labels - 1]: a node's left child, -1 for leaves
    right: np.ndarray  # the same, for the right child


class Weights(NamedTuple):
    words: Words
    rows: Rows
    output: Output


def read_model(path: str | Path, decoded: int = DECODED) -> tuple[Header, Weights]:
    """Read a model file as arrays. A quantized matrix that would take more than `decoded` bytes
    stays quantized. Raises UsageError if the file is not a complete supervised model."""
    header, layout = read_layout(path)
    try:
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise UsageError(f"model {path}: {error}") from None
    if len(mapped) != layout.size:
        raise UsageError(f"model {path} changed while it was read")
    data = np.frombuffer(mapped, np.uint8)
    words, counts = _dictionary(data, header, layout)
    left_children, right_children = (
        tree(counts) if header.loss == "hs" else (np.empty(0, np.int32),) * 2
    )
    dense, norms = _output(data, layout.output)
    output = Output(KIND[header.loss], dense, norms, left_children, right_children)
    return header, Weights(words, _input(data, layout.input, decoded), output)


def _dictionary(data: np.ndarray, header: Header, layout: Layout) -> tuple[Words, np.ndarray]:
    starts, ends = entries(data, layout.entries_at, header.words + len(header.names))
    counts = np.array(
        [int(data[at + 1 : at + 9].view("<i8")[0]) for at in ends[header.words :]], np.int64
    )
    many = 2 * max(layout.pruned, 0)
    pairs = np.frombuffer(data, "<i4", many, layout.pruned_at).reshape(-1, 2)
    slots = word_slots(data, starts, ends)
    end = end_entry(slots, starts, ends, data)
    words = Words(
        data,
        starts,
        ends,
        slots,
        header.words,
        header.buckets,
        header.minn,
        header.maxn,
        header.word_ngrams,
        layout.pruned,
        kept_slots(pairs),
        sieve_of(pairs),
        end if end < header.words else -1,
    )
    return words, counts


def _floats(data: np.ndarray, at: int, count: int) -> np.ndarray:
    return np.frombuffer(data, "<f4", count, at)


def _codebook(data: np.ndarray, quantizer: Quantizer, dim: int) -> np.ndarray:
    return _floats(data, quantizer.at, CENTROIDS * dim)


def _codes(data: np.ndarray, matrix: Matrix) -> np.ndarray:
    assert matrix.quantizer is not None
    parts = matrix.quantizer.parts
    return data[matrix.at : matrix.at + matrix.rows * parts].reshape(matrix.rows, parts)


def _norms(data: np.ndarray, matrix: Matrix) -> np.ndarray:
    if matrix.norms is None:
        return np.ones(matrix.rows, np.float32)
    codes = data[matrix.norms_at : matrix.norms_at + matrix.rows]
    return _codebook(data, matrix.norms, 1)[codes]


def _decoded(data: np.ndarray, matrix: Matrix) -> np.ndarray:
    quantizer = matrix.quantizer
    assert quantizer is not None
    book = _codebook(data, quantizer, matrix.dim)
    out = np.empty((matrix.rows, matrix.dim), np.float32)
    codes = _codes(data, matrix)
    for part in range(quantizer.parts):
        begin = part * quantizer.each
        size = quantizer.last if part == quantizer.parts - 1 else quantizer.each
        block = book[CENTROIDS * begin : CENTROIDS * (begin + size)].reshape(CENTROIDS, size)
        out[:, begin : begin + size] = block[codes[:, part]]
    return out


def _input(data: np.ndarray, matrix: Matrix, decoded: int) -> Rows:
    none = read_only(np.empty(0, np.float32))
    no_codes = read_only(np.empty((0, 1), np.uint8))
    if matrix.quantizer is None:
        dense = _floats(data, matrix.at, matrix.rows * matrix.dim)
        return Rows(dense.reshape(matrix.rows, matrix.dim), no_codes, none, 1, none)
    norms = _norms(data, matrix)
    if matrix.rows * matrix.dim * 4 <= decoded:
        dense = read_only(_decoded(data, matrix) * norms[:, None])
        return Rows(dense, no_codes, none, 1, none)
    book = _codebook(data, matrix.quantizer, matrix.dim)
    dense = read_only(np.empty((0, matrix.dim), np.float32))
    return Rows(dense, _codes(data, matrix), book, matrix.quantizer.each, read_only(norms))


def _output(data: np.ndarray, matrix: Matrix) -> tuple[np.ndarray, np.ndarray]:
    if matrix.quantizer is not None:
        return read_only(_decoded(data, matrix)), _norms(data, matrix)
    dense = _floats(data, matrix.at, matrix.rows * matrix.dim).reshape(matrix.rows, matrix.dim)
    return dense, np.ones(matrix.rows, np.float32)


def tree(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the Huffman tree over labels as the (left, right) children of each node, each
    int32[2 * labels - 1]. As in `HierarchicalSoftmaxLoss::buildTree`, labels are assumed to be
    sorted by falling counts; if they are not, the tree is built all the same."""
    labels = len(counts)
    nodes = 2 * labels - 1
    weight = [int(n) for n in counts] + [10**15] * (labels - 1)
    left_children, right_children = np.full(nodes, -1, np.int32), np.full(nodes, -1, np.int32)
    leaf, node = labels - 1, labels
    for parent in range(labels, nodes):
        pair = []
        for _ in "lr":
            if leaf >= 0 and weight[leaf] < weight[node]:
                pair.append(leaf)
                leaf -= 1
            else:
                pair.append(node)
                node += 1
        left_children[parent], right_children[parent] = pair
        weight[parent] = weight[pair[0]] + weight[pair[1]]
    return left_children, right_children
