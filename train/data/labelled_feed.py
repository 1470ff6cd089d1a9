"""The feed of a run on labelled texts: windows as documents, packed into rows like those of shards.

A sample's side depends on the seed and on its text alone, so that equal texts, and the questions of
one text, are on one side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from llmcurate.base.disk.files import file_digest
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from train.config import TrainConfig
from train.data.feed import Feed
from train.data.labelled import Sample, labels_of, read_samples
from train.data.packing import key_of
from train.data.readers import Foreign, Ints, Part
from train.data.rows import Piece, Rows, sides
from train.data.shards import Shards
from train.data.vocabulary import Vocabulary
from train.data.windows import Encoder, Window
from train.model.head_settings import SPAN
from train.objective_settings import Task


@dataclass(frozen=True, kw_only=True)
class LabelledPiece(Piece):
    """A window, whole."""

    window: Window


class LabelledRows(Rows):
    """Rows of windows, none of them split."""

    def __init__(self, windows: Sequence[Window], *given: Any, **named: Any) -> None:
        super().__init__(*given, **named, takes=whole)
        self.windows = windows

    def pieces(self, row: int) -> list[Piece]:
        return [
            LabelledPiece(**vars(piece), window=self.windows[piece.document - self.first])
            for piece in super().pieces(row)
        ]


def whole(length: Ints, context: int) -> Ints:
    """Positions of windows: their tokens, which stand together."""
    return length


class Labelled:
    """A file of labelled texts, read and encoded. ``names``: its labels by number; those of a model
    that has a head already, of which each label must be one.
    """

    def __init__(
        self,
        path: Path,
        task: Task,
        tokenizer: Path,
        context: int,
        *,
        names: Sequence[str] = (),
        labelled: bool = True,
    ) -> None:
        self.path, self.task, self.context = path, task, context
        self.samples = read_samples(path, task.kind, labelled=labelled)
        if task.kind == "span":
            self.names: tuple[str, ...] = SPAN
        else:
            self.names = tuple(names) or labels_of(self.samples, path)
            self._check_labels()
        encoder = Encoder(tokenizer, context, read_last=task.reads == "last")
        self.windows = encoder.windows(task.kind, self.samples, self.names)
        content = f"{file_digest(path)} {file_digest(tokenizer)} {context} {task}"
        length = np.array([len(window.tokens) for window in self.windows], np.int64)
        ids = [f"{path.name}:{self.samples[window.sample].line}" for window in self.windows]
        part = Part(
            name=path.name,
            tokens=np.concatenate([window.tokens for window in self.windows]),
            start=np.cumsum(length) - length,
            length=length,
            ids=pa.array(ids),
        )
        self.shards = Shards(
            folder=path,
            vocab_size=encoder.size,
            special_ids=encoder.special,
            fingerprint=hashlib.sha256(content.encode()).hexdigest(),
            tokens=[part.tokens],
            shard=np.zeros(len(length), np.int64),
            start=part.start,
            length=length,
            bytes=None,
            end=encoder.end,
            form="labelled",
            tokenizer=tokenizer,
            tokenizer_sha256=file_digest(tokenizer),
            parts=(part,),
            notes=(self._note(encoder),),
        )

    def _check_labels(self) -> None:
        known = set(self.names)
        for sample in self.samples:
            if other := [label for label in sample.labels if label not in known]:
                raise UsageError(f"{self.path}:{sample.line}: the model has no label {other[0]!r}")

    def _note(self, encoder: Encoder) -> str:
        more = len(self.windows) - len(self.samples)
        cut = f", {counted(encoder.cut, 'text')} cut to fit" if encoder.cut else ""
        more_of = f", {counted(more, 'window')} more where they are long" if more else ""
        of = "" if self.task.kind == "span" else f", {counted(len(self.names), 'label')}"
        return f"{self.path.name}: {counted(len(self.samples), 'sample')}{of}{more_of}{cut}"


def split(samples: Sequence[Sample], *, held_out: float, seed: int) -> npt.NDArray[np.bool_]:
    """[samples]: which are held out. Raises ``LlmcurateError`` where all texts are the same."""
    draws = np.array([key_of("split", seed, sample.key) for sample in samples], np.uint64)
    if draws.min() == draws.max():
        raise UsageError(
            f"{counted(len(samples), 'sample')}, 1 different text; training and held-out text need"
            " two different ones at least"
        )
    return sides(draws, held_out)


class LabelledFeed(Feed):
    """``tokenizer``: that of the model, where the settings name none; ``names``: its labels."""

    def __init__(
        self,
        path: Path | None,
        config: TrainConfig,
        *,
        tokenizer: Path | None = None,
        names: Sequence[str] = (),
    ) -> None:
        task = config.objective
        assert isinstance(task, Task)
        refused = {
            "sources": bool(config.sources),
            "stages": bool(config.stages),
            "eval": bool(config.eval),
            "unique_tokens": config.unique_tokens is not None,
            "teacher": config.teacher is not None,
            f"context_parallel {config.context_parallel}": config.context_parallel > 1,
        }
        for name, there in refused.items():
            if there:
                raise UsageError(f"{name} with objective {task.kind}: leave one of them out")
        if path is None or not path.is_file():
            raise UsageError(f"{path}: objective {task.kind} takes a file in JSON lines")
        own = tokenizer if config.tokenizer is None else Path(config.tokenizer)
        if own is None:
            raise UsageError(
                "give the folder of a trained model, or set tokenizer, a tokenizer.json"
            )
        own = own / "tokenizer.json" if own.is_dir() else own
        self.data = Labelled(path, task, own, config.context, names=names)
        super().__init__(path, config, takes=whole)

    def _open(self, foreign: Foreign) -> None:
        shards, path = self.data.shards, str(self.default)
        self.labels, self.shards, self.first = (
            {path: self.data.path.stem},
            {path: shards},
            {path: 0},
        )
        self.tokenizer, self.fingerprint = shards.tokenizer, shards.fingerprint
        self.vocabulary = Vocabulary(
            size=shards.vocab_size,
            reserved=frozenset(shards.special_ids.values()),
            tokenizer=shards.tokenizer,
        )
        chosen = split(self.data.samples, held_out=self.config.held_out, seed=self.config.seed)
        sample = np.array([window.sample for window in self.data.windows], np.int64)
        aside = chosen[sample]
        self.train = {path: np.flatnonzero(~aside)}
        self.aside = np.flatnonzero(aside)
        self.held_out = {path: self.aside}

    def _rows(self, path: str, context: int, packing: str) -> Rows:
        windows, shards = self.data.windows, self.data.shards
        order = {"packing": packing, "seed": self.config.seed}
        return LabelledRows(windows, shards, self.train[path], context, **order)
