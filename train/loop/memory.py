"""The memory of a training step: its estimate, and what to change when it is exhausted."""

from __future__ import annotations

import dataclasses
import math
import re
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from llmcurate.base.disk.process import host
from llmcurate.base.disk.units import counted, format_bytes
from llmcurate.base.errors import RunFailed
from train.config import TrainConfig, stages_of
from train.device import computes_in, pick_device
from train.loop.distributed import parts_of, tensor_share
from train.measure.accounting import parameters
from train.measure.describe import Memory, training_memory
from train.model.presets import preset
from train.objectives.losses import chunk_of
from train.runs.plan import Plan

SAFE = 0.85  # largest share of a device's memory for an estimate, which leaves out up to 20 %
_EXHAUSTED = re.compile("out of memory|allocate memory")  # PyTorch's words on a GPU, on a CPU


@contextmanager
def naming_memory(plan: Plan, device: torch.device, processes: int) -> Iterator[None]:
    """Turn an error of exhausted memory into a ``RunFailed`` that says what would fit."""
    try:
        yield
    except RuntimeError as error:  # includes torch.OutOfMemoryError
        if not _EXHAUSTED.search(str(error)):
            raise
        raise RunFailed(_what_fits(plan, device, processes)) from error


def memory_of(device: torch.device) -> int:
    """Return the memory of a device in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return host().memory


def smallest_accumulate(
    plan: Plan, kind: str, processes: int, total: float, least: int = 1
) -> int | None:
    """Return the smallest number of micro-batches per step, at least ``least``, with which a
    process's estimated memory fits a device of ``total`` bytes, or None if no number does."""
    settings = plan.train
    parts = parts_of(settings, processes)
    common = math.gcd(*(stage.rows // parts for stage in stages_of(settings)))
    numbers = [number for number in range(least, common + 1) if common % number == 0]

    def fits(number: int) -> bool:
        part = dataclasses.replace(settings, accumulate=number)
        whole = dataclasses.replace(plan, train=part)
        return step_memory(whole, kind, processes).peak < SAFE * total

    # An estimate takes seconds. Often the first number fits; else, smaller parts need less memory.
    first = 0 if numbers and fits(numbers[0]) else bisect_left(numbers, True, 1, key=fits)
    return numbers[first] if first < len(numbers) else None


def in_parts(model: str, settings: TrainConfig, processes: int) -> TrainConfig:
    """Return the settings with the fewest micro-batches, at most one per row, for which the preset
    ``model`` fits the device. Activations are estimated for one row and multiplied by the number of
    rows, because a direct estimate for thousands of rows takes minutes."""
    device, parts = pick_device(settings.device), parts_of(settings, processes)
    config = preset(model, context=settings.context)
    single = dataclasses.replace(settings, rows=parts, accumulate=1)
    one = step_memory(Plan(model=config, train=single, shards=""), device.type, processes)
    room, own = SAFE * memory_of(device) - one.peak, max(1, settings.rows // parts)
    most = 1 + max(0, room) // one.activations
    numbers = (number for number in range(1, own + 1) if own % number == 0)
    fewest = next(number for number in numbers if own // number <= most)
    return dataclasses.replace(settings, accumulate=fewest)


def _what_fits(plan: Plan, device: torch.device, processes: int) -> str:
    """Return an error line with the largest micro-batch that fits by the estimate."""
    settings, total = plan.train, memory_of(device)
    most = max(stage.rows for stage in stages_of(settings)) // parts_of(settings, processes)
    shape = f"{most // settings.accumulate:,} x {counted(settings.context, 'token')} at once"
    failed = f"the memory of {device}, {format_bytes(total)}, is too small for {shape}"
    more = smallest_accumulate(plan, device.type, processes, total, settings.accumulate + 1)
    if more is None:
        return (
            f"{failed}, and smaller parts do not fit: set recompute, a shorter --context or a"
            " smaller model"
        )
    less = dataclasses.replace(plan, train=dataclasses.replace(settings, accumulate=more))
    peak = step_memory(less, device.type, processes).peak
    fits = f"{counted(most // more, 'row')} at once: about {format_bytes(peak)}"
    return f"{failed}: --set accumulate={more} trains on the same rows in parts; {fits}"


def precision(settings: TrainConfig, kind: str) -> str:
    """Return bf16 or fp32, the dtype in which a device of this kind ("cpu", "cuda") computes."""
    half = computes_in(torch.device(kind), settings.precision) == torch.bfloat16
    return "bf16" if half else "fp32"


def step_memory(plan: Plan, kind: str, processes: int) -> Memory:
    """Return the memory of one process, in bytes, in the stage that needs most. The estimate leaves
    out the weights of the whole block that FSDP gathers for a moment.
    """
    settings = plan.train
    parts, pieces = parts_of(settings, processes), settings.context_parallel
    shapes = {(s.rows // (parts * s.accumulate), s.context) for s in stages_of(settings)}
    stages = []
    for rows, context in shapes:
        memory = training_memory(
            tensor_share(plan.model, settings),
            rows=rows,
            context=context // pieces,
            precision=precision(settings, kind),
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
    teacher = plan.teacher_start
    taught = 0 if teacher is None else 4 * parameters(teacher.config)  # in fp32, not split
    whole = most.weights + most.gradients + most.optimizer
    resident = 0 if settings.offload and kind == "cuda" else weights + gradients + optimizer
    return Memory(
        weights=weights + taught,
        gradients=gradients,
        optimizer=optimizer,
        activations=most.activations,
        peak=max(most.peak - whole, 0 if resident else most.activations) + resident + taught,
    )


def _gathered(plan: Plan, kind: str, tokens: int) -> int:
    own, every = tensor_share(plan.model, plan.train).attention, int(plan.train.recompute)
    heads = own.kv_heads if kind == "cuda" else own.heads  # on a CPU they are repeated
    blocks = plan.model.layers
    if every:
        blocks = max(1, blocks - -(-blocks // every))
    width = 2 if precision(plan.train, kind) == "bf16" else 4
    return 2 * blocks * heads * own.head_dim * width * tokens
