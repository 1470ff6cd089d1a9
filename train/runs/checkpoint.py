"""Checkpoints that are whole or not there, hold no pickle, and resume bit for bit.

    checkpoints/step-0000020/model.safetensors      the weights, float32
                             optimizer.safetensors  the optimiser's state, "<state>.<parameter>"
                             average.safetensors    with ``ema``: the weights' average
                             config.json            model, train, shards: the plan of the run
                             state.json             step, tokens, held-out scores, losses

The sampler, the schedule and dropout are functions of the step, so nothing else has to be kept.
All tensors are whole, however many processes wrote them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from train.config import TrainConfig
from train.errors import TrainError
from train.files import encode_json, remove, sync
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.optim.optimizers import Optimizers
from train.optim.schedules import decay_begins
from train.optim.weights import Average, copy_into, gather
from train.runs.plan import VERSION, Plan
from train.settings import from_dict

_NAME = re.compile(r"step-(\d{7,})")
Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class State:
    """Beside the tensors: steps done, tokens that counted, the held-out scores of this step if it
    was scored, and what the loss guard remembers.
    """

    step: int
    tokens: int
    held_out: dict[str, Any] | None = None
    guard: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A checkpoint in memory, on the CPU. ``tensors`` by file: model, optimizer, average."""

    plan: Plan
    state: State
    tensors: dict[str, Tensors]


@dataclass(frozen=True, kw_only=True)
class Keep:
    """Which checkpoints stay: the ``newest`` so many, the ``best`` by held-out loss, and the one of
    ``step``, if there is one.
    """

    newest: int
    best: bool = False
    step: int | None = None


def write(folder: Path, snapshot: Snapshot, keep: Keep) -> Path:
    """Write ``folder/step-<step>`` aside, fsync, rename; then drop what is not to be kept. Raises
    ``TrainError`` where it cannot be written, on a full disk for instance.
    """
    no_link(folder)
    final = folder / f"step-{snapshot.state.step:07d}"
    aside = folder / f".{final.name}.partial"
    try:
        _write(aside, snapshot)
        remove(final)
        aside.rename(final)
        sync(folder)
        for old in superfluous(folder, keep):
            remove(old, must=True)
    except (OSError, SafetensorError) as error:
        remove(aside)
        raise TrainError(
            f"{final}: cannot be written ({error}); earlier checkpoints are whole: make room, and "
            "start again to go on"
        ) from error
    return final


def no_link(folder: Path) -> None:
    """``TrainError`` where the folder of checkpoints is a link: old ones are removed in there."""
    if folder.is_symlink():
        raise TrainError(
            f"{folder}: is a link to {folder.resolve()}; checkpoints are written and removed in a"
            " folder of OUT alone: put the folder there, or name another OUT"
        )


def _write(aside: Path, snapshot: Snapshot) -> None:
    remove(aside)
    aside.mkdir(parents=True)
    for name, tensors in snapshot.tensors.items():
        save_file(tensors, aside / f"{name}.safetensors")
    (aside / "config.json").write_bytes(encode_json(snapshot.plan.to_json()))
    (aside / "state.json").write_bytes(encode_json({"version": VERSION, **vars(snapshot.state)}))
    for file in sorted(aside.iterdir()):
        sync(file)
    sync(aside)


def superfluous(folder: Path, keep: Keep) -> list[Path]:
    checkpoints = complete(folder)
    stay = {*checkpoints[-keep.newest :]}
    if keep.best and (top := best(checkpoints)):
        stay.add(top)
    return [path for path in checkpoints if path not in stay and step_of(path) != keep.step]


def best(checkpoints: Iterable[Path]) -> Path | None:
    """Of the lowest held-out loss, the first of equals; None where none was scored."""
    scored = []
    for path in checkpoints:
        held_out = load_state(path).held_out
        if held_out is not None and isinstance(held_out.get("loss"), float):
            scored.append((held_out["loss"], step_of(path), path))
    return min(scored)[2] if scored else None


def complete(folder: Path) -> list[Path]:
    """The finished checkpoints in a folder, oldest first. What was cut off is not among them."""
    if not folder.is_dir():
        return []
    checkpoints = [(int(match[1]), path) for path in folder.iterdir() if (match := _named(path))]
    return [path for _, path in sorted(checkpoints)]


def step_of(checkpoint: Path) -> int:
    """Steps done, by the folder's name."""
    return int(checkpoint.name.removeprefix("step-"))


def newest(folder: Path) -> Path | None:
    """The checkpoint to resume from, or None."""
    checkpoints = complete(folder)
    return checkpoints[-1] if checkpoints else None


def load_plan(checkpoint: Path) -> Plan:
    """The plan a checkpoint was made under; raises ``TrainError`` naming file and key."""
    path = checkpoint / "config.json"
    values = _read_json(path)
    return Plan(
        model=from_dict(ModelConfig, values.get("model"), f"{path}: model"),
        train=from_dict(TrainConfig, values.get("train"), f"{path}: train"),
        shards=str(values.get("shards")),
        weights=str(values.get("weights", "")),
    )


