"""Checkpoints: complete or absent, without pickle, and resumed bit for bit.

    checkpoints/step-0000020/model.safetensors      the weights, float32
                             optimizer.safetensors  the optimiser's state, "<state>.<parameter>"
                             average.safetensors    with ``ema``: the average of the weights
                             model-00001-of-00004.safetensors  and so on: with FSDP2 each process
                                                    writes its part (tensors.py, parts.py)
                             config.json            the plan of the run: model, train, shards
                             state.json             step, tokens, held-out scores, losses, checksums

state.json has xxh3-128 checksums of config.json, of each tensor, of the run's tokenizer.json, of
the log up to this step, and of state.json itself. Each of these is compared with its checksum when
it is read. A tensor's checksum is computed in memory before the tensor is written. If processes
write parts of tensors, state.json has the checksum of each file's header instead, and the header
has the checksums of the parts.

Sampler, schedule and dropout are functions of the step and need no state. Any number of processes
can read a checkpoint.
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

from llmcurate.base.disk.files import clear_dead, remove_whole, replacing
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
    """The state of a run besides its tensors. ``step``: steps done. ``tokens``: tokens scored.
    ``held_out``: the scores if this step was evaluated. ``guard``: state of the guard against loss
    spikes. ``log``: checksum of the log so far."""

    step: int
    tokens: int
    held_out: dict[str, Any] | None = None
    guard: dict[str, list[float]] | None = None
    log: str = ""


@dataclass(frozen=True, kw_only=True)
class Keep:
    """The checkpoints to keep: the ``newest`` N; if ``best`` is True, the one with the lowest
    held-out loss; and the checkpoint of ``step``, if given."""

    newest: int
    best: bool = False
    step: int | None = None


def write(folder: Path, plan: Plan, state: State, tensors: dict[str, Tensors], keep: Keep) -> Path:
    """Write the checkpoint ``folder/step-<step>``, then delete checkpoints that are not to be kept.
    ``tensors``: by file (model, optimizer, average), then by name. Raises ``LlmcurateError`` if
    this fails, for instance on a full disk."""
    with writing(folder, plan, state, keep) as (aside, sums):
        for name, own in tensors.items():
            file = f"{name}.safetensors"
            sums[file] = {key: tensor_checksum(value) for key, value in own.items()}
            write_tensors(aside / file, own)
    return _path(folder, state)


def _path(folder: Path, state: State) -> Path:
    return folder / f"step-{state.step:07d}"


@contextmanager
def writing(folder: Path, plan: Plan, state: State, keep: Keep) -> Iterator[tuple[Path, Sums]]:
    """Yield a temporary folder for a checkpoint's tensors, and a dict for their checksums. At the
    end the folder gets its name, and checkpoints that are not to be kept are deleted. Raises
    ``LlmcurateError`` if writing fails."""
    refuse_link(folder)
    final = _path(folder, state)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        clear_dead(folder)
        with replacing(final) as aside:
            aside.mkdir()
            sums: Sums = {}
            yield aside, sums
            config = encode_json(plan.to_json())
            (aside / "config.json").write_bytes(config)
            all_sums = {"config.json": checksum(config), **sums}
            tokenizer = _tokenizer(aside)
            if tokenizer.is_file():
                all_sums["tokenizer.json"] = checksum(tokenizer.read_bytes())
            sealed = seal({"version": VERSION, **vars(state), "sums": all_sums})
            (aside / "state.json").write_bytes(encode_json(sealed))
            for old in (final, _damaged_path(final)):
                if old.is_dir():
                    remove_whole(old)
        for old in superfluous(folder, keep):
            remove_whole(old)
    except OSError as error:
        raise write_error(folder, state, error) from error


def write_error(folder: Path, state: State, error: OSError) -> LlmcurateError:
    return RunFailed(
        f"{_path(folder, state)}: cannot be written ({error}); earlier checkpoints are intact: "
        "free disk space and start the run again to resume"
    )


def refuse_link(folder: Path) -> None:
    """Raise ``LlmcurateError`` if the folder is a link, because checkpoints are deleted inside."""
    if folder.is_symlink():
        raise RunFailed(
            f"{folder}: is a link to {folder.resolve()}; checkpoints are written and deleted only"
            " inside OUT: move the folder there, or give another OUT"
        )


def verify(checkpoint: Path) -> None:
    """Compare a whole checkpoint with its checksums. Raises ``Damaged`` if any part differs."""
    if load_state(checkpoint).step != step_of(checkpoint):
        raise Damaged(checkpoint / "state.json", "its step differs from the name of the folder")
    load_plan(checkpoint)
    for kind in _files(checkpoint):
        tensors = stored(checkpoint, kind)
        for part in chain.from_iterable(tensors.parts.values()):
            tensors.read(part)


def set_aside_damaged(folder: Path, say: Callable[[str], object]) -> None:
    """Rename damaged checkpoints that are newer than the newest intact one. ``say`` is called with
    a line about each. Raises ``Damaged`` if all are damaged.
    """
    damaged: list[tuple[Path, Damaged]] = []
    for checkpoint in reversed(complete(folder)):
        try:
            verify(checkpoint)
        except Damaged as error:
            damaged.append((checkpoint, error))
            continue
        for path, damage in damaged:
            say(
                f"{damage.what}: renamed to {set_aside(path).name}, resuming from {checkpoint.name}"
            )
        return
    if damaged:
        raise damaged[0][1]


def set_aside(checkpoint: Path) -> Path:
    """Rename a damaged checkpoint. The next checkpoint of its step will replace it."""
    path = _damaged_path(checkpoint)
    if path.is_dir():
        remove_whole(path)
    return checkpoint.rename(path)


def _damaged_path(checkpoint: Path) -> Path:
    return checkpoint.with_name(checkpoint.name + ".damaged")


def superfluous(folder: Path, keep: Keep) -> list[Path]:
    checkpoints = complete(folder)
    kept = {*checkpoints[-keep.newest :]}
    if keep.best and checkpoints and (top := best(_of_last_stage(checkpoints))):
        kept.add(top)
    return [path for path in checkpoints if path not in kept and step_of(path) != keep.step]


def best(checkpoints: Iterable[Path]) -> Path | None:
    """Return the first checkpoint with the lowest held-out loss; None if no checkpoint has one."""
    scored = []
    for path in checkpoints:
        held_out = load_state(path).held_out
        if held_out is not None and isinstance(held_out.get("loss"), float):
            scored.append((held_out["loss"], step_of(path), path))
    return min(scored)[2] if scored else None


def complete(folder: Path) -> list[Path]:
    """Return the finished checkpoints in a folder, oldest first."""
    if not folder.is_dir():
        return []
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir() if path.is_dir())
    checkpoints = [(int(match[1]), path) for match, path in matches if match]
    return [path for _, path in sorted(checkpoints)]


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def newest(folder: Path) -> Path | None:
    """Return the last finished checkpoint in a folder, or None if there is none."""
    checkpoints = complete(folder)
    return checkpoints[-1] if checkpoints else None


def checkpoint_to_use(run: Path, which: str = "best") -> Path | None:
    """Return the checkpoint to use as a run's model, or None if there is none. ``which``: ``last``,
    or ``best`` for the lowest held-out loss. Only checkpoints of the last stage can be best,
    because earlier stages may have another context or other texts. Raises ``LlmcurateError`` for
    another ``which``."""
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


def choice_line(run: Path, which: str = "best") -> str | None:
    """Return a line about the checkpoint that ``checkpoint_to_use`` chooses; None if this is the
    last checkpoint, or the run has no checkpoint."""
    used, last = checkpoint_to_use(run, which), newest(run / "checkpoints")
    if used is None or last is None or used == last:
        return None
    loss, later = ((load_state(path).held_out or {}).get("loss") for path in (used, last))
    of_last = "was not scored" if later is None else f"has {later:.3f}"
    return (
        f"using checkpoint step {step_of(used)} (held-out loss {loss:.3f}; the last, step"
        f" {step_of(last)}, {of_last}: --checkpoint last uses that one)"
    )


def load_plan(checkpoint: Path) -> Plan:
    """Return the plan of a checkpoint's run. A ``LlmcurateError`` names the wrong file and key."""
    path = checkpoint / "config.json"
    values = _read_json(path)
    if checksum(path.read_bytes()) != _sums(checkpoint).get(path.name):
        raise Damaged(path, "its checksum differs")
    return Plan(
        model=from_dict(ModelConfig, values.get("model"), f"{path}: model"),
        train=from_dict(TrainConfig, values.get("train"), f"{path}: train"),
        shards=str(values.get("shards")),
        weights=str(values.get("weights", "")),
        teacher=str(values.get("teacher", "")),
    )


