"""A supervised fastText model that labels many lines at once.

A line's hidden vector is the mean of its features' rows in the input matrix. A label's logit is the
product of the hidden vector and the label's row. So a logit is a sum of one term per feature, and
an explanation lists these terms. Dense matrices stay memory-mapped.

Most words occur often, so a cache holds the sum of each word's rows. fastText adds single rows in
float32, so a sum of cached sums differs in the last digits. With `exactly`, all rows are added in
fastText's order."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np

from curate.scoring.fasttext.features import (
    END_WORD,
    ROOM,
    Words,
    begins_as_label,
    bucket_of,
    end_entry,
    entries,
    entry_among,
    hashed,
    kept_slots,
    next_word,
    ngrams_from,
    row_among,
    same,
    sieve_of,
    signed,
    word_ngram,
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
from llmcurate.base.kernels import njit, read_only

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


_LONGEST = 64  # bytes; longer words are not cached
_BYTES = 16 << 20  # of cached sums
_WORDS = 1 << 18
_STRETCH = 1 << 12  # words per block
_LABEL_WORD = -1  # in place of a number of features: the word is a label and ignored


class Memory(NamedTuple):
    """A cache of words and the sums of their matrix rows. It is emptied when full, and its content
    changes no result."""

    slots: np.ndarray  # int32[power of two]: hash table (open addressing) of words, -1 if free
    hash: np.ndarray  # int64[words]
    at: np.ndarray  # int64[words + 1]: the start of each word in `pool`
    features: np.ndarray  # int64[words]: number of rows in each sum
    sums: np.ndarray  # float32[words, dim]
    pool: np.ndarray  # uint8[]: the bytes of all words
    used: np.ndarray  # int64[1]: number of words in the cache


def memory(dim: int, most: int = _WORDS) -> Memory:
    """Return an empty cache for at most `most` words, or for fewer words if vectors are long."""
    words = 64
    while words < most and words * 2 * dim * 4 <= _BYTES:
        words *= 2
    return Memory(
        np.full(2 * words, -1, np.int32),
        np.empty(words, np.int64),
        np.zeros(words + 1, np.int64),
        np.empty(words, np.int64),
        np.empty((words, dim), np.float32),
        np.empty(words * 16, np.uint8),
        np.zeros(1, np.int64),
    )


class Scratch(NamedTuple):
    """Buffers for the words of one line, which are processed in blocks of `stretch` words."""

    spots: np.ndarray  # int64[stretch, 3]: start, end and hash of all words
    fresh: np.ndarray  # int64[stretch, 3]: the same, for new words
    places: np.ndarray  # int64[stretch]: each word's index in the cache
    counts: np.ndarray  # int64[stretch]: each word's number of rows
    ngrams: np.ndarray  # filled by ngrams_from
    hashes: np.ndarray  # int64[words of the line], for models with word n-grams


@njit(nogil=True, allocates=True)
def scratch_for(model: Weights, kept: Memory, ends: np.ndarray) -> Scratch:
    """Return buffers that are large enough for the longest of the lines."""
    most = 0
    for row in range(len(ends) - 1):
        most = max(most, ends[row + 1] - ends[row])
    # A quarter of the cache, so that an emptied cache has room for a block of the longest words.
    stretch = min(_STRETCH, len(kept.hash) // 4)
    return Scratch(
        np.empty((stretch, 3), np.int64),
        np.empty((stretch, 3), np.int64),
        np.empty(stretch, np.int64),
        np.empty(stretch, np.int64),
        np.empty((ROOM + model.words.maxn, 3), np.int64),
        np.empty(most // 2 + 2 if model.words.ngrams > 1 else 0, np.int64),
    )


@njit(nogil=True)
def add_rows(rows: Rows, numbers: np.ndarray, count: int, total: np.ndarray) -> None:
    """Add the rows whose numbers are in numbers[:count, 0] to total: float32[dim]."""
    dense, codes, centroids, norms = rows.dense, rows.codes, rows.centroids, rows.norms
    each, dim = rows.each, len(total)
    if len(dense):
        for n in range(count):
            row = numbers[n, 0]
            for d in range(dim):
                total[d] += dense[row, d]
        return
    for n in range(count):
        row = numbers[n, 0]
        norm = norms[row]
        for part in range(codes.shape[1]):
            begin = part * each
            size = min(each, dim - begin)
            at = 256 * begin + np.int64(codes[row, part]) * size
            for d in range(size):
                total[begin + d] += norm * centroids[at + d]


@njit(nogil=True)
def _add_words(model, data, spots, many, grams, counts, sums, apart):
    words, rows = model.words, model.rows
    slots, starts, ends, word_bytes = words.slots, words.starts, words.ends, words.data
    kept, sieve, dense = words.kept, words.sieve, rows.dense
    first, buckets, pruned = words.words, words.buckets, words.pruned
    minn, maxn, dim = words.minn, words.maxn, sums.shape[1]
    for i in range(many):
        start, end, to = spots[i, 0], spots[i, 1], i if apart else 0
        if start == end:
            entry = words.end
        else:
            entry = entry_among(slots, starts, ends, word_bytes, data, start, end, spots[i, 2])
            if entry >= first or (entry < 0 and begins_as_label(data, start, end)):
                counts[i] = _LABEL_WORD
                continue
        total = n = np.int64(0)
        if entry >= 0:
            grams[0, 0] = entry
            n = 1
        at = 0
        if (
            maxn == 0
            or start == end
            or same(data, start, end, END_WORD, np.int64(0), len(END_WORD))
        ):
            at = end - start + 2
        while True:
            if at < end - start + 2:
                n, at = ngrams_from(
                    minn, maxn, buckets, first, pruned, kept, sieve, data, start, end, at, grams, n
                )
            if len(dense):
                for k in range(n):
                    row = grams[k, 0]
                    for d in range(dim):
                        sums[to, d] += dense[row, d]
            else:
                add_rows(rows, grams, n, sums[to])
            total += n
            n = np.int64(0)
            if at >= end - start + 2:
                break
        counts[i] = total


@njit(nogil=True)
def _place(spots: np.ndarray, row: int, begin: int, end: int, state: int) -> None:
    spots[row, 0], spots[row, 1], spots[row, 2] = begin, end, state


@njit(nogil=True)
def _places(kept, data, spots, many, room):
    slots, hashes, starts, pool = kept.slots, kept.hash, kept.at, kept.pool
    used, fresh, places = kept.used, room.fresh, room.places
    before = used[0]
    if before + many > len(hashes) or starts[before] + many * _LONGEST > len(pool):
        slots[:] = -1
        before = 0
    mask = len(slots) - 1
    after, others = before, 0
    for i in range(many):
        begin, end, state = spots[i, 0], spots[i, 1], spots[i, 2]
        if end - begin > _LONGEST or begin == end:
            places[i] = -1
            others += 1
            _place(fresh, len(fresh) - others, begin, end, state)
            continue
        slot = (state ^ (state >> 16)) & mask
        place = np.int64(slots[slot])
        while place >= 0 and not (
            hashes[place] == state
            and same(data, begin, end, pool, starts[place], starts[place + 1])
        ):
            slot = (slot + 1) & mask
            place = np.int64(slots[slot])
        if place < 0:
            place = after
            at = starts[place]
            for k in range(end - begin):
                pool[at + k] = data[begin + k]
            starts[place + 1] = at + end - begin
            hashes[place] = state
            slots[slot] = place
            _place(fresh, after - before, begin, end, state)
            after += 1
        places[i] = place
    used[0] = after
    return before, after - before, others


@njit(nogil=True)
def _next_words(data: np.ndarray, at: int, end: int, spots: np.ndarray) -> tuple[int, int, bool]:
    many = 0
    while many < len(spots):
        begin, at, state = next_word(data, at, end)
        if begin == end:
            return many, end, True
        if begin == at:
            state = hashed(END_WORD, np.int64(0), len(END_WORD))
        _place(spots, many, begin, at, state)
        many += 1
        if begin == at or same(data, begin, at, END_WORD, np.int64(0), len(END_WORD)):
            return many, at, True
    return many, at, False


@njit(nogil=True, allocates=True)
def hidden_of(model, kept, room, data, start, end, exactly, hidden):
    """Compute the hidden vector of a line: fill `hidden` (float32[dim]) with the mean of its
    features' matrix rows. Return the number of rows. If `exactly`, add rows in fastText's order.
    Overwrites `room`."""
    dim = len(hidden)
    spots, places, counts, hashes = room.spots, room.places, room.counts, room.hashes
    features, sums = kept.features, kept.sums
    whole = hidden.reshape(1, dim)
    total = np.zeros(dim)
    hidden[:] = 0
    count = seen = np.int64(0)  # a plain 0 would be compiled as another type
    ngrams = model.words.ngrams
    at, ended = start, False
    while at < end and not ended:
        many, at, ended = _next_words(data, at, end, spots)
        others = 0
        if exactly:
            _add_words(model, data, spots, many, room.ngrams, counts, whole, np.bool_(False))
        else:
            before, new, others = _places(kept, data, spots, many, room)
            if new:
                sums[before : before + new] = 0
                found, summed = features[before : before + new], sums[before : before + new]
                _add_words(model, data, room.fresh, new, room.ngrams, found, summed, np.bool_(True))
            if others:
                tail = room.fresh[len(spots) - others :]  # in reverse order
                _add_words(model, data, tail, others, room.ngrams, counts, whole, np.bool_(False))
        for i in range(many):
            if exactly:
                n = counts[i]
            elif places[i] < 0:
                others -= 1
                n = counts[others]
            else:
                n = features[places[i]]
                if n > 0:
                    for d in range(dim):
                        total[d] += sums[places[i], d]
            if n >= 0:
                count += n
                if ngrams > 1:
                    hashes[seen] = spots[i, 2]
                    seen += 1
    if seen > 1:
        count += _add_ngrams(model, hashes, seen, room.ngrams, hidden)
    if count:
        share = np.float32(1.0 / count)
        for d in range(dim):
            hidden[d] = np.float32(total[d] + hidden[d]) * share
    return count


@njit(nogil=True)
def _add_ngrams(model, hashes, seen, grams, total):
    words = model.words
    kept, pruned, first = words.kept, words.pruned, words.words
    buckets, ngrams = words.buckets, words.ngrams
    count = n = np.int64(0)
    for i in range(seen):
        gram = signed(hashes[i])
        for j in range(i + 1, min(seen, i + ngrams)):
            gram = word_ngram(gram, hashes[j])
            row = row_among(first, pruned, kept, bucket_of(buckets, gram))
            if row < 0:
                continue
            if n == len(grams):
                add_rows(model.rows, grams, n, total)
                n = np.int64(0)
            grams[n, 0] = row
            n += 1
            count += 1
    add_rows(model.rows, grams, n, total)
    return count


# Outputs and the best label are computed as in fastText 0.9.2 (`Loss::predict`, `findKBest`,
# `HierarchicalSoftmaxLoss::dfs`, `std_log`), so that ties end alike.

# Loss's table of the logistic function.
_STEPS, _MOST = 512, 8
_x = np.arange(_STEPS + 1, dtype=np.float32) * np.float32(2 * _MOST) / np.float32(_STEPS)
_TABLE = (1.0 / (1.0 + np.exp(-(_x - np.float32(_MOST))).astype(np.float64))).astype(np.float32)


@njit(nogil=True, inline="always")
def std_log(x: float | np.floating) -> np.float32:
    """Return fastText's logarithm: log(x + 1e-5)."""
    return np.float32(math.log(np.float64(np.float32(x)) + 1e-5))


