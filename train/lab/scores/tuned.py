"""The score for a JSONL file of labels or targets: each model is fine-tuned on half of the lines.
It predicts the labels of the other lines, or scores their targets."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from llmcurate.base.disk.files import file_digest, write_atomic
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from train.config import TrainConfig
from train.data.readers import Floats
from train.data.rows import Rows
from train.evaluate.judge import Values, load_judged, stored_values
from train.evaluate.scores import SCORES, Items, Score
from train.lab.tasks.labelled import Sample, labels_of, read_lines, read_samples, split
from train.lab.tasks.predict import exact_match, predict
from train.loop.distributed import Ranks
from train.loop.evaluate import Scoring, batches
from train.loop.pretrain import pretrain
from train.model.config import ModelConfig, TaskKind
from train.objective_settings import Pairs, Task
from train.objectives.objectives import feed_of, objective
from train.runs.checkpoint import load_plan, newest

ROWS, LR = 8, 0.0005  # per step of fine-tuning; docs/guides/fine-tune.md
KINDS: dict[str, TaskKind] = {  # by the first of these keys that a line has
    **dict.fromkeys(("choices", "endings", "ending0"), "choice"),
    **{"label": "classify", "labels": "token", "answer": "span"},
}


class FineTuned(Score):
    """A score for which each model is fine-tuned on half of the lines of a JSONL file, then judged
    on the other half. ``answers``: what the model does with the other half, in words for a message,
    such as "predicts the labels of"."""

    reads = "file"
    answers: ClassVar[str] = "predicts the labels of"

    def __init__(self, file: Path, steps: int) -> None:
        self.file, self.steps = file, steps
        self.say = (
            f"each model is fine-tuned on half of {file.name} for {counted(steps, 'step')} and"
            f" {self.answers} the other half"
        )

    @abstractmethod
    def samples(self) -> list[Sample]:
        """Return the lines of the file."""

    @abstractmethod
    def task(self) -> Task | Pairs:
        """Return the objective with which models are fine-tuned."""

    @abstractmethod
    def scored(self, model: Path, asked: Path, train: Mapping[str, Any]) -> Floats:
        """Return the value of each line of the file ``asked``, by the fine-tuned ``model``."""

    @cached_property
    def halves(self) -> tuple[list[Sample], list[Sample]]:
        """The lines to learn from and those to predict. A hash of each text decides."""
        samples = self.samples()
        aside = split(samples, held_out=0.5, seed=0)
        learned, asked = (
            [sample for sample, own in zip(samples, aside, strict=True) if own == side]
            for side in (False, True)
        )
        return learned, asked

    def items(self, path: Path) -> Items:
        asked = self.halves[1]
        sizes = [self.size(sample) for sample in asked]
        return Items(np.array(sizes, np.int64), ["" for _ in asked])

    def size(self, sample: Sample) -> int:
        """Return the number of labels of a sample (a line of the file), such as one per word."""
        return len(sample.labels)

    def values(self, run: Path, texts: Mapping[str, Path], train: Mapping[str, Any]) -> Values:
        def tuned(missing: Sequence[str]) -> Values:
            (name,) = missing
            return {name: self._tuned(run, train)}

        content = {name: file_digest(path) for name, path in texts.items()}
        return stored_values(run, content, f"tuned {self.steps} {train['context']}", tuned)

    def _tuned(self, run: Path, train: Mapping[str, Any]) -> Floats:
        folder = run / "tuned"
        parts = [folder / "learned.jsonl", folder / "asked.jsonl"]
        lines = self.file.read_bytes().split(b"\n")
        for path, samples in zip(parts, self.halves, strict=True):
            write_atomic(path, b"\n".join(lines[sample.line - 1] for sample in samples))
        kept = ("seed", "device", "precision", "context")
        settings = TrainConfig(
            objective=self.task(),
            steps=self.steps,
            rows=ROWS,
            lr=LR,
            warmup=self.steps // 10,
            held_out=0.001,
            eval_every=self.steps,
            keep_checkpoints=1,
            keep_best=False,
            **{name: train[name] for name in kept if name in train},
        )
        pretrain(parts[0], folder / "model", model=str(run), train=settings)
        values = self.scored(folder / "model", parts[1], train)
        shutil.rmtree(folder)
        return values


class Labels(FineTuned):
    """The share of wrong predictions: labels of texts or words, answers (task span) or choices."""

    unit, factor, digits = "% wrong", 100.0, 2

    def __init__(self, file: Path, steps: int, kind: TaskKind) -> None:
        super().__init__(file, steps)
        self.kind = kind

    def task(self) -> Task:
        return Task(kind=self.kind)

    def samples(self) -> list[Sample]:
        return read_samples(self.file, self.kind)

    def check(self, name: str, model: ModelConfig, train: TrainConfig) -> None:
        if model.form == "encoder-decoder":
            raise UsageError(
                f"{name}: an encoder-decoder has no head for labels: give --score spans, or a FILE"
                " whose lines have source and target"
            )
        if self.kind == "choice" and model.form == "decoder":
            raise UsageError(f"{name}: only an encoder chooses among texts: give another FILE")
        learned, asked = self.halves
        if self.kind in ("classify", "token"):
            known = labels_of(learned, self.file)
            other = {label for sample in asked for label in sample.labels}.difference(known)
            if other:
                raise UsageError(
                    f"{self.file}: label {min(other)!r} is only in the half to be predicted: give"
                    " more lines with it"
                )

    def scored(self, model: Path, asked: Path, train: Mapping[str, Any]) -> Floats:
        how = {name: train[name] for name in ("device", "precision") if name in train}
        found = predict(model, asked, context=train["context"], which="last", **how)
        wrong = [
            _wrong(self.kind, sample.labels, line["prediction"])
            for sample, line in zip(self.halves[1], found.lines, strict=True)
        ]
        return np.array(wrong, np.float64)


class Written(FineTuned):
    """The loss of targets, given their sources, in bits per byte of the targets."""

    answers = "scores the targets of"

    def task(self) -> Pairs:
        return Pairs()

    def samples(self) -> list[Sample]:
        samples = []
        for line in read_lines(self.file):
            try:
                source, target = line.text("source"), line.text("target")
            except ValueError as error:
                raise UsageError(f"{self.file}:{line.number}: {error}") from None
            samples.append(Sample(line=line.number, texts=(source,), labels=(target,), key=source))
        return samples

    def size(self, sample: Sample) -> int:
        """Return the number of bytes of the target in ``sample``, a line of the file."""
        return len(sample.labels[0].encode())

    def check(self, name: str, model: ModelConfig, train: TrainConfig) -> None:
        if model.form == "encoder":
            raise UsageError(f"{name}: an encoder writes no targets: give a FILE with labels")
        assert self.halves

    def scored(self, model: Path, asked: Path, train: Mapping[str, Any]) -> Floats:
        judged = load_judged(model, device=train.get("device", "auto"), which="last")
        checkpoint = newest(model / "checkpoints")
        assert checkpoint is not None
        learned, context = load_plan(checkpoint).train, train["context"]
        feed = feed_of(asked, learned, tokenizer=judged.tokenizer_file)
        (shards,) = feed.shards.values()
        documents, whole = np.arange(shards.documents), len(self.halves[1])
        if len(documents) < whole or shards.length.max() >= context:
            raise UsageError(
                f"{self.file}: source and target of a line do not fit into"
                f" {counted(context, 'token')}: raise --context, or leave the line out"
            )
        rows = Rows(shards, documents, context, takes=feed.takes)
        scoring = Scoring(
            Ranks(device=judged.model.embedding.weight.device),
            ROWS,
            train.get("precision", "auto"),
        )
        nats, of = np.zeros(whole), objective(learned, feed.vocabulary)
        for _, document, values in batches(judged.model, rows, rows.count, of, scoring):
            np.add.at(nats, document, values)
        return nats


def file_score(file: Path, steps: int) -> FineTuned:
    """Return the score for a file. Raises ``UsageError`` if its first line belongs to no task."""
    for line in read_lines(file):
        if {"source", "target"} <= line.values.keys():
            return Written(file, steps)
        for key, kind in KINDS.items():
            if key in line.values:
                return Labels(file, steps, kind)
        break
    raise UsageError(
        f"{file}: its first line is of no fine-tuning task: give lines with label, labels, answer"
        " or choices, as pretrain --task reads, or with source and target"
    )


def _wrong(kind: TaskKind, labels: Sequence[str], prediction: Mapping[str, Any]) -> int:
    if kind == "span":
        return int(not exact_match(labels[0], prediction["answer"]))
    if kind == "choice":
        return int(labels[0] != str(prediction["choice"]))
    named = [prediction["label"]] if kind == "classify" else prediction["labels"]
    return sum(one != other for one, other in zip(labels, named, strict=True))


SCORES["FILE"] = file_score
