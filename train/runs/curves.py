"""The curves of a run for other tools, beside metrics.jsonl: CSV, TensorBoard, Weights & Biases."""

from __future__ import annotations

import csv
import importlib
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llmcurate.base.errors import UsageError
from train.config import TrainConfig

SCORES = ("loss", "bits_per_byte")
NAMES = {
    "train": ("loss", "z_loss", "lr", "grad_norm", "tokens"),
    "held_out": SCORES,
    "timing": ("seconds", "tokens_per_second", "flops_per_second", "mfu"),
}


def scalars(line: dict[str, Any]) -> dict[str, float]:
    """The figures of a line of the log, by names such as `train/loss` and `eval/wiki/loss`."""
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
    """OUT/metrics.csv: a row a step, a figure that a step has not left empty. Written anew with
    the lines that a resume keeps.
    """

    def __init__(self, out: Path, kept: list[dict[str, Any]], texts: Iterable[str]) -> None:
        groups = NAMES | {f"eval/{text}": SCORES for text in texts}
        names = [f"{group}/{name}" for group, names in groups.items() for name in names]
        self._file = (out / "metrics.csv").open("w", encoding="utf-8", newline="")
        self._rows = csv.DictWriter(self._file, ["step", *names])
        self._rows.writeheader()
        for line in kept:
            self.write(line)

    def write(self, line: dict[str, Any]) -> None:
        self._rows.writerow({"step": line["step"], **scalars(line)})
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """OUT/tensorboard, going on after ``step``."""

    def __init__(self, out: Path, step: int) -> None:
        writer = _package("tensorboard", "torch.utils.tensorboard").SummaryWriter
        self._board = writer(str(out / "tensorboard"), purge_step=step + 1)

    def write(self, line: dict[str, Any]) -> None:
        for name, value in scalars(line).items():
            self._board.add_scalar(name, value, line["step"])

    def close(self) -> None:
        self._board.close()


class Wandb:
    """A run of Weights & Biases, whose own variables (WANDB_PROJECT, WANDB_MODE=offline) say where
    it goes; a resume goes on with it. OUT/wandb holds its files, and its id.

    Steps that a resume makes again come twice, with the same figures: they are told by `step`.
    """

    def __init__(self, out: Path, step: int, config: dict[str, Any]) -> None:
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
                config=config,
                settings=wandb.Settings(silent=True, console="off"),
            )
        except wandb.Error as error:
            first = str(error).splitlines()[0]
            raise UsageError(f"wandb: {first} Or set WANDB_MODE=offline") from error
        self._run.define_metric("*", step_metric="step")

    def write(self, line: dict[str, Any]) -> None:
        self._run.log({"step": line["step"], **scalars(line)})

    def close(self) -> None:
        self._run.finish()


def curves(
    out: Path, train: TrainConfig, kept: list[dict[str, Any]], step: int, plan: dict[str, Any]
) -> list[Csv | TensorBoard | Wandb]:
    """Those that the settings ask for, going on after ``step``; ``kept``: the lines up to there."""
    asked: list[Csv | TensorBoard | Wandb] = []
    if train.csv:
        asked.append(Csv(out, kept, train.eval))
    if train.tensorboard:
        asked.append(TensorBoard(out, step))
    if train.wandb:
        asked.append(Wandb(out, step, plan))
    return asked


def check_packages(train: TrainConfig) -> None:
    """Raise ``LlmcurateError`` where a package that the settings ask for is not installed."""
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
