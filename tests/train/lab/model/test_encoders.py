"""Encoders: what they see, what their blocks share, what their layers cost."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.data.feed_settings import MODEL
from train.measure.accounting import attended, flops_per_token, parameters
from train.model.decoder import Decoder
from train.model.presets import preset

BOTH = dataclasses.replace(MODEL, causal=False)


def test_tokens_see_all_of_their_document_and_nothing_else():
    model = Decoder(BOTH).eval()
    model.initialise(0)
    ids = torch.randint(BOTH.vocab, (1, 12), generator=torch.Generator().manual_seed(0))
    documents = torch.tensor([[0] * 7 + [1] * 5])
    seen = torch.zeros(12, 12, dtype=torch.bool)
    plain = model.features(ids, documents=documents)
    for place in range(12):
        other = ids.clone()
        other[0, place] = (other[0, place] + 1) % BOTH.vocab
        moved = (model.features(other, documents=documents) - plain).abs().amax(-1)[0] > 1e-7
        seen[:, place] = moved
    assert torch.equal(seen, documents[0][:, None] == documents[0][None])


def test_blocks_that_share_weights_are_one_block_repeated():
    shared = dataclasses.replace(BOTH, layers=4, share=2)
    model = Decoder(shared).eval()
    model.initialise(3)
    assert len(model.stack.blocks) == 2
    plain = Decoder(dataclasses.replace(BOTH, layers=4)).eval()
    state = {
        name.replace("blocks.0", f"blocks.{2 * k}").replace("blocks.1", f"blocks.{2 * k}"): value
        for name, value in model.state_dict().items()
        for k in [1 if "blocks.1" in name else 0]
    }
    state |= {
        name.replace(f"blocks.{layer}.", f"blocks.{layer + 1}."): value
        for layer in (0, 2)
        for name, value in state.items()
        if f"blocks.{layer}." in name
    }
    plain.load_state_dict(state)
    ids = torch.randint(BOTH.vocab, (2, 9), generator=torch.Generator().manual_seed(0))
    assert torch.equal(model(ids), plain(ids))


def test_a_block_that_runs_again_drops_other_numbers():
    config = dataclasses.replace(BOTH, layers=6, share=6, dropout=0.5)
    model = Decoder(config).train()
    seen: list[torch.Tensor] = []
    drop = model.stack.blocks[0].feed_forward_drop
    drop.register_forward_hook(lambda module, args, out: seen.append(out == 0))
    model(torch.zeros(1, 8, dtype=torch.long), draws=torch.tensor([5]))
    model(torch.zeros(1, 8, dtype=torch.long), draws=torch.tensor([5]))
    assert not torch.equal(seen[0], seen[5]) and torch.equal(seen[0], seen[6])


def test_costs_count_shared_blocks_once_in_size_and_each_time_in_work():
    shared = dataclasses.replace(BOTH, layers=4, share=4)
    alone = dataclasses.replace(BOTH, layers=1)
    plain = dataclasses.replace(BOTH, layers=4)
    assert parameters(shared) == parameters(alone) < parameters(plain)
    assert flops_per_token(shared, 32) == flops_per_token(plain, 32)
    assert parameters(shared) == sum(weight.numel() for weight in Decoder(shared).parameters())


@pytest.mark.parametrize(("context", "window"), [(10, 3), (10, 10), (7, 1), (9, 12), (9, None)])
def test_keys_that_are_seen_are_counted_to_both_sides(context, window):
    config = change(BOTH, {"attention.window": window}, "model")
    near = context if window is None else window
    count = sum(abs(i - j) < near for i in range(context) for j in range(context))
    assert attended(config, 0, context) == pytest.approx(count / context)


def test_layers_with_a_window_have_their_own_rotation():
    config = preset("modernbert-tiny")
    same = change(config, {"position.window_theta": config.position.theta}, "model")
    without = change(config, {"position.window_theta": None}, "model")
    models = [Decoder(one).eval() for one in (config, same, without)]
    for model in models:
        model.initialise(0)
    ids = torch.arange(100)[None]
    first, second, third = (model(ids) for model in models)
    assert torch.equal(second, third) and not torch.equal(first, second)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": 3}, r"share is 3: it must divide layers"),
        ({"norm": {"first": False, "place": "post"}}, r"norm\.first false with norm\.place post"),
        ({"causal": True, "head.pair": "next"}, r"head\.pair next with causal true"),
    ],
)
def test_impossible_combinations_are_a_one_line_error(changes, message):
    with pytest.raises(LlmcurateError, match=message):
        change(BOTH, changes, "model")
