"""The figures of an experiment, from what its runs left: scores by source and pooled, differences
with intervals, curves, cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from curate.engines.base import Task
from curate.experiment.corpora import PLACEBO
from curate.experiment.runs import done_of, folder_of
from llmcurate.base.disk.sealed_json import read_json
from train.data.shards import read_shards
from train.evaluate.nats import document_nats
from train.evaluate.paired import Difference, paired_difference
from train.evaluate.trials import loss_curve, mean, text_curve
from train.loop.evaluate import Sources


@dataclass(frozen=True)
class Scored:
    """All documents that are scored, of all texts. sizes: bytes; strata: a number of each source of
    each text; groups: {text: [its documents]}, and {(text, source): ...} where it has several. They
    are the same whatever tokenizer encoded them."""

    texts: tuple[str, ...]
    sizes: np.ndarray
    strata: np.ndarray
    groups: dict[tuple[str, ...], np.ndarray]


def scored_documents(texts: dict[str, str]) -> Scored:
    """Of folders of shards, in their order."""
    sizes, strata = [], []
    groups: dict[tuple[str, ...], np.ndarray] = {}
    first = stratum = 0
    for name, folder in texts.items():
        shards = read_shards(Path(folder))
        assert shards.bytes is not None
        named = shards.sources(list(range(shards.documents)))
        sources = Sources([source or "(none)" for source in named], shards.length, shards.bytes)
        rows = np.arange(first, first + shards.documents)
        groups[(name,)] = rows
        if len(sources.names) > 1:
            for code, source in enumerate(sources.names):
                groups[(name, source)] = rows[sources.codes == code]
        sizes.append(shards.bytes)
        strata.append(sources.codes + stratum)
        first, stratum = first + shards.documents, stratum + len(sources.names)
    return Scored(tuple(texts), np.concatenate(sizes), np.concatenate(strata), groups)


class Rows:
    """The runs of each corpus, and of the placebo, beside those of the first one."""

    def __init__(self, tasks: Sequence[Task], seed: int) -> None:
        self.scored, self.seed = scored_documents(tasks[0]["train"]["eval"]), seed
        self.tasks: dict[str, list[Task]] = {}
        for task in tasks:
            self.tasks.setdefault(task["name"], []).append(task)
        self.nats = {
            name: np.stack([_nats(task) for task in group]) for name, group in self.tasks.items()
        }
        self.first = next(iter(self.tasks))

    def difference(self, name: str, rows: np.ndarray | slice = slice(None)) -> Difference:
        """Of some documents: those of a corpus from those of the first."""
        return paired_difference(
            self.nats[self.first][:, rows],
            self.nats[name][:, rows],
            self.scored.sizes[rows],
            self.scored.strata[rows],
            seed=self.seed,
        )

    def row(self, name: str) -> dict[str, Any]:
        """All figures of a corpus, or of the placebo."""
        tasks, folders = self.tasks[name], [folder_of(task) for task in self.tasks[name]]
        summaries = [read_json(folder / "train.json") for folder in folders]
        config = summaries[0]["plan"]["train"]
        step = config["rows"] * config["context"]
        everything = np.arange(len(self.scored.sizes))
        pooled = self._bits(name, everything)
        row: dict[str, Any] = {
            "name": name,
            "steps": summaries[0]["steps"],
            "tokens": summaries[0]["steps"] * step,
            "epochs": mean_of([summary["epochs"] for summary in summaries]),
            "train_documents": summaries[0]["train_documents"],
            "train_tokens": summaries[0]["train_tokens"],
            "flops": summaries[0]["steps"] * step * summaries[0]["flops_per_token"],
            "runs": [
                {
                    "seed": task["train"]["seed"],
                    "bits_per_byte": bits,
                    "last_loss": summary["last_loss"],
                    "seconds": summary["timing"]["seconds"],
                    "tokens_per_second": summary["timing"]["tokens_per_second"],
                }
                for task, summary, bits in zip(tasks, summaries, pooled, strict=True)
            ],
            "bits_per_byte": mean(pooled),
            "texts": self._texts(name),
            "curve": text_curve(folders, list(self.scored.texts), step),
            "loss_curve": loss_curve(folders, step),
        }
        if name != self.first:
            row["difference"] = self.difference(name).to_json()
        return row

    def _bits(self, name: str, rows: np.ndarray) -> list[float]:
        """Bits a byte of these documents, by seed."""
        total = float(self.scored.sizes[rows].sum())
        bits = self.nats[name][:, rows].sum(axis=1) / math.log(2) / max(total, 1e-300)
        return [float(value) for value in bits]

    def _texts(self, name: str) -> dict[str, Any]:
        """The scores of each text, and of each of its sources."""
        texts: dict[str, Any] = {}
        for (text, *source), rows in self.scored.groups.items():
            scores: dict[str, Any] = {
                "documents": len(rows),
                "bytes": int(self.scored.sizes[rows].sum()),
                "bits_per_byte": mean(self._bits(name, rows)),
            }
            if name != self.first:
                scores["difference"] = self.difference(name, rows).to_json()
            if source:
                texts[text]["sources"][source[0]] = scores
            else:
                texts[text] = {**scores, "sources": {}}
        return texts


def mean_of(values: Sequence[float]) -> float:
    """The mean as JSON has it."""
    return float(np.mean(values))


def _nats(task: Task) -> np.ndarray:
    """Of all documents of all texts, as the run's file has them."""
    settings = task["train"]
    texts = settings["eval"]
    nats = document_nats(
        folder_of(task),
        {name: Path(path) for name, path in texts.items()},
        context=settings["context"],
        batch_rows=settings["rows"],
        precision=settings.get("precision", "auto"),
        device=settings.get("device", "auto"),
    )
    return np.concatenate([nats[name] for name in texts])


def collect(tasks: Sequence[Task], seed: int) -> dict[str, Any]:
    """All rows, the placebo apart, what could be detected, and what it cost."""
    rows = Rows(tasks, seed)
    by_name = {name: rows.row(name) for name in rows.tasks}
    placebo = by_name.pop(PLACEBO)
    interval = placebo["difference"]["interval"]
    runs = [run for row in (*by_name.values(), placebo) for run in row["runs"]]
    machines = [(done_of(task) or {}).get("machine") for task in tasks]
    seeds = len(placebo["runs"])
    return {
        "corpora": list(by_name.values()),
        "placebo": {
            **placebo,
            "holds_zero": None if interval is None else interval[0] <= 0 <= interval[1],
        },
        "power": {
            "detectable": rows.difference(PLACEBO).detectable(),
            "power": 0.8,
            "level": 0.05,
            "from": f"the placebo's variance, {seeds} seeds",
        },
        "cost": {
            "runs": len(runs),
            "seconds": sum(run["seconds"] for run in runs),
            "tokens": sum(row["tokens"] * seeds for row in (*by_name.values(), placebo)),
            "flops": sum(row["flops"] * seeds for row in (*by_name.values(), placebo)),
        },
        "machines": [m for nth, m in enumerate(machines) if m and m not in machines[:nth]],
    }
