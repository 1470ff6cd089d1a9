"""One training step: forward and backward over micro-batches, gradient clipping, the update."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from train.attention.choice import fix_for_compiler
from train.config import TrainConfig
from train.data.feed import Feed
from train.data.packing import mix64
from train.device import autocast
from train.loop.distributed import Ranks, exchanging, parallel, sum_head_gradients
from train.model.decoder import Decoder
from train.model.roles import roles
from train.objectives.example import Example, examples
from train.objectives.losses import Losses
from train.objectives.objectives import objective
from train.optim.optimizers import Optimizers
from train.runs.metrics import LAST, Measured
from train.split import clip

Allow = Callable[[float, float], bool]
Data = TypeVar("Data")


class Prefetcher(Generic[Data]):
    """A callable object that returns ``make(step)``. A thread computes the next step's result in
    advance, if that step is below ``last``. Any other step (after a rollback) is computed on
    request. An error in ``make`` is raised when its step is requested. Call it from one thread."""

    def __init__(self, make: Callable[[int], Data], last: int) -> None:
        self._make, self._last = make, last
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._early: tuple[int, Future[Data]] | None = None

    def __call__(self, step: int) -> Data:
        early, self._early = self._early, None
        if early is not None and early[0] == step:
            value = early[1].result()
        else:
            value = self._make(step)
        if step + 1 < self._last:
            self._early = (step + 1, self._pool.submit(self._make, step + 1))
        return value

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class Stepper:
    """Trainer of a model, one step at a time, on the rows that a sampler chooses."""

    def __init__(
        self,
        model: Decoder,
        optimizer: Optimizers,
        sampler: Feed,
        config: TrainConfig,
        ranks: Ranks,
        teacher: Decoder | None = None,
    ) -> None:
        self.model, self.optimizer, self.sampler = model, optimizer, sampler
        self.config, self.ranks = config, ranks
        losses = Losses(model, config, teacher, ranks.context_parallel)
        if config.compile:
            fix_for_compiler()
            # FSDP2's hooks run between blocks, so blocks are compiled one by one.
            apart = config.parallel == "fsdp"
            blocks = {block: None for stack in model.stacks for block in stack.blocks}
            for part in blocks if apart else [losses]:
                part.compile()
            for stack in model.stacks:
                stack.compiled = apart
        self.losses = parallel(losses, config, ranks)
        self.by_heads = [weight for _, weight, role in roles(model) if role.split == "heads"]
        self.objective = objective(config, sampler.vocabulary)
        self.objective.study(sampler)
        self.prefetched = Prefetcher(self.batches, config.steps)

    def close(self) -> None:
        self.prefetched.close()

    def batches(self, step: int) -> list[tuple[Example, Tensor | None]]:
        """Return this process's micro-batches, each with a dropout seed for each row (from the
        run's seed, the step and the row). For a GPU, the tensors are in pinned memory.
        """
        rows, config = self.sampler.numbered(step), self.config
        numbers = self.ranks.share(range(len(rows)))
        size = len(numbers) // config.accumulate
        micro_batches = []
        for first in numbers[::size]:
            part = rows[first : first + size]
            example = examples(self.objective, self.sampler.rows, part, seed=config.seed)
            draws = None
            if self.model.config.random:
                draws = torch.tensor([_seed(config.seed, step, first + n) for n in range(size)])
            if self.ranks.device.type == "cuda":
                example = example.pinned()
                draws = None if draws is None else draws.pin_memory()
            micro_batches.append((example, draws))
        return micro_batches

    def step(self, step: int, rate: float, allow: Allow | None = None) -> Measured:
        """Train on the rows of ``step``. No weight changes if ``allow(loss, norm)`` is False."""
        config, device = self.config, self.ranks.device
        batches = self.prefetched(step)
        counts: Counter[str] = Counter()
        for example, _ in batches:
            counts.update(example.counts)
        # Filled on the device: a copy from unpinned memory would make the CPU wait at every step.
        fill = partial(torch.full, (), dtype=torch.float64, device=device)
        # With context parallelism, each process that shares a row has counted the whole row.
        counted = {
            name: self.ranks.total(fill(count)) / self.ranks.context
            for name, count in counts.items()
        }
        # Gradients are averaged over processes. A step in which no token counts has loss 0.
        scales = {name: self.ranks.readers / n.clamp(min=1) for name, n in counted.items()}
        sums: dict[str, Tensor] = {}
        self.optimizer.zero_grad()
        for number, (example, draws) in enumerate(batches):
            with exchanging(self.losses, self.model, self.ranks, last=number == len(batches) - 1):
                seeds = None if draws is None else draws.to(device, non_blocking=True)
                with autocast(device, config.precision):
                    terms = self.losses(example.on(device), seeds)
                learned = [
                    term.sum * (scales[term.per] * term.weight)
                    for term in terms.values()
                    if term.weight
                ]
                sum(learned[1:], learned[0]).backward()
            for name, term in terms.items():
                value = term.sum.detach().double()
                sums[name] = sums[name] + value if name in sums else value
        loads = sums.pop("loads", None)
        names = [name for name in sums if name != "objective"]
        totals = self.ranks.total(torch.stack([sums[name] for name in names]))
        means = totals / torch.stack([counted[terms[name].per].clamp(min=1) for name in names])
        sum_head_gradients(self.by_heads, self.ranks)
        norm = clip(self.model.parameters(), config.clip)
        if loads is not None:  # experts
            loads = self.ranks.total(loads)
            names.append("load")
            means = torch.cat((means, (loads.amax(-1) / loads.mean(-1)).amax()[None]))
        last = torch.stack((norm.double().to(device), counted["targets"], counted["tokens"]))
        values = torch.cat((means, last))
        measured = Measured(names=(*names, *LAST), values=values, loads=loads)
        if allow is not None:
            figures_now = measured.figures()
            if not allow(figures_now["loss"], figures_now["grad_norm"]):
                return dataclasses.replace(measured, updated=False)
        self.optimizer.rate(rate)
        self.optimizer.step()
        if loads is not None:
            rebalance(self.model, loads)
        return measured


def rebalance(model: Decoder, loads: Tensor) -> None:
    """Update the routers' biases. ``loads`` [layers, experts]: the number of tokens assigned to
    each expert. The layers are those with experts, then those of multi-token prediction."""
    config = model.config
    blocks: list[Any] = [model.stack.blocks[n // config.share] for n in range(config.layers)]
    blocks += [module.block for module in model.mtp]
    mixtures = [part for block in blocks if hasattr(part := block.feed_forward, "rebalance")]
    for mixture, own in zip(mixtures, loads, strict=True):
        mixture.rebalance(own)


def _seed(seed: int, step: int, row: int) -> int:
    x = seed * 0xD1342543DE82EF95 + (step - 1) * 0x9E3779B97F4A7C15 + row * 0xBF58476D1CE4E5B9
    return int(mix64(np.array([x % 2**64], np.uint64))[0]) % 2**63
