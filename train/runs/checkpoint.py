"""Checkpoints that are whole or not there, hold no pickle, and resume bit for bit.

    checkpoints/step-0000020/model.safetensors      the weights, float32
                             optimizer.safetensors  the optimiser's state, "<state>.<parameter>"
                             average.safetensors    with ``ema``: the weights' average
                             config.json            model, train, shards: the plan of the run
                             state.json             step, tokens, held-out scores, losses; sums

Versions 2 and 3 named weights otherwise (``_renamed``), and 2 had no sums.
state.json has the xxh3-128 of config.json, of each tensor (made of what is in memory, before it is
written), of the run's tokenizer.json, of the log up to there and of itself; all that is read again
is compared with it.

The sampler, the schedule and dropout are functions of the step, so nothing else has to be kept.
All tensors are whole, however many processes wrote them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from train.config import TrainConfig
from train.errors import TrainError
from train.files import checksum, clear, drop, encode_json, replacing, seal, unseal
from train.model.config import ModelConfig, model_config
from train.model.decoder import Decoder
from train.optim.optimizers import Optimizers
from train.optim.schedules import decay_begins
from train.optim.weights import Average, copy_into, gather
from train.runs.plan import VERSION, Plan
from train.settings import from_dict

_NAME = re.compile(r"step-(\d{7,})")
_UNSEALED = 2  # the version before checksums
VERSIONS = (_UNSEALED, 3, VERSION)
# Names of weights before version 4, behind the name of an optimiser's state or not.
_RENAMED = tuple(
    (re.compile(old), new)
    for old, new in (
        (r"^((?!embedding\.|stack\.)\w+\.)?norm\.", r"\1stack.norm."),
        (r"(^|\.)(position_embedding\.weight|relative)$", r"\1stack.positions.weight"),
        (r"(^|\.)embedding_norm\.", r"\1embedding.norm."),
        (r"(^|\.)head_bias$", r"\1head.bias"),
        (r"(?<!stack\.)\bblocks\.", r"stack.blocks."),
        (r"\.mlp(\.|_)", r".feed_forward\1"),
    )
)
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
    guard: dict[str, Any] | None = None
    log: str = ""


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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        clear(folder)
        with replacing(final) as aside:
            _write(aside, snapshot)
            for old in (final, _out_of_the_way(final)):
                if old.is_dir():
                    drop(old)
        for old in superfluous(folder, keep):
            drop(old)
    except (OSError, SafetensorError) as error:
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
    aside.mkdir()
    config = encode_json(snapshot.plan.to_json())
    (aside / "config.json").write_bytes(config)
    sums: dict[str, Any] = {"config.json": checksum(config)}
    tokenizer = _tokenizer(aside)
    if tokenizer.is_file():
        sums["tokenizer.json"] = checksum(tokenizer.read_bytes())
    for name, tensors in snapshot.tensors.items():
        file = f"{name}.safetensors"
        sums[file] = {key: tensor_checksum(value) for key, value in tensors.items()}
        save_file(tensors, aside / file)
    state = seal({"version": VERSION, **vars(snapshot.state), "sums": sums})
    (aside / "state.json").write_bytes(encode_json(state))


def tensor_checksum(tensor: Tensor) -> str:
    """xxh3-128 of type, shape and the bytes, without a copy of a contiguous one."""
    hashed = xxhash.xxh3_128(f"{tensor.dtype} {list(tensor.shape)} ".encode())
    if tensor.numel():
        flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        hashed.update(flat.numpy().data)
    return hashed.hexdigest()


class Damaged(TrainError):
    """A checkpoint that is not what was written; ``what`` names the file and the reason."""

    def __init__(self, file: Path, reason: object) -> None:
        self.what = f"{file}: damaged ({reason})"
        super().__init__(f"{self.what}; delete {file.parent}")


def verify(checkpoint: Path) -> None:
    """Compare all of it with its checksums; raises ``Damaged``."""
    if load_state(checkpoint).step != step_of(checkpoint):
        raise Damaged(checkpoint / "state.json", "of another step than the folder")
    load_plan(checkpoint)
    for file in _sums(checkpoint):
        if file.endswith(".safetensors"):
            read_tensors(checkpoint / file)


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


def load_plan(checkpoint: Path) -> Plan:
    """The plan a checkpoint was made under; raises ``TrainError`` naming file and key."""
    path = checkpoint / "config.json"
    values = _read_json(path)
    sums = _sums(checkpoint)
    if sums and checksum(path.read_bytes()) != sums.get(path.name):
        raise Damaged(path, "it is not what was written")
    return Plan(
        model=model_config(values.get("model"), f"{path}: model"),
        train=from_dict(TrainConfig, values.get("train"), f"{path}: train"),
        shards=str(values.get("shards")),
        weights=str(values.get("weights", "")),
        teacher=str(values.get("teacher", "")),
        version=values["version"],
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
    if values["version"] == _UNSEALED and "sums" not in values:
        return values
    try:
        return unseal(values)
    except ValueError as error:
        raise Damaged(path, error) from error


def _sums(checkpoint: Path) -> dict[str, Any]:
    """By file: its checksum, or those of its tensors; none of a folder of version 2."""
    sums = _state(checkpoint).get("sums", {})
    if not isinstance(sums, dict):
        raise Damaged(checkpoint / "state.json", "its sums are no object")
    return sums


def weights_of(checkpoint: Path, *, average: bool = True) -> Path:
    """The file of the weights to use the model with: the average, where one was kept."""
    averaged = checkpoint / "average.safetensors"
    return averaged if average and averaged.is_file() else checkpoint / "model.safetensors"


def _tokenizer(checkpoint: Path) -> Path:
    return checkpoint.parent.parent / "tokenizer.json"


def tokenizer_of(checkpoint: Path) -> Path:
    """The tokenizer.json beside the checkpoints; raises ``TrainError`` where it has changed."""
    path = _tokenizer(checkpoint)
    expected = _sums(checkpoint).get(path.name)
    if expected is not None and (not path.is_file() or checksum(path.read_bytes()) != expected):
        raise TrainError(
            f"{path}: damaged (not what {checkpoint.name} was trained with); copy the"
            " tokenizer.json of its shards there"
        )
    return path


def load_model(checkpoint: Path, model: Decoder, *, average: bool = False) -> None:
    """Fill ``model`` with the weights, or with their ``average`` where there is one; every name and
    shape must fit.
    """
    weights = read_tensors(weights_of(checkpoint, average=average))
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
    state = read_tensors(checkpoint / file)
    for name, shape in shapes.items():
        if name not in state or state[name].shape != shape:
            raise TrainError(f"{checkpoint}: {name} is missing or misshapen; delete the folder")
    return state


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _JSON_BYTES:
            raise Damaged(path, f"larger than {_JSON_BYTES} bytes")
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Damaged(path, f"it cannot be read: {error}") from error
    if not isinstance(values, dict) or values.get("version") not in VERSIONS:
        raise Damaged(path, f"not of a version {VERSION} checkpoint")
    return values


def read_tensors(path: Path) -> Tensors:
    """The tensors of a file of a checkpoint, mapped; each compared with its checksum."""
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise Damaged(path, f"it cannot be read: {error}") from error
    sums = _sums(path.parent)
    if not sums:
        return _renamed(tensors, path.parent)
    expected = sums.get(path.name)
    if not isinstance(expected, dict) or expected.keys() != tensors.keys():
        raise Damaged(path, "its tensors are others than were written")
    for name, tensor in tensors.items():
        if tensor_checksum(tensor) != expected[name]:
            raise Damaged(path, f"{name} is not what was written")
    return _renamed(tensors, path.parent)


def _renamed(tensors: Tensors, checkpoint: Path) -> Tensors:
    """By today's names."""
    if _state(checkpoint)["version"] == VERSION:
        return tensors
    renamed = {}
    for name, tensor in tensors.items():
        for old, new in _RENAMED:
            name = old.sub(new, name)
        renamed[name] = tensor
    return renamed


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