def model_of(checkpoint: Path) -> ModelConfig:
    """Return the model configuration at a checkpoint; stages can change the rotary positions."""
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
    sums = _state(checkpoint).get("sums")
    if not isinstance(sums, dict):
        raise Damaged(checkpoint / "state.json", "sums must be an object")
    return sums


def _files(checkpoint: Path) -> dict[str, dict[Path, Any]]:
    sums = _sums(checkpoint)
    files: dict[str, dict[Path, Any]] = {}
    for name in sorted(sums):
        if match := _FILE.fullmatch(name):
            files.setdefault(match[1], {})[checkpoint / name] = sums[name]
    return files


def stored(checkpoint: Path, kind: str) -> Stored:
    """Return the tensors of one ``kind`` (model, optimizer or average) in a checkpoint. Each tensor
    is compared with its checksum when it is read. Raises ``Damaged`` if a file is missing or
    differs."""
    files = _files(checkpoint).get(kind)
    if files is None:
        raise Damaged(checkpoint / f"{kind}.safetensors", "the file is missing")
    return Stored(files)


def weights_of(checkpoint: Path, *, average: bool = True) -> Stored:
    """Return the weights of a checkpoint. If ``average`` is True and the checkpoint also has
    averaged weights, return these instead."""
    return stored(checkpoint, "average" if average and "average" in _files(checkpoint) else "model")


