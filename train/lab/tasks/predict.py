"""What a model with a head for a task says of texts, and how well it agrees with their labels."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from llmcurate.base.errors import UsageError
from llmcurate.base.messages import json_values
from train.data.feed import Feed
from train.data.readers import Ints
from train.data.vocabulary import Vocabulary
from train.evaluate.judge import opened
from train.lab.objectives.labels import VALUES, answers
from train.lab.objectives.labels import Labelled as LabelObjective
from train.lab.tasks.labelled import Labelled, LabelledFeed, LabelledRows, Window, read_lines
from train.loop.distributed import Ranks
from train.loop.evaluate import SCORES, Scores, Scoring, turns
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.objective_settings import Reads, Task
from train.objectives.example import Objective
from train.runs.checkpoint import load_plan, newest

Entity = tuple[int, int, str]  # first word, word behind it, type
_MARKED = re.compile(r"[BIES]-.+|O")


def accuracy(labels: Sequence[str], predicted: Sequence[str]) -> float:
    """The share that is right."""
    pairs = zip(labels, predicted, strict=True)
    return sum(a == b for a, b in pairs) / max(1, len(labels))


def f1(right: int, predicted: int, there: int) -> float:
    """The harmonic mean of right / predicted and right / there; 0 where none is right."""
    return 2 * right / (predicted + there) if right else 0.0


def f1_of_labels(labels: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """F1 of each label that is there or was predicted."""
    true, named = Counter(labels), Counter(predicted)
    right = Counter(a for a, b in zip(labels, predicted, strict=True) if a == b)
    return {name: f1(right[name], named[name], true[name]) for name in sorted(true | named)}


def macro_f1(labels: Sequence[str], predicted: Sequence[str]) -> float:
    """The mean of the F1 of labels, each counted once."""
    each = f1_of_labels(labels, predicted)
    return sum(each.values()) / max(1, len(each))


def marks_entities(names: Sequence[str]) -> bool:
    """Whether labels are O and the marks of entities: B-PER, I-PER, also E- and S-."""
    return any(name != "O" for name in names) and all(_MARKED.fullmatch(name) for name in names)


def entities(labels: Sequence[str]) -> set[Entity]:
    """The entities of a text, by the rules of CoNLL's evaluation (Tjong Kim Sang and De Meulder
    2003): one begins with B- or S-, behind another type, and behind the end of one; I- or E- that
    follow none begin one too.
    """
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
    """F1 of the entities of all texts, right where both bounds and the type are."""
    right = predictions = entries = 0
    for ours, theirs in zip(labels, predicted, strict=True):
        true, named = entities(ours), entities(theirs)
        right += len(true & named)
        predictions, entries = predictions + len(named), entries + len(true)
    return f1(right, predictions, entries)


def normalised(answer: str) -> str:
    """An answer as SQuAD's evaluation compares it (Rajpurkar et al. 2016): lower case, without
    punctuation, articles and extra spaces.
    """
    kept = "".join(char for char in answer.lower() if char not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def exact_match(answer: str, predicted: str) -> bool:
    """Whether two answers are the same once normalised."""
    return normalised(answer) == normalised(predicted)


def answer_f1(answer: str, predicted: str) -> float:
    """F1 of the words of an answer, as SQuAD has it: 1 where neither has a word."""
    ours, theirs = normalised(answer).split(), normalised(predicted).split()
    if not ours or not theirs:
        return float(ours == theirs)
    return f1((Counter(ours) & Counter(theirs)).total(), len(theirs), len(ours))


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


@dataclass(frozen=True, kw_only=True)
class Label:
    """What is said of a text, or of a word."""

    label: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is said of a question: the best answer of all windows."""

    answer: str
    start: int
    score: float


Predictions = dict[int, Answer | list[Label]]  # by sample; of a text a single label


def predictions(data: Labelled, windows: Ints, values: Said) -> Predictions:
    """What is said of each sample."""
    by_sample: Predictions = {}
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
        else:
            by_sample[sample] = [
                Label(label=data.names[int(label)], probability=float(share))
                for label, _, share, _ in np.concatenate(parts)
            ]
    return by_sample


def agreement(data: Labelled, predicted: Predictions) -> dict[str, float]:
    """How well predictions agree with the labels of their samples, as shares."""
    labels = [data.samples[sample].labels for sample in predicted]
    if data.task.kind == "span":
        said = [one.answer for one in predicted.values() if isinstance(one, Answer)]
        pairs = [(answer, one) for (answer,), one in zip(labels, said, strict=True)]
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


def of_feed(model: Decoder, feed: Feed, objective: Objective, how: Scoring) -> Scores:
    """``assess`` of the windows that were held out."""
    assert isinstance(feed, LabelledFeed)
    return assess(model, feed.data, feed.aside, objective, how)


SCORES[LabelObjective] = of_feed


LONGEST = 512  # tokens that a model of transformers reads at once


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """``lines``: those of the file, each with its ``prediction``; ``figures``: their agreement with
    labels, where the file has them.
    """

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
    """Apply the model in ``folder``, ours or as transformers saves it, to a file of its task.
    ``context``: tokens read at once, by default as many as in training. Raises ``LlmcurateError``.
    """
    judged = opened(folder, device=device, which=which)
    config = judged.model.config
    task = config.head.task
    if task is None:
        raise UsageError(f"{folder}: has no head for a task: train it with --task")
    width = _context(folder, config) if context is None else context
    if width > config.context:
        raise UsageError(f"context is {width}, the model's is {config.context}: give that or less")
    settings = Task(kind=task.kind, reads=_reads(folder, config))
    lines = [line.values for line in read_lines(path)]
    named = {"classify": "label", "token": "labels", "span": "answer"}[task.kind]
    labelled = bool(lines) and named in lines[0]  # the others must have it then
    data = Labelled(
        path, settings, judged.tokenizer_file, width, names=task.labels, labelled=labelled
    )
    if data.shards.vocab_size > config.vocab:
        raise UsageError(f"{judged.tokenizer_file}: has more tokens than the model")
    place = judged.model.embedding.weight.device
    how = Scoring(Ranks(device=place), batch_rows, precision)
    windows = np.arange(len(data.windows))
    objective = LabelObjective(settings, Vocabulary(size=data.shards.vocab_size))
    predicted = predictions(data, windows, said(judged.model, data, windows, objective, how))
    for sample, of_sample in predicted.items():
        lines[sample]["prediction"] = json_values(_shown(task.kind, of_sample))
    figures: dict[str, float] = {"samples": len(lines), "context": width}
    return Predicted(
        lines=lines, figures=figures | (agreement(data, predicted) if labelled else {})
    )


@dataclass(frozen=True)
class Words:
    """What is said of each word."""

    labels: list[str]
    probabilities: list[float]


def _shown(kind: str, said: Answer | list[Label]) -> Answer | Label | Words:
    if isinstance(said, Answer):
        return said
    if kind != "token":
        return said[0]
    return Words([one.label for one in said], [one.probability for one in said])


def _reads(folder: Path, config: ModelConfig) -> Reads:
    """Which token a text is classified by: as in training, or what suits the model."""
    checkpoint = newest(folder / "checkpoints")
    if checkpoint is not None:
        objective = load_plan(checkpoint).train.objective
        if isinstance(objective, Task) and objective.reads != "auto":
            return objective.reads
    return "last" if config.causal else "first"


def _context(folder: Path, config: ModelConfig) -> int:
    checkpoint = newest(folder / "checkpoints")
    if checkpoint is None:
        return min(config.context, LONGEST)
    return min(config.context, load_plan(checkpoint).train.context)
