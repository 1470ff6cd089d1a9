"""The dial: all settings of a run from one budget (time, tokens or depth). The model's
size suits the tokens that the budget allows, at the speed that a trial measures on this device. The
plan is written before the first step. A resumed run reads it, so no later trial changes results.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from llmcurate.base.disk.files import write_atomic
from llmcurate.base.disk.process import host
from llmcurate.base.disk.sealed_json import encode_json, seal, unseal
from llmcurate.base.disk.units import (
    counted,
    format_bytes,
    format_duration,
    format_short,
    parse_duration,
)
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.settings import change, from_dict, refuse_if, to_dict
from train.config import MAX_DEPTH, RunBudget, TrainConfig
from train.data.feed import MAX_USEFUL_EPOCHS
from train.device import pick_device, same_bits
from train.loop.distributed import Ranks, parts_of
from train.loop.memory import SAFE, memory_of, smallest_accumulate
from train.loop.start import make_plan
from train.loop.training import Run
from train.measure.accounting import (
    TOKENS_PER_PARAMETER,
    flops_per_token,
    matmul_parameters,
    parameters,
)
from train.model.config import ModelConfig
from train.model.presets import PRESETS, preset
from train.recipe import default_model, default_training
from train.runs.plan import Plan

VERSION = 1
DEPTHS = (*range(1, 13), 14, 16, 18, 20, 24, 28, 32, 40, 48, MAX_DEPTH)
TRIALS, TRIAL_SECONDS = 3, 2.0
FIRST = {"cpu": (4, 16, 256), "cuda": (12, 32, 1024)}  # depth, rows and context of the first trial
# Bi et al. 2024 (DeepSeek LLM, arXiv 2401.02954), equation 1: the best batch, in tokens.
BATCH, BATCH_POWER = 0.2920, 0.3271
ROWS = 16  # fewest rows of a batch, unless the context is already the shortest
CONTEXTS = {"cpu": (128, 512), "cuda": (256, 2048)}  # shortest and longest
POINTS = 20  # most evaluations of a run, each with a checkpoint
ASIDE = 0.05  # largest share of a run's time for evaluations and checkpoints
DISK = 200e6  # bytes of a checkpoint written per second: low, so that time is left over
AROUND = 8.0  # seconds that a run's start and end take on two CPU cores
# Settings with paths or of this machine. A plan leaves them out, so that it can be used elsewhere.
LOCAL = frozenset({"sources", "stages", "eval", "teacher", "tokenizer", "device"})
# The best tokens per parameter in matrix products: about 3 at a million (docs/training.md, One
# budget), 8 to 12 at hundreds of millions with Muon (nanochat's base_train.py), at most Hoffmann et
# al.'s 20.
RATIO, RATIO_AT, RATIO_POWER = 3.0, 1e6, 0.25
STATE = 16  # bytes for a weight, its gradient and its state in AdamW, all in float32


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The device of each process: its kind, its name, and its memory in bytes."""

    kind: str
    name: str
    memory: float
    processes: int = 1


@dataclass(frozen=True, kw_only=True)
class Dialled:
    """A resolved plan: the model, settings of its training, and for each choice a reason, as
    [name, value, reason]."""

    model: ModelConfig
    train: dict[str, Any]
    reasons: list[list[str]]

    def lines(self) -> list[str]:
        """Return a line for each choice: its name, value and reason."""
        return [f"{name:<9}  {value}; {reason}" for name, value, reason in self.reasons]

    def write(self, path: Path) -> None:
        values = {"version": VERSION, **vars(self), "model": to_dict(self.model)}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, encode_json(seal(values)))


def read_plan(path: Path) -> Dialled:
    """Read the plan in a file. An ``LlmcurateError`` names the file."""
    try:
        values = unseal(json.loads(path.read_bytes()))
        model, train, reasons = values["model"], values["train"], values["reasons"]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except (ValueError, KeyError, RecursionError) as error:
        raise RunFailed(f"{path}: is not a plan, or was changed ({error})") from None
    model = from_dict(ModelConfig, model, str(path))
    return Dialled(model=model, train=train, reasons=reasons)


