"""Forecast a run: its tokens, epochs, memory, operations and time. The forecast raises the errors
that the run would raise at its start, and writes nothing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmcurate.base.disk.units import counted, format_bytes, format_duration, format_scaled
from llmcurate.base.terminal import table
from train.config import TrainConfig
from train.data.feed import FeedFigures
from train.device import pick_device
from train.loop.backends import LayerBackend, layer_backends
from train.loop.distributed import parts_of
from train.loop.memory import precision, step_memory
from train.loop.pretrain import start_from
from train.loop.start import make_plan
from train.measure.accounting import Parameters, parts, run_cost
from train.measure.describe import GPUS, Memory
from train.model.config import ModelConfig
from train.runs.checkpoint import step_of

PARTS = tuple(field.name for field in dataclasses.fields(Memory))


@dataclass(frozen=True)
class OnDevice:
    JSON = ("device", "precision", *(f"memory.{part}" for part in PARTS))
    device: str
    precision: str
    memory: Memory


@dataclass(frozen=True)
class OnGpu:
    """The forecast for one kind of GPU. ``memory``: its bytes. ``seconds``: the time of the
    remaining steps, or None in fp32, where the GPU's speed is not known."""

    name: str
    memory: float
    fits: bool
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The forecast of a run, with memory in bytes and times in seconds. ``positions``: the number
    of tokens in all steps. ``done``: the number of steps in the checkpoint that the run would
    resume from. ``flops``, and the time on each kind of GPU (``gpus``), are for the remaining
    steps."""

    parameters: Parameters
    steps: int
    done: int
    positions: int
    positions_per_parameter: float
    flops: float
    data: FeedFigures
    attention: list[LayerBackend]
    processes: int
    memory: list[OnDevice]
    mfu: float
    gpus: list[OnGpu]

    def lines(self, model: str) -> list[str]:
        """Return the forecast as lines of tables. ``model`` (preset or folder) is in the title."""
        rows = []
        for stage in self.data.stages:
            shape = f"{stage.rows:,} x {counted(stage.context, 'token')}"
            rows.append((stage.name, f"{counted(stage.steps, 'step')} of {shape}"))
        ratio = self.positions_per_parameter
        rows.append(("tokens", f"{self.positions:,}, {ratio:.3g} per parameter"))
        rows += [(name, source.shown) for name, source in self.data.sources.items()]
        if self.done:
            rows.append(
                ("done", f"{counted(self.done, 'step')}; operations and time are for the rest")
            )
        rows.append(("operations", f"{format_scaled(self.flops)}FLOP"))
        title = f"{model}: {self.parameters.total:,} parameters"
        of_run = table((), rows, left=(0, 1), indent=2)
        return [title, *of_run, "", *self._memory(), "", *self._gpus()]

    def _memory(self) -> list[str]:
        names, several = {"cpu": "CPU", "cuda": "GPU"}, self.processes > 1
        rows = [
            (part, *(format_bytes(getattr(own.memory, part)) for own in self.memory))
            for part in PARTS
        ]
        head = ("", *(f"{names[own.device]}, {own.precision}" for own in self.memory))
        title = "Memory" + (f" of each of {self.processes:,} processes" if several else "")
        return [title, *table(head, rows, indent=2)]

    def _gpus(self) -> list[str]:
        rows = []
        for gpu in self.gpus:
            time = "not known in fp32" if gpu.seconds is None else format_duration(gpu.seconds)
            fits = "fits" if gpu.fits else "does not fit"
            rows.append((gpu.name, time, f"{fits} in {format_bytes(gpu.memory)}"))
        title = (
            f"Time on {counted(self.processes, 'GPU')} at {100 * self.mfu:.0f} % of the"
            " peak in bf16, without evaluations and checkpoints"
        )
        return [title, *table((), rows, left=(0, 2), indent=2)]


# The share of the data sheet's peak that good trainers reach on one machine with A100 or H100:
# 38 to 43 % in Llama 3's training (Grattafiori et al. 2024, table 4).
MFU = 0.4


def forecast(
    shards: Path | None,
    out: Path,
    *,
    model: ModelConfig | str = "tiny",
    changes: dict[str, Any] | None = None,
    train: TrainConfig | None = None,
    resume: bool = True,
    processes: int = 1,
) -> Forecast:
    """Forecast a call of ``pretrain`` with these arguments. Raises the same ``LlmcurateError``."""
    plan, feed = make_plan(shards, model, train or TrainConfig(), changes)
    settings, device = plan.train, pick_device(plan.train.device)
    parts_of(settings, processes)
    start = start_from(plan, out / "checkpoints") if resume else None
    done = 0 if start is None else step_of(start)
    counted, (positions, _) = parts(plan.model), run_cost(plan.model, settings)
    _, flops = run_cost(plan.model, settings, done)
    if plan.teacher_start is not None:  # a forward pass is a third of a training step's operations
        flops += run_cost(plan.teacher_start.config, settings, done)[1] / 3
    memory = {kind: step_memory(plan, kind, processes) for kind in {device.type: 0, "cuda": 0}}
    half = precision(settings, "cuda") == "bf16"
    return Forecast(
        parameters=counted,
        steps=settings.steps,
        done=done,
        positions=positions,
        positions_per_parameter=positions / counted.total,
        flops=flops,
        data=feed.summary(),
        attention=layer_backends(plan.model, settings, device),
        processes=processes,
        memory=[OnDevice(kind, precision(settings, kind), own) for kind, own in memory.items()],
        mfu=MFU,
        gpus=[
            OnGpu(
                gpu.name,
                gpu.memory,
                memory["cuda"].peak <= gpu.memory,
                flops / (MFU * gpu.flops * processes) if half else None,
            )
            for gpu in GPUS
        ],
    )
