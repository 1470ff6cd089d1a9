"""What a model with a head for a task says of texts, and how well it agrees with their labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from train.data.labelled_feed import Labelled, LabelledRows
from train.data.token_file import Ints
from train.data.windows import Window
from train.loop.evaluate import Scores, Scoring, turns
from train.measure.agreement import (
    accuracy,
    answer_f1,
    entity_f1,
    exact_match,
    f1_of_labels,
    macro_f1,
    marks_entities,
)
from train.model.decoder import Decoder
from train.objectives.example import Objective
from train.objectives.tasks import VALUES, answers

Said = dict[int, list[npt.NDArray[np.float64]]]  # of a sample, window by window


def said(model: Decoder, data: Labelled, windows: Ints, objective: Objective, how: Scoring) -> Said:
    """What the model says of these windows, as ``answers`` has it; every process must call. Each is
    of one row, so the number of processes changes no bit.
    """
    rows = LabelledRows(data.windows, data.shards, windows, data.context)
    places = np.array([len(data.windows[number].places) for number in windows], np.int64)
    first = dict(zip(windows.tolist(), np.cumsum(places) - places, strict=True))
    values = np.zeros((int(places.sum()), VALUES))
    for number, example in turns(model, rows, rows.count, objective, how):
        with torch.no_grad(), how.autocast:
            there = example.on(how.ranks.device)
            logits = model.logits(there.read_by(model)).double().cpu()
        assert example.documents is not None
        documents = example.documents.numpy()
        for row, read in (
            zip(logits, documents, strict=True) if number * how.batch_rows < rows.count else ()
        ):
            for number in np.unique(read[read >= 0]):
                window: Window = data.windows[number]
                of_window = row[torch.from_numpy(read == number)]
                asked = of_window if window.characters is not None else of_window[window.places]
                place = first[int(number)]
                values[place : place + len(window.places)] = answers(asked, window)
    values = how.ranks.total(torch.from_numpy(values).to(how.ranks.device)).cpu().numpy()
    by_sample: Said = {}
    for number in windows:
        window, place = data.windows[number], first[int(number)]
        own = values[place : place + len(window.places)]
        by_sample.setdefault(window.sample, []).append(own)
    return by_sample


def predictions(data: Labelled, windows: Ints, values: Said) -> dict[int, list[dict[str, Any]]]:
    """By sample what is said: of a text ``label`` and ``probability``, of words so each in turn; of
    a question ``answer``, the best of all windows, its ``start`` and its ``score``.
    """
    by_sample: dict[int, list[dict[str, Any]]] = {}
    own: dict[int, list[Window]] = {}
    for number in windows:
        own.setdefault(data.windows[number].sample, []).append(data.windows[number])
    for sample, parts in values.items():
        if data.task.kind == "span":
            best = int(np.argmax([part[0, 2] for part in parts]))
            characters = own[sample][best].characters
            assert characters is not None
            first, last, score, _ = parts[best][0]
            start, end = int(characters[int(first), 0]), int(characters[int(last), 1])
            text = data.samples[sample].texts[1][start:end] if start >= 0 else ""
            start += len(text) - len(text.lstrip())
            by_sample[sample] = [{"answer": text.strip(), "start": start, "score": float(score)}]
        else:
            by_sample[sample] = [
                {"label": data.names[int(label)], "probability": float(share)}
                for label, _, share, _ in np.concatenate(parts)
            ]
    return by_sample


def agreement(data: Labelled, predicted: dict[int, list[dict[str, Any]]]) -> dict[str, float]:
    """How well predictions agree with the labels of their samples, as shares."""
    labels = [data.samples[sample].labels for sample in predicted]
    if data.task.kind == "span":
        pairs = [
            (answer, one[0]["answer"])
            for (answer,), one in zip(labels, predicted.values(), strict=True)
        ]
        count = max(1, len(pairs))
        return {
            "exact_match": sum(exact_match(*pair) for pair in pairs) / count,
            "f1": sum(answer_f1(*pair) for pair in pairs) / count,
        }
    ours = [[one["label"] for one in sample] for sample in predicted.values()]
    flat: Sequence[Sequence[str]] = [
        [name for sample in kind for name in sample] for kind in (labels, ours)
    ]
    figures = {"accuracy": accuracy(*flat), "macro_f1": macro_f1(*flat)}
    if len(data.names) == 2 and data.task.kind == "classify":
        figures["f1"] = f1_of_labels(*flat).get(data.names[1], 0.0)
    if data.task.kind == "token" and marks_entities(data.names):
        figures["entity_f1"] = entity_f1(labels, ours)
    return figures


def assess(
    model: Decoder, data: Labelled, windows: Ints, objective: Objective, how: Scoring
) -> Scores:
    """The loss, in nats a label, and ``agreement`` on these windows, all of their samples."""
    values = said(model, data, windows, objective, how)
    nats = np.concatenate([part[:, 3] for parts in values.values() for part in parts])
    return Scores(
        loss=float(nats.sum()) / max(1, len(nats)),
        bits_per_byte=None,
        documents=len(values),
        tokens=len(nats),
        bytes=None,
        terms=agreement(data, predictions(data, windows, values)),
    )