_LEAST = np.float32(math.log(1e-5))  # std_log(0): subtrees of lower scores are not searched


@njit(nogil=True)
def dot(output: Output, row: int, hidden: np.ndarray) -> np.float32:
    """Return the product of an output row and `hidden`, summed in float32 from left to right."""
    total = np.float32(0)
    for d in range(len(hidden)):
        total += output.dense[row, d] * hidden[d]
    return total * output.norms[row]


@njit(nogil=True)
def _logistic(x: np.float32) -> np.float32:
    if x < -_MOST:
        return np.float32(0)
    if x > _MOST:
        return np.float32(1)
    if math.isnan(x):
        return x
    step = (x + np.float32(_MOST)) * np.float32(_STEPS) / np.float32(_MOST) / np.float32(2)
    return _TABLE[np.int64(step)]


@njit(nogil=True)
def _branch(x: np.float32) -> np.float32:
    return np.float32(1.0 / np.float64(np.float32(1) + math.exp(-x)))


@njit(nogil=True)
def outputs(output: Output, hidden: np.ndarray, out: np.ndarray) -> None:
    """Fill out: float32[labels] with probabilities, for losses other than hierarchical softmax."""
    labels = len(out)
    for label in range(labels):
        out[label] = dot(output, label, hidden)
    if output.kind == SIGMOID:
        for label in range(labels):
            out[label] = _logistic(out[label])
        return
    most = out[0]
    for label in range(labels):
        most = max(out[label], most)
    total = np.float32(0)
    for label in range(labels):
        out[label] = np.float32(math.exp(out[label] - most))
        total += out[label]
    for label in range(labels):
        out[label] /= total


