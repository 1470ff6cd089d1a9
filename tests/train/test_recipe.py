"""The default recipe: sizes of its models, and its settings of training."""

from __future__ import annotations

import pytest
import torch

from train.config import TrainConfig
from train.hf.families import family_of
from train.loop.pretrain import pretrain
from train.measure.accounting import parameters
from train.model.decoder import Decoder
from train.optim.schedules import decay_begins, learning_rate
from train.recipe import default_model, default_rate, default_training


@pytest.mark.parametrize("depth", [1, 4, 12, 16, 17, 32])
def test_a_default_model_has_the_weights_of_its_matrices_and_norms(depth):
    model = default_model(depth, vocab=1000, context=128)
    hidden, own = 64 * depth, model.attention
    width = model.feed_forward.width
    assert 0 <= width - 8 * hidden / 3 < 64 and width % 64 == 0
    assert own.heads * own.head_dim == hidden == model.hidden
    layer = 4 * hidden**2 + 3 * hidden * width + 2 * hidden
    assert parameters(model) == depth * layer + hidden + 2 * 1000 * hidden
    assert (model.vocab, model.context, model.layers) == (1000, 128, depth)


@pytest.mark.parametrize("depth", [2, 12, 20])
def test_a_default_model_can_be_exported(depth):
    assert family_of(default_model(depth, vocab=1000, context=128)).name == "llama"


@pytest.mark.parametrize("steps", [2, 10, 400, 100_000])
def test_the_rate_rises_stays_and_falls_within_the_steps(steps):
    config = TrainConfig(steps=steps, **default_training(steps=steps, depth=4))
    begins = decay_begins(config)
    assert 1 <= config.warmup <= begins + 1 and begins < steps
    rates = [learning_rate(config, step) for step in (0, config.warmup - 1, begins, steps - 1)]
    assert 0 < rates[0] <= rates[1] == config.lr
    if steps > 2:
        assert rates[2] < config.lr and rates[3] == pytest.approx(config.lr * config.lr_floor)


def test_the_head_learns_a_repeated_text_at_half_the_rate():
    once, often = (default_training(steps=10, epochs=n) for n in (2, 2.5))
    assert often.pop("head_rate") == once.pop("head_rate") / 2
    assert often == once


def test_an_update_moves_a_wider_matrix_by_the_same_share():
    wide, narrow = default_rate(16), default_rate(4)
    assert wide * (64 * 16) ** 0.5 == pytest.approx(narrow * (64 * 4) ** 0.5)


def test_the_default_learns_more_of_the_same_tokens_than_adamw(shard_folder, tmp_path):
    steps = 40
    size = {"rows": 4, "context": 32, "steps": steps}
    losses = {}
    for name, settings in (("adamw", {}), ("default", default_training(steps=steps, depth=1))):
        summary = pretrain(
            shard_folder,
            tmp_path / name,
            model=default_model(1, vocab=300, context=32),
            train=TrainConfig(**size, **settings),
        )
        losses[name] = summary["held_out_loss"]
    assert losses["default"] < losses["adamw"] - 0.1


def test_the_first_loss_is_that_of_chance_and_embeddings_have_their_deviation():
    config = default_model(2, vocab=1000, context=32)
    model = Decoder(config)
    model.initialise(0)
    assert float(model.embedding.weight.detach().std()) == pytest.approx(0.8, rel=0.02)
    assert not model(torch.arange(32)[None]).any()
