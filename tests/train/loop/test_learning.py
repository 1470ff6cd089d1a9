"""A small model learns to copy, so attention works and does not only have the right shapes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from llmcurate.base.settings import change as changed
from train.model.attention_settings import Grouped
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.feed_forward_settings import Dense

VOCAB, PERIOD = 24, 12
SHAPE = ModelConfig(
    vocab=VOCAB,
    layers=2,
    hidden=64,
    context=32,
    attention=Grouped(heads=4, kv_heads=4, head_dim=16),
    feed_forward=Dense(width=128),
)


def repeated(draw: torch.Generator, rows: int, least: int) -> torch.Tensor:
    """Random tokens, again and again, with a period of ``least`` to 12 of their own a row."""
    whole = torch.randint(VOCAB, (rows, PERIOD), generator=draw)
    periods = torch.randint(least, PERIOD + 1, (rows, 1), generator=draw)
    return whole.gather(1, torch.arange(SHAPE.context) % periods)


def accuracy(model: Decoder, tokens: torch.Tensor) -> float:
    """After the first 13 tokens: by then all has been said once."""
    with torch.no_grad():
        guess = model(tokens[:, :-1])[:, PERIOD:].argmax(dim=-1)
    return float((guess == tokens[:, PERIOD + 1 :]).double().mean())


@pytest.mark.parametrize(
    ("change", "least", "wanted"),
    [
        ({}, PERIOD, 0.95),
        (
            {"norm.kind": "layer", "feed_forward.activation": "gelu", "position": "learned"},
            PERIOD,
            0.95,
        ),
        pytest.param({"position": "alibi"}, 5, 0.7, marks=pytest.mark.slow),
    ],
    ids=["copying", "copying, gpt-2", "induction, alibi"],
)
def test_two_layers_learn_to_repeat_what_came_before(change, least, wanted):
    """Copying: always so far back. Induction: the place must be found by what stands there, and
    whoever only knows which tokens a row has gets less than a fifth.
    """
    torch.set_num_threads(1)
    model, draw = Decoder(changed(SHAPE, change, "model")), torch.Generator().manual_seed(0)
    model.initialise(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.98), fused=True)
    held_out = repeated(torch.Generator().manual_seed(1), 64, least)
    assert accuracy(model, held_out) < 0.2
    for step in range(1000):
        tokens = repeated(draw, 16, least)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49 and accuracy(model, held_out) > wanted:
            break
    assert accuracy(model, held_out) > wanted
