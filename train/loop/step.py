"""One step: micro-batches forward and backward, clipping, the update."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from train.config import TrainConfig, stages_of
from train.data.feed import Feed
from train.data.rows import Batch
from train.loop.distributed import Ranks, autocast, averaging, parallel
from train.model.decoder import Decoder
from train.objectives.losses import Sums
from train.objectives.objectives import Example, objective
from train.optim.optimizers import Optimizers
from train.optim.weights import gather
from train.runs.metrics import Measured

Allow = Callable[[float, float], bool]
Data = TypeVar("Data")


class Ahead(Generic[Data]):
    """``make(step)`` in a thread, one step ahead of the caller, up to step ``last`` - 1.

    A step's data is a function of its number, so the order of making changes nothing: a step that
    was not foreseen, as after a rollback, is made when it is asked for. An error of ``make`` is
    raised where its step is asked for. One thread calls it; ``close`` ends the other.
    """

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
    """Trains a model on a sampler's rows, one step at a time."""

    def __init__(
        self,
        model: Decoder,
        optimizer: Optimizers,
        sampler: Feed,
        config: TrainConfig,
        ranks: Ranks,
    ) -> None:
        self.model, self.optimizer, self.sampler = model, optimizer, sampler
        self.config, self.ranks = config, ranks
        self.most_rows = max(stage.rows for stage in stages_of(config))
        sums = Sums(model, config)
        if config.compile:
            # FSDP2's hooks run between blocks: those are compiled one by one.
            for part in model.blocks if config.parallel == "fsdp" else [sums]:
                part.compile()
        self.sums = parallel(sums, config, ranks)
        self.objective = objective(config.objective)
        self.ahead = Ahead(self.batches, config.steps)

    def close(self) -> None:
        """End the thread that makes data."""
        self.ahead.close()

    def batches(self, step: int) -> list[tuple[int, Example]]:
        """This process's micro-batches, each with the number of its first row in the step; for a
        GPU in memory from which it copies while it computes.
        """
        rows = self.sampler.row_numbers(step)
        numbers = self.ranks.share(range(len(rows)))
        size = len(numbers) // self.config.accumulate
        return [
            (first, self.pinned(self.examples(rows[first : first + size], step, first)))
            for first in numbers[::size]
        ]

    def pinned(self, example: Example) -> Example:
        """For a GPU, in page-locked memory."""
        if self.ranks.device.type != "cuda":
            return example
        batch = example.batch
        return Example(
            batch=Batch(
                inputs=batch.inputs.pin_memory(),
                targets=batch.targets.pin_memory(),
                documents=batch.documents.pin_memory(),
            ),
            prefix=None if example.prefix is None else example.prefix.pin_memory(),
        )

    def examples(self, rows: list[int], step: int, first: int) -> Example:
        """Rows of a step as the objective has them. What it draws follows from a row's number, so
        that neither micro-batches nor processes change it.
        """
        batch, config = self.sampler.rows.batch(rows), self.config
        if config.objective == "causal":
            return self.objective(batch, config.seed, step)
        singles = [
            self.objective(_row(batch, row), config.seed, step * self.most_rows + first + row)
            for row in range(len(rows))
        ]
        prefixes = [example.prefix for example in singles if example.prefix is not None]
        batches = [example.batch for example in singles]
        return Example(
            batch=Batch(
                inputs=torch.cat([example.inputs for example in batches]),
                targets=torch.cat([example.targets for example in batches]),
                documents=torch.cat([example.documents for example in batches]),
            ),
            prefix=torch.cat(prefixes) if prefixes else None,
        )

    def step(self, step: int, rate: float, allow: Allow | None = None) -> Measured:
        """Train on the rows of ``step``. ``allow(loss, norm)``, if given, is asked before the
        weights change; that waits for the device.
        """
        config, device = self.config, self.ranks.device
        batches = self.ahead(step)
        # Filled there: a copy from ordinary memory would wait for the device at every step.
        counted = torch.full(
            (),
            sum(example.batch.tokens for _, example in batches),
            dtype=torch.float64,
            device=device,
        )
        counted = self.ranks.total(counted)
        # Processes average their gradients. Of a step in which nothing counts the loss is 0.
        scale = self.ranks.count / counted.clamp(min=1)
        totals = torch.zeros(3, dtype=torch.float64, device=device)
        self.optimizer.zero_grad()
        for number, (first, example) in enumerate(batches):
            # Dropout follows from (seed, step, row), whatever came before.
            torch.manual_seed(_seed(config.seed, step, first))
            with averaging(self.sums, self.model, number == len(batches) - 1):
                with autocast(device, config.precision):
                    loss, nats, squares = self.sums(*_on(example, device))
                (loss * scale).backward()
            totals[:2] += torch.stack((nats, squares))
            totals[2] += int((example.batch.documents >= 0).sum())
        totals = self.ranks.total(totals)
        means = totals[:2] / counted.clamp(min=1)
        norm = gather(nn.utils.clip_grad_norm_(self.model.parameters(), config.clip))
        means[1] *= config.z_loss
        values = torch.cat((means, norm.detach().double()[None], counted[None], totals[2:]))
        if allow is not None:
            loss_now, _, norm_now, _, _ = values.tolist()
            if not allow(loss_now, norm_now):
                return Measured(values=values, updated=False)
        self.optimizer.rate(rate)
        self.optimizer.step()
        return Measured(values=values)


def _row(batch: Batch, row: int) -> Batch:
    index = slice(row, row + 1)
    return Batch(
        inputs=batch.inputs[index], targets=batch.targets[index], documents=batch.documents[index]
    )


def _on(example: Example, device: torch.device) -> list[Tensor | None]:
    batch = example.batch
    parts = (batch.inputs, batch.targets, batch.documents, example.prefix)
    return [None if part is None else part.to(device, non_blocking=True) for part in parts]


def _seed(seed: int, step: int, row: int) -> int:
    """A seed of a generator for these three, SplitMix64's increments and finaliser."""
    x = seed * 0xD1342543DE82EF95 + step * 0x9E3779B97F4A7C15 + row * 0xBF58476D1CE4E5B9
    x %= 2**64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return (x ^ (x >> 31)) % 2**63
