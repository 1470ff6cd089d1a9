"""The runs of an experiment as tasks of an engine: each trains a model and scores it, document by
document. Workers write into OUT, which all machines see, and a run that is there is not made again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from curate.engines.base import Jobs, retry_once
from curate.run.driver import open_engine
from llmcurate.base.disk.files import file_digest, write_text
from llmcurate.base.disk.process import Host, cores, host
from llmcurate.base.disk.units import counted, format_bytes
from llmcurate.base.messages import Message, Task
from llmcurate.base.terminal import Progress

DONE = "done.json"  # of a run: what it was, on which machine, and how long it took
FUNCTION = "curate.experiment.runs:train_run"


@dataclass(frozen=True)
class Trained:
    """How a model is trained: the preset and its changes, threads on a processor, and the settings
    of `pretrain` but for `eval`, which are the texts."""

    model: str
    changes: dict[str, Any]
    threads: int
    train: dict[str, Any]


@dataclass(frozen=True)
class RunTask(Trained, Task):
    """A run of an experiment. shards: None where the settings have `sources`, each with a name;
    texts: what is scored (folders of shards by name)."""

    texts: dict[str, str]
    name: str
    shards: Path | None
    out: Path

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.out / self.name / f"seed-{self.train['seed']}"

    @property
    def trained_on(self) -> dict[str, str]:
        """The folders of shards that it trains on: of sources by their names."""
        sources = self.train.get("sources", ())
        return {f"source {source['name']}": source["shards"] for source in sources} or {
            "shards": str(self.shards)
        }

    @property
    def identity(self) -> Identity:
        """What its result depends on."""
        train = dict(self.train)
        if "sources" in train:
            train["sources"] = [{**source, "shards": None} for source in train["sources"]]
        content = {
            name: file_digest(Path(path) / "manifest.json")
            for name, path in {**self.trained_on, **self.texts}.items()
        }
        return Identity(self.name, self.model, self.changes, self.threads, train, content)


@dataclass(frozen=True)
class _Named(Message):
    name: str


@dataclass(frozen=True)
class Identity(Trained, _Named):
    """What the result of a run depends on. content: shards and texts, by their manifests."""

    content: dict[str, str]


@dataclass(frozen=True)
class Training(Trained):
    """How every run of an experiment trains."""

    texts: dict[str, str]

    @property
    def step(self) -> int:
        """Tokens of a step."""
        return int(self.train["rows"] * self.train["context"])

    def task(
        self,
        name: str,
        shards: Path | None,
        seed: int,
        steps: int,
        out: Path,
        part: int,
        **settings: int,
    ) -> RunTask:
        """Return the task of a run. part: its number, for messages; settings: of this run alone."""
        train = {**self.train, "seed": seed, "steps": steps, **settings}
        return RunTask(
            part, self.model, self.changes, self.threads, train, self.texts, name, shards, out
        )


@dataclass(frozen=True)
class Place:
    """Where runs are made: an engine by its name, its address, and the number of workers (0: one a
    core, or one where there is a GPU)."""

    engine: str = "local"
    address: str | None = None
    workers: int = 0
    quiet: bool = False

    def count(self, device: str, threads: int) -> int:
        """Runs that go on at once on this machine."""
        if self.workers:
            return self.workers
        from train.device import pick_device

        return max(1, cores() // threads) if pick_device(device).type == "cpu" else 1


@dataclass(frozen=True)
class Machine(Host):
    """The class of the machine that a run is made on; nothing that names it."""

    device: str
    gpu: str | None
    threads: int
    torch: str

    @classmethod
    def here(cls, device: str, threads: int) -> Machine:
        """This one."""
        import torch

        from train.device import pick_device

        place = pick_device(device)
        gpu = torch.cuda.get_device_name(place) if place.type == "cuda" else None
        return cls(
            **vars(host()), device=place.type, gpu=gpu, threads=threads, torch=torch.__version__
        )

    def __str__(self) -> str:
        device = self.gpu or counted(self.threads, "thread") + " a run"
        return (
            f"{self.processor or self.machine}, {counted(self.cores, 'core')},"
            f" {format_bytes(self.memory)}, {device}, PyTorch {self.torch}"
        )


@dataclass(frozen=True)
class Done(Message):
    """DONE of a run. task: its identity; seconds: of training and of scoring."""

    task: Identity
    machine: Machine
    seconds: dict[str, float]


def train_run(task: RunTask) -> Done:
    """Train the run of a task, or take it as it is there, and score it: a worker's part."""
    import torch

    from llmcurate.base.settings import from_dict, unflat
    from train.config import TrainConfig
    from train.evaluate.compare import Trial, run_trial

    torch.set_num_threads(task.threads)
    settings = from_dict(TrainConfig, {**unflat(task.train), "eval": task.texts}, "pretrain")
    trial = Trial(
        name=task.name, shards=task.shards, train=settings, model=task.model, changes=task.changes
    )
    begun = time.monotonic()
    run_trial(trial, task.out)
    trained = time.monotonic()
    nats_of(task)
    seconds = {"training": trained - begun, "scoring": time.monotonic() - trained}
    done = Done(task.identity, Machine.here(settings.device, task.threads), seconds)
    write_text(task.folder / DONE, json.dumps(asdict(done), indent=1) + "\n")
    return done