@njit(nogil=True)
def log_scores(output: Output, hidden: np.ndarray, out: np.ndarray, work: np.ndarray) -> None:
    """Fill out: float32[labels] with the logarithm of each label's probability, as in fastText's
    predictions. `work` (float32[2 * labels]) is overwritten."""
    labels = len(out)
    if output.kind != HS:
        outputs(output, hidden, out)
        for label in range(labels):
            out[label] = std_log(out[label])
        return
    work[2 * labels - 2] = 0
    for node in range(2 * labels - 2, labels - 1, -1):  # parents have greater numbers
        f = _branch(dot(output, node - labels, hidden))
        work[output.left[node]] = work[node] + std_log(1.0 - np.float64(f))
        work[output.right[node]] = work[node] + std_log(f)
    for label in range(labels):
        out[label] = work[label]


@njit(nogil=True)
def best_label(output, hidden, work, stack):
    """Return (label, its log probability, margin), label -1 if none is likely enough. The margin is
    the gap to the next best score. Of equal scores, the last label visited wins, as in fastText's
    heap. Overwrites `work` (float32[2 * labels]) and `stack` (int32[2 * labels])."""
    many = len(output.dense)
    best = np.int64(-1)
    most = near = np.float32(-np.inf)
    if output.kind != HS:
        outputs(output, hidden, work[:many])
        for label in range(many):
            score = std_log(work[label])
            if score < most:
                near = max(near, score)
            else:
                near, most, best = most, score, np.int64(label)
        return best, most, most - near
    deep = 1
    stack[0] = 2 * many - 2
    work[2 * many - 2] = 0
    while deep > 0:
        deep -= 1
        node = np.int64(stack[deep])
        score = work[node]
        if score < _LEAST:
            continue
        if score < most:
            near = max(near, score)
            continue
        left_child, right_child = output.left[node], output.right[node]
        if left_child < 0:
            near, most, best = most, score, node
            continue
        f = _branch(dot(output, node - many, hidden))
        work[left_child] = score + std_log(1.0 - np.float64(f))
        work[right_child] = score + std_log(f)
        stack[deep], stack[deep + 1] = right_child, left_child
        deep += 2
    return best, most, most - near


