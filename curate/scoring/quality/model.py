"""A quality classifier: a supervised fastText model and the label that means good.

The model reads `" ".join(text.strip().splitlines())`, as in DCLM,
baselines/mappers/enrichers/quality_prediction_enrichers_calc_fasttext.py. Every line end of
`str.splitlines` becomes a blank, not only the newline that fastText knows."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from curate.scoring.fasttext import classifier
from curate.scoring.fasttext.classifier import Share
from curate.scoring.fasttext.features import END_WORD, LABEL_PREFIX, SPACE
from curate.scoring.fasttext.model_file import read_header
from curate.scoring.language.model import fasttext_lines
from curate.text.unicode import ASCII_LINE_END, line_end_bytes, space_bytes
from llmcurate.base.errors import UsageError
from llmcurate.base.kernels import njit

# The possible first bytes of a line end.
_LOOK = ASCII_LINE_END.copy()
_LOOK[[0xC2, 0xE2]] = True


@njit(nogil=True)
def _stripped(data: np.ndarray, start: int, end: int) -> int:
    n = 1
    while n <= 3:
        if end - n >= start and space_bytes(data, end - n, end) == n:
            end -= n
            n = 0
        n += 1
    return end


def joined_lines(data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Strip texts and replace line ends by blanks. Return (data: uint8[bytes], offsets: int64[rows
    + 1])."""
    return _joined(data, offsets, False)


@njit(cache=True, nogil=True)
def _joined(data: np.ndarray, offsets: np.ndarray, ended: bool) -> tuple[np.ndarray, np.ndarray]:
    rows = len(offsets) - 1
    out = np.empty(offsets[rows] - offsets[0] + rows, np.uint8)
    ends = np.zeros(rows + 1, np.int64)
    to = 0
    for row in range(rows):
        at, end = offsets[row], offsets[row + 1]
        while at < end:
            n = space_bytes(data, at, end)
            if n == 0:
                break
            at += n
        end = _stripped(data, at, end)
        while at < end:
            start = at
            while at < end and not _LOOK[data[at]]:
                at += 1
            n = line_end_bytes(data, at, end) if at < end else 0
            at += 1 if at < end and n == 0 else 0  # a character that begins with the same byte
            out[to : to + at - start] = data[start:at]
            to += at - start
            if n > 0:
                out[to] = 32
                to += 1
                at += n
        if ended:
            out[to] = 10
            to += 1
        ends[row + 1] = to
    return out[:to], ends


@njit(cache=True, nogil=True)
def _has_words(lines: np.ndarray, ends: np.ndarray) -> np.ndarray:
    filled = np.zeros(len(ends) - 1, np.bool_)
    for row in range(len(filled)):
        at = ends[row]
        while at < ends[row + 1] and not filled[row]:
            filled[row] = not SPACE[lines[at]]
            at += 1
    return filled


