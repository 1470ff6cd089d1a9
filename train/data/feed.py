"""The feed of a run: its sources opened, split, packed and mixed, stage after stage.

A ``Feed`` answers as a ``Sampler`` does, for any step of any stage. All rows of all stages stand
under one numbering, so whoever asks for a step's rows need not know of stages.
"""

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

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from train.config import Source, TrainConfig, locate, names, stages_of
from train.data.packing import Packed, key_of, scatter
from train.data.readers import Foreign, Ints
from train.data.rows import Mixture, Rows, Takes, counts, shares_of, split
from train.data.shards import Shards, read_shards
from train.data.vocabulary import vocabulary
from train.model.config import Task

_ROUNDS = 6  # of the Feistel network


def permuted(entries: npt.NDArray[np.int64], count: int, key: int) -> npt.NDArray[np.int64]:
    """Where these entries of 0 .. count - 1 lie in the order called ``key``, which is
    computed and not stored.

    A Feistel network over an even number of bits, walked along until it is back among the first
    ``count`` numbers (Black and Rogaway 2002); the domain is at most four times as large, so that
    takes few turns.
    """
    half = max(2, ((count - 1).bit_length() + 1) // 2)
    mask, bits = np.uint64((1 << half) - 1), np.uint64(half)
    keys = scatter(np.arange(_ROUNDS, dtype=np.uint64) + np.uint64(key))
    positions = entries.astype(np.uint64)
    outside = np.ones(len(positions), dtype=bool)
    while outside.any():
        high, right = positions[outside] >> bits, positions[outside] & mask
        for turn in keys:
            high, right = right, high ^ (scatter(right + turn) & mask)
        positions[outside] = high << bits | right
        outside = positions >= count
    return positions.astype(np.int64)


class Steps(ABC):
    """Which rows each step takes, by number."""

    rows: Rows | Mixture

    @abstractmethod
    def numbered(self, step: int) -> list[tuple[int, int]]:
        """``row_numbers``, each with the epoch of its source, from 0."""

    def row_numbers(self, step: int) -> list[int]:
        """The rows of step 0, 1, ..., source by source; a batch may reach over the end of an
        epoch."""
        return [row for row, _ in self.numbered(step)]

    def documents(self, step: int) -> dict[int, int]:
        """The documents that step trains on, by number, and how many tokens of each; in the
        batch's order."""
        counts: dict[int, int] = {}
        for row in self.row_numbers(step):
            for document, _, taken in self.rows.spans(row):
                counts[document] = counts.get(document, 0) + taken
        return counts

    def document_ids(self, step: int) -> list[str]:
        """The ids of the documents that step trains on, each once, in the batch's order."""
        return self.rows.ids(list(self.documents(step)))


class Sampler(Steps):
    """Batches by step: its rows are a pure function of (seed, step), so a resume needs no state and
    ranks share the rows out as they like. Each source goes through its rows epoch after epoch, each
    epoch in an order of its own.

    ``sources``: which of the rows' sources take part, by default all; their ``shares``
    (mixing.py); ``skip``: rows of each that were taken before step 0, as by an earlier stage.
    """

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
        """Rows of each source in the first ``steps`` steps."""
        return counts(self.shares, steps * self.batch_rows)

    def order(self, source: int, positions: Ints) -> tuple[Ints, Ints]:
        """The rows of one source at these positions of its epochs, one after the other; and the
        epoch of each."""
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


MOST_TIMES = 4  # repeated up to here, text is nearly as good as new (Muennighoff et al. 2023)


@dataclass(frozen=True, kw_only=True)
class SourceFigures:
    """What a run reads of a source."""

    documents: int
    held_out_documents: int
    unique_tokens: int
    tokens: int
    epochs: float
    repeated_tokens: int

    @property
    def shown(self) -> str:
        """How often the run goes through it."""
        again = f", {self.repeated_tokens:,} of them again" if self.repeated_tokens else ""
        return f"{self.epochs:.2f} epochs of {counted(self.unique_tokens, 'token')}{again}"


@dataclass(frozen=True, kw_only=True)
class StageFigures:
    """A stage, and by source what the packing did and how many rows are taken."""

    name: str
    steps: int
    rows: int
    context: int
    sources: dict[str, Packed]


@dataclass(frozen=True)
class FeedFigures:
    """The sources by name, the stages, and what is to be said of the shards."""

    sources: dict[str, SourceFigures]
    stages: list[StageFigures]
    notes: list[str]


class Feed(Steps):
    """The sources of a run, and which of their rows each step takes. ``roles``: of the special
    tokens that its objective needs; ``takes``: the positions that pieces take by it; ``task``: what
    labels say, of labelled texts.

    Raises ``LlmcurateError`` where a source cannot be read, where two were encoded by different
    tokenizers, and where the requests cannot be met.
    """

    task: Task | None = None
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
        self.wanted = [_sources(shards, stage) for stage in self.stages]
        self._open(
            Foreign(
                vocab_size=config.vocab_size,
                end_of_text=config.end_of_text,
                tokenizer=config.tokenizer,
                dtype=config.token_dtype,
            )
        )
        self._pack()

    def _open(self, foreign: Foreign) -> None:
        """Each folder once, and its documents on both sides."""
        self.labels: dict[str, str] = {}
        for source in (source for stage in self.wanted for source in stage):
            label = self.labels.setdefault(source.shards, source.label)
            if list(self.labels.values()).count(label) > 1:
                raise UsageError(f"two sources are called {label}: give them names")
        self.shards = {path: read_shards(Path(path), foreign=foreign) for path in self.labels}
        first, *others = self.shards.items()
        for path, opened in others:
            if opened.tokenizer_sha256 != first[1].tokenizer_sha256:
                raise UsageError(
                    f"{path} and {first[0]} were encoded by different tokenizers: encode one of "
                    "them again"
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
        """The rows of each stage, those of equal shape once, and their samplers."""
        indices: dict[tuple[str, int, str], int] = {}
        packed: list[Rows] = []
        for config, sources in zip(self.stages, self.wanted, strict=True):
            for source in sources:
                key = (source.shards, config.context, config.packing)
                if key not in indices:
                    indices[key] = len(packed)
                    packed.append(self._rows(*key))
        self.rows = Mixture(packed)
        self.samplers: list[Sampler] = []
        self.taken = [0] * len(packed)
        for config, sources in zip(self.stages, self.wanted, strict=True):
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
                    f"source {label}: {float(self.epochs(path)):.2f} epochs of it are over "
                    f"max_epochs {limit:g}: lower its weight or the steps, or raise max_epochs"
                )

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
        """How often the run goes through a source."""
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
        """(source, its shards, number within them) of a document by its number in the run."""
        path = [path for path, first in self.first.items() if first <= document][-1]
        return self.labels[path], self.shards[path], document - self.first[path]

    def summary(self) -> FeedFigures:
        """Sources (unique tokens, epochs, repetitions) and stages (rows, what the packing did)."""
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
        for name, config, sampler, stage_sources in zip(
            names(self.config), self.stages, self.samplers, self.wanted, strict=True
        ):
            taken = sampler.taken(config.steps)
            packed = {
                self.labels[source.shards]: replace(
                    self.rows.sources[index].figures(), taken_rows=rows
                )
                for source, index, rows in zip(stage_sources, sampler.sources, taken, strict=True)
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
        """The summary in lines, to be read before training."""
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
        return [*lines, self._times(figures)]

    def _times(self, figures: FeedFigures) -> str:
        """How often all of the text is read, and how many steps read it at most 4 times."""
        sources, steps = figures.sources.values(), self.config.steps
        times = sum(s.tokens for s in sources) / max(1, sum(s.unique_tokens for s in sources))
        line = f"{counted(steps, 'step')} read the corpus {times:.1f} times"
        if times > MOST_TIMES:
            fitting = max(1, int(steps * MOST_TIMES / times))
            line += f"; more than 4 help little: --steps {fitting} reads it 4 times"
        return line


def _sources(shards: Path | None, stage: TrainConfig) -> tuple[Source, ...]:
    """What a stage trains on: its sources, or the run's; raises where nothing says it."""
    sources = stage.sources or ((Source(shards=str(shards)),) if shards is not None else ())
    if not sources:
        raise UsageError("give a folder of shards, or sources")
    paths = [source.shards for source in sources]
    for path in paths:
        if paths.count(path) > 1:
            raise UsageError(f"source {path} is given twice: add up its amounts")
    return sources
