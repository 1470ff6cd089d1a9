"""Masks filled by an encoder: the two methods on a model whose chances are known."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.roles import Roles
from llmcurate.base.settings import change
from tests.train.data.feed_settings import MODEL
from train.generate import Chooser, Filling, Sampling, candidates, fill, gibbs, mask_predict
from train.model.decoder import Decoder

MASK = 9


class Noted:
    """Logits that are written down, by place and by round; what was asked for is noted."""

    def __init__(self, *rounds: list[list[float]]) -> None:
        self.rounds, self.seen = [torch.tensor(r) for r in rounds], []

    def __call__(self, ids, places):
        logits = self.rounds[min(len(self.seen), len(self.rounds) - 1)]
        self.seen.append((ids.tolist(), places.tolist()))
        return logits[places.nonzero()[:, 1]]


def sure(*pairs: tuple[int, float]) -> list[list[float]]:
    """Logits of ten tokens by place: of each place a token and its chance."""
    rows = []
    for token, chance in pairs:
        row = [math.log((1 - chance) / 9)] * 10
        row[token] = math.log(chance)
        rows.append(row)
    return rows


def test_mask_predict_masks_the_least_sure_again_fewer_each_round():
    first = sure((1, 0.9), (2, 0.4), (3, 0.6), (4, 0.3))
    second = sure((5, 0.8), (6, 0.5), (7, 0.95), (8, 0.7))
    read = Noted(first, second, second, second)
    ids = torch.tensor([[MASK] * 4])
    filled = mask_predict(read, ids, torch.ones(1, 4, dtype=torch.bool), MASK, 4)
    # 4, 3, 2 and 1 of 4 places: all, then all but the surest, and so on by the chances then.
    places = [torch.tensor(seen[1][0]).nonzero()[:, 0].tolist() for seen in read.seen]
    assert places == [[0, 1, 2, 3], [1, 2, 3], [1, 3], [1]]
    assert filled.tolist() == [[1, 6, 7, 8]]
    assert read.seen[1][0] == [[1, MASK, MASK, MASK]] and ids.tolist() == [[MASK] * 4]


def test_one_round_takes_each_likeliest_token_at_once():
    read = Noted(sure((1, 0.9), (2, 0.4)))
    blank = torch.tensor([[False, True]])
    assert mask_predict(read, torch.tensor([[7, MASK]]), blank, MASK, 1).tolist() == [[7, 2]]
    assert len(read.seen) == 1


def test_gibbs_draws_from_the_chain_whose_conditionals_it_is_given():
    """Two places that agree with chance 0.8: so do samples of the chain."""

    def read(ids, places):
        (place,) = places[0].nonzero()[0].tolist()
        other = int(ids[0, 1 - place])
        chances = [0.5, 0.5] if other == MASK else [0.8, 0.2] if other == 0 else [0.2, 0.8]
        return torch.tensor([[math.log(chances[0]), math.log(chances[1])] + [-1e9] * 8])

    pairs = Counter()
    for number in range(600):
        chooser = Chooser(Sampling(temperature=1.0, top_k=0), 3, [number])
        blank = torch.ones(1, 2, dtype=torch.bool)
        filled = gibbs(read, torch.full((1, 2), MASK), blank, MASK, 3, [chooser])
        pairs[tuple(filled[0].tolist())] += 1
    both = [pairs[0, 0] / 600, pairs[1, 1] / 600]
    assert both == pytest.approx([0.4, 0.4], abs=0.06)


def encoder() -> Decoder:
    torch.manual_seed(0)
    model = Decoder(change(MODEL, {"causal": False}, "model")).eval()
    for weight in model.parameters():
        weight.data.normal_(0, 0.5)
    return model


@pytest.mark.parametrize("method", ["mask-predict", "gibbs"])
def test_a_text_is_filled_alike_alone_and_beside_others(method):
    model, mask = encoder(), 299
    texts = [[0, 5, mask, mask, 7], [0, mask, 3], [0, mask, mask, mask, mask, 8, mask]]
    filling, sampling = Filling(method=method, rounds=3), Sampling()
    together = fill(model, texts, mask, filling, sampling, seed=5, numbers=[0, 1, 2])
    for number, text in enumerate(texts):
        (alone,) = fill(model, [text], mask, filling, sampling, seed=5, numbers=[number])
        assert alone == together[number]
        assert mask not in alone and len(alone) == len(text)
        assert all(new == old for new, old in zip(alone, text, strict=True) if old != mask)
    again = fill(model, texts, mask, filling, sampling, seed=6, numbers=[0, 1, 2])
    assert (again == together) == (method == "mask-predict")  # which draws nothing


class Numbers:
    """A tokenizer whose tokens are numbers; [MASK] is 299."""

    def id_to_token(self, number):
        return "[MASK]" if number == 299 else str(number)

    def encode(self, text, add_special_tokens):
        return type("Encoding", (), {"ids": [int(word) for word in text.split()]})()

    def decode(self, ids):
        return " ".join(map(str, ids))

    def get_vocab(self, with_added_tokens):
        return {str(number): number for number in range(MODEL.vocab)}


def filler() -> Decoder:
    model = encoder()
    model.special = Roles(ends=(0,), mask=299)
    return model


def test_candidates_of_a_mask_are_the_likeliest_tokens_with_their_probabilities():
    model, ids = filler(), torch.tensor([[0, 5, 299, 299, 7]])
    found = candidates(model, Numbers(), "5 [MASK] [MASK] 7", 4)
    with torch.no_grad():
        logits = model.logits(model.features(ids, documents=torch.zeros_like(ids)))[0, 2:4]
    logits[:, 299] = -math.inf
    chances = logits.double().softmax(-1)
    for mask, theirs in zip(found, chances, strict=True):
        assert [each.id for each in mask] == theirs.argsort(descending=True)[:4].tolist()
        assert [each.probability for each in mask] == pytest.approx(
            theirs.sort(descending=True).values[:4].tolist(), rel=1e-4
        )
    once = fill(model, ids.tolist(), 299, Filling(rounds=1), Sampling(), seed=0, numbers=[0])
    assert once[0][2:4] == [mask[0].id for mask in found]


def test_candidates_without_a_mask_are_a_one_line_error():
    with pytest.raises(LlmcurateError, match=r"a prompt has no \[MASK\]"):
        candidates(filler(), Numbers(), "5 7", 4)
    with pytest.raises(LlmcurateError, match="needs an encoder"):
        candidates(Decoder(MODEL), Numbers(), "5 [MASK]", 4)


def test_prompts_that_cannot_be_filled_are_a_one_line_error():
    with pytest.raises(LlmcurateError, match=r"a text has 33 tokens .*context is 32"):
        fill(encoder(), [[299] * 33], 299, Filling(), Sampling(), seed=0, numbers=[0])
    with pytest.raises(LlmcurateError, match="method is 'beam': choose one of mask-predict, gibbs"):
        Filling(method="beam")
    with pytest.raises(LlmcurateError, match="rounds is 0"):
        Filling(rounds=0)