# Without character n-grams, a line's rows are listed first and added several at a time, in
# fastText's order. The sum stays in a register, and the loads of several distant rows overlap.
LISTED = 1024  # rows listed before they are added


@njit(nogil=True)
def _sum(rows: Rows, listed_rows: np.ndarray, count: int, total: np.ndarray) -> None:
    dense, at = rows.dense, 0
    if len(dense):
        while at + 8 <= count:
            a, b = dense[listed_rows[at, 0]], dense[listed_rows[at + 1, 0]]
            c, d = dense[listed_rows[at + 2, 0]], dense[listed_rows[at + 3, 0]]
            e, f = dense[listed_rows[at + 4, 0]], dense[listed_rows[at + 5, 0]]
            g, h = dense[listed_rows[at + 6, 0]], dense[listed_rows[at + 7, 0]]
            for i in range(len(total)):
                total[i] = total[i] + a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i] + h[i]
            at += 8
    add_rows(rows, listed_rows[at:], count - at, total)


@njit(nogil=True)
def mean_of_words(model, data, start, end, hashes, listed_rows, hidden):
    """Fill hidden: float32[dim] with the mean of the model's rows (vectors) for the words and word
    n-grams of a line. Return the number of rows. Only for models without character n-grams.
    Overwrites `hashes` (int64[words of the line], used if the model has word n-grams) and
    `listed_rows` (int64[n, 1], the numbers of up to n rows that are added together)."""
    words = model.words
    slots, starts, ends, word_bytes = words.slots, words.starts, words.ends, words.data
    first, pruned, kept = words.words, words.pruned, words.kept
    hidden[:] = 0
    count = listed = seen = np.int64(0)
    at = start
    while at < end:
        begin, at, state = next_word(data, at, end)
        ended = begin == at
        if ended and begin == end:
            break
        if ended:
            state, entry = hashed(END_WORD, np.int64(0), len(END_WORD)), words.end
        else:
            entry = entry_among(slots, starts, ends, word_bytes, data, begin, at, state)
            ended = same(data, begin, at, END_WORD, 0, len(END_WORD))
        if entry < first and (entry >= 0 or not begins_as_label(data, begin, at)):
            if entry >= 0:
                if listed == len(listed_rows):
                    _sum(model.rows, listed_rows, listed, hidden)
                    count, listed = count + listed, 0
                listed_rows[listed, 0] = entry
                listed += 1
            if words.ngrams > 1:
                hashes[seen] = state
                seen += 1
        if ended:
            break
    for i in range(seen):
        gram = signed(hashes[i])
        for j in range(i + 1, min(seen, i + words.ngrams)):
            gram = word_ngram(gram, hashes[j])
            row = row_among(first, pruned, kept, bucket_of(words.buckets, gram))
            if row >= 0:
                if listed == len(listed_rows):
                    _sum(model.rows, listed_rows, listed, hidden)
                    count, listed = count + listed, 0
                listed_rows[listed, 0] = row
                listed += 1
    _sum(model.rows, listed_rows, listed, hidden)
    count += listed
    if count:
        share = np.float32(1.0 / count)
        for i in range(len(hidden)):
            hidden[i] *= share
    return count