def quality_lines(
    data: np.ndarray, offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Convert each text to one line for the model. Return (lines: uint8[bytes], ends: int64[rows +
    1], filled: bool[rows], True if the line has a word). Line ends, and the words that have a
    special meaning in fastText (`</s>` and `__label__...`), become spaces."""
    lines, ends = _joined(data, offsets, True)
    raw = lines.tobytes()
    if any(command.tobytes() in raw for command in (END_WORD, LABEL_PREFIX)):
        return fasttext_lines(*joined_lines(data, offsets), 0)
    return lines, ends, _has_words(lines, ends)


VARIABLE = "LLMCURATE_QUALITY_MODEL"
# The labels of DCLM's model and of models trained here; RedPajama's model has `wiki` and `cc`.
GOOD, REST = "hq", "cc"


def effective(model: str | None) -> str:
    """Return the path of the model to use: the setting, else LLMCURATE_QUALITY_MODEL. Raises
    UsageError if neither is set."""
    path = model or os.environ.get(VARIABLE)
    if not path:
        raise UsageError(
            f"no quality model: give --set quality.model=PATH or set {VARIABLE}; train one with"
            " `llmcurate quality train`, or fetch DCLM's (mlfoundations/fasttext-oh-eli5)"
        )
    return str(Path(path).expanduser())


def good_label(path: str | Path, label: str | None = None) -> str:
    """Return the label to score: `label` if given, else `hq` if the model has it, else the other
    label of a model with two labels, one of them `cc`. Raises UsageError if there is no such label.
    """
    labels = read_header(path).labels
    if label is not None:
        label = label.removeprefix("__label__")
        if label not in labels:
            names = ", ".join(labels[:8])
            raise UsageError(f"the quality model {path} has no label {label!r}; it has {names}")
        return label
    if GOOD in labels:
        return GOOD
    if len(labels) == 2 and REST in labels:
        return next(x for x in labels if x != REST)
    raise UsageError(
        f"the quality model {path} has the labels {', '.join(labels[:8])}: name the good one"
        " (--label, or score_label in a recipe)"
    )


@dataclass(frozen=True)
class Explanation:
    """An explanation of a text's score."""

    score: float
    logit: float
    against: str | None  # label whose logit is subtracted, if any
    shares: list[Share]  # what each word and n-gram adds, largest absolute value first


class Classifier:
    """A loaded model. `label` is the label to score, without prefix."""

    def __init__(self, path: str | Path, label: str | None = None) -> None:
        self.label = good_label(path, label)
        self._model = classifier.Classifier(path)
        self._code = self._model.labels.index(self.label)
        # The scored label, followed by the other label if the model has two.
        self._codes = [self._code] + [1 - self._code] * (len(self._model.labels) == 2)

    def scores(self, data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Return float64[rows]: for each text, the probability of the label to score, 0 to 1; 0 for
        a text without words. `data` is uint8[bytes]. `offsets` is int64[rows + 1]."""
        return self.line_scores(*quality_lines(data, offsets))

    def line_scores(self, lines: np.ndarray, ends: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Return the scores of lines, given as the result of the function quality_lines. A score is
        the good label's probability. If the other of two labels is likelier, the score is 1 minus
        the other label's probability, as in DCLM. fastText's probabilities are 0.00001 too high,
        and DCLM's published threshold includes this excess."""
        chances = self._model.probabilities(lines, ends, self._codes).astype(np.float64)
        score = chances[:, 0]
        if chances.shape[1] == 2:
            score = np.where(score >= chances[:, 1], score, 1.0 - chances[:, 1])
        return np.clip(score, 0.0, 1.0) * words

    def explain(self, text: str) -> Explanation:
        """Return a text's score, and exactly how much each word and n-gram adds to the logit.

        With two labels under softmax, the score is the logistic function of a difference: the
        logit of the label that this classifier scores minus the logit of the other label. What the
        words and n-grams add sums to this difference. With more labels, the logit of the likeliest
        other label is subtracted. With other losses, nothing is subtracted."""
        data = np.frombuffer(bytearray(text.encode("utf-8", "replace")), np.uint8)
        lines, ends, words = quality_lines(data, np.array([0, len(data)], np.int64))
        score = float(self.line_scores(lines, ends, words)[0])
        if not words[0]:
            return Explanation(0.0, 0.0, None, [])
        line = lines.tobytes()
        shares, logit = self._model.explain(line, self._code)
        if self._model.header.loss != "softmax" or len(self._model.labels) == 1:
            return Explanation(score, logit, None, shares)
        chances = self._model.probabilities(lines, ends)[0]
        chances[self._code] = -1
        against = int(np.argmax(chances))
        against_shares, against_logit = self._model.explain(line, against)
        adds = {(s.text, s.kind): s.adds for s in against_shares}
        differences = [replace(s, adds=s.adds - adds[s.text, s.kind]) for s in shares]
        differences.sort(key=lambda s: (-abs(s.adds), s.text, s.kind))
        return Explanation(score, logit - against_logit, self._model.labels[against], differences)
