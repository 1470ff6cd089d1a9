"""Predictions of models with a task head, and their scores against labels."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from llmcurate.base.errors import UsageError
from llmcurate.base.messages import json_values
from train.data.feed import Feed
from train.data.readers import Floats, Ints
from train.data.vocabulary import Vocabulary
from train.evaluate.judge import load_judged
from train.lab.objectives.labels import VALUES, answers
from train.lab.objectives.labels import Labelled as LabelObjective
from train.lab.tasks.labelled import (
    MOST_CHOICES,
    Labelled,
    LabelledFeed,
    LabelledRows,
    Window,
    read_lines,
)
from train.loop.distributed import Ranks
from train.loop.evaluate import SCORES, Scores, Scoring, example_batches
from train.model.config import Answers, ModelConfig
from train.model.config import Task as TaskOfModel
from train.model.decoder import Decoder
from train.objective_settings import Reads, Task
from train.objectives.example import Objective
from train.runs.checkpoint import load_plan, newest

Entity = tuple[int, int, str]  # first word, end (exclusive), type
_MARKED = re.compile(r"[BIES]-.+|O")


def accuracy(labels: Sequence[str], predicted: Sequence[str]) -> float:
    pairs = zip(labels, predicted, strict=True)
    return sum(a == b for a, b in pairs) / max(1, len(labels))


def f1(right: int, predicted: int, expected: int) -> float:
    """Return the harmonic mean of precision and recall, from counts; 0 if none is right."""
    return 2 * right / (predicted + expected) if right else 0.0


def f1_of_labels(labels: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Return the F1 of each label that is expected or predicted."""
    true, named = Counter(labels), Counter(predicted)
    right = Counter(a for a, b in zip(labels, predicted, strict=True) if a == b)
    return {name: f1(right[name], named[name], true[name]) for name in sorted(true | named)}


def macro_f1(labels: Sequence[str], predicted: Sequence[str]) -> float:
    each = f1_of_labels(labels, predicted)
    return sum(each.values()) / max(1, len(each))


def has_entity_tags(names: Sequence[str]) -> bool:
    """Return True if the labels are entity tags, such as O, B-PER, I-PER, E-PER and S-PER."""
    return any(name != "O" for name in names) and all(_MARKED.fullmatch(name) for name in names)


def entities(labels: Sequence[str]) -> set[Entity]:
    """Return the entities of a text by CoNLL's rules (Tjong Kim Sang and De Meulder 2003). An
    entity begins at B- or S-, at a change of type, and at I- or E- that continues no entity."""
    spans: set[Entity] = set()
    begun: tuple[int, str] | None = None
    for place, label in enumerate([*labels, "O"]):
        mark, _, kind = label.partition("-")
        goes_on = begun is not None and mark in ("I", "E") and kind == begun[1]
        if begun is not None and not goes_on:
            spans.add((begun[0], place, begun[1]))
            begun = None
        if mark != "O" and begun is None:
            begun = place, kind
        if begun is not None and mark in ("E", "S"):
            spans.add((begun[0], place + 1, begun[1]))
            begun = None
    return spans