# Cached sums differ from fastText's by rounding: some 1e-6 of a score in short texts, 1e-4 in texts
# of megabytes. If the scores of two labels differ by less than this, rows are added again in
# fastText's order.
_NEAR = 1e-3


class Classifier:
    """A loaded model. `labels` are the labels without `__label__`, in the file's order, and
    `header` has the file's settings. Raises UsageError if the file is not a complete supervised
    model."""

    def __init__(self, path: str | Path, decoded: int = DECODED) -> None:
        self.path = str(path)
        self.header, self._model = read_model(path, decoded)
        self.labels = self.header.labels
        self._memory = memory(self.header.dim)
        self._lock = Lock()  # kernels run without the GIL and share the cache

    def best(self, lines: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the best label of each line, like fastText's `predict`. Return (codes: int32[rows],
        the index of each label in `labels`, -1 for a line without features; probabilities:
        float32[rows], up to 1.00003 as in fastText). The bytes of line i, newline included, are
        lines[ends[i]:ends[i + 1]]. `lines` is uint8[bytes], `ends` int64[rows + 1]."""
        with self._lock:
            codes, scores = _best(self._model, self._memory, lines, ends)
        return codes, self._numbers(scores)

    def probabilities(
        self, lines: np.ndarray, ends: np.ndarray, labels: Sequence[int] | None = None
    ) -> np.ndarray:
        """Return float32[rows, labels]: the probabilities of these labels (indexes), or of all.
        They are 0 for a line without features, and else at least 1e-5, as in fastText."""
        chosen = np.arange(len(self.labels)) if labels is None else np.asarray(labels, np.int64)
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(self.labels):
            raise IndexError(f"labels {chosen.min()} to {chosen.max()} of {len(self.labels)}")
        with self._lock:
            values = _all(self._model, self._memory, lines, ends, chosen)
        return self._numbers(values)

    def explain(self, line: bytes, label: int) -> tuple[list[Share], float]:
        """Return (shares, logit): what each feature of a line adds to a label's logit, largest
        first, and the logit. With hierarchical softmax, "logit" is a sum of logits (see the
        function `direction`)."""
        return explain(self._model, line, label)

    def _numbers(self, values: np.ndarray) -> np.ndarray:
        if np.isnan(values).any():
            raise UsageError(f"model {self.path} contains NaN: fetch or train it again")
        return values


@njit(cache=True, nogil=True)
def _best(model, kept, lines, ends):
    rows, labels = len(ends) - 1, len(model.output.dense)
    codes, shares = np.full(rows, -1, np.int32), np.zeros(rows, np.float32)
    hidden = np.empty(model.output.dense.shape[1], np.float32)
    room = scratch_for(model, kept, ends)
    work, stack = np.empty(2 * labels, np.float32), np.empty(2 * labels, np.int32)
    for row in range(rows):
        exactly = model.output.kind == SIGMOID  # its table is a step function
        while hidden_of(model, kept, room, lines, ends[row], ends[row + 1], exactly, hidden):
            code, score, margin = best_label(model.output, hidden, work, stack)
            if not exactly and margin < _NEAR:
                exactly = True
                continue
            codes[row], shares[row] = code, np.exp(score)
            break
    return codes, shares


@njit(cache=True, nogil=True)
def _all(model, kept, lines, ends, chosen):
    rows = len(ends) - 1
    labels = len(model.output.dense)
    shares = np.zeros((rows, len(chosen)), np.float32)
    hidden = np.empty(model.output.dense.shape[1], np.float32)
    room = scratch_for(model, kept, ends)
    scores, work = np.empty(labels, np.float32), np.empty(2 * labels, np.float32)
    listed_rows = np.empty((LISTED, 1), np.int64)
    exactly = model.output.kind == SIGMOID
    for row in range(rows):
        start, end = ends[row], ends[row + 1]
        if model.words.maxn == 0:
            count = mean_of_words(model, lines, start, end, room.hashes, listed_rows, hidden)
        else:
            count = hidden_of(model, kept, room, lines, start, end, exactly, hidden)
        if count == 0:
            continue
        log_scores(model.output, hidden, scores, work)
        for i in range(len(chosen)):
            shares[row, i] = np.exp(scores[chosen[i]])
    return shares


KINDS = ("word", "n-gram", "words")
_WORD, _NGRAM, _WORDS = range(3)


@dataclass(frozen=True)
class Share:
    """A feature of a line and its contribution to a logit."""

    text: str  # word, words of a word n-gram, or n-gram (`<` and `>` are the ends of its word)
    kind: str  # one of KINDS
    times: int  # number of occurrences
    adds: float  # contribution of all occurrences


@njit(cache=True, nogil=True)
def features(model: Weights, line: np.ndarray, out: np.ndarray) -> int:
    """Fill `out` (int64[any, 6]) with a line's features in fastText's order, as many as fit. Return
    the number of all features. The six columns: row in the input matrix; kind (an index into
    KINDS); start and end, in the line, of the feature's word or words, or of the newline that
    counts as the word `</s>`; start and end of a character n-gram in the string <word>, 0 for other
    kinds."""
    words = model.words
    minn, maxn, buckets, first = words.minn, words.maxn, words.buckets, words.words
    pruned, kept, sieve = words.pruned, words.kept, words.sieve
    scratch = np.empty((ROOM + maxn, 3), np.int64)
    most = len(line) // 2 + 2 if words.ngrams > 1 else 0
    seen = np.empty((most, 3), np.int64)  # hash, start, end
    count = n_words = 0
    at, ended = 0, False
    while at < len(line) and not ended:
        begin, at, state = next_word(line, at, len(line))
        if begin == len(line):
            break
        if begin == at:
            ended = True
            at += 1
            state = hashed(END_WORD, 0, len(END_WORD))
            entry = words.end
        else:
            ended = same(line, begin, at, END_WORD, 0, len(END_WORD))
            entry = entry_among(
                words.slots, words.starts, words.ends, words.data, line, begin, at, state
            )
            if entry >= first or (entry < 0 and begins_as_label(line, begin, at)):
                continue
        if words.ngrams > 1:
            seen[n_words] = state, begin, at
            n_words += 1
        if entry >= 0:
            if count < len(out):
                out[count] = entry, _WORD, begin, at, 0, 0
            count += 1
        place = 0
        while maxn > 0 and not ended and place < at - begin + 2:
            many, place = ngrams_from(
                minn, maxn, buckets, first, pruned, kept, sieve, line, begin, at, place, scratch, 0
            )
            for n in range(many):
                if count < len(out):
                    out[count] = scratch[n, 0], _NGRAM, begin, at, scratch[n, 1], scratch[n, 2]
                count += 1
    for i in range(n_words):
        gram = signed(seen[i, 0])
        for j in range(i + 1, min(n_words, i + words.ngrams)):
            gram = word_ngram(gram, seen[j, 0])
            row = row_among(first, pruned, kept, bucket_of(buckets, gram))
            if row >= 0:
                if count < len(out):
                    out[count] = row, _WORDS, seen[i, 1], seen[j, 2], 0, 0
                count += 1
    return count


@njit(cache=True, nogil=True)
def products(model: Weights, rows: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Return float64[rows]: the product of `direction` (float64[dim]) and each given row of the
    input matrix. `rows` is int64[rows, any], with the row numbers in the first column."""
    out = np.zeros(len(rows))
    vector = np.empty(len(direction), np.float32)
    for i in range(len(rows)):
        vector[:] = 0
        add_rows(model.rows, rows[i : i + 1], 1, vector)
        for d in range(len(direction)):
            out[i] += vector[d] * direction[d]
    return out


