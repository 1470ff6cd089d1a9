"""A supervised fastText model that labels lines, many at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import numpy as np

from curate.errors import UsageError
from curate.fasttext.explaining import Share, explain
from curate.fasttext.hidden import Memory, hidden_of, memory, scratch_for
from curate.fasttext.reading import DECODED, SIGMOID, Weights, read_model
from curate.fasttext.scoring import best, log_scores
from curate.fasttext.words import LISTED, mean_of_words
from kernel_cache import njit

# Sums of remembered words and fastText's differ by rounding alone: some 1e-6 of a score in short
# texts, 1e-4 in megabytes. Where two labels are as near as this, the sum is made again in
# fastText's order.
_NEAR = 1e-3


class Classifier:
    """A loaded model.

    labels: without `__label__`, in the file's order; header: what the file says of itself.

    UsageError where the file is no whole supervised model.
    """

    def __init__(self, path: str | Path, decoded: int = DECODED) -> None:
        self.path = str(path)
        self.header, self._model = read_model(path, decoded)
        self.labels = self.header.labels
        self._memory = memory(self.header.dim)
        self._lock = Lock()  # kernels run without the interpreter's lock, and share the memory

    def top(
        self, lines: np.ndarray, ends: np.ndarray, k: int = 1, threshold: float = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """(labels: int32[rows, k], indexes into `labels`, -1 for none; probabilities:
        float32[rows, k]), the highest first: what fastText's `predict` gives for each line.

        lines: uint8[bytes]; ends: int64[rows + 1], where the lines end, from 0 on; a line's newline
        belongs to it. fastText's probabilities are up to 1.00003, and labels of less than the
        threshold are left out.
        """
        k = max(1, min(k, len(self.labels)))
        with self._lock:
            found, scores = _top(self._model, self._memory, lines, ends, k, threshold)
        return found, self._numbers(scores)

    def probabilities(
        self, lines: np.ndarray, ends: np.ndarray, labels: Sequence[int] | None = None
    ) -> np.ndarray:
        """float32[rows, labels]: the probabilities of these labels, or of all, in that order; 0
        in a line that has no feature, else at least 1e-5, as fastText's logarithm rounds."""
        chosen = np.arange(len(self.labels)) if labels is None else np.asarray(labels, np.int64)
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(self.labels):
            raise IndexError(f"labels {chosen.min()} to {chosen.max()} of {len(self.labels)}")
        with self._lock:
            found = _all(self._model, self._memory, lines, ends, chosen)
        return self._numbers(found)

    def explain(self, line: bytes, label: int) -> tuple[list[Share], float]:
        """(what each feature of a line adds to a label's logit, the most in either direction
        first; the logit). With hs it is the sum of the branches on the way to the label."""
        return explain(self._model, line, label)

    def _numbers(self, values: np.ndarray) -> np.ndarray:
        if np.isnan(values).any():
            raise UsageError(f"model {self.path} holds what is no number: fetch or train it again")
        return values


@njit(cache=True, nogil=True)
def _top(
    model: Weights,
    kept: Memory,
    lines: np.ndarray,
    ends: np.ndarray,
    k: int,
    threshold: float,
) -> tuple[np.ndarray, np.ndarray]:
    rows = len(ends) - 1
    labels = len(model.output.dense)
    found = np.full((rows, k), -1, np.int32)
    shares = np.zeros((rows, k), np.float32)
    hidden = np.empty(model.output.dense.shape[1], np.float32)
    room = scratch_for(model, kept, ends)
    scores, codes = np.empty(k + 1, np.float32), np.empty(k + 1, np.int32)
    work, stack = np.empty(2 * labels, np.float32), np.empty(2 * labels, np.int32)
    for row in range(rows):
        exactly = model.output.kind == SIGMOID  # its table jumps
        while True:
            count = hidden_of(model, kept, room, lines, ends[row], ends[row + 1], exactly, hidden)
            if count == 0:
                break
            n, margin = best(model.output, hidden, k, threshold, scores, codes, work, stack)
            if not exactly and margin < _NEAR:
                exactly = True
                continue
            found[row, :n] = codes[:n]
            shares[row, :n] = np.exp(scores[:n])
            break
    return found, shares


@njit(cache=True, nogil=True)
def _all(
    model: Weights, kept: Memory, lines: np.ndarray, ends: np.ndarray, chosen: np.ndarray
) -> np.ndarray:
    rows = len(ends) - 1
    labels = len(model.output.dense)
    shares = np.zeros((rows, len(chosen)), np.float32)
    hidden = np.empty(model.output.dense.shape[1], np.float32)
    room = scratch_for(model, kept, ends)
    scores, work = np.empty(labels, np.float32), np.empty(2 * labels, np.float32)
    which = np.empty((LISTED, 1), np.int64)
    exactly = model.output.kind == SIGMOID
    for row in range(rows):
        start, end = ends[row], ends[row + 1]
        if model.words.maxn == 0:
            count = mean_of_words(model, lines, start, end, room.hashes, which, hidden)
        else:
            count = hidden_of(model, kept, room, lines, start, end, exactly, hidden)
        if count == 0:
            continue
        log_scores(model.output, hidden, scores, work)
        for i in range(len(chosen)):
            shares[row, i] = np.exp(scores[chosen[i]])
    return shares
