"""The score of a JSONL file of a task: each model is fine-tuned on half of the lines, and predicts
the labels of the others."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llmcurate.base.disk.files import file_digest, write_atomic
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from train.config import TrainConfig
from train.evaluate.judge import Values, stored_values
from train.evaluate.scores import SCORES, Items, Score
from train.lab.tasks.labelled import Sample, labels_of, read_lines, read_samples, split
from train.lab.tasks.predict import exact_match, predict
from train.loop.pretrain import pretrain
from train.model.config import ModelConfig, TaskKind
from train.objective_settings import Task

ROWS, LR = 8, 0.0005  # per step of fine-tuning; docs/guides/fine-tune.md
KINDS: dict[str, TaskKind] = {"label": "classify", "labels": "token", "answer": "span"}  # by key


class FineTuned(Score):
    """The share of labels that are wrong: of texts (classify), words (token) or answers (span)."""

    unit, factor, digits, reads = "% wrong", 100.0, 2, "file"

    def __init__(self, file: Path, steps: int) -> None:
        self.file, self.steps = file, steps
        self.say = (
            f"each model is fine-tuned on half of {file.name} for {counted(steps, 'step')} and"
            " predicts the labels of the other half"
        )

    @cached_property
    def kind(self) -> TaskKind:
        for line in read_lines(self.file):
            for key, kind in KINDS.items():
                if key in line.values:
                    return kind
            break
        raise UsageError(
            f"{self.file}: its first line has none of {', '.join(KINDS)}: give a file of a"
            " fine-tuning task, as pretrain --task reads"
        )

    @cached_property
    def halves(self) -> tuple[list[Sample], list[Sample]]:
        """The lines to learn from and those to predict. A hash of each text decides."""
        samples = read_samples(self.file, self.kind)
        aside = split(samples, held_out=0.5, seed=0)
        learned, asked = (
            [sample for sample, own in zip(samples, aside, strict=True) if own == side]
            for side in (False, True)
        )
        if self.kind != "span":
            known = labels_of(learned, self.file)
            other = {label for sample in asked for label in sample.labels}.difference(known)
            if other:
                raise UsageError(
                    f"{self.file}: label {min(other)!r} is only in the half to be predicted: give"
                    " more lines with it"
                )
        return learned, asked

    def check(self, name: str, model: ModelConfig, train: TrainConfig) -> None:
        if model.form == "encoder-decoder":
            raise UsageError(
                f"{name}: an encoder-decoder has no head for labels: give --score spans"
            )
        assert self.halves

    def items(self, path: Path) -> Items:
        asked = self.halves[1]
        sizes = [len(sample.labels) for sample in asked]
        return Items(np.array(sizes, np.int64), ["" for _ in asked])

    def values(self, run: Path, texts: Mapping[str, Path], train: Mapping[str, Any]) -> Values:
        def errors(missing: Sequence[str]) -> Values:
            (name,) = missing
            return {name: self._errors(run, train)}

        content = {name: file_digest(path) for name, path in texts.items()}
        return stored_values(run, content, f"tuned {self.steps} {train['context']}", errors)

    def _errors(self, run: Path, train: Mapping[str, Any]) -> npt.NDArray[np.float64]:
        folder, context = run / "tuned", train["context"]
        parts = [folder / "learned.jsonl", folder / "asked.jsonl"]
        lines = self.file.read_bytes().split(b"\n")
        for path, samples in zip(parts, self.halves, strict=True):
            write_atomic(path, b"\n".join(lines[sample.line - 1] for sample in samples))
        how = {name: train[name] for name in ("seed", "device", "precision") if name in train}
        settings = TrainConfig(
            objective=Task(kind=self.kind),
            steps=self.steps,
            rows=ROWS,
            context=context,
            lr=LR,
            warmup=self.steps // 10,
            held_out=0.001,
            eval_every=self.steps,
            keep_checkpoints=1,
            keep_best=False,
            **how,
        )
        pretrain(parts[0], folder / "model", model=str(run), train=settings)
        how.pop("seed", None)
        found = predict(folder / "model", parts[1], context=context, which="last", **how)
        wrong = [
            _wrong(self.kind, sample.labels, line["prediction"])
            for sample, line in zip(self.halves[1], found.lines, strict=True)
        ]
        shutil.rmtree(folder)
        return np.array(wrong, np.float64)


def _wrong(kind: TaskKind, labels: Sequence[str], prediction: Mapping[str, Any]) -> int:
    if kind == "span":
        return int(not exact_match(labels[0], prediction["answer"]))
    named = [prediction["label"]] if kind == "classify" else prediction["labels"]
    return sum(one != other for one, other in zip(labels, named, strict=True))


SCORES["FILE"] = FineTuned
