"""metrics.jsonl: one line per step. A repeated run writes the same values, except in "timing"."""

from __future__ import annotations

import csv
import importlib
import json
import math
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import Tensor

from llmcurate.base.disk.files import sync_path, write_atomic
from llmcurate.base.errors import UsageError
from train.config import TrainConfig
from train.runs.plan import Plan

SCORES = ("loss", "bits_per_byte")
NAMES = {
    "train": ("loss", "z_loss", "lr", "grad_norm", "tokens"),
    "held_out": SCORES,
    "timing": ("seconds", "tokens_per_second", "flops_per_second", "mfu", "memory"),
}


def scalars(line: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a log line by names such as `train/loss` and `eval/wiki/loss`."""
    groups = {"train": line, "held_out": line.get("held_out"), "timing": line.get("timing")}
    groups |= {f"eval/{text}": figures for text, figures in (line.get("eval") or {}).items()}
    return {
        f"{group}/{name}": figures[name]
        for group, figures in groups.items()
        if figures
        for name in NAMES.get(group, SCORES)
        if figures.get(name) is not None
    }


class Csv:
    """OUT/metrics.csv: a row per step from step 1, also if a run is resumed. Cells may be empty."""

    def __init__(self, out: Path, texts: Iterable[str]) -> None:
        groups = NAMES | {f"eval/{text}": SCORES for text in texts}
        names = [f"{group}/{name}" for group, names in groups.items() for name in names]
        self._file = (out / "metrics.csv").open("w", encoding="utf-8", newline="")
        self._rows = csv.DictWriter(self._file, ["step", *names])
        self._rows.writeheader()

    def write(self, step: int, figures: dict[str, float]) -> None:
        self._rows.writerow({"step": step, **figures})
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """The curves in OUT/tensorboard, continued after ``step``."""

    def __init__(self, out: Path, step: int) -> None:
        writer = _package("tensorboard", "torch.utils.tensorboard").SummaryWriter
        self._board = writer(str(out / "tensorboard"), purge_step=step + 1)

    def write(self, step: int, figures: dict[str, float]) -> None:
        for name, value in figures.items():
            self._board.add_scalar(name, value, step)

    def close(self) -> None:
        self._board.close()


class Wandb:
    """A run of Weights & Biases, continued on a resume. The environment variables WANDB_PROJECT and
    WANDB_MODE=offline choose the destination. OUT/wandb has the files and the id of that run. Steps
    that a resume repeats appear twice, with the same figures and the same `step`.
    """

    def __init__(self, out: Path, step: int, plan: Plan) -> None:
        wandb = _package("wandb")
        id_file = out / "wandb" / "id"
        if step == 0 or not id_file.is_file():
            id_file.parent.mkdir(exist_ok=True)
            id_file.write_text(uuid.uuid4().hex)
        try:
            self._run = wandb.init(
                dir=str(out),
                id=id_file.read_text(),
                name=out.resolve().name,
                resume="allow",
                config=plan.to_json(),
                settings=wandb.Settings(silent=True, console="off"),
            )
        except wandb.Error as error:
            first = str(error).splitlines()[0]
            raise UsageError(f"wandb: {first} Or set WANDB_MODE=offline") from error
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, figures: dict[str, float]) -> None:
        self._run.log({"step": step, **figures})

    def close(self) -> None:
        self._run.finish()


def curves(
    out: Path, plan: Plan, kept: list[dict[str, Any]], step: int
) -> list[Csv | TensorBoard | Wandb]:
    """Return a writer for each kind of curves in the settings. ``kept``: earlier log lines."""
    asked: list[Csv | TensorBoard | Wandb] = []
    train = plan.train
    if train.csv:
        asked.append(Csv(out, train.eval))
        for line in kept:
            asked[0].write(line["step"], scalars(line))
    if train.tensorboard:
        asked.append(TensorBoard(out, step))
    if train.wandb:
        asked.append(Wandb(out, step, plan))
    return asked


def check_packages(train: TrainConfig) -> None:
    """Raise ``LlmcurateError`` if the settings ask for TensorBoard or Weights & Biases to show the
    metrics, and its package is not installed."""
    if train.tensorboard:
        _package("tensorboard", "torch.utils.tensorboard")
    if train.wandb:
        _package("wandb")


def _package(name: str, module: str = "") -> Any:
    try:
        return importlib.import_module(module or name)
    except ImportError as error:
        raise UsageError(
            f"{name} is not installed: pip install {name}, or leave the option out"
        ) from error


# Figures that follow the loss terms: gradient norm before clipping, tokens scored, tokens read.
LAST = ("grad_norm", "tokens", "read")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The figures of a step, still on the device. ``values``: float64, in the order of ``names``:
    the terms of the loss (nats per token), then ``load`` if there are experts, then the figures in
    ``LAST``. ``load`` is the highest ratio of an expert's tokens to its layer's mean. ``updated``:
    True if the step changed the weights. ``loads`` [layers, experts]: each expert's tokens."""

    names: tuple[str, ...]
    values: Tensor
    updated: bool = True
    loads: Tensor | None = None

    def shares(self) -> list[list[float]] | None:
        """Return each expert's share of its layer's tokens, by layer. Waits for the device."""
        if self.loads is None:
            return None
        return (self.loads / self.loads.sum(-1, keepdim=True)).tolist()

    def figures(self) -> dict[str, float]:
        return dict(zip(self.names, self.values.tolist(), strict=True))


class Pending:
    """Steps whose figures are still on the device. ``collect`` waits for all of them at once."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, float, Measured | None]] = []
        self._began = time.perf_counter()

    def add(self, step: int, rate: float, measured: Measured | None) -> None:
        """Add a step. ``step``: the steps done. ``measured``: None if the step was skipped."""
        self._steps.append((step, rate, measured))

    def restart(self) -> None:
        """Restart the clock, so that time without training is not counted in the steps' seconds."""
        self._began = time.perf_counter()

    def collect(self) -> list[dict[str, Any]]:
        """Return the log lines of these steps. ``tokens`` and ``read`` are the numbers of scored
        and of all tokens in a step, ``seconds`` the time since the last call, divided by the number
        of steps."""
        done = [m.values for _, _, m in self._steps if m is not None]
        numbers = iter(torch.stack(done).tolist() if done else [])
        lines = []
        for step, rate, measured in self._steps:
            line: dict[str, Any] = {"step": step, "lr": rate, "updated": False}
            line |= {"tokens": 0, "read": 0}
            if measured is not None:
                line |= dict(zip(measured.names, next(numbers), strict=True))
                line |= {name: int(line[name]) for name in ("tokens", "read")}
                line["updated"] = measured.updated
            lines.append(line)
        now = time.perf_counter()
        for line in lines:
            line["timing"] = {"seconds": (now - self._began) / len(lines)}
        self._steps, self._began = [], now
        return lines


class Log:
    """The log of a run and its curves, continued after ``step``. Only the first process writes a
    log. ``expected``: the checksum of the earlier lines according to a checkpoint, or "".
    ``damaged``: True if these lines have another checksum."""

    def __init__(self, out: Path, step: int, plan: Plan, *, expected: str = "") -> None:
        self.path = out / "metrics.jsonl"
        self._sum = xxhash.xxh3_128()
        kept = truncate(self.path, step)
        for line in kept:
            self._count(line)
        self.damaged = bool(expected) and self.checksum != expected
        self._file = self.path.open("a", encoding="utf-8")
        self._curves = curves(out, plan, kept, step)

    def write(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            self._file.write(json.dumps(finite(line), allow_nan=False) + "\n")
            self._count(finite(line))
            for curve in self._curves:
                curve.write(line["step"], scalars(line))
        self._file.flush()

    def _count(self, line: dict[str, Any]) -> None:
        content = {name: value for name, value in line.items() if name != "timing"}
        self._sum.update(json.dumps(content, sort_keys=True).encode())

    @property
    def checksum(self) -> str:
        """The xxh3-128 checksum of all lines without their timing."""
        return self._sum.hexdigest()

    def sync(self) -> None:
        sync_path(self.path)

    def close(self) -> None:
        self._file.close()
        for curve in self._curves:
            curve.close()


def finite(value: Any) -> Any:
    """Return ``value`` with None for NaN and infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_lines(metrics: Path) -> list[dict[str, Any]]:
    """Return the lines of a log before the first incomplete one."""
    lines: list[dict[str, Any]] = []
    if metrics.is_file():
        for line in metrics.read_bytes().splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                break
            if not isinstance(value, dict) or not isinstance(value.get("step"), int):
                break
            lines.append(value)
    return lines


def truncate(metrics: Path, step: int) -> list[dict[str, Any]]:
    """Delete the log lines of steps after ``step``, which will run again. Return the others."""
    kept = [line for line in read_lines(metrics) if line["step"] <= step]
    write_atomic(metrics, "".join(json.dumps(line) + "\n" for line in kept).encode("utf-8"))
    return kept
