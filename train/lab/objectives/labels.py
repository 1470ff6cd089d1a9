"""Objective of a task head: predict labels of texts or words, or find an answer in a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from train.config import TrainConfig
from train.data.readers import Floats
from train.data.rows import Piece, Takes
from train.lab.tasks.labelled import (
    MOST_CHOICES,
    LabelledFeed,
    LabelledPiece,
    Window,
    window_lengths,
)
from train.model.config import Answers
from train.model.config import Task as TaskOfModel
from train.objective_settings import Task
from train.objectives.example import IGNORED, Draws, Example, Objective, learns

LONGEST = 30  # tokens per answer (Devlin et al. 2019's code)
VALUES = 4  # numbers per place that ``answers`` returns


@learns(Task)
class Labelled(Objective):
    """Predict the labels of texts or words, the right choice, or the first and last token of an
    answer. A row of a batch has one or more windows, which are model inputs made from samples."""

    sparse = True
    likelihood = False

    @staticmethod
    def losses(settings: Task) -> Callable[[Tensor, Example], Tensor] | None:
        return {"span": span_losses, "choice": choice_losses}.get(settings.kind)

    @classmethod
    def feed(
        cls,
        path: Path | None,
        config: TrainConfig,
        *,
        task: TaskOfModel | None = None,
        tokenizer: Path | None = None,
    ) -> LabelledFeed:
        asked = config.objective
        assert isinstance(asked, Task)
        names = task.labels if task is not None and task.kind == asked.kind else ()
        return LabelledFeed(path, config, tokenizer=tokenizer, names=names)

    @staticmethod
    def takes(settings: Any) -> Takes | None:
        return window_lengths

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        inputs, targets, ends, documents, segments = (
            np.full((1, context), fill, np.int64) for fill in (0, IGNORED, IGNORED, -1, 0)
        )
        filled = 0
        for piece in pieces:
            assert isinstance(piece, LabelledPiece)
            window, stop = piece.window, filled + len(piece.window.tokens)
            inputs[0, filled:stop], segments[0, filled:stop] = window.tokens, window.segments
            documents[0, filled:stop] = piece.document
            if window.choices is not None:
                documents[0, filled:stop] = piece.document * MOST_CHOICES + window.choices
                targets[0, filled + window.places[window.labels]] = 0
            elif window.characters is None:
                targets[0, filled + window.places] = window.labels
            else:
                targets[0, filled], ends[0, filled] = filled + window.labels
            filled = stop
        arrays = {"inputs": inputs, "targets": targets, "documents": documents}
        arrays |= {"segments": segments}
        if self.settings.kind == "span":
            arrays["ends"] = ends
        return Example(**{name: torch.from_numpy(array) for name, array in arrays.items()})


def span_losses(logits: Tensor, example: Example) -> Tensor:
    """Return the loss of each answer in nats, [texts], from ``logits`` [rows, context, 2]: the mean
    of two cross-entropies, of the answer's first and last token among all tokens of the text."""
    assert example.ends is not None
    rows, context = example.targets.shape
    number = torch.arange(rows, device=logits.device)[:, None]
    texts = _texts(example)
    _, group = torch.unique_consecutive(texts, return_inverse=True)
    asked = example.targets != IGNORED
    ends = [(places + number * context)[asked] for places in (example.targets, example.ends)]
    nats = []
    for scores, place in zip(logits.flatten(0, 1).unbind(-1), ends, strict=True):
        nats.append(_log_sums(scores, group)[group[asked.flatten()]] - scores[place])
    return (nats[0] + nats[1]) / 2


def _texts(example: Example) -> Tensor:
    """Return the number of each token's document, unique across rows, [rows * context]."""
    assert example.documents is not None
    number = torch.arange(len(example.documents), device=example.documents.device)
    return (example.documents + (number[:, None] << 32)).flatten()


def _log_sums(scores: Tensor, group: Tensor) -> Tensor:
    """Return log(sum(exp(score))) of each group of scores: element g for group g, -inf if no score
    has this group. ``group``: the group number of each score. The result is as long as
    ``scores``."""
    highest = torch.full_like(scores, -torch.inf).scatter_reduce(0, group, scores, "amax")
    highest = highest.detach()
    total = torch.zeros_like(scores).index_add(0, group, (scores - highest[group]).exp())
    return highest + total.log()


def choice_losses(logits: Tensor, example: Example) -> Tensor:
    """Return the loss of each sample (a question with choices) in nats, [samples], from ``logits``
    [rows, context, 1]: the cross-entropy of the right choice. A choice's logit is at its first
    token."""
    assert example.documents is not None
    texts = _texts(example)
    begins = texts.diff(prepend=texts[:1] - 1) != 0
    first = begins & (example.documents >= 0).flatten()
    scores = logits.flatten()[first]
    _, group = torch.unique_consecutive(texts[first] // MOST_CHOICES, return_inverse=True)
    right = example.targets.flatten()[first] != IGNORED
    return (_log_sums(scores, group)[group] - scores)[right]


def answers(logits: Tensor, window: Window, kind: Answers = "label") -> Floats:
    """Return the predictions for a window (one model input), float64, a row per answer. If ``kind``
    is ``labels`` or ``number``, the shape is [answers, labels]: a probability or a number per
    label. If ``kind`` is ``label``, the shape is [answers, ``VALUES``]. In the task ``span``,
    ``logits`` are [tokens, 2], and the only row is (first token of the answer, its last token, sum
    of their logits, loss of the right tokens in nats). In ``choice``, ``logits`` are [choices, 1],
    in other tasks [answers, labels]; a row is (number of the best label or choice, an unused 0, its
    probability, loss of the right one in nats)."""
    if kind != "label":
        return (logits.sigmoid() if kind == "labels" else logits).numpy()
    if window.characters is None:
        logits = logits if window.choices is None else logits.T
        shares = logits.log_softmax(-1)
        best = shares.max(-1)
        right = torch.from_numpy(window.labels)
        each = F.nll_loss(shares, right, reduction="none")
        return torch.stack([best.indices, 0 * each, best.values.exp(), each], -1).numpy()
    nats = F.cross_entropy(logits.T, torch.from_numpy(window.labels)).item()
    text = np.flatnonzero(window.characters[:, 0] >= 0)
    if not len(text):
        return np.array([[0.0, 0.0, -np.inf, nats]])
    first, last = logits[text[0] : text[-1] + 1].T.numpy()
    length = min(LONGEST, len(text))
    sums = np.stack(
        [np.append(first[: len(first) - n] + last[n:], [-np.inf] * n) for n in range(length)]
    )
    further, begin = np.unravel_index(sums.argmax(), sums.shape)
    begin += text[0]
    return np.array([[begin, begin + further, sums.max(), nats]])