def _tokenizer(checkpoint: Path) -> Path:
    return checkpoint.parent.parent / "tokenizer.json"


def tokenizer_of(checkpoint: Path) -> Path:
    """Return the path of the run's tokenizer.json. Raises ``LlmcurateError`` if it has changed."""
    path = _tokenizer(checkpoint)
    expected = _sums(checkpoint).get(path.name)
    if expected is not None and (not path.is_file() or checksum(path.read_bytes()) != expected):
        raise RunFailed(
            f"{path}: damaged (not the file that {checkpoint.name} was trained with); replace it by"
            " the tokenizer.json of its shards"
        )
    return path


def load_model(checkpoint: Path, model: Decoder, *, average: bool = False) -> None:
    """Fill ``model`` with the weights of a checkpoint, or with their ``average`` if there is one.
    Raises ``LlmcurateError`` if names or shapes differ.
    """
    weights = weights_of(checkpoint, average=average)
    state = model.state_dict()
    if weights.shapes != {name: value.shape for name, value in state.items()}:
        raise RunFailed(f"{checkpoint}: the weights do not fit config.json; delete the folder")
    fill(checkpoint, weights, state)


def fill(checkpoint: Path, tensors: Stored, into: dict[str, Tensor]) -> None:
    """Copy ``tensors`` into ``into`` by name. A process reads only its part of a split tensor."""
    for name, value in into.items():
        if tensors.shapes.get(name) != value.shape:
            raise RunFailed(
                f"{checkpoint}: {name} is missing or has another shape; delete the folder"
            )
    if any(shares(value) > 1 for value in into.values()):
        from train.runs.parts import read_parts

        read_parts(tensors, into)
        return
    for name, value in into.items():
        copy_into(value, tensors[name])


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _JSON_BYTES:
            raise Damaged(path, f"larger than {_JSON_BYTES:,} bytes")
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Damaged(path, f"cannot be read: {error}") from error
    if not isinstance(values, dict) or values.get("version") != VERSION:
        raise Damaged(path, f"not of a version {VERSION} checkpoint")
    return values


class Saver:
    """The object that writes a run's checkpoints. The first process writes whole tensors. If
    tensors are split, each process writes its parts. With ``in_thread``, a thread writes a copy.
    The next save waits for the thread, so that at most one copy is in memory."""

    def __init__(self, folder: Path, plan: Plan, *, first: bool, parts: bool) -> None:
        self.folder, self.plan, self.parts, self.writes = folder, plan, parts, first or parts
        settings = plan.train
        self.trunk = decay_begins(settings) if settings.schedule.startswith("wsd") else None
        self.keep = Keep(newest=settings.keep_checkpoints, best=settings.keep_best, step=self.trunk)
        self.in_thread = settings.async_checkpoints
        self._pool = ThreadPoolExecutor(1) if self.in_thread and self.writes else None
        self._writing: Future[None] | None = None
        # A separate group, so that writing in a thread does not interfere with training's messages.
        self._group = dist.new_group(backend="gloo") if parts else None

    def due(self, step: int) -> bool:
        """Return True if a checkpoint is due after ``step`` steps: every ``checkpoint_every``
        steps, at the end, and before WSD's decay, where a longer run or another decay can start."""
        settings = self.plan.train
        return step in (settings.steps, self.trunk) or step % settings.checkpoint_every == 0

    def save(
        self, model: Decoder, optimizer: Optimizers, average: Average | None, state: State
    ) -> None:
        """Write a checkpoint of this state, or start writing it. Every process must call this."""
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
            write(self.folder, self.plan, state, tensors, self.keep)
            return
        from train.runs.parts import write_parts

        begin = partial(writing, self.folder, self.plan, state, self.keep)
        try:
            write_parts(tensors, begin, self._group)
        except OSError as error:  # writing failed in this or another process
            raise write_error(self.folder, state, error) from error

    def wait(self) -> None:
        """Wait until the started checkpoint is written. Raises the error if writing failed."""
        if self._writing is not None:
            begun, self._writing = self._writing, None
            begun.result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None