def direction(output: Output, label: int) -> np.ndarray:
    """Return float64[dim]: the vector whose product with a hidden vector is a label's logit.
    Hierarchical softmax has no logit per label, but one per node on the path from the root to the
    label. For this loss, the product is the sum of the path's logits, where a left turn counts as
    negative."""
    rows = output.dense.astype(np.float64) * output.norms[:, None]
    if output.kind != HS:
        return rows[label]
    total = np.zeros(rows.shape[1])
    labels, node = len(rows), label
    for parent in range(labels, 2 * labels - 1):  # parents have greater numbers
        if node in (output.left[parent], output.right[parent]):
            total += rows[parent - labels] * (1 if node == output.right[parent] else -1)
            node = parent
    return total


def explain(model: Weights, line: bytes, label: int) -> tuple[list[Share], float]:
    """Return (shares, logit): what each feature of a line adds to a label's logit, largest first,
    and the logit."""
    data = np.frombuffer(bytearray(line), np.uint8)
    rows = np.empty((features(model, data, np.empty((0, 6), np.int64)), 6), np.int64)
    features(model, data, rows)
    adds = products(model, rows, direction(model.output, label)) / max(1, len(rows))
    together: dict[tuple[str, int], list[float]] = {}
    for (_, kind, start, end, begin, to), value in zip(rows.tolist(), adds.tolist(), strict=True):
        raw = line[start:end]
        if kind == _NGRAM:
            raw = (b"<" + raw + b">")[begin:to]
        else:
            raw = b" ".join(raw.replace(b"\n", b" </s>").replace(b"\0", b" ").split())
        together.setdefault((raw.decode("utf-8", "replace"), kind), []).append(value)
    shares = [Share(text, KINDS[kind], len(v), sum(v)) for (text, kind), v in together.items()]
    shares.sort(key=lambda s: (-abs(s.adds), s.text, s.kind))
    return shares, float(adds.sum())
