"""Held-out text: the same score for any number of processes, and as the objective has it."""

from __future__ import annotations

import math
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from tests.train.data.feed_settings import MODEL, PLAIN
from train.data.feed import Feed
from train.data.vocabulary import Vocabulary
from train.loop.distributed import Ranks
from train.loop.evaluate import OTHERS, Scoring, Sources, choose, evaluate, held_out_rows
from train.model.decoder import Decoder
from train.objective_settings import Causal, Prefix
from train.objectives.objectives import OBJECTIVES


class Apart(Ranks):
    """A process among several, whose parts of a sum are put aside."""

    summed: list

    def total(self, value):
        self.summed.append(value.clone())
        return value


def score(model, text, objective, ranks):
    how = Scoring(ranks, 2, "fp32")
    return evaluate(
        model, text, OBJECTIVES[objective](objective(), Vocabulary(size=MODEL.vocab)), how
    )


@pytest.fixture(scope="module")
def held_out(shard_folder):
    return held_out_rows(Feed(shard_folder, PLAIN), 4096, PLAIN.context)


@pytest.fixture(scope="module")
def model():
    model = Decoder(MODEL)
    model.initialise(0)
    return model


@pytest.mark.parametrize("count", [2, 3])
def test_processes_share_the_rows_out_and_their_number_changes_no_bit(held_out, model, count):
    one = score(model, held_out, Causal, Ranks(device=torch.device("cpu")))
    sums = []
    for rank in range(count):
        part = Apart(device=torch.device("cpu"), rank=rank, count=count)
        object.__setattr__(part, "summed", [])
        with suppress(LlmcurateError):  # a part alone may have scored nothing
            score(model, held_out, Causal, part)
        sums.append(part.summed)
    nats, tokens = (np.stack([each[n].numpy() for each in sums]) for n in (0, 1))
    assert ((nats != 0).sum(0) <= 1).all()  # each batch is one process's
    total = np.zeros(nats.shape[2])
    for batch in nats.sum(0):
        total += batch
    assert held_out.sources.score(total, tokens.sum((0, 1))) == one


def test_a_prefix_is_not_scored_and_its_bytes_are_not_counted(held_out, model):
    here = Ranks(device=torch.device("cpu"))
    whole, rest = (score(model, held_out, name, here) for name in (Causal, Prefix))
    assert 0 < rest.tokens < whole.tokens
    assert rest.documents == whole.documents
    assert rest.bytes / whole.bytes == pytest.approx(rest.tokens / whole.tokens, abs=0.01)
    assert rest.bits_per_byte == pytest.approx(
        rest.loss * rest.tokens / math.log(2) / rest.bytes, rel=1e-9
    )


@pytest.mark.parametrize("budget", range(13))
def test_a_document_that_exactly_fits_what_is_left_is_scored(budget):
    """Of 3, 4 and 5 tokens in any order: none that would fit is left, and one is scored always."""
    shards = SimpleNamespace(length=np.array([4, 9, 3, 5]))
    chosen = choose(shards, np.array([0, 2, 3]), budget).tolist()
    taken = int(shards.length[chosen].sum())
    left = [int(shards.length[n]) for n in (0, 2, 3) if n not in chosen]
    assert chosen == sorted(chosen) and 1 not in chosen
    assert chosen == [2] if budget < 3 else taken <= budget < taken + min(left, default=99)


@pytest.mark.parametrize(("count", "apart"), [(31, 31), (32, 32), (33, 31), (40, 31)])
def test_thirty_two_sources_are_scored_apart_and_of_more_the_largest(count, apart):
    """Equal ones by name."""
    names = [f"s{number:02d}" for number in range(count)]
    sources = Sources(names[::-1], np.full(count, 7), None)
    rest = [OTHERS] if count > apart else []
    assert sources.names == [*names[:apart], *rest]
    assert sources.codes[::-1].tolist() == [min(n, apart) for n in range(count)]
