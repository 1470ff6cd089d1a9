"""What a run is fed: its sources opened, split, packed and mixed, stage after stage.

A ``Feed`` answers as a ``Sampler`` does, for any step of any stage. All rows of all stages stand
under one numbering, so whoever asks for a step's rows need not know of stages.
"""

from __future__ import annotations

import dataclasses
import hashlib
from fractions import Fraction
from pathlib import Path
from typing import Any

from train.config import TrainConfig
from train.data.mixing import Mixture, shares_of
from train.data.part import Foreign, Ints
from train.data.rows import Batch, Rows, split
from train.data.sampler import Sampler
from train.data.shards import Shards, read_shards
from train.data.sources import Source
from train.errors import TrainError
from train.stages import locate, names, stages_of


class Feed:
    """The sources of a run, and which of their rows each step takes.

    Raises ``TrainError`` where a source cannot be read, where two were encoded by different
    tokenizers, and where the requests cannot be met.
    """

    def __init__(self, shards: Path | None, config: TrainConfig) -> None:
        self.config = config
        takes = any(not stage.sources for stage in stages_of(config))
        self.default = shards if takes else None
        self.stages = stages_of(config)
        if shards is not None and config.sources:
            raise TrainError("give a folder of shards or sources, not both", exit_code=2)
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
                raise TrainError(f"two sources are called {label}: give them names", exit_code=2)
        self.shards = {path: read_shards(Path(path), foreign=foreign) for path in self.labels}
        first, *others = self.shards.items()
        for path, opened in others:
            if opened.tokenizer_sha256 != first[1].tokenizer_sha256:
                raise TrainError(
                    f"{path} and {first[0]} were encoded by different tokenizers: encode one of "
                    "them again",
                    exit_code=2,
                )
        self.vocab_size = max(opened.vocab_size for opened in self.shards.values())
        self.tokenizer = first[1].tokenizer
        digests = [opened.fingerprint for opened in self.shards.values()]
        joined = hashlib.sha256(" ".join(digests).encode()).hexdigest()
        self.fingerprint = digests[0] if len(digests) == 1 else joined
        self.train: dict[str, Ints] = {}
        self.held_out: dict[str, Ints] = {}
        self.first: dict[str, int] = {}
        total = 0
        for path, opened in self.shards.items():
            self.train[path], self.held_out[path] = split(
                opened, held_out=self.config.held_out, seed=self.config.seed
            )
            self.first[path] = total
            total += opened.documents

    def _pack(self) -> None:
        """The rows of each stage, those of equal shape once, and their samplers."""
        places: dict[tuple[str, int, str], int] = {}
        found: list[Rows] = []
        for config, sources in zip(self.stages, self.wanted, strict=True):
            for source in sources:
                key = (source.shards, config.context, config.packing)
                if key not in places:
                    places[key] = len(found)
                    found.append(self._rows(*key))
        self.rows = Mixture(found)
        self.samplers: list[Sampler] = []
        self.taken = [0] * len(found)
        for config, sources in zip(self.stages, self.wanted, strict=True):
            chosen = [places[source.shards, config.context, config.packing] for source in sources]
            shares = shares_of(
                sources, [found[k] for k in chosen], steps=config.steps, batch=config.rows
            )
            sampler = Sampler(
                self.rows,
                batch_rows=config.rows,
                seed=config.seed,
                sources=chosen,
                shares=shares,
                skip=[self.taken[k] for k in chosen],
            )
            for place, rows in zip(chosen, sampler.taken(config.steps), strict=True):
                self.taken[place] += rows
            self.samplers.append(sampler)
        self.paths = [path for path, _, _ in places]
        limit = self.config.max_epochs
        for path, label in self.labels.items():
            if limit is not None and self.epochs(path) > limit:
                raise TrainError(
                    f"source {label}: {float(self.epochs(path)):.2f} epochs of it are over "
                    f"max_epochs {limit:g}: lower its weight or the steps, or raise max_epochs",
                    exit_code=2,
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
        )

    def epochs(self, path: str) -> Fraction:
        """How often the run goes through a source."""
        return sum(
            (
                Fraction(taken, rows.count)
                for mine, rows, taken in zip(self.paths, self.rows.sources, self.taken, strict=True)
                if mine == path
            ),
            Fraction(0),
        )

    def row_numbers(self, step: int) -> list[int]:
        """As ``Sampler.row_numbers``, for a step of the run."""
        stage, inside = locate(self.config, step)
        return self.samplers[stage].row_numbers(inside)

    def batch(self, step: int) -> Batch:
        return self.rows.batch(self.row_numbers(step))

    def documents(self, step: int) -> dict[int, int]:
        """As ``Sampler.documents``, for a step of the run."""
        stage, inside = locate(self.config, step)
        return self.samplers[stage].documents(inside)

    def document_ids(self, step: int) -> list[str]:
        return self.rows.ids(list(self.documents(step)))

    def owner(self, document: int) -> tuple[str, Shards, int]:
        """(source, its shards, number within them) of a document by its number in the run."""
        path = [path for path, first in self.first.items() if first <= document][-1]
        return self.labels[path], self.shards[path], document - self.first[path]

    def summary(self) -> dict[str, Any]:
        """Sources (unique tokens, epochs, repetitions) and stages (rows, what the packing did)."""
        sources = {}
        for path, label in self.labels.items():
            documents, epochs = self.train[path], self.epochs(path)
            unique = int(self.shards[path].length[documents].sum())
            tokens = round(epochs * unique)
            sources[label] = {
                "documents": len(documents),
                "held_out_documents": len(self.held_out[path]),
                "unique_tokens": unique,
                "tokens": tokens,
                "epochs": float(epochs),
                "repeated_tokens": max(0, tokens - unique),
            }
        stages = []
        for name, config, sampler, wanted in zip(
            names(self.config), self.stages, self.samplers, self.wanted, strict=True
        ):
            taken = sampler.taken(config.steps)
            packed = {
                self.labels[source.shards]: {
                    **dataclasses.asdict(self.rows.sources[place].figures()),
                    "taken_rows": rows,
                }
                for source, place, rows in zip(wanted, sampler.sources, taken, strict=True)
            }
            shape = {"steps": config.steps, "rows": config.rows, "context": config.context}
            stages.append({"name": name, **shape, "sources": packed})
        notes = [note for opened in self.shards.values() for note in opened.notes]
        return {"sources": sources, "stages": stages, "notes": notes}

    def notices(self) -> list[str]:
        """The summary in lines, to be read before training."""
        found = self.summary()
        lines = list(found["notes"])
        for stage in found["stages"]:
            for label, part in stage["sources"].items():
                where = f"{stage['name']}, {label}" if len(found["stages"]) > 1 else label
                lines.append(
                    f"{where}: {part['packing']}, {part['documents']:,} documents, "
                    f"{part['tokens']:,} tokens in {part['rows']:,} rows of {stage['context']}; "
                    f"{100 * part['used']:.1f} % used, {part['padded']:,} padded, "
                    f"{part['split']:,} documents split, {part['cropped']} tokens cropped"
                )
        for label, source in found["sources"].items():
            again = source["repeated_tokens"]
            lines.append(
                f"{label}: {source['epochs']:.2f} epochs of {source['unique_tokens']:,} tokens"
                + (f", {again:,} of them again" if again else "")
            )
        return lines


def _sources(shards: Path | None, stage: TrainConfig) -> tuple[Source, ...]:
    """What a stage trains on: its sources, or the run's; raises where nothing says it."""
    found = stage.sources or ((Source(shards=str(shards)),) if shards is not None else ())
    if not found:
        raise TrainError("give a folder of shards, or sources", exit_code=2)
    paths = [source.shards for source in found]
    for path in paths:
        if paths.count(path) > 1:
            raise TrainError(f"source {path} is given twice: add up its amounts", exit_code=2)
    return found
