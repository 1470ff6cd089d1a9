"""Checkpoints that are whole or not there, hold no pickle, and resume bit for bit.

    checkpoints/step-0000020/model.safetensors      the weights, float32
                             optimizer.safetensors  the optimiser's state, "<state>.<parameter>"
                             average.safetensors    with ``ema``: the weights' average
                             model-00001-of-00004.safetensors  and so on: under FSDP2, where each
                                                    process writes its part (tensors.py, parts.py)
                             config.json            model, train, shards: the plan of the run
                             state.json             step, tokens, held-out scores, losses; sums

state.json has the xxh3-128 of config.json, of each tensor (made of what is in memory, before it is
written; of a part's file, of its header), of the run's tokenizer.json, of the log up to there and
of itself; all that is read again is compared with it.

The sampler, the schedule and dropout are functions of the step, so nothing else has to be kept. Any
number of processes reads what any number wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from llmcurate.base.disk.files import clear_dead, drop, replacing
from llmcurate.base.disk.sealed_json import checksum, encode_json, seal, unseal
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from llmcurate.base.settings import from_dict
from train.config import TrainConfig, locate
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.optim.optimizers import Average, Optimizers
from train.optim.schedules import decay_begins
from train.runs.plan import VERSION, Plan
from train.runs.tensors import Damaged, Stored, Sums, tensor_checksum, write_tensors
from train.split import copy_into, shares

_NAME = re.compile(r"step-(\d{7,})")
_FILE = re.compile(r"(\w+)(?:-\d{5,}-of-\d{5,})?\.safetensors")
_JSON_BYTES = 64_000_000
Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class State:
    """Beside the tensors: steps done, tokens that counted, the held-out scores of this step if it
    was scored, what the loss guard remembers, and the checksum of the log up to here.
    """

    step: int
    tokens: int
    held_out: dict[str, Any] | None = None
    guard: dict[str, list[float]] | None = None
    log: str = ""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A checkpoint in memory. ``tensors`` by file: model, optimizer, average."""

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
    """Write ``folder/step-<step>``, then drop what is not to be kept. Raises ``LlmcurateError``
    where it cannot be written, on a full disk for instance.
    """
    with writing(folder, snapshot.plan, snapshot.state, keep) as (aside, sums):
        for name, tensors in snapshot.tensors.items():
            file = f"{name}.safetensors"
            sums[file] = {key: tensor_checksum(value) for key, value in tensors.items()}
            write_tensors(aside / file, tensors)
    return _path(folder, snapshot.state)


def _path(folder: Path, state: State) -> Path:
    return folder / f"step-{state.step:07d}"


@contextmanager
def writing(folder: Path, plan: Plan, state: State, keep: Keep) -> Iterator[tuple[Path, Sums]]:
    """A folder aside for the files of tensors, and their checksums to fill in; at the end it is
    fsynced and renamed, and what is not to be kept is dropped. Raises ``LlmcurateError``.
    """
    no_link(folder)
    final = _path(folder, state)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        clear_dead(folder)
        with replacing(final) as aside:
            aside.mkdir()
            sums: Sums = {}
            yield aside, sums
            _describe(aside, plan, state, sums)
            for old in (final, _out_of_the_way(final)):
                if old.is_dir():
                    drop(old)
        for old in superfluous(folder, keep):
            drop(old)
    except OSError as error:
        raise unwritten(folder, state, error) from error


def unwritten(folder: Path, state: State, error: OSError) -> LlmcurateError:
    """The error where the checkpoint of ``state`` cannot be written."""
    return RunFailed(
        f"{_path(folder, state)}: cannot be written ({error}); earlier checkpoints are whole: "
        "make room, and start again to go on"
    )


def no_link(folder: Path) -> None:
    """``LlmcurateError`` where the folder of checkpoints is a link: old ones are removed in
    there."""
    if folder.is_symlink():
        raise RunFailed(
            f"{folder}: is a link to {folder.resolve()}; checkpoints are written and removed in a"
            " folder of OUT alone: put the folder there, or name another OUT"
        )


