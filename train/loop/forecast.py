"""What a run would take, before it begins: tokens, epochs, memory, operations, time. It refuses
what the run would refuse, and writes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from llmcurate.base.disk.units import counted, format_bytes, format_duration, format_scaled
from train.config import TrainConfig, stages_of
from train.device import computes_in, pick_device
from train.loop.backends import layer_backends
from train.loop.distributed import part_of, parts_of
from train.loop.pretrain import start_from
from train.loop.start import make_plan
from train.measure.accounting import parameters, parts, run_cost
from train.measure.describe import GPUS, Memory, training_memory
from train.model.config import ModelConfig
from train.objectives.losses import chunk_of
from train.runs.checkpoint import step_of
from train.runs.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under a title, and titles of the columns or none; ``left``: columns set to the left."""

    title: str
    rows: Sequence[tuple[str, ...]]
    head: tuple[str, ...] = ()
    left: tuple[int, ...] = (0,)


def forecast_tables(model: str, figures: dict[str, Any]) -> Iterator[Table]:
    """``model``: the name of the preset, or the folder."""
    yield _run(model, figures)
    yield _memory_table(figures["memory"], figures["processes"])
    yield _gpus(figures)


def _run(model: str, figures: dict[str, Any]) -> Table:
    data, ratio = figures["data"], figures["positions_per_parameter"]
    rows = []
    for stage in data["stages"]:
        shape = f"{stage['rows']:,} x {counted(stage['context'], 'token')}"
        rows.append((stage["name"], f"{counted(stage['steps'], 'step')} of {shape}"))
    rows.append(("tokens", f"{figures['positions']:,}, {ratio:.3g} a parameter"))
    for name, source in data["sources"].items():
        again = source["repeated_tokens"]
        of = f"{source['epochs']:.2f} epochs of {counted(source['unique_tokens'], 'token')}"
        rows.append((name, of + (f", {again:,} of them again" if again else "")))
    if figures["done"]:
        rows.append(("done", f"{counted(figures['done'], 'step')}; the rest is to come"))
    rows.append(("operations", f"{format_scaled(figures['flops'])}FLOP"))
    title = f"{model}: {figures['parameters']['total']:,} parameters"
    return Table(title=title, rows=rows, left=(0, 1))


def _memory_table(memory: list[dict[str, Any]], processes: int) -> Table:
    """Of one process, on each kind of device."""
    names = {"cpu": "CPU", "cuda": "GPU"}
    return Table(
        title="Memory" + (f" of each of {processes:,} processes" if processes > 1 else ""),
        head=("", *(f"{names[m['device']]}, {m['precision']}" for m in memory)),
        rows=[
            (kind, *(format_bytes(m[kind]) for m in memory))
            for kind in ("weights", "gradients", "optimizer", "activations", "peak")
        ],
    )


def _gpus(figures: dict[str, Any]) -> Table:
    """How long the operations take, and whether the memory is enough."""
    rows = []
    for gpu in figures["gpus"]:
        seconds = gpu["seconds"]  # None: in fp32, for which no peak is known
        time = "not known in fp32" if seconds is None else format_duration(seconds)
        fits = "fits" if gpu["fits"] else "does not fit"
        rows.append((gpu["name"], time, f"{fits} in {format_bytes(gpu['memory'])}"))
    return Table(
        title=(
            f"Time on {counted(figures['processes'], 'GPU')} at {100 * figures['mfu']:.0f} % of the"
            " peak in bf16, without evaluations and checkpoints"
        ),
        rows=rows,
        left=(0, 2),
    )


