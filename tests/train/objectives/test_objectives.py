from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import from_dict
from tests.train.data.feed_settings import MODEL
from train.config import TrainConfig
from train.data.rows import Piece
from train.data.vocabulary import Vocabulary
from train.model.decoder import Decoder
from train.objective_settings import Masked
from train.objectives.example import IGNORED, Draws
from train.objectives.objectives import objective, objective_for

SPANS = ((3, 0, 10), (4, 10, 31), (5, 31, 32))  # document, where it stands in the row


def pieces() -> list[Piece]:
    return [
        Piece(document=document, first=0, before=99, tokens=np.arange(start, end, dtype=np.int64))
        for document, start, end in SPANS
    ]


def learned(name: str):
    return objective(from_dict(TrainConfig, {"objective": name}, "test"), Vocabulary(size=100))


def example(name: str, seed: int = 0, epoch: int = 0, context: int = 40):
    return learned(name).example(pieces(), context, Draws(seed, epoch))


def test_causal_predicts_each_token_from_the_one_before_it():
    row = example("causal")
    assert row.prefix is None and row.counts == {"targets": 32, "tokens": 32}
    assert row.targets[0, :32].tolist() == list(range(32))
    assert row.inputs[0, :32].tolist() == [99, *range(9), 99, *range(10, 30), 99]
    assert row.documents[0, :32].tolist() == [3] * 10 + [4] * 21 + [5]
    assert (row.documents[0, 32:] == -1).all() and (row.targets[0, 32:] == IGNORED).all()


def test_the_tokens_of_a_source_are_read_too():
    row = example("causal")
    source = {"source": torch.zeros(1, 8), "source_documents": torch.tensor([[3] * 5 + [-1] * 3])}
    assert replace(row, **source).counts == {"targets": 32, "tokens": 32 + 5}


def test_across_documents_a_position_sees_what_stands_before_it_in_its_row():
    plain = example("causal")
    across = objective(
        from_dict(TrainConfig, {"objective": {"kind": "causal", "across": True}}, "test"),
        Vocabulary(size=100),
    ).example(pieces(), 40, Draws(0, 0))
    assert torch.equal(across.inputs, plain.inputs) and torch.equal(across.targets, plain.targets)
    assert (across.documents[0, :32] == 0).all() and (across.documents[0, 32:] == -1).all()
    model = Decoder(MODEL).eval()
    with torch.no_grad():
        apart, seen = (row.read_by(model)[0] for row in (plain, across))
    assert torch.allclose(apart[:10], seen[:10], atol=1e-6)  # of the first document
    assert not torch.allclose(apart[10:31], seen[10:31], atol=1e-3)


def test_tokens_that_do_not_count_are_read_and_not_scored():
    counted = np.array([True, False, True])
    piece = Piece(document=0, first=4, before=7, tokens=np.array([5, 6, 8]), counted=counted)
    row = learned("causal").example([piece], 4, Draws(0, 0))
    assert row.inputs.tolist() == [[7, 5, 6, 0]]
    assert row.targets.tolist() == [[5, IGNORED, 8, IGNORED]]


def test_a_prefix_begins_each_document_and_its_tokens_are_not_scored():
    plain, lengths = example("causal"), set()
    for epoch in range(300):
        row = example("prefix", epoch=epoch)
        assert row.prefix is not None
        for _, start, end in SPANS:
            inside = row.prefix[0, start:end].tolist()
            length = sum(inside)
            assert inside == [True] * length + [False] * (end - start - length)
            scored = (row.targets[0, start:end] != IGNORED).tolist()
            hidden = max(0, length - 1)
            assert scored == [False] * hidden + [True] * (end - start - hidden)
            lengths.add((start, length))
        assert not row.prefix[0, 32:].any()
        assert torch.equal(row.inputs, plain.inputs)
    assert {length for start, length in lengths if start == 10} == set(range(21))


def test_what_is_drawn_follows_from_seed_epoch_and_piece_and_nothing_else():
    drawn = [example("prefix", *key).prefix for key in ((0, 1), (0, 1), (0, 2), (1, 1))]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2]) and not torch.equal(drawn[0], drawn[3])
    alone = learned("prefix").example(pieces()[1:2], 21, Draws(0, 1))  # in another row
    assert torch.equal(alone.prefix[0], drawn[0][0, 10:31])


def test_a_strange_objective_is_refused():
    with pytest.raises(LlmcurateError, match=r"'mask': choose one of auto, .*causal, prefix"):
        learned("mask")
    with pytest.raises(LlmcurateError, match="'masked' for this model: choose one of auto, causal"):
        objective_for(MODEL, Masked())