def load_state(checkpoint: Path) -> State:
    path = checkpoint / "state.json"
    values = _read_json(path)
    step, tokens = values.get("step"), values.get("tokens")
    held_out, guard = values.get("held_out"), values.get("guard")
    if not isinstance(step, int) or not isinstance(tokens, int):
        raise TrainError(f"{path}: step and tokens must be whole numbers; delete {checkpoint}")
    if not all(part is None or isinstance(part, dict) for part in (held_out, guard)):
        raise TrainError(f"{path}: held_out and guard must be objects; delete {checkpoint}")
    return State(step=step, tokens=tokens, held_out=held_out, guard=guard)


def weights_of(checkpoint: Path, *, average: bool = True) -> Path:
    """The file of the weights to use the model with: the average, where one was kept."""
    averaged = checkpoint / "average.safetensors"
    return averaged if average and averaged.is_file() else checkpoint / "model.safetensors"


def load_model(checkpoint: Path, model: Decoder, *, average: bool = False) -> None:
    """Fill ``model`` with the weights, or with their ``average`` where there is one; every name and
    shape must fit.
    """
    weights = _read_tensors(weights_of(checkpoint, average=average))
    state = model.state_dict()
    if {name: v.shape for name, v in weights.items()} != {n: v.shape for n, v in state.items()}:
        raise TrainError(f"{checkpoint}: the weights do not fit config.json; delete the folder")
    for name, value in state.items():
        copy_into(value, weights[name])


def load_optimizer(checkpoint: Path, model: Decoder, optimizer: Optimizers) -> None:
    """Fill ``optimizer`` with its state for the parameters of ``model``."""
    optimizer.load(model, _fitting(checkpoint, "optimizer.safetensors", optimizer.expected(model)))


def load_average(checkpoint: Path, model: Decoder) -> Tensors:
    """The average of the weights, by the names of ``model``'s."""
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    return _fitting(checkpoint, "average.safetensors", shapes)


def _fitting(checkpoint: Path, file: str, shapes: dict[str, Any]) -> Tensors:
    state = _read_tensors(checkpoint / file)
    for name, shape in shapes.items():
        if name not in state or state[name].shape != shape:
            raise TrainError(f"{checkpoint}: {name} is missing or misshapen; delete the folder")
    return state


def _named(path: Path) -> re.Match[str] | None:
    return _NAME.fullmatch(path.name) if (path / "state.json").is_file() else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise TrainError(f"{path}: cannot be read ({error}); delete {path.parent}") from error
    if not isinstance(values, dict) or values.get("version") != VERSION:
        raise TrainError(f"{path}: not a version {VERSION} checkpoint; delete {path.parent}")
    return values


def _read_tensors(path: Path) -> Tensors:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise TrainError(f"{path}: cannot be read ({error}); delete {path.parent}") from error


class Saver:
    """Writes a run's checkpoints. ``beside``: a thread writes a copy; the next save waits for it,
    so that at most one copy is held. ``writes``: this process does; others gather only.
    """

    def __init__(self, folder: Path, plan: Plan, *, writes: bool) -> None:
        self.folder, self.plan, self.writes = folder, plan, writes
        settings = plan.train
        self.trunk = decay_begins(settings) if settings.schedule.startswith("wsd") else None
        self.keep = Keep(newest=settings.keep_checkpoints, best=settings.keep_best, step=self.trunk)
        self.beside = settings.async_checkpoints
        self._pool = ThreadPoolExecutor(1) if self.beside and writes else None
        self._writing: Future[Path] | None = None

    def due(self, step: int) -> bool:
        """After ``step`` steps: every ``checkpoint_every``, at the end, and before WSD's decay,
        from where more steps, or a decay on other data, may begin.
        """
        settings = self.plan.train
        return step in (settings.steps, self.trunk) or step % settings.checkpoint_every == 0

    def save(
        self, model: Decoder, optimizer: Optimizers, average: Average | None, state: State
    ) -> None:
        """Gather (every process must call) and write."""
        tensors = {
            "model": {name: gather(value) for name, value in model.state_dict().items()},
            "optimizer": optimizer.dump(model),
        }
        if average is not None:
            tensors["average"] = average.dump()
        if not self.writes:
            return
        self.wait()
        copied = {name: self._on_cpu(part) for name, part in tensors.items()}
        snapshot = Snapshot(plan=self.plan, state=state, tensors=copied)
        if self._pool is None:
            write(self.folder, snapshot, self.keep)
        else:
            self._writing = self._pool.submit(write, self.folder, snapshot, self.keep)

    def wait(self) -> None:
        """Until what was begun is written; raises what went wrong there."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _on_cpu(self, tensors: Tensors) -> Tensors:
        return {name: self._copy(value) for name, value in tensors.items()}

    def _copy(self, value: Tensor) -> Tensor:
        value = value.detach().contiguous()
        return value.clone() if self.beside and value.device.type == "cpu" else value.cpu()
