"""Replaced tokens: what a generator draws, what is asked of the discriminator, what both learn."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.lab.objectives.masked_examples import VOCABULARY, piece, put_back
from train.config import TrainConfig
from train.lab.objectives.masked import Replaced, insert_tokens, sampled
from train.measure.accounting import flops_per_token, matmul_parameters, parameters
from train.model.decoder import Decoder, name_in_whole_model
from train.model.heads import HeadWeights
from train.model.presets import preset
from train.objective_settings import Auto, Masked
from train.objective_settings import Replaced as Settings
from train.objectives.example import IGNORED, Draws, Example
from train.objectives.losses import Losses
from train.objectives.objectives import objective_for

SMALL = change(
    preset("electra-tiny"),
    {
        "vocab": 1003, "hidden": 32, "layers": 2, "context": 64, "feed_forward.width": 48,
        "attention": {"heads": 4, "kv_heads": 4, "head_dim": 8}, "embedding.size": 12,
        "generator.smaller": 2,
    },
    "model",
)  # fmt: skip
OBJECTIVE = Replaced(Settings(), VOCABULARY)


def rows() -> Example:
    pieces = [piece(40, document=0, start=5), piece(20, document=1, start=400)]
    row = OBJECTIVE.example(pieces, 64, Draws(1, 0))
    places = (row.targets.flatten() != IGNORED).nonzero().flatten()
    return dataclasses.replace(row, scored=places)


def model_of(config=SMALL) -> Decoder:
    model = Decoder(config)
    model.initialise(0)
    return model.double().train()


@given(seed=st.integers(0, 1000), count=st.integers(1, 40), chunk=st.integers(1, 50))
def test_a_token_is_drawn_by_its_number_whatever_is_drawn_beside_it(seed, count, chunk):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, generator=draw)
    weight, bias = torch.randn(17, 6, generator=draw), torch.randn(17, generator=draw)
    chances = torch.rand(count, generator=draw, dtype=torch.float64)
    tokens = sampled(x, HeadWeights(weight, bias), chances, chunk)
    shares = (x @ weight.T + bias).softmax(-1).numpy().astype(np.float64)
    for row, chance, token in zip(shares, chances.tolist(), tokens.tolist(), strict=True):
        ends = np.concatenate(([0.0], np.cumsum(row) / row.sum()))
        assert ends[token] - 1e-6 <= chance <= ends[token + 1] + 1e-6


def test_a_number_at_the_end_of_a_share_draws_the_next_token():
    chances = torch.tensor([0.0, 0.2499, 0.25, 0.5, 0.75, 0.9999, 1.0], dtype=torch.float64)
    tokens = sampled(torch.zeros(7, 4), HeadWeights(torch.eye(4), None), chances, 3)
    assert tokens.tolist() == [0, 0, 1, 2, 3, 3, 3]


def test_tokens_are_drawn_as_often_as_the_generator_thinks_them_likely():
    logits = torch.tensor([[0.0, 2.0, -1.0, 1.0]])
    chances = torch.from_numpy(Draws(0, 0).shares(piece(20_000), 20_000, 8))
    tokens = sampled(logits.expand(20_000, -1), HeadWeights(torch.eye(4), None), chances, 512)
    often = torch.bincount(tokens, minlength=4) / 20_000
    assert torch.allclose(often, logits.softmax(-1)[0], atol=0.01)


def test_all_that_is_hidden_is_shown_as_the_mask_and_can_be_put_back():
    row = rows()
    hidden = row.targets != IGNORED
    assert (row.inputs[hidden] == 1001).all() and int(hidden.sum()) == 9
    assert put_back(row)[0, 1:40].tolist() == list(range(5, 44))
    other = OBJECTIVE.example([piece(20, document=1, start=400)], 32, Draws(1, 0))
    assert torch.equal(other.chances[0, :20], row.chances[0, 40:60])  # wherever it stands


def test_a_token_that_is_drawn_as_it_was_is_not_replaced():
    row = rows()
    before, places = put_back(row).flatten(), row.scored
    ids, others = insert_tokens(row, places, before[places].where(torch.arange(9) % 2 == 0, 7))
    assert others.flatten()[places].tolist() == [False, True] * 4 + [False]
    assert int(others.sum()) == 4 and (ids == before.view_as(ids))[~others].all()


def test_the_losses_are_those_of_two_models_that_share_their_embeddings():
    model, row = model_of(), rows()
    terms = Losses(model, TrainConfig())(row)
    state = model.state_dict()
    small = Decoder(SMALL.generator_config).double()
    small.load_state_dict(
        {name: state[name_in_whole_model(name, small.config)] for name in small.state_dict()}
    )
    logits = small(row.inputs, documents=row.documents)[0]
    nats = F.cross_entropy(logits, row.targets[0], ignore_index=IGNORED, reduction="sum")
    assert torch.allclose(terms["objective"].sum, nats, rtol=1e-6)

    alone = Decoder(SMALL.trunk).double()
    alone.load_state_dict({name: state[name] for name in alone.state_dict()})
    drawn = sampled(
        logits[row.scored],
        HeadWeights(torch.eye(1003).double(), None),
        row.chances[0, row.scored],
        99,
    )
    ids = put_back(row).clone()
    others = ids[0, row.scored] != drawn
    ids[0, row.scored] = drawn
    told = alone.replaced(ids, documents=row.documents)[row.documents >= 0]
    labels = torch.zeros(64, dtype=torch.float64)
    labels[row.scored] = others.double()
    labels = labels[row.documents[0] >= 0]
    binary = F.binary_cross_entropy_with_logits(told, labels, reduction="sum")
    assert torch.allclose(terms["replaced"].sum, binary, rtol=1e-6)
    assert terms["replaced"].weight == 50 and terms["replaced"].per == "tokens"
    assert int(terms["replaced_accuracy"].sum) == int(((told > 0) == labels.bool()).sum())
    assert int(terms["replaced_share"].sum) == int(others.sum()) > 0


def test_the_discriminator_teaches_the_embedding_and_not_the_generator():
    model = model_of()
    Losses(model, TrainConfig())(rows())["replaced"].sum.backward()
    assert all(weight.grad is None for weight in model.generator.parameters())
    assert all(weight.grad is not None for weight in model.stack.blocks.parameters())
    assert model.embedding.weight.grad.any()


def test_dropout_of_the_generator_is_not_that_of_the_discriminator():
    config = change(SMALL, {"dropout": 0.5, "generator.smaller": 1}, "model")
    model = model_of(config)
    seen: list[torch.Tensor] = []
    model.drop.register_forward_hook(lambda module, args, out: seen.append(out == 0))
    draws = torch.tensor([5])
    model.features(rows().inputs, draws=draws)
    model.replaced(rows().inputs, draws=draws)
    assert not torch.equal(*seen)


def test_costs_are_those_of_both():
    trunk, small = SMALL.trunk, SMALL.generator_config
    shared = 1003 * 12 + 64 * 12 + 2 * 12 + 2 * 12  # tokens, positions, segments, norm
    assert parameters(SMALL) == parameters(trunk) + parameters(small) - shared
    assert parameters(SMALL) == sum(weight.numel() for weight in Decoder(SMALL).parameters())
    assert matmul_parameters(SMALL) == matmul_parameters(trunk) + matmul_parameters(small)
    both = flops_per_token(trunk, 32) + flops_per_token(small, 32)
    assert flops_per_token(SMALL, 32) == pytest.approx(both)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head.replaced": False}, r"generator without head\.replaced"),
        ({"generator.smaller": 3}, r"generator\.smaller is 3: it must divide hidden \(32\)"),
        ({"causal": True}, r"head\.replaced with causal true"),
        ({"head.tied": False}, r"generator with head\.tied false"),
    ],
)
def test_impossible_combinations_are_a_one_line_error(changes, message):
    with pytest.raises(LlmcurateError, match=message):
        change(SMALL, changes, "model")


def test_a_discriminator_alone_learns_nothing():
    assert objective_for(SMALL, Auto()) == objective_for(SMALL, Settings()) == Settings()
    with pytest.raises(LlmcurateError, match="needs a generator that replaces tokens"):
        objective_for(SMALL.trunk, Auto())
    with pytest.raises(
        LlmcurateError, match="'masked' for this model: choose one of auto, replaced"
    ):
        objective_for(SMALL, Masked())
