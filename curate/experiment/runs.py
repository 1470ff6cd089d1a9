"""The runs of an experiment as tasks of an engine: each trains a model and scores every item.
Workers write into OUT, so all machines must see this folder. Finished runs are reused."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from curate.engines.base import Jobs, retry_once
from curate.products.pretraining import shards_digest
from curate.run.driver import open_engine
from curate.run.records import Options
from llmcurate.base.disk.files import file_digest, write_text
from llmcurate.base.disk.process import Host, cores, host
from llmcurate.base.disk.units import counted, format_bytes
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.messages import Message, Task
from llmcurate.base.terminal import Progress
from train.evaluate.scores import score_of

DONE = "done.json"  # in the folder of a finished run: its identity, machine and seconds
FUNCTION = "curate.experiment.runs:train_run"


@dataclass(frozen=True)
class Training:
    """The settings of training and scoring that all runs of a corpus or variant share."""

    model: str  # a preset
    changes: dict[str, Any]  # changes of the preset
    threads: int  # number of CPU threads
    train: dict[str, Any]  # the settings of `pretrain` except `eval`
    texts: dict[str, str]  # the texts to score, as {name: path}
    score: str = "bytes"  # the name or file of the score
    tuning: int = 0  # steps of fine-tuning, for scores that need it

    @property
    def step(self) -> int:
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
        """Return the task of one run. `part` is the number of the task, by which the engine knows
        it. `settings` are settings of `pretrain` for this run only."""
        train = {**self.train, "seed": seed, "steps": steps, **settings}
        return RunTask(part, name, replace(self, train=train), shards, out)


@dataclass(frozen=True)
class RunTask(Task):
    """One training run of an experiment, as a task for a worker."""

    name: str
    training: Training
    shards: Path | None  # None if the settings have `sources`
    out: Path

    @property
    def folder(self) -> Path:
        return self.out / self.name / f"seed-{self.training.train['seed']}"

    @property
    def trained_on(self) -> dict[str, str]:
        sources = self.training.train.get("sources", ())
        return {f"source {source['name']}": source["shards"] for source in sources} or {
            "shards": str(self.shards)
        }

    @property
    def identity(self) -> Identity:
        train = dict(self.training.train)
        if "sources" in train:
            train["sources"] = [{**source, "shards": None} for source in train["sources"]]
        named = {**self.trained_on, **self.training.texts}
        paths = {name: Path(path) for name, path in named.items()}
        content = {
            name: shards_digest(path) if path.is_dir() else file_digest(path)
            for name, path in paths.items()
        }
        return Identity(self.name, replace(self.training, train=train, texts={}), content)


@dataclass(frozen=True)
class Identity(Message):
    """Everything that the result of a run depends on. `training` is without paths; `content` are
    digests of manifests."""

    name: str
    training: Training
    content: dict[str, str]


def parallel_runs(options: Options, training: Training) -> int:
    """Return the number of runs that this machine makes in parallel: --workers, or as many as fit
    on the cores, or one on a GPU."""
    from train.device import pick_device

    if options.workers:
        return options.workers
    device = pick_device(training.train.get("device", "auto"))
    return max(1, cores() // training.threads) if device.type == "cpu" else 1


@dataclass(frozen=True)
class Machine(Host):
    """The kind of machine on which a run was made, without anything that identifies the machine."""

    device: str
    gpu: str | None
    threads: int
    torch: str

    @classmethod
    def here(cls, device: str, threads: int) -> Machine:
        import torch

        from train.device import pick_device

        place = pick_device(device)
        gpu = torch.cuda.get_device_name(place) if place.type == "cuda" else None
        return cls(
            **vars(host()), device=place.type, gpu=gpu, threads=threads, torch=torch.__version__
        )

    def __str__(self) -> str:
        device = self.gpu or counted(self.threads, "thread") + " per run"
        return (
            f"{self.processor or self.machine}, {counted(self.cores, 'core')},"
            f" {format_bytes(self.memory)}, {device}, PyTorch {self.torch}"
        )


@dataclass(frozen=True)
class Done(Message):
    """The content of the file DONE of a finished run. `seconds` has "training" and "scoring"."""

    task: Identity
    machine: Machine
    seconds: dict[str, float]


def train_run(task: RunTask) -> Done:
    """Carry out a run in a worker: train a model and score it. A finished training is reused."""
    import torch

    from llmcurate.base.settings import from_dict, unflatten
    from train.config import TrainConfig
    from train.loop.pretrain import pretrain

    run = task.training
    torch.set_num_threads(run.threads)
    texts = run.texts if score_of(run.score).reads == "shards" else {}
    settings = from_dict(TrainConfig, {**unflatten(run.train), "eval": texts}, "pretrain")
    begun = time.monotonic()
    try:
        pretrain(task.shards, task.folder, model=run.model, changes=run.changes, train=settings)
    except LlmcurateError as error:
        raise type(error)(f"{task.name}, seed {settings.seed}: {error}") from error
    trained = time.monotonic()
    if run.texts:
        values_of(task)
    seconds = {"training": trained - begun, "scoring": time.monotonic() - trained}
    done = Done(task.identity, Machine.here(settings.device, run.threads), seconds)
    write_text(task.folder / DONE, json.dumps(asdict(done), indent=1) + "\n")
    return done


def values_of(task: RunTask) -> np.ndarray:
    """Return the value of every scored item of all texts, from scores.npz or else computed."""
    run = task.training
    texts = {name: Path(path) for name, path in run.texts.items()}
    values = score_of(run.score, run.tuning).values(task.folder, texts, run.train)
    return np.concatenate([values[name] for name in texts])


def finished_record(task: RunTask) -> Done | None:
    """Return the content of a run's DONE; None if it is missing or was written by another task."""
    try:
        done = Done.from_json((task.folder / DONE).read_text(encoding="utf-8"))
        names = ("train.json", "scores.npz") if task.training.texts else ("train.json",)
        whole = all((task.folder / name).is_file() for name in names)
        same = done.task == Identity.from_json(task.identity.to_json())
        return done if whole and same else None
    except (OSError, ValueError):
        return None


