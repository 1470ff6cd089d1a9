"""A training step never waits for the device."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext

import pytest
import torch

from tests.train.data.feed_settings import TWO_LAYERS
from train.config import TrainConfig
from train.data.feed import Feed
from train.loop.distributed import Ranks
from train.loop.training_step import Stepper
from train.model.decoder import Decoder
from train.objective_settings import Causal
from train.objectives import losses
from train.optim.optimizers import optimizers

TRAIN = TrainConfig(
    steps=3, rows=4, context=32, accumulate=2, z_loss=1e-4, loss_chunk=16, attention="sdpa"
)


class WithoutAutocast:
    """torch, for a device that has no autocast, not even one that is off."""

    def __getattr__(self, name):
        return getattr(torch, name)

    def is_autocast_enabled(self, device):
        return False

    def autocast(self, device, enabled):
        return nullcontext()


@pytest.fixture
def nowhere(monkeypatch):
    """A device on which whoever wants a number, as an ``if`` or ``.item()`` does, gets an error."""
    monkeypatch.setattr(losses, "torch", WithoutAutocast())
    return Ranks(device=torch.device("meta"))


def stepper(shards, ranks, settings):
    model = Decoder(TWO_LAYERS, attention=settings.attention).to(ranks.device)
    optimizer = optimizers(model, settings)
    settings = dataclasses.replace(settings, objective=Causal())
    return Stepper(model, optimizer, Feed(shards, settings), settings, ranks)


@pytest.mark.parametrize("optimizer", ["lion", "muon"])
def test_no_step_waits_for_the_device(optimizer, shard_folder, nowhere, monkeypatch):
    monkeypatch.setattr(  # AdamW wants a device that exists
        torch.optim, "AdamW", lambda groups, **more: torch.optim.SGD(groups, more["lr"])
    )
    ours = stepper(shard_folder, nowhere, dataclasses.replace(TRAIN, optimizer=optimizer))
    measured = [ours.step(step, 1e-3) for step in range(3)]
    ours.close()
    assert all(entry.updated and entry.values.is_meta for entry in measured)


def test_asking_before_the_update_does_wait(shard_folder, nowhere):
    ours = stepper(shard_folder, nowhere, dataclasses.replace(TRAIN, optimizer="lion"))
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        ours.step(0, 1e-3, lambda loss, norm: True)
    ours.close()