def _describe(aside: Path, plan: Plan, state: State, sums: Sums) -> None:
    config = encode_json(plan.to_json())
    (aside / "config.json").write_bytes(config)
    sums = {"config.json": checksum(config), **sums}
    tokenizer = _tokenizer(aside)
    if tokenizer.is_file():
        sums["tokenizer.json"] = checksum(tokenizer.read_bytes())
    sealed = seal({"version": VERSION, **vars(state), "sums": sums})
    (aside / "state.json").write_bytes(encode_json(sealed))


def verify(checkpoint: Path) -> None:
    """Compare all of it with its checksums; raises ``Damaged``."""
    if load_state(checkpoint).step != step_of(checkpoint):
        raise Damaged(checkpoint / "state.json", "of another step than the folder")
    load_plan(checkpoint)
    for kind in _files(checkpoint):
        tensors = stored(checkpoint, kind)
        for part in chain.from_iterable(tensors.parts.values()):
            tensors.read(part)


def take_up(folder: Path, say: Callable[[str], None]) -> None:
    """Leave the newest whole checkpoint as the newest one: those after it are renamed, and ``say``
    gets a line on each. Raises ``Damaged`` where there are some and none is whole.
    """
    damaged: list[tuple[Path, Damaged]] = []
    for checkpoint in reversed(complete(folder)):
        try:
            verify(checkpoint)
        except Damaged as error:
            damaged.append((checkpoint, error))
            continue
        for path, damage in damaged:
            say(f"{damage.what}: now {set_aside(path).name}, going on from {checkpoint.name}")
        return
    if damaged:
        raise damaged[0][1]


def set_aside(checkpoint: Path) -> Path:
    """Rename a checkpoint that nothing is to go on from; it goes when its step is reached again."""
    path = _out_of_the_way(checkpoint)
    if path.is_dir():
        drop(path)
    return checkpoint.rename(path)


def _out_of_the_way(checkpoint: Path) -> Path:
    return checkpoint.with_name(checkpoint.name + ".damaged")


def superfluous(folder: Path, keep: Keep) -> list[Path]:
    checkpoints = complete(folder)
    stay = {*checkpoints[-keep.newest :]}
    if keep.best and checkpoints and (top := best(_of_last_stage(checkpoints))):
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
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir() if path.is_dir())
    checkpoints = [(int(match[1]), path) for match, path in matches if match]
    return [path for _, path in sorted(checkpoints)]


def step_of(checkpoint: Path) -> int:
    """Steps done, by the folder's name."""
    return int(checkpoint.name.removeprefix("step-"))


def newest(folder: Path) -> Path | None:
    """The checkpoint to resume from, or None."""
    checkpoints = complete(folder)
    return checkpoints[-1] if checkpoints else None


def to_use(run: Path, which: str = "best") -> Path | None:
    """The checkpoint that the model of a run is used from, or None: ``best``, that of the least
    held-out loss, or ``last``. The best is of the last stage: an earlier one may have had another
    context or other texts. Raises ``LlmcurateError``.
    """
    if which not in ("best", "last"):
        raise UsageError(f"checkpoint {which!r}: choose best or last")
    checkpoints = complete(run / "checkpoints")
    if which == "last" or len(checkpoints) < 2:
        return checkpoints[-1] if checkpoints else None
    return best(_of_last_stage(checkpoints)) or checkpoints[-1]


def _of_last_stage(checkpoints: list[Path]) -> list[Path]:
    settings = load_plan(checkpoints[-1]).train
    stages = [locate(settings, max(0, step_of(path) - 1))[0] for path in checkpoints]
    return [path for path, stage in zip(checkpoints, stages, strict=True) if stage == stages[-1]]