def entity_f1(labels: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """Return the F1 of entities. An entity is right if both bounds and the type are right."""
    right = predictions = entries = 0
    for ours, theirs in zip(labels, predicted, strict=True):
        true, named = entities(ours), entities(theirs)
        right += len(true & named)
        predictions, entries = predictions + len(named), entries + len(true)
    return f1(right, predictions, entries)


def normalised(answer: str) -> str:
    """Normalise an answer as SQuAD's evaluation does (Rajpurkar et al. 2016): lower case, no
    punctuation, articles or extra spaces."""
    kept = "".join(char for char in answer.lower() if char not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def exact_match(answer: str, predicted: str) -> bool:
    return normalised(answer) == normalised(predicted)


def answer_f1(answer: str, predicted: str) -> float:
    """Return the F1 of an answer's words, as in SQuAD; 1 if neither answer has words."""
    ours, theirs = normalised(answer).split(), normalised(predicted).split()
    if not ours or not theirs:
        return float(ours == theirs)
    return f1((Counter(ours) & Counter(theirs)).total(), len(theirs), len(ours))


Outputs = dict[int, list[Floats]]  # by sample, one array per window


def head_outputs(
    model: Decoder, data: Labelled, windows: Ints, objective: Objective, scoring: Scoring
) -> Outputs:
    """Return the head's outputs for the numbered ``windows``, in the format of ``answers``
    (labels.py). Every process must call this function. Each window is read by one process alone, so
    the number of processes does not change the results."""
    rows = LabelledRows(data.windows, data.shards, windows, data.context)
    places = np.array([data.windows[number].answers for number in windows], np.int64)
    first = dict(zip(windows.tolist(), np.cumsum(places) - places, strict=True))
    task = model.config.head.task
    assert task is not None
    values = np.zeros((int(places.sum()), VALUES if task.answers == "label" else len(task.labels)))
    for number, example in example_batches(model, rows, rows.count, objective, scoring):
        with torch.no_grad(), scoring.autocast:
            on_device = example.on(scoring.ranks.device)
            logits = model.logits(on_device.read_by(model)).double().cpu()
        assert example.documents is not None
        documents = example.documents.numpy()
        if task.kind == "choice":
            documents = documents // MOST_CHOICES
        for row, read in (
            zip(logits, documents, strict=True) if number * scoring.batch_rows < rows.count else ()
        ):
            for number in np.unique(read[read >= 0]):
                window: Window = data.windows[number]
                logits_of_window = row[torch.from_numpy(read == number)]
                asked = (
                    logits_of_window
                    if window.characters is not None
                    else logits_of_window[window.places]
                )
                place = first[int(number)]
                values[place : place + window.answers] = answers(asked, window, task.answers)
    values = scoring.ranks.total_of(values)
    by_sample: Outputs = {}
    for number in windows:
        window, place = data.windows[number], first[int(number)]
        own = values[place : place + window.answers]
        by_sample.setdefault(window.sample, []).append(own)
    return by_sample


@dataclass(frozen=True, kw_only=True)
class Label:
    label: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The best answer to a question in any window of its text."""

    answer: str
    start: int
    score: float


Prediction = Answer | list[Label] | dict[str, float]
Predictions = dict[int, Prediction]  # by sample; one label, or a number for each label


def predictions(
    data: Labelled, windows: Ints, values: Outputs, kind: Answers = "label"
) -> Predictions:
    """Return a head's predictions from its ``head_outputs``. ``kind``: the kind of its answers."""
    by_sample: Predictions = {}
    names = data.names
    if data.task.kind == "choice":
        names = tuple(map(str, range(MOST_CHOICES)))
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
            by_sample[sample] = Answer(answer=text.strip(), start=start, score=float(score))
        elif kind != "label":
            by_sample[sample] = dict(zip(data.names, map(float, parts[0][0]), strict=True))
        else:
            by_sample[sample] = [
                Label(label=names[int(label)], probability=float(share))
                for label, _, share, _ in np.concatenate(parts)
            ]
    return by_sample


def agreement(data: Labelled, predicted: Predictions) -> dict[str, float]:
    """Return scores of predictions against their samples' labels, as fractions from 0 to 1."""
    labels = [data.samples[sample].labels for sample in predicted]
    if data.task.kind == "span":
        texts = [one.answer for one in predicted.values() if isinstance(one, Answer)]
        pairs = [(answer, one) for (answer,), one in zip(labels, texts, strict=True)]
        count = max(1, len(pairs))
        return {
            "exact_match": sum(exact_match(*pair) for pair in pairs) / count,
            "f1": sum(answer_f1(*pair) for pair in pairs) / count,
        }
    ours = [
        [one.label for one in sample] for sample in predicted.values() if isinstance(sample, list)
    ]
    flat: Sequence[Sequence[str]] = [
        [name for sample in kind for name in sample] for kind in (labels, ours)
    ]
    figures = {"accuracy": accuracy(*flat)}
    if data.task.kind == "choice":
        return figures
    figures["macro_f1"] = macro_f1(*flat)
    if len(data.names) == 2 and data.task.kind == "classify":
        figures["f1"] = f1_of_labels(*flat).get(data.names[1], 0.0)
    if data.task.kind == "token" and has_entity_tags(data.names):
        figures["entity_f1"] = entity_f1(labels, ours)
    return figures


def assess(
    model: Decoder, data: Labelled, windows: Ints, objective: Objective, scoring: Scoring
) -> Scores:
    """Return the nats per label, and scores of predictions against labels, such as accuracy (see
    ``agreement``). ``windows``: indices of windows (model inputs), for a sample all or none."""
    values = head_outputs(model, data, windows, objective, scoring)
    nats = np.concatenate([part[:, 3] for parts in values.values() for part in parts])
    return Scores(
        loss=float(nats.sum()) / max(1, len(nats)),
        bits_per_byte=None,
        documents=len(values),
        tokens=len(nats),
        bytes=None,
        terms=agreement(data, predictions(data, windows, values)),
    )


def score_held_out(model: Decoder, feed: Feed, objective: Objective, scoring: Scoring) -> Scores:
    assert isinstance(feed, LabelledFeed)
    return assess(model, feed.data, feed.aside, objective, scoring)


SCORES[LabelObjective] = score_held_out


LONGEST = 512  # default window of a model without a training run, in tokens


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """The ``lines`` of a file, each with a ``prediction``, and scores if the lines have labels."""

    lines: list[dict[str, Any]]
    figures: dict[str, float]


def predict(
    folder: Path,
    path: Path,
    *,
    context: int | None = None,
    batch_rows: int = 8,
    precision: str = "auto",
    device: str = "auto",
    which: str = "best",
) -> Predicted:
    """Apply the model in ``folder`` (a run, or a transformers model) to a file of samples for the
    model's task. ``context`` is the number of tokens read at once, by default as in training.
    Raises ``LlmcurateError``."""
    judged = load_judged(folder, device=device, which=which)
    config = judged.model.config
    task = config.head.task
    if task is None:
        raise UsageError(f"{folder}: the model has no head for a task: train it with --task")
    reads, trained_context, stated = _trained(folder, config)
    width = trained_context if context is None else context
    if width > config.context:
        raise UsageError(f"context is {width}, the model's is {config.context}: give at most that")
    settings = Task(kind=task.kind, reads=reads)
    lines = [line.values for line in read_lines(path)]
    named = {"token": "labels", "span": "answer"}.get(task.kind, "label")
    # If the first line has labels, all lines must have them.
    labelled = bool(lines) and named in lines[0] and task.answers == "label"
    data = Labelled(
        path,
        settings,
        judged.tokenizer_file,
        width,
        names=task.labels,
        labelled=labelled,
        stated=stated,
    )
    if data.shards.vocab_size > config.vocab:
        raise UsageError(f"{judged.tokenizer_file}: the tokenizer has more tokens than the model")
    place = judged.model.embedding.weight.device
    scoring = Scoring(Ranks(device=place), batch_rows, precision)
    windows = np.arange(len(data.windows))
    objective = LabelObjective(settings, Vocabulary(size=data.shards.vocab_size))
    predicted = predictions(
        data,
        windows,
        head_outputs(judged.model, data, windows, objective, scoring),
        task.answers,
    )
    for sample, of_sample in predicted.items():
        lines[sample]["prediction"] = json_values(_shown(task, of_sample))
    figures: dict[str, float] = {"samples": len(lines), "context": width}
    return Predicted(
        lines=lines, figures=figures | (agreement(data, predicted) if labelled else {})
    )


def _shown(task: TaskOfModel, prediction: Prediction) -> Any:
    if isinstance(prediction, Answer):
        return prediction
    if isinstance(prediction, dict) and task.answers == "number":
        return {"values": prediction}
    if isinstance(prediction, dict):
        likely = [label for label, probability in prediction.items() if probability > 0.5]
        return {"labels": likely, "probabilities": prediction}
    if task.kind == "choice":
        return {"choice": int(prediction[0].label), "probability": prediction[0].probability}
    if task.kind != "token":
        return prediction[0]
    labels, shares = [one.label for one in prediction], [one.probability for one in prediction]
    return {"labels": labels, "probabilities": shares}


def _trained(folder: Path, config: ModelConfig) -> tuple[Reads, int, bool]:
    """Return three settings of the model's training: at which token a text is classified ("first"
    or "last"), the context in tokens, and whether the tokenizer states the tokens around a text, as
    it does if transformers trained the head. A folder without checkpoints gets the usual
    settings."""
    checkpoint = newest(folder / "checkpoints")
    usual: Reads = "last" if config.causal else "first"
    if checkpoint is None:
        return usual, min(config.context, LONGEST), True
    train = load_plan(checkpoint).train
    ours = isinstance(train.objective, Task)
    reads = train.objective.reads if isinstance(train.objective, Task) else "auto"
    return usual if reads == "auto" else reads, min(config.context, train.context), not ours