def nats_of(task: RunTask) -> np.ndarray:
    """Of all documents of all texts: as the run's file has them, or computed and written there."""
    from train.evaluate.judge import document_nats

    nats = document_nats(
        task.folder,
        {name: Path(path) for name, path in task.texts.items()},
        context=task.train["context"],
        batch_rows=task.train["rows"],
        precision=task.train.get("precision", "auto"),
        device=task.train.get("device", "auto"),
    )
    return np.concatenate([nats[name] for name in task.texts])


def done_of(task: RunTask) -> Done | None:
    """What a finished run left of itself; None where it is not finished, or was another."""
    try:
        done = Done.from_json((task.folder / DONE).read_text(encoding="utf-8"))
        whole = all((task.folder / name).is_file() for name in ("train.json", "nats.npz"))
        same = done.task == Identity.from_json(task.identity.to_json())
        return done if whole and same else None
    except (OSError, ValueError):
        return None


def machines_of(tasks: Sequence[RunTask]) -> list[Machine]:
    """The classes of machines that made these runs."""
    return list(dict.fromkeys(done.machine for task in tasks if (done := done_of(task))))


def make_runs(tasks: Sequence[RunTask], place: Place, title: str) -> None:
    """All runs, side by side in the engine's workers; RunFailed where one cannot be made. The bar
    counts steps, which workers write into their logs."""
    steps = [task.train["steps"] for task in tasks]
    logs = [_Log(task.folder / "metrics.jsonl", task.train["steps"]) for task in tasks]
    before = sum(log.read() for log in logs)
    begun = time.monotonic()
    with Progress(title, sum(steps), place.quiet, done=before) as progress:
        finished = 0

        def tick() -> None:
            done = sum(log.read() for log in logs)
            pace = (time.monotonic() - begun) / max(1, done - before)
            seconds_left = pace * (sum(steps) - done) if done > before else None
            progress.update(done, f"{finished} of {counted(len(tasks), 'run')}", seconds_left)

        count = place.count(tasks[0].train.get("device", "auto"), tasks[0].threads)
        waiting = [task for task in tasks if done_of(task) is None]
        finished = len(tasks) - len(waiting)
        if not waiting:
            return
        out = tasks[0].out
        out.mkdir(parents=True, exist_ok=True)
        with open_engine(
            place.engine,
            place.address,
            (place.workers, count),
            len(waiting),
            tick,
            Jobs((), out, place.quiet),
            [f"{folder}/manifest.json" for folder in tasks[0].trained_on.values()],
        ) as engine:
            for _ in engine.map(FUNCTION, waiting, Done, retry_once("the experiment")):
                finished += 1


class _Log:
    """Steps that a run has written into its log, counted without reading it anew."""

    def __init__(self, path: Path, most: int) -> None:
        self.path, self.most = path, most
        self._offset = self._lines = 0

    def read(self) -> int:
        """The steps so far."""
        try:
            size = self.path.stat().st_size
            if size < self._offset:  # gone on with from a checkpoint: what came after it is cut off
                self._offset = self._lines = 0
            if size > self._offset:
                with self.path.open("rb") as file:
                    file.seek(self._offset)
                    block = file.read()
                self._offset += len(block)
                self._lines += block.count(b"\n")
        except OSError:
            pass
        return min(self._lines, self.most)