def choice(run: Path, which: str = "best") -> str | None:
    """A line on what ``to_use`` takes, where that is not the last one."""
    used, last = to_use(run, which), newest(run / "checkpoints")
    if used is None or last is None or used == last:
        return None
    loss, later = ((load_state(path).held_out or {}).get("loss") for path in (used, last))
    of_last = "was not scored" if later is None else f"has {later:.3f}"
    return (
        f"using checkpoint step {step_of(used)} (held-out loss {loss:.3f}; the last, step"
        f" {step_of(last)}, {of_last}; --checkpoint last takes that)"
    )


def load_plan(checkpoint: Path) -> Plan:
    """The plan a checkpoint was made under; raises ``LlmcurateError`` naming file and key."""
    path = checkpoint / "config.json"
    values = _read_json(path)
    if checksum(path.read_bytes()) != _sums(checkpoint).get(path.name):
        raise Damaged(path, "it is not what was written")
    return Plan(
        model=from_dict(ModelConfig, values.get("model"), f"{path}: model"),
        train=from_dict(TrainConfig, values.get("train"), f"{path}: train"),
        shards=str(values.get("shards")),
        weights=str(values.get("weights", "")),
        teacher=str(values.get("teacher", "")),
    )


def model_of(checkpoint: Path) -> ModelConfig:
    """The model of a checkpoint, as it was at its step."""
    return load_plan(checkpoint).model_at(step_of(checkpoint))


def load_state(checkpoint: Path) -> State:
    values, path = _state(checkpoint), checkpoint / "state.json"
    step, tokens = values.get("step"), values.get("tokens")
    held_out, guard = values.get("held_out"), values.get("guard")
    if not isinstance(step, int) or not isinstance(tokens, int):
        raise Damaged(path, "step and tokens must be whole numbers")
    if not all(part is None or isinstance(part, dict) for part in (held_out, guard)):
        raise Damaged(path, "held_out and guard must be objects")
    log = str(values.get("log", ""))
    return State(step=step, tokens=tokens, held_out=held_out, guard=guard, log=log)


