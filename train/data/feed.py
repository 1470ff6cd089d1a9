"""The feed of a run: open the sources of its text, hold some documents out, pack the others into
rows and mix these, one stage after another. The rows of all stages share one numbering."""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from llmcurate.base.disk.units import counted, format_percent
from llmcurate.base.errors import RunFailed, UsageError
from train.config import Source, TrainConfig, locate, names, stages_of
from train.data.packing import Packed, key_of, mix64
from train.data.readers import Foreign, Ints
from train.data.rows import Mixture, Rows, Takes, counts, cut_single, shares_of, split
from train.data.shards import Shards, read_shards
from train.data.vocabulary import vocabulary
from train.model.config import Task

_ROUNDS = 6  # of the Feistel network


def permuted(entries: npt.NDArray[np.int64], count: int, key: int) -> npt.NDArray[np.int64]:
    """Return the position of each of ``entries`` in a pseudo-random order of 0 to ``count`` - 1.
    ``key`` determines the order. A Feistel network over an even number of bits is repeated until
    the result is below ``count`` (cycle walking; Black and Rogaway 2002)."""
    half = max(2, ((count - 1).bit_length() + 1) // 2)
    mask, bits = np.uint64((1 << half) - 1), np.uint64(half)
    keys = mix64(np.arange(_ROUNDS, dtype=np.uint64) + np.uint64(key))
    positions = entries.astype(np.uint64)
    outside = np.ones(len(positions), dtype=bool)
    while outside.any():
        high, right = positions[outside] >> bits, positions[outside] & mask
        for turn in keys:
            high, right = right, high ^ (mix64(right + turn) & mask)
        positions[outside] = high << bits | right
        outside = positions >= count
    return positions.astype(np.int64)


def foreign_of(config: TrainConfig) -> Foreign:
    """Return what the settings state about token files that other trainers wrote."""
    return Foreign(
        vocab_size=config.vocab_size,
        end_of_text=config.end_of_text,
        tokenizer=config.tokenizer,
        dtype=config.token_dtype,
    )


class Steps(ABC):
    """The rows on which each step trains, by the number of the step."""

    rows: Rows | Mixture

    @abstractmethod
    def numbered(self, step: int) -> list[tuple[int, int]]:
        """Return (row number, epoch of the row's source, from 0) of each row of a step."""

    def row_numbers(self, step: int) -> list[int]:
        """Return the numbers of a step's rows. Rows are numbered from 0, source after source."""
        return [row for row, _ in self.numbered(step)]

    def documents(self, step: int) -> dict[int, int]:
        """Return {number of a document: how many of its tokens the step reads}, in batch order."""
        counts: dict[int, int] = {}
        for row in self.row_numbers(step):
            for document, _, taken in self.rows.spans(row):
                counts[document] = counts.get(document, 0) + taken
        return counts

    def document_ids(self, step: int) -> list[str]:
        """Return the ids of the documents that a step reads, each once, in batch order."""
        return self.rows.ids(list(self.documents(step)))


class Sampler(Steps):
    """The rows of each step. They depend only on the seed and the step, so a resumed run needs no
    stored state. Each epoch of a source has its own order. ``sources`` are the numbers of the
    sources to draw from, by default all, and ``shares`` their shares of the rows (see
    ``shares_of``). ``skip`` has the number of rows of each source that earlier stages used."""

    def __init__(
        self,
        rows: Rows | Mixture,
        *,
        batch_rows: int,
        seed: int,
        sources: Sequence[int] | None = None,
        shares: Sequence[int] = (1,),
        skip: Sequence[int] | None = None,
    ) -> None:
        self.rows, self.batch_rows, self.seed = rows, batch_rows, seed
        self.sources = list(range(len(rows.sources)) if sources is None else sources)
        self.shares, self.skip = list(shares), list(skip or [0] * len(self.sources))
        for number in self.sources:
            if not rows.sources[number].count:
                raise RunFailed(f"{rows.sources[number].shards.folder}: no tokens to train on")
        counted = [0, *itertools.accumulate(source.count for source in rows.sources)]
        self.bases = [counted[number] for number in self.sources]

    def taken(self, steps: int) -> list[int]:
        """Return the number of rows of each source that the first ``steps`` steps use."""
        return counts(self.shares, steps * self.batch_rows)

    def order(self, source: int, positions: Ints) -> tuple[Ints, Ints]:
        """Return the rows at these positions of a source's sequence, and their epochs, from 0."""
        rows = self.rows.sources[source]
        epochs, inside = np.divmod(positions, rows.count)
        ordered = np.empty(len(positions), np.int64)
        for epoch in np.unique(epochs):
            in_epoch = epochs == epoch
            content = (rows.shards.fingerprint, rows.context, rows.packing)
            key = key_of("order", self.seed, int(epoch), *content)
            ordered[in_epoch] = permuted(inside[in_epoch], rows.count, key)
        return ordered, epochs

    def numbered(self, step: int) -> list[tuple[int, int]]:
        before, after = self.taken(step), self.taken(step + 1)
        numbers: list[tuple[int, int]] = []
        for number, (base, skip) in enumerate(zip(self.bases, self.skip, strict=True)):
            positions = np.arange(before[number] + skip, after[number] + skip)
            rows, epochs = self.order(self.sources[number], positions)
            numbers += [(base + int(r), int(e)) for r, e in zip(rows, epochs, strict=True)]
        return numbers


MAX_USEFUL_EPOCHS = (
    4  # so often repeated, text is nearly as good as new text (Muennighoff et al. 2023)
)


@dataclass(frozen=True, kw_only=True)
class SourceFigures:
    documents: int
    held_out_documents: int
    unique_tokens: int
    tokens: int
    epochs: float
    repeated_tokens: int

    @property
    def shown(self) -> str:
        again = (
            f", {counted(self.repeated_tokens, 'token')} repeated" if self.repeated_tokens else ""
        )
        return f"{self.epochs:.2f} epochs of {counted(self.unique_tokens, 'token')}{again}"


@dataclass(frozen=True, kw_only=True)
class StageFigures:
    """The figures of one stage of training. ``rows``: the number of rows it uses; ``sources``: how
    each source is packed, with the number of its rows that the stage uses."""

    name: str
    steps: int
    rows: int
    context: int
    sources: dict[str, Packed]


@dataclass(frozen=True)
class FeedFigures:
    sources: dict[str, SourceFigures]
    stages: list[StageFigures]
    notes: list[str]

    @property
    def epochs(self) -> float:
        """The number of times that the whole run reads its text."""
        sources = self.sources.values()
        unique = sum(source.unique_tokens for source in sources)
        return sum(source.tokens for source in sources) / max(1, unique)


class Feed(Steps):
    """The sources of a run, and the rows on which each step trains. ``roles``: special tokens that
    the objective needs. ``takes``: returns how many positions of a row each piece of a document
    fills, from the pieces' numbers of tokens and the context. ``task``: the model's task, if it has
    one. Raises ``LlmcurateError`` if sources cannot be read or combined."""

    task: Task | None = None
    template: str | None = None  # chat template of the run, if the model has none
    rows: Mixture

    def __init__(
        self,
        shards: Path | None,
        config: TrainConfig,
        roles: Sequence[str] = (),
        takes: Takes | None = None,
    ) -> None:
        self.config, self.roles, self.takes = config, roles, takes
        uses_default = any(not stage.sources for stage in stages_of(config))
        self.default = shards if uses_default else None
        self.stages = stages_of(config)
        if shards is not None and config.sources:
            raise UsageError("give a folder of shards or sources, not both")
        self.stage_sources = [_sources(shards, stage) for stage in self.stages]
        self._open(foreign_of(config))
        self._pack()

    def _open(self, foreign: Foreign) -> None:
        self.labels: dict[str, str] = {}
        for source in (source for stage in self.stage_sources for source in stage):
            label = self.labels.setdefault(source.shards, source.label)
            if list(self.labels.values()).count(label) > 1:
                raise UsageError(f"two sources are called {label}: give them names")
        self.shards = {
            path: cut_single(self._read(Path(path), foreign), self.config.held_out)
            for path in self.labels
        }
        first, *others = self.shards.items()
        for path, opened in others:
            own = first[1].tokenizer_sha256, first[1].before
            if (opened.tokenizer_sha256, opened.before) != own:
                raise UsageError(
                    f"{path} and {first[0]} were encoded by different tokenizers, or with different"
                    " tokens around documents: encode one of them again"
                )
        self.tokenizer = first[1].tokenizer
        size = max(opened.vocab_size for opened in self.shards.values())
        base = first[1]
        self.vocabulary = vocabulary(size, base.special_ids, self.tokenizer, self.roles, base.end)
        digests = [opened.fingerprint for opened in self.shards.values()]
        joined = hashlib.sha256(" ".join(digests).encode()).hexdigest()
        self.fingerprint = digests[0] if len(digests) == 1 else joined
        self.train: dict[str, Ints] = {}
        self.held_out: dict[str, Ints] = {}
        self.first: dict[str, int] = {}
        total = 0
        for path, opened in self.shards.items():
            self.train[path], self.held_out[path] = split(
                opened,
                held_out=self.config.held_out,
                seed=self.config.seed,
                unique_tokens=self.config.unique_tokens,
            )
            self.first[path] = total
            total += opened.documents

    def _pack(self) -> None:
        indices: dict[tuple[str, int, str], int] = {}
        packed: list[Rows] = []
        for config, sources in zip(self.stages, self.stage_sources, strict=True):
            for source in sources:
                key = (source.shards, config.context, config.packing)
                if key not in indices:
                    indices[key] = len(packed)
                    packed.append(self._rows(*key))
        self.rows = Mixture(packed)
        self.samplers: list[Sampler] = []
        self.taken = [0] * len(packed)
        for config, sources in zip(self.stages, self.stage_sources, strict=True):
            chosen = [indices[source.shards, config.context, config.packing] for source in sources]
            shares = shares_of(
                sources, [packed[k] for k in chosen], steps=config.steps, batch=config.rows
            )
            sampler = Sampler(
                self.rows,
                batch_rows=config.rows,
                seed=config.seed,
                sources=chosen,
                shares=shares,
                skip=[self.taken[k] for k in chosen],
            )
            for index, rows in zip(chosen, sampler.taken(config.steps), strict=True):
                self.taken[index] += rows
            self.samplers.append(sampler)
        self.paths = [path for path, _, _ in indices]
        limit = self.config.max_epochs
        for path, label in self.labels.items():
            if limit is not None and self.epochs(path) > limit:
                raise UsageError(
                    f"source {label}: {float(self.epochs(path)):.2f} epochs, over "
                    f"max_epochs {limit:g}: lower its weight or the steps, or raise max_epochs"
                )

    def _read(self, path: Path, foreign: Foreign) -> Shards:
        return read_shards(path, foreign=foreign, val=True).texts()

    def _rows(self, path: str, context: int, packing: str) -> Rows:
        return Rows(
            self.shards[path],
            self.train[path],
            context,
            masked=True,
            packing=packing,
            seed=self.config.seed,
            first=self.first[path],
            takes=self.takes,
        )

    def epochs(self, path: str) -> Fraction:
        """Return the number of times that the run reads a source."""
        return sum(
            (
                Fraction(taken, rows.count)
                for source_path, rows, taken in zip(
                    self.paths, self.rows.sources, self.taken, strict=True
                )
                if source_path == path
            ),
            Fraction(0),
        )

    def numbered(self, step: int) -> list[tuple[int, int]]:
        stage, inside = locate(self.config, step)
        return self.samplers[stage].numbered(inside)

    def owner(self, document: int) -> tuple[str, Shards, int]:
        """Return a document's source, shards and index in the shards, by its number in the run."""
        path = [path for path, first in self.first.items() if first <= document][-1]
        return self.labels[path], self.shards[path], document - self.first[path]

    def summary(self) -> FeedFigures:
        sources = {}
        for path, label in self.labels.items():
            documents, epochs = self.train[path], self.epochs(path)
            unique = int(self.shards[path].length[documents].sum())
            tokens = round(epochs * unique)
            sources[label] = SourceFigures(
                documents=len(documents),
                held_out_documents=len(self.held_out[path]),
                unique_tokens=unique,
                tokens=tokens,
                epochs=float(epochs),
                repeated_tokens=max(0, tokens - unique),
            )
        stages = []
        for name, config, sampler, used in zip(
            names(self.config), self.stages, self.samplers, self.stage_sources, strict=True
        ):
            taken = sampler.taken(config.steps)
            packed = {
                self.labels[source.shards]: replace(
                    self.rows.sources[index].figures(), taken_rows=rows
                )
                for source, index, rows in zip(used, sampler.sources, taken, strict=True)
            }
            stages.append(
                StageFigures(
                    name=name,
                    steps=config.steps,
                    rows=config.rows,
                    context=config.context,
                    sources=packed,
                )
            )
        notes = [note for opened in self.shards.values() for note in opened.notes]
        return FeedFigures(sources, stages, notes)

    def notices(self) -> list[str]:
        """Return a summary of the feed as lines of text, to show before training."""
        figures = self.summary()
        lines = list(figures.notes)
        for stage in figures.stages:
            for label, part in stage.sources.items():
                where = f"{stage.name}, {label}" if len(figures.stages) > 1 else label
                lines.append(
                    f"{where}: {part.packing}, {counted(part.documents, 'document')}, "
                    f"{counted(part.tokens, 'token')} in {counted(part.rows, 'row')} of"
                    f" {stage.context}; {100 * part.used:.1f} % used, {part.padded:,} padded, "
                    f"{counted(part.split, 'document')} split,"
                    f" {counted(part.cropped, 'token')} cropped"
                )
        lines += [f"{label}: {source.shown}" for label, source in figures.sources.items()]
        return [*lines, self._epochs_line(figures)]

    def _epochs_line(self, figures: FeedFigures) -> str:
        steps, times = self.config.steps, figures.epochs
        if times < 0.95:
            return f"{counted(steps, 'step')} read {format_percent(times)} of the corpus"
        line = f"{counted(steps, 'step')} read the corpus {times:.1f} times"
        if times > MAX_USEFUL_EPOCHS:
            fitting = max(1, int(steps * MAX_USEFUL_EPOCHS / times))
            line += f"; over 4 times helps little: --steps {fitting} reads it 4 times"
        return line


def _sources(shards: Path | None, stage: TrainConfig) -> tuple[Source, ...]:
    sources = stage.sources or ((Source(shards=str(shards)),) if shards is not None else ())
    if not sources:
        raise UsageError("give a folder of shards, or sources")
    paths = [source.shards for source in sources]
    for path in paths:
        if paths.count(path) > 1:
            raise UsageError(f"source {path} is given twice: give it once")
    return sources
