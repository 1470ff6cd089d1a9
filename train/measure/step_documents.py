"""The documents that a step of a run trained on, computed from the run's plan and shards.

OUT/shards.json has the paths of the shards: {"version": 1, "folders": {source: path}, "default":
source or null}. A stage (group of steps) of the run that has no list of sources reads the
default."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.sealed_json import encode_json, seal, unseal
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.messages import OPTIONAL
from train.config import Source, TrainConfig, locate, names
from train.data.feed import Feed
from train.data.shards import Shards
from train.objectives.objectives import feed_of
from train.runs.checkpoint import load_plan, newest
from train.runs.metrics import read_lines


def write_shard_paths(out: Path, feed: Feed) -> None:
    folders = {label: str(Path(path).resolve()) for path, label in feed.labels.items()}
    default = None if feed.default is None else feed.labels[str(feed.default)]
    folders_of_shards = {"version": 1, "folders": folders, "default": default}
    write_atomic(out / "shards.json", encode_json(seal(folders_of_shards)))


@dataclass(frozen=True)
class StepDocument:
    """A document, and the number of its tokens that a step read."""

    shards: str
    source: str
    id: str
    tokens: int


@dataclass(frozen=True)
class Step:
    """A step and its documents, each once. ``skipped``: why the step was skipped, if it was."""

    step: int
    stage: str
    rows: int
    tokens: int
    documents: list[StepDocument]
    skipped: str | None = field(default=None, metadata=OPTIONAL)


def documents_of_step(out: Path, step: int, shards: Path | None = None) -> Step:
    """Return the documents of a step, counted from 1 as in the metrics. ``shards`` is the new path
    of the shards if they were moved. Raises ``LlmcurateError`` if the shards have changed."""
    checkpoint = newest(out / "checkpoints")
    if checkpoint is None:
        raise UsageError(f"{out}: no finished checkpoint; give the folder of a pretraining run")
    plan = load_plan(checkpoint)
    if not 1 <= step <= plan.train.steps:
        raise UsageError(f"step {step}: the run has steps 1 to {plan.train.steps}")
    feed = _feed(out, plan.train, shards)
    if feed.fingerprint != plan.shards:
        labels = ", ".join(feed.labels)
        raise UsageError(f"{labels}: not the shards that {out} was trained on")
    tokens_by_document = feed.documents(step - 1)
    owners = [feed.owner(number) for number in tokens_by_document]
    sources = feed.rows.column(list(tokens_by_document), Shards.sources)
    labels_of, ids = [label for label, _, _ in owners], feed.rows.ids(list(tokens_by_document))
    stage, _ = locate(plan.train, step - 1)
    line = next((entry for entry in read_lines(out / "metrics.jsonl") if entry["step"] == step), {})
    return Step(
        step,
        names(plan.train)[stage],
        len(feed.row_numbers(step - 1)),
        sum(tokens_by_document.values()),
        [*map(StepDocument, labels_of, sources, ids, tokens_by_document.values())],
        line.get("skipped"),
    )


def _feed(out: Path, config: TrainConfig, shards: Path | None) -> Feed:
    path = out / "shards.json"
    try:
        recorded = unseal(json.loads(path.read_bytes()))
        folders = {str(label): str(folder) for label, folder in recorded["folders"].items()}
        default = None if recorded["default"] is None else folders[recorded["default"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFailed(f"{path}: cannot be read ({error}); train again") from error
    if shards is not None:
        if len(folders) != 1:
            raise RunFailed("the run has several sources: move them back to their old paths")
        folders = dict.fromkeys(folders, str(shards))
        default = None if default is None else str(shards)

    def moved(sources: tuple[Source, ...]) -> tuple[Source, ...]:
        return tuple(
            dataclasses.replace(
                source, shards=folders.get(source.label, source.shards), name=source.label
            )
            for source in sources
        )

    stages = tuple(dataclasses.replace(s, sources=moved(s.sources)) for s in config.stages)
    config = dataclasses.replace(config, sources=moved(config.sources), stages=stages)
    feed = feed_of(None if default is None else Path(default), config)
    feed.labels |= {folder: label for label, folder in folders.items()}  # the run's source names
    return feed
