"""Models that label lines; and fastText's own library, which trains them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from curate.errors import RunFailed
from curate.scoring.fasttext.classifier import Classifier
from curate.scoring.fasttext.model_file import Header

# The C++ binding itself: the Python package around it warns on stderr at every load.
_MODULE = "fasttext_pybind"


def need_library() -> None:
    """RunFailed with what to do, where this Python has no fastText."""
    if find_spec(_MODULE) is not None:
        return
    if sys.version_info >= (3, 13):
        raise RunFailed(
            "training language models needs fastText, which has no wheel for Python"
            f" {sys.version_info[0]}.{sys.version_info[1]}: use Python 3.10 to 3.12"
        )
    raise RunFailed("training language models needs fastText: pip install fasttext-numpy2-wheel")


def library() -> Any:
    """The binding. RunFailed where this Python has none."""
    need_library()
    import fasttext_pybind

    return fasttext_pybind


class Model:
    """A loaded supervised model. labels: without prefix, as in the header."""

    def __init__(self, path: str | Path) -> None:
        self.classifier = Classifier(path)
        self.header: Header = self.classifier.header
        self.labels = self.header.labels

    def best(
        self, lines: np.ndarray, ends: np.ndarray, words: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(code: int32[rows], an index into labels, -1 for none; score: float32[rows], 0 to 1).

        The arguments are what `fasttext_lines` returns; a line without any word has no label.
        """
        codes, scores = (found[:, 0] for found in self.classifier.top(lines, ends))
        # fastText's logarithms round up now and then: 1.00003.
        scores = np.minimum(scores, np.float32(1.0)) * words
        return np.where(words, codes, np.int32(-1)), scores.astype(np.float32)
