"""fastText's own library: loading a checked model file, labels of many lines."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from curate.errors import RunFailed, UsageError
from curate.language.model_file import Header, read_header

# The C++ binding itself: the Python package around it warns on stderr at every load.
_MODULE = "fasttext_pybind"


def need_library() -> None:
    """RunFailed with what to do, where this Python has no fastText."""
    if find_spec(_MODULE) is not None:
        return
    if sys.version_info >= (3, 13):
        raise RunFailed(
            "language models need fastText, which has no wheel for Python"
            f" {sys.version_info[0]}.{sys.version_info[1]}: use Python 3.10 to 3.12"
        )
    raise RunFailed("language models need fastText: pip install fasttext-numpy2-wheel")


def library() -> Any:
    """The binding. RunFailed where this Python has none."""
    need_library()
    import fasttext_pybind

    return fasttext_pybind


class Model:
    """A loaded supervised model. labels: without prefix, as in the header."""

    def __init__(self, path: str | Path) -> None:
        self.header: Header = read_header(path)
        self.labels = self.header.labels
        self._codes = {name: i for i, name in enumerate(self.header.names)}
        self._native = library().fasttext()
        try:
            self._native.loadModel(str(path))
        except (ValueError, RuntimeError, MemoryError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UsageError(f"language model {path}: {reason}") from None

    def best(
        self, lines: np.ndarray, ends: np.ndarray, words: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(code: int32[rows], an index into labels, -1 for none; score: float32[rows], 0 to 1).

        The arguments are what `fasttext_lines` returns; a line without any word has no label.
        """
        rows = len(ends) - 1
        codes = np.full(rows, -1, np.int32)
        scores = np.zeros(rows, np.float32)
        packed, at, predict = lines.tobytes(), ends.tolist(), self._native.predict
        for row in np.flatnonzero(words).tolist():
            answer = predict(packed[at[row] : at[row + 1]], 1, 0.0, "replace")
            if answer:  # [(score, label)]
                scores[row], codes[row] = answer[0][0], self._codes[answer[0][1]]
        # fastText's logarithms round up now and then: 1.00003.
        return codes, np.minimum(scores, np.float32(1.0))

    def probability(
        self, lines: np.ndarray, ends: np.ndarray, words: np.ndarray, label: str
    ) -> np.ndarray:
        """float32[rows], 0 to 1: the label's score; 0 of a line without any word."""
        scores = np.zeros(len(ends) - 1, np.float32)
        packed, at, predict = lines.tobytes(), ends.tolist(), self._native.predict
        name = self.header.names[self.labels.index(label)]
        count = len(self.labels)
        for row in np.flatnonzero(words).tolist():
            for score, found in predict(packed[at[row] : at[row + 1]], count, 0.0, "replace"):
                if found == name:
                    scores[row] = score
        return np.minimum(scores, np.float32(1.0))