def best_tokens(parameters: int) -> float:
    """Return the best number of training tokens for a model of the default recipe.
    ``parameters``: the number of its weights in matrix products."""
    ratio = RATIO * (parameters / RATIO_AT) ** RATIO_POWER
    return parameters * min(TOKENS_PER_PARAMETER, ratio)


Measure = Callable[[ModelConfig, TrainConfig], float]


def trial(shards: Path | None, model: ModelConfig, train: TrainConfig) -> float:
    """Measure the seconds of a step, on the run's own text and device, in one process. A step is
    repeated for ``TRIAL_SECONDS``; the first one, which compiles and allocates, does not count."""
    plan, feed = make_plan(shards, model, train)
    device = pick_device(train.device)
    with tempfile.TemporaryDirectory() as folder, same_bits(device, train.deterministic):
        run = Run(plan, feed, Path(folder), Ranks(device=device))
        times: list[float] = []
        while sum(times[1:]) < TRIAL_SECONDS:
            began = time.perf_counter()
            run.stepper.step(len(times), 0.0).figures()  # waits for the device
            times.append(time.perf_counter() - began)
    return median(times[1:])


class Dial:
    """Finds the model and settings that suit a budget. ``tokens``: tokens in the training text.
    ``vocab``: size of vocabulary. ``given``: settings of training that the user has chosen.
    ``model``: the chosen preset, or None. ``changes``: changes to the model's settings.
    ``measure``: returns the seconds of a step in one process. In the methods, ``size`` is the
    model's number of layers, or 0, which stands for the chosen preset."""

    def __init__(
        self,
        budget: RunBudget,
        machine: Machine,
        measure: Measure,
        *,
        tokens: int,
        vocab: int,
        given: dict[str, Any],
        model: str | None = None,
        changes: dict[str, Any] | None = None,
    ) -> None:
        self.began = time.perf_counter()
        self.seconds = None if budget.time is None else parse_duration(budget.time)
        self.budget, self.machine, self.measure = budget, machine, measure
        self.given, self.model, self.changes = given, model, changes or {}
        self.distinct, self.vocab = tokens, vocab
        self.most = tokens * (given.get("max_epochs") or MAX_USEFUL_EPOCHS)
        self.speeds: dict[float, float] = {}  # operations per token -> operations per second
        self.sizes = [*DEPTHS] if budget.depth is None else [budget.depth]
        if model is not None:
            refuse_if(budget.depth is not None, "give depth or model")
            self.sizes = [0]

    def plan(self) -> Dialled:
        """Choose the settings of a run. Raises ``LlmcurateError`` if no model fits the memory."""
        first, rows, context = FIRST[self.machine.kind]
        size = first if first in self.sizes else self.sizes[0]
        chosen = self.given.get
        shape = {"rows": chosen("rows", rows), "context": chosen("context", context)}
        self._try(size, shape)
        while True:
            for _ in range(TRIALS - 1):
                size = self._best()
                if self._operations(size) in self.speeds:
                    break
                self._try(size, self._shape(size))
            shape = self._shape(size)
            config, tokens = self._config(size, shape["context"]), self._tokens(size)
            steps = max(1, int(tokens / (shape["rows"] * shape["context"])))
            every = self._every(size, steps)
            train = {
                **{"eval_every": every, "checkpoint_every": every},
                **self._settings(size, shape, steps),
            }
            plan = Plan(model=config, train=self._train(train), shards="")
            machine = self.machine
            how = machine.kind, machine.processes, machine.memory
            accumulate = smallest_accumulate(plan, *how)
            if accumulate is not None:
                break
            self.sizes = [smaller for smaller in self.sizes if smaller < size]
            if not self.sizes:
                raise UsageError(
                    f"{machine.name}: {format_bytes(machine.memory)} of memory are too little for"
                    " this model: give a smaller --depth or --context"
                )
        train = {"accumulate": accumulate} | train
        reasons = self._reasons(size, config, train)
        lasting = {name: value for name, value in train.items() if name not in LOCAL}
        return Dialled(model=config, train=lasting, reasons=reasons)

    def _config(self, size: int, context: int) -> ModelConfig:
        """Return the model of a size: the chosen preset or, without one, the default model with
        ``size`` layers."""
        if self.model is None:
            config = default_model(size, vocab=self.vocab, context=context)
        else:
            config = preset(self.model, vocab=self.vocab, context=context)
        return change(config, self.changes, "model")

    def _operations(self, size: int) -> float:
        """Return the operations per token of a model of this size in the longest context."""
        context = CONTEXTS[self.machine.kind][1]
        return flops_per_token(self._config(size, context), context)

    def _try(self, size: int, shape: dict[str, Any]) -> None:
        rows, operations = max(1, shape["rows"] // self.machine.processes), self._operations(size)
        if self.speeds:  # a step of about a second is long enough
            second = self._speed(size) / operations
            rows = min(rows, max(1, round(second / shape["context"])))
        train = self._train({**self._settings(size, shape), "rows": rows, "accumulate": 1})
        seconds = self.measure(self._config(size, shape["context"]), train)
        self.speeds[operations] = operations * rows * shape["context"] / seconds

    def _speed(self, size: int) -> float:
        """Return operations per second in one process, interpolated between measured sizes."""
        known = np.log(sorted(self.speeds.items()))
        return float(np.exp(np.interp(math.log(self._operations(size)), *known.T)))

    def _tokens(self, size: int) -> float:
        """Return the tokens that the budget allows for a size."""
        if self.seconds is not None:
            left = self.seconds - AROUND - (time.perf_counter() - self.began)
            return min(self.most, max(1.0, (1 - ASIDE) * left * self._rate(size)))
        if self.budget.tokens is not None:
            return self.budget.tokens
        return min(self.most, self._best_tokens(size))

    def _rate(self, size: int) -> float:
        """Return the tokens per second of all processes for a model of this size."""
        return self._speed(size) * self.machine.processes / self._operations(size)

    def _every(self, size: int, steps: int) -> int:
        """Return the number of steps between two evaluations, and between two checkpoints."""
        points = POINTS
        if self.seconds is not None:
            scored = self.given.get("eval_tokens", TrainConfig.eval_tokens) / 3  # no backward pass
            each = scored / self._rate(size) + STATE * self._parameters(size) / DISK
            points = min(POINTS, max(1, int(ASIDE * self.seconds / each)))
        return -(-steps // points)

    def _parameters(self, size: int) -> int:
        return parameters(self._config(size, CONTEXTS[self.machine.kind][1]))

    def _best_tokens(self, size: int) -> float:
        return best_tokens(matmul_parameters(self._config(size, CONTEXTS[self.machine.kind][1])))

    def _best(self) -> int:
        """Return the model size whose training tokens within the budget, at the known speeds, are
        nearest to ``best_tokens`` for this size. Only sizes whose weights fit the memory count."""
        room = SAFE * self.machine.memory
        fit = [size for size in self.sizes if STATE * self._parameters(size) < room]

        def distance(size: int) -> float:
            return abs(math.log(self._tokens(size) / self._best_tokens(size)))

        return min(fit, key=distance, default=self.sizes[0])

    def _shape(self, size: int) -> dict[str, Any]:
        """Return the rows and the context of a batch for a model of this size."""
        wanted = BATCH * (self._tokens(size) * self._operations(size)) ** BATCH_POWER
        least, most = CONTEXTS[self.machine.kind]
        context = min(most, max(least, 2 ** int(math.log2(wanted / ROWS))))
        context = self.given.get("context", context)
        parts = parts_of(self._train({"rows": self.machine.processes}), self.machine.processes)
        rows = parts * max(1, round(wanted / context / parts))
        return {"context": context, "rows": self.given.get("rows", rows)}

    def _settings(self, size: int, shape: dict[str, Any], steps: int = 1000) -> dict[str, Any]:
        """Return settings for a training run of ``steps`` steps. ``shape`` has the rows and the
        context of a batch, as ``_shape`` returns them."""
        layers = self._config(size, shape["context"]).layers
        epochs = steps * shape["rows"] * shape["context"] / self.distinct
        return {
            **default_training(steps=steps, depth=layers, epochs=epochs),
            **({"compile": True} if self.machine.kind == "cuda" else {}),
            **shape,
            "steps": steps,
            **self.given,
        }

    def _train(self, values: dict[str, Any]) -> TrainConfig:
        return from_dict(TrainConfig, {**self.given, **values}, "plan")

    def _reasons(self, size: int, config: ModelConfig, train: dict[str, Any]) -> list[list[str]]:
        """Return (name, value, reason) for each choice, to print before the run."""
        machine, given = self.machine, self.given
        batch = train["rows"] * train["context"]
        tokens = train["steps"] * batch
        rate = self._rate(size)
        speed = f"{format_short(rate)} tokens/s"
        rule = f"tokens per weight: {tokens / matmul_parameters(config):.2g}"
        if "steps" in given or self.budget.tokens is not None:
            amount = "as given"
        elif tokens > self.most - batch:
            amount = "more epochs teach little"
        else:
            amount = rule if self.seconds is None else f"{self.budget.time} at {speed}, measured"
        layers = f"{counted(config.layers, 'layer')} of {config.hidden}"
        rows = f"{counted(train['rows'], 'row')} of {counted(train['context'], 'token')}"
        at_once = train["rows"] // train["accumulate"]
        memory = format_bytes(machine.memory)
        fit = (
            f"{counted(at_once, 'row')} at once" if at_once < train["rows"] else "all rows at once"
        )
        devices = f"{machine.processes} x " if machine.processes > 1 else ""
        rates = f"{train['optimizer']}, {train['schedule']}, lr {train['lr']:.3g}"
        kept = ", ".join(f"{name}={given[name]}" for name in given if name not in LOCAL)
        return [
            [
                "model",
                f"{layers}, {format_short(parameters(config))} parameters",
                rule if len(self.sizes) > 1 else "as given",
            ],
            ["tokens", f"{format_short(tokens)}, {tokens / self.distinct:.2g} epochs", amount],
            ["batch", rows, "grows with the operations of the run"],
            [
                "steps",
                f"{train['steps']:,}",
                f"{format_duration(tokens / rate)} without evaluations",
            ],
            ["optimizer", rates, "the default recipe"],
            ["device", devices + machine.name, f"{fit} fit {memory}"],
            *([["given", kept, "kept"]] if kept else []),
        ]


def dial(
    shards: Path | None,
    budget: RunBudget,
    *,
    given: dict[str, Any],
    model: str | None = None,
    changes: dict[str, Any] | None = None,
    processes: int = 1,
) -> Dialled:
    """Plan a run on the shards, or on the sources in ``given``, for a budget. ``given`` are chosen
    settings of ``TrainConfig``, ``model`` is a chosen preset, ``changes`` are changes to the model.
    Raises ``LlmcurateError``, as ``pretrain`` would."""
    if model is not None and model not in PRESETS and Path(model).is_dir():
        raise UsageError(f"{model} is trained already: give --steps to train it further")
    refuse_if("steps" in given and budget.depth is None, "give steps, or a time or tokens")
    train = from_dict(TrainConfig, given, "pretrain")
    _, feed = make_plan(shards, model or "tiny", train)
    sources = feed.summary().sources.values()
    device = pick_device(train.device)
    of_gpu = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if of_gpu else counted(host().cores, "CPU core")
    search = Dial(
        budget,
        Machine(kind=device.type, name=name, memory=memory_of(device), processes=processes),
        partial(trial, shards),
        tokens=sum(source.unique_tokens for source in sources),
        vocab=feed.vocabulary.size,
        given=given,
        model=model,
        changes=changes,
    )
    return search.plan()