def _state(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / "state.json"
    values = _read_json(path)
    try:
        return unseal(values)
    except ValueError as error:
        raise Damaged(path, error) from error


def _sums(checkpoint: Path) -> Sums:
    """The checksum of each file, or those of its tensors."""
    sums = _state(checkpoint).get("sums")
    if not isinstance(sums, dict):
        raise Damaged(checkpoint / "state.json", "its sums are no object")
    return sums


def _files(checkpoint: Path) -> dict[str, dict[Path, Any]]:
    """Files of tensors by what they hold (model, optimizer, average), each with its checksums."""
    sums = _sums(checkpoint)
    files: dict[str, dict[Path, Any]] = {}
    for name in sorted(sums):
        if match := _FILE.fullmatch(name):
            files.setdefault(match[1], {})[checkpoint / name] = sums[name]
    return files


def stored(checkpoint: Path, kind: str) -> Stored:
    """The tensors of a ``kind`` (model, optimizer, average), whole or in parts; each is compared
    with its checksums when it is read. Raises ``Damaged``.
    """
    files = _files(checkpoint).get(kind)
    if files is None:
        raise Damaged(checkpoint / f"{kind}.safetensors", "it is not there")
    return Stored(files)


def weights_of(checkpoint: Path, *, average: bool = True) -> Stored:
    """The weights to use the model with: their average, where one was kept."""
    return stored(checkpoint, "average" if average and "average" in _files(checkpoint) else "model")


def _tokenizer(checkpoint: Path) -> Path:
    return checkpoint.parent.parent / "tokenizer.json"


def tokenizer_of(checkpoint: Path) -> Path:
    """The tokenizer.json beside the checkpoints; raises ``LlmcurateError`` where it has changed."""
    path = _tokenizer(checkpoint)
    expected = _sums(checkpoint).get(path.name)
    if expected is not None and (not path.is_file() or checksum(path.read_bytes()) != expected):
        raise RunFailed(
            f"{path}: damaged (not what {checkpoint.name} was trained with); copy the"
            " tokenizer.json of its shards there"
        )
    return path


def load_model(checkpoint: Path, model: Decoder, *, average: bool = False) -> None:
    """Fill ``model`` with the weights, or with their ``average`` where there is one; every name and
    shape must fit.
    """
    weights = weights_of(checkpoint, average=average)
    state = model.state_dict()
    if weights.shapes != {name: value.shape for name, value in state.items()}:
        raise RunFailed(f"{checkpoint}: the weights do not fit config.json; delete the folder")
    fill(checkpoint, weights, state)


def fill(checkpoint: Path, tensors: Stored, into: dict[str, Tensor]) -> None:
    """Copy tensors by their names; of those that are split each process reads what it needs."""
    for name, value in into.items():
        if tensors.shapes.get(name) != value.shape:
            raise RunFailed(f"{checkpoint}: {name} is missing or misshapen; delete the folder")
    if any(shares(value) > 1 for value in into.values()):
        from train.runs.parts import read_parts

        read_parts(tensors, into)
        return
    for name, value in into.items():
        copy_into(value, tensors[name])


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _JSON_BYTES:
            raise Damaged(path, f"larger than {_JSON_BYTES} bytes")
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Damaged(path, f"it cannot be read: {error}") from error
    if not isinstance(values, dict) or values.get("version") != VERSION:
        raise Damaged(path, f"not of a version {VERSION} checkpoint")
    return values


class Saver:
    """Writes a run's checkpoints: the first process whole tensors, or, where they are split, each
    its parts. ``beside``: a thread writes a copy; the next save waits for it, so that at most one
    copy is held.
    """

    def __init__(self, folder: Path, plan: Plan, *, first: bool, parts: bool) -> None:
        self.folder, self.plan, self.parts, self.writes = folder, plan, parts, first or parts
        settings = plan.train
        self.trunk = decay_begins(settings) if settings.schedule.startswith("wsd") else None
        self.keep = Keep(newest=settings.keep_checkpoints, best=settings.keep_best, step=self.trunk)
        self.beside = settings.async_checkpoints
        self._pool = ThreadPoolExecutor(1) if self.beside and self.writes else None
        self._writing: Future[None] | None = None
        # Processes that write while they train must not mix up what they say of both.
        self._group = dist.new_group(backend="gloo") if parts else None

    def due(self, step: int) -> bool:
        """After ``step`` steps: every ``checkpoint_every``, at the end, and before WSD's decay,
        from where more steps, or a decay on other data, may begin.
        """
        settings = self.plan.train
        return step in (settings.steps, self.trunk) or step % settings.checkpoint_every == 0

    def save(
        self, model: Decoder, optimizer: Optimizers, average: Average | None, state: State
    ) -> None:
        """Write what is now, or begin to; every process must call."""
        if not self.writes:
            return
        self.wait()
        tensors = {"model": model.state_dict(), "optimizer": optimizer.state(model)}
        if average is not None:
            tensors["average"] = average.weights
        if self._pool is None:
            self._write(tensors, state)
        else:
            copied = {
                kind: {name: value.detach().to("cpu", copy=True) for name, value in values.items()}
                for kind, values in tensors.items()
            }
            self._writing = self._pool.submit(self._write, copied, state)

    def _write(self, tensors: dict[str, Tensors], state: State) -> None:
        if self._group is None:
            snapshot = Snapshot(plan=self.plan, state=state, tensors=tensors)
            write(self.folder, snapshot, self.keep)
            return
        from train.runs.parts import write_parts

        begin = partial(writing, self.folder, self.plan, state, self.keep)
        try:
            write_parts(tensors, begin, self._group)
        except OSError as error:  # of another process
            raise unwritten(self.folder, state, error) from error

    def wait(self) -> None:
        """Until what was begun is written; raises what went wrong there."""
        if self._writing is not None:
            begun, self._writing = self._writing, None
            begun.result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None