def machines_of(tasks: Sequence[RunTask]) -> list[Machine]:
    """Return the distinct kinds of machines that made these runs."""
    return list(dict.fromkeys(done.machine for task in tasks if (done := finished_record(task))))


def make_runs(tasks: Sequence[RunTask], options: Options, title: str) -> None:
    """Make all unfinished runs in parallel in the engine's workers. Raises RunFailed if a run
    fails. The progress bar counts training steps, read from the logs of the workers."""
    steps = [task.training.train["steps"] for task in tasks]

    def steps_done() -> int:  # a line each in the logs of the workers
        done = 0
        for task, most in zip(tasks, steps, strict=True):
            with suppress(OSError):
                done += min((task.folder / "metrics.jsonl").read_bytes().count(b"\n"), most)
        return done

    before = steps_done()
    begun = time.monotonic()
    with Progress(title, sum(steps), options.quiet, done=before) as progress:
        finished = 0

        def tick() -> None:
            done = steps_done()
            pace = (time.monotonic() - begun) / max(1, done - before)
            seconds_left = pace * (sum(steps) - done) if done > before else None
            progress.update(done, f"{finished} of {counted(len(tasks), 'run')}", seconds_left)

        count = parallel_runs(options, tasks[0].training)
        waiting = [task for task in tasks if finished_record(task) is None]
        finished = len(tasks) - len(waiting)
        if not waiting:
            return
        out = tasks[0].out
        out.mkdir(parents=True, exist_ok=True)
        with open_engine(
            options.engine,
            options.address,
            (options.workers, count),
            len(waiting),
            tick,
            Jobs((), out, options.quiet),
            [f"{folder}/manifest.json" for folder in tasks[0].trained_on.values()],
        ) as engine:
            for _ in engine.map(FUNCTION, waiting, Done, retry_once("the experiment")):
                finished += 1
