"""From hidden vectors to labels: the losses' outputs and the best k of them, as fastText has them.

`Loss::predict`, `findKBest`, `HierarchicalSoftmaxLoss::dfs` and `std_log` at version 0.9.2, the
heap as libstdc++ keeps it, so that ties fall the same way.
"""

from __future__ import annotations

import math

import numpy as np

from curate.fasttext.reading import HS, SIGMOID, Output
from kernel_cache import njit

# Loss's table of the logistic function.
_STEPS, _MOST = 512, 8
_x = np.arange(_STEPS + 1, dtype=np.float32) * np.float32(2 * _MOST) / np.float32(_STEPS)
_TABLE = (1.0 / (1.0 + np.exp(-(_x - np.float32(_MOST))).astype(np.float64))).astype(np.float32)


@njit(nogil=True, inline="always")
def std_log(x: float | np.floating) -> np.float32:
    """fastText's logarithm, of at least 1e-5."""
    return np.float32(math.log(np.float64(np.float32(x)) + 1e-5))


@njit(nogil=True)
def dot(output: Output, row: int, hidden: np.ndarray) -> np.float32:
    """A row of the output matrix times hidden, in float32, from left to right."""
    total = np.float32(0)
    for d in range(len(hidden)):
        total += output.dense[row, d] * hidden[d]
    return total * output.norms[row]


@njit(nogil=True)
def _logistic(x: np.float32) -> np.float32:
    """By the table, as ns and ova have it."""
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
    """The logistic function as hs has it: without a table."""
    return np.float32(1.0 / np.float64(np.float32(1) + math.exp(-x)))


@njit(nogil=True)
def outputs(output: Output, hidden: np.ndarray, out: np.ndarray) -> None:
    """Fills out: float32[labels] with the probabilities by ns, ova or softmax."""
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
    """Fills out: float32[labels] with the logarithms that fastText's predictions have, of all
    labels; work: float32[2 * labels] is overwritten."""
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
    out[:] = work[:labels]


@njit(nogil=True)
def _raise(scores: np.ndarray, labels: np.ndarray, hole: int, score: float, label: int) -> None:
    """libstdc++'s __push_heap: the least score on top."""
    while hole > 0:
        parent = (hole - 1) // 2
        if not scores[parent] > score:
            break
        scores[hole], labels[hole] = scores[parent], labels[parent]
        hole = parent
    scores[hole], labels[hole] = score, label


@njit(nogil=True)
def _pop(scores: np.ndarray, labels: np.ndarray, size: int) -> None:
    """libstdc++'s pop_heap: moves the top behind the other size - 1."""
    last = size - 1
    if last < 1:
        return
    score, label = scores[last], labels[last]
    scores[last], labels[last] = scores[0], labels[0]
    hole = second = 0
    while second < (last - 1) // 2:
        second = 2 * (second + 1)
        if scores[second] > scores[second - 1]:
            second -= 1
        scores[hole], labels[hole] = scores[second], labels[second]
        hole = second
    if last % 2 == 0 and second == (last - 2) // 2:
        second = 2 * (second + 1)
        scores[hole], labels[hole] = scores[second - 1], labels[second - 1]
        hole = second - 1
    _raise(scores, labels, hole, score, label)


@njit(nogil=True)
def best(
    output: Output,
    hidden: np.ndarray,
    k: int,
    threshold: float,
    scores: np.ndarray,
    labels: np.ndarray,
    work: np.ndarray,
    stack: np.ndarray,
) -> tuple[int, np.float32]:
    """(n, margin): fills scores: float32[k + 1] and labels: int32[k + 1] with the n <= k labels of
    the highest logarithms of probabilities, falling; margin: the least distance between two of
    them, or from the last to what was left out.

    work: float32[2 * labels] and stack: int32[2 * labels] are overwritten.
    """
    many = len(output.dense)
    size = 0
    near = np.float32(-np.inf)
    least = std_log(threshold)
    if output.kind == HS:
        deep = 1
        stack[0] = 2 * many - 2
        work[2 * many - 2] = 0
    else:
        outputs(output, hidden, work[:many])
        deep = many
    while deep > 0:
        deep -= 1
        if output.kind == HS:
            node = stack[deep]
            score = work[node]
            if score < least:
                continue
        else:
            node = np.int32(many - 1 - deep)
            if work[node] < threshold:
                continue
            score = std_log(work[node])
        if size == k and score < scores[0]:
            near = max(near, score)
            continue
        if output.kind == HS and output.left[node] >= 0:
            f = _branch(dot(output, node - many, hidden))
            left, right = output.left[node], output.right[node]
            work[left] = score + std_log(1.0 - np.float64(f))
            work[right] = score + std_log(f)
            stack[deep], stack[deep + 1] = right, left
            deep += 2
            continue
        _raise(scores, labels, size, score, node)
        size += 1
        if size > k:
            _pop(scores, labels, size)
            size -= 1
            near = max(near, scores[size])
    for left_over in range(size, 1, -1):
        _pop(scores, labels, left_over)
    margin = np.float32(np.inf)
    for i in range(size):
        margin = min(margin, scores[i] - (scores[i + 1] if i + 1 < size else near))
    return size, margin
