"""Checkpoints that are whole or not there, hold no pickle, and resume bit for bit.

    checkpoints/step-0000020/model.safetensors      the weights, float32
                             optimizer.safetensors  the optimiser's state, "<state>.<parameter>"
                             config.json            model, train, shards: the plan of the run
                             state.json             step, tokens
The sampler and the schedule are functions of the step, so nothing else has to be kept.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from train.config import TrainConfig
from train.errors import TrainError
from train.files import encode_json, sync
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.optim.part import Optimizers
from train.plan import Plan
from train.settings import from_dict

_NAME = re.compile(r"step-(\d{7,})")


def save(
    folder: Path,
    *,
    plan: Plan,
    model: Decoder,
    optimizer: Optimizers,
    step: int,
    tokens: int,
    keep: int,
) -> Path:
    """Write ``folder/step-<step>`` aside, fsync, rename; then drop all but the newest ``keep``."""
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"step-{step:07d}"
    aside = folder / f".{final.name}.partial"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    save_file(_on_cpu(model.state_dict()), aside / "model.safetensors")
    save_file(_on_cpu(optimizer.dump(model)), aside / "optimizer.safetensors")
    (aside / "config.json").write_bytes(encode_json(plan.to_json()))
    (aside / "state.json").write_bytes(encode_json({"version": 1, "step": step, "tokens": tokens}))
    for file in sorted(aside.iterdir()):
        sync(file)
    sync(aside)
    shutil.rmtree(final, ignore_errors=True)
    aside.rename(final)
    sync(folder)
    for old in complete(folder)[:-keep]:
        shutil.rmtree(old)
    return final


def complete(folder: Path) -> list[Path]:
    """The finished checkpoints in a folder, oldest first. What was cut off is not among them."""
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _named(path))]
    return [path for _, path in sorted(found)]


def step_of(checkpoint: Path) -> int:
    """Steps done, by the folder's name."""
    return int(checkpoint.name.removeprefix("step-"))


def newest(folder: Path) -> Path | None:
    """The checkpoint to resume from, or None."""
    found = complete(folder)
    return found[-1] if found else None


def load_plan(checkpoint: Path) -> Plan:
    """The plan a checkpoint was made under; raises ``TrainError`` naming file and key."""
    path = checkpoint / "config.json"
    values = _read_json(path)
    return Plan(
        model=from_dict(ModelConfig, values.get("model"), f"{path}: model"),
        train=from_dict(TrainConfig, values.get("train"), f"{path}: train"),
        shards=str(values.get("shards")),
    )


def load_state(checkpoint: Path) -> tuple[int, int]:
    """(steps done, tokens seen)."""
    path = checkpoint / "state.json"
    values = _read_json(path)
    step, tokens = values.get("step"), values.get("tokens")
    if not isinstance(step, int) or not isinstance(tokens, int):
        raise TrainError(f"{path}: step and tokens must be whole numbers; delete {checkpoint}")
    return step, tokens


def load_model(checkpoint: Path, model: Decoder) -> None:
    """Fill ``model`` with the weights; every name and shape must fit."""
    weights = _read_tensors(checkpoint / "model.safetensors")
    wanted = {name: value.shape for name, value in model.state_dict().items()}
    if {name: value.shape for name, value in weights.items()} != wanted:
        raise TrainError(f"{checkpoint}: the weights do not fit config.json; delete the folder")
    model.load_state_dict(weights)


def load_optimizer(checkpoint: Path, model: Decoder, optimizer: Optimizers) -> None:
    """Fill ``optimizer`` with its state for the parameters of ``model``."""
    state = _read_tensors(checkpoint / "optimizer.safetensors")
    for name, shape in optimizer.expected(model).items():
        if name not in state or state[name].shape != shape:
            raise TrainError(f"{checkpoint}: {name} is missing or misshapen; delete the folder")
    optimizer.load(model, state)


def _named(path: Path) -> re.Match[str] | None:
    return _NAME.fullmatch(path.name) if (path / "state.json").is_file() else None


def _on_cpu(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise TrainError(f"{path}: cannot be read ({error}); delete {path.parent}") from error
    if not isinstance(values, dict) or values.get("version") != 1:
        raise TrainError(f"{path}: not a version 1 checkpoint; delete {path.parent}")
    return values


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise TrainError(f"{path}: cannot be read ({error}); delete {path.parent}") from error