# Share of the data sheet's peak, which good trainers reach on one machine of A100 or H100: 38 to
# 43 % in Llama 3's own training (Grattafiori et al. 2024, table 4).
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
) -> dict[str, Any]:
    """As plain values, of what ``pretrain`` with these arguments would do in ``processes``; bytes,
    seconds, FLOPs. ``done``: the steps of the checkpoint in ``out`` that it would go on from; FLOPs
    and seconds are those of the other steps. Raises ``LlmcurateError`` as it would.
    """
    plan, feed = make_plan(shards, model, train or TrainConfig(), changes)
    settings, device = plan.train, pick_device(plan.train.device)
    parts_of(settings, processes)
    start = start_from(plan, out / "checkpoints") if resume else None
    done = 0 if start is None else step_of(start)
    counted, (positions, _) = parts(plan.model), run_cost(plan.model, settings)
    _, flops = run_cost(plan.model, settings, done)
    if plan.teaches is not None:  # it reads every token too, and learns nothing
        flops += run_cost(plan.teaches.config, settings, done)[1] / 3
    memory = {kind: _memory(plan, kind, processes) for kind in {device.type: 0, "cuda": 0}}
    half = _precision(settings, "cuda") == "bf16"
    return {
        "parameters": dataclasses.asdict(counted) | {"total": counted.total},
        "steps": settings.steps,
        "done": done,
        "positions": positions,
        "positions_per_parameter": positions / counted.total,
        "flops": flops,
        "data": feed.summary(),
        "attention": layer_backends(plan.model, settings, device),
        "processes": processes,
        "memory": [
            {
                "device": kind,
                "precision": _precision(settings, kind),
                **dataclasses.asdict(taken),
            }
            for kind, taken in memory.items()
        ],
        "mfu": MFU,
        "gpus": [
            {
                "name": gpu.name,
                "memory": gpu.memory,
                "fits": memory["cuda"].peak <= gpu.memory,
                "seconds": flops / (MFU * gpu.flops * processes) if half else None,
            }
            for gpu in GPUS
        ],
    }


def _precision(settings: TrainConfig, kind: str) -> str:
    """What matrix products would be in on such a device."""
    half = computes_in(torch.device(kind), settings.precision) == torch.bfloat16
    return "bf16" if half else "fp32"


def _memory(plan: Plan, kind: str, processes: int) -> Memory:
    """Of one process, in the stage that takes most. FSDP splits weights, gradients and the
    optimizer's state, which of ``offload`` are the host's; what it gathers of a block for a moment
    is not counted.
    """
    settings = plan.train
    parts, pieces = parts_of(settings, processes), settings.context_parallel
    shapes = {(s.rows // (parts * s.accumulate), s.context) for s in stages_of(settings)}
    stages = []
    for rows, context in shapes:
        memory = training_memory(
            part_of(plan.model, settings),
            rows=rows,
            context=context // pieces,
            precision=_precision(settings, kind),
            recompute=settings.recompute,
            optimizer=settings.optimizer,
            loss_chunk=chunk_of(plan.model.vocab, settings.loss_chunk, kind),
        )
        more = _gathered(plan, kind, rows * (context - context // pieces))
        activations, peak = memory.activations + more, memory.peak + more
        stages.append(dataclasses.replace(memory, activations=activations, peak=peak))
    most = max(stages, key=lambda memory: memory.peak)
    average = most.weights if settings.ema else 0
    share = parts * pieces // settings.replicas if settings.parallel == "fsdp" else 1
    weights, gradients, optimizer = (
        size // share for size in (most.weights + average, most.gradients, most.optimizer)
    )
    taught = 0 if plan.teaches is None else 4 * parameters(plan.teaches.config)  # whole, in fp32
    whole = most.weights + most.gradients + most.optimizer
    kept = 0 if settings.offload and kind == "cuda" else weights + gradients + optimizer
    return Memory(
        weights=weights + taught,
        gradients=gradients,
        optimizer=optimizer,
        activations=most.activations,
        peak=max(most.peak - whole, 0 if kept else most.activations) + kept + taught,
    )


def _gathered(plan: Plan, kind: str, tokens: int) -> int:
    """Bytes of the keys and values that a process gathers of so many tokens of others: of the
    blocks that are not recomputed, or of one.
    """
    own, every = part_of(plan.model, plan.train).attention, int(plan.train.recompute)
    heads = own.kv_heads if kind == "cuda" else own.heads  # on a CPU they are repeated
    blocks = plan.model.layers
    if every:
        blocks = max(1, blocks - -(-blocks // every))
    width = 2 if _precision(plan.train, kind) == "bf16" else 4
    return 2 * blocks * heads * own.head_dim * width * tokens
