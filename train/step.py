"""One step: micro-batches forward and backward, clipping, the update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from train.config import TrainConfig
from train.data.rows import Batch, Sampler
from train.device import autocast
from train.distributed import Ranks, averaging, parallel
from train.losses import chunk_of, loss_sums
from train.model.decoder import Decoder
from train.optim.part import Optimizers
from train.optim.whole import whole

Allow = Callable[[float, float], bool]


class Objective(nn.Module):
    """Next-token prediction: sums of nats and of squared log normalisers over a batch's targets."""

    def __init__(self, model: Decoder, config: TrainConfig) -> None:
        super().__init__()
        self.model, self.squares = model, config.z_loss > 0
        self.chunk = chunk_of(model.config.vocab, config.loss_chunk)

    def forward(self, inputs: Tensor, targets: Tensor, documents: Tensor) -> tuple[Tensor, Tensor]:
        features = self.model.features(inputs, documents=documents)
        return loss_sums(
            features.flatten(0, 1),
            targets.flatten(),
            self.model.logits,
            chunk=self.chunk,
            squares=self.squares,
        )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a step was, on the device: nobody has waited for it. ``values``, float64: loss (nats a
    token), z-loss, norm of the gradient before clipping, tokens that counted. ``updated``: the
    weights were.
    """

    values: Tensor
    updated: bool = True


class Stepper:
    """Trains a model on a sampler's rows, one step at a time."""

    def __init__(
        self,
        model: Decoder,
        optimizer: Optimizers,
        sampler: Sampler,
        config: TrainConfig,
        ranks: Ranks,
    ) -> None:
        self.model, self.optimizer, self.sampler = model, optimizer, sampler
        self.config, self.ranks = config, ranks
        objective = Objective(model, config)
        if config.compile:
            # FSDP2's hooks run between blocks: those are compiled one by one.
            for part in model.blocks if config.parallel == "fsdp" else [objective]:
                part.compile()
        self.objective = parallel(objective, config, ranks)

    def batches(self, step: int) -> list[tuple[int, Batch]]:
        """This process's micro-batches, each with the place of its first row in the step."""
        rows = self.sampler.row_numbers(step)
        places = self.ranks.share(range(len(rows)))
        size = len(places) // self.config.accumulate
        return [
            (first, self.sampler.rows.batch(rows[first : first + size])) for first in places[::size]
        ]

    def step(self, step: int, rate: float, allow: Allow | None = None) -> Measured:
        """Train on the rows of ``step``. ``allow(loss, norm)``, if given, is asked before the
        weights change; that waits for the device.
        """
        config, device = self.config, self.ranks.device
        batches = self.batches(step)
        counted = torch.tensor(sum(batch.tokens for _, batch in batches), dtype=torch.float64)
        counted = self.ranks.total(counted.to(device))
        # Processes average their gradients. Of a step in which nothing counts the loss is 0.
        scale = self.ranks.count / counted.clamp(min=1)
        sums = torch.zeros(2, dtype=torch.float64, device=device)
        self.optimizer.zero_grad()
        for number, (first, batch) in enumerate(batches):
            # Dropout follows from (seed, step, row), whatever came before.
            torch.manual_seed(_seed(config.seed, step, first))
            with averaging(self.objective, self.model, number == len(batches) - 1):
                with autocast(device, config.precision):
                    nats, squares = self.objective(*_on(batch, device))
                loss = nats + config.z_loss * squares if config.z_loss else nats
                (loss * scale).backward()
            sums += torch.stack((nats.detach(), squares.detach()))
        sums = self.ranks.total(sums) / counted.clamp(min=1)
        norm = whole(nn.utils.clip_grad_norm_(self.model.parameters(), config.clip))
        sums[1] *= config.z_loss
        values = torch.cat((sums, norm.detach().double()[None], counted[None]))
        if allow is not None:
            loss_now, _, norm_now, _ = values.tolist()
            if not allow(loss_now, norm_now):
                return Measured(values=values, updated=False)
        self.optimizer.rate(rate)
        self.optimizer.step()
        return Measured(values=values)


def _on(batch: Batch, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    return (
        batch.inputs.to(device, non_blocking=True),
        batch.targets.to(device, non_blocking=True),
        batch.documents.to(device, non_blocking=True),
    )


def _seed(seed: int, step: int, row: int) -> int:
    """A seed of a generator for these three, SplitMix64's increments and finaliser."""
    x = seed * 0xD1342543DE82EF95 + step * 0x9E3779B97F4A7C15 + row * 0xBF58476D1CE4E5B9
    x %= 2**64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return (x ^ (x >> 31)) % 2**63
