"""Each way to choose a token against a few lines of plain Python."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from train.generate import GREEDY, Chooser, Sampling, penalise, probabilities

LOGITS = st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=1, max_size=12)


def spread(logits: torch.Tensor, how: Sampling) -> torch.Tensor:
    """The probability of every token of the vocabulary."""
    tokens, chances = probabilities(logits, how)
    return torch.zeros(logits.shape, dtype=torch.float64).scatter(-1, tokens, chances)


def softmax(values: list[float]) -> list[float]:
    top = max(values)
    powers = [math.exp(value - top) for value in values]
    return [power / sum(powers) for power in powers]


def plainly(values: list[float], how: Sampling) -> list[float]:
    """What ``probabilities`` says of one row."""
    values = [value / how.temperature for value in values]
    alive = set(range(len(values)))
    if how.top_k:
        least = sorted(values, reverse=True)[: how.top_k][-1]
        alive = {i for i in alive if values[i] >= least}
    chances = [c if i in alive else 0.0 for i, c in enumerate(softmax_of(values, alive))]
    if how.top_p < 1:
        total, kept = 0.0, set()
        for i in sorted(alive, key=lambda i: (-chances[i], i)):
            if total >= how.top_p:
                break
            kept.add(i)
            total += chances[i]
        alive = kept
    least = how.min_p * max(chances)
    alive = {i for i in alive if chances[i] >= least}
    total = sum(chances[i] for i in alive)
    return [chances[i] / total if i in alive else 0.0 for i in range(len(values))]


def softmax_of(values: list[float], alive: set[int]) -> list[float]:
    return softmax([value if i in alive else -1e9 for i, value in enumerate(values)])


@settings(deadline=None, max_examples=150)
@given(
    LOGITS,
    st.sampled_from([0.3, 1.0, 2.5]),
    st.integers(0, 5),
    st.sampled_from([0.05, 0.33, 0.61, 0.97, 1.0]),
    st.sampled_from([0.0, 0.13, 0.71]),
)
def test_probabilities_are_those_of_plain_python(values, temperature, top_k, top_p, min_p):
    how = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    actual = spread(torch.tensor([values, values[::-1]], dtype=torch.float64), how)
    assert actual[0].tolist() == pytest.approx(plainly(values, how), abs=1e-12)
    assert actual[1].tolist() == pytest.approx(plainly(values[::-1], how), abs=1e-12)


@given(LOGITS, st.lists(st.integers(0, 11), max_size=20), st.sampled_from([0.5, 1.0, 1.7]))
def test_a_penalty_lowers_what_the_text_holds_once(values, text, penalty):
    text = [token for token in text if token < len(values)]
    lowered = penalise(torch.tensor([values], dtype=torch.float64), [text], penalty)[0].tolist()
    for token, (new, old) in enumerate(zip(lowered, values, strict=True)):
        less = (old / penalty if old > 0 else old * penalty) if token in text else old
        assert new == pytest.approx(less)


def test_every_sampler_agrees_with_transformers():
    logits_process = pytest.importorskip("transformers.generation.logits_process")
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 50, generator=draw, dtype=torch.float64) * 3
    seen = torch.randint(50, (4, 9), generator=draw)
    how = Sampling(temperature=0.7, top_k=20, top_p=0.9, min_p=0.05, repetition_penalty=1.3)
    scores = logits_process.RepetitionPenaltyLogitsProcessor(1.3)(seen, logits)
    for step in (
        logits_process.TemperatureLogitsWarper(0.7),
        logits_process.TopKLogitsWarper(20),
        logits_process.TopPLogitsWarper(0.9),
        logits_process.MinPLogitsWarper(0.05),
    ):
        scores = step(seen, scores)
    actual = spread(penalise(logits, seen.tolist(), 1.3), how)
    torch.testing.assert_close(actual, scores.softmax(dim=-1))
    assert 1 < int((actual > 0).sum(dim=-1).max()) < 20


def test_draws_follow_the_probabilities_and_the_seed():
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    chooser = Chooser(Sampling(temperature=1.0), 5, [0])
    drawn = [chooser.choose(logits, [[]])[0] for _ in range(4000)]
    counts = Counter(drawn)
    for token, chance in enumerate(softmax(logits[0].tolist())):
        assert counts[token] / 4000 == pytest.approx(chance, abs=0.03)
    again = Chooser(Sampling(temperature=1.0), 5, [0])
    assert drawn[:50] == [again.choose(logits, [[]])[0] for _ in range(50)]


@pytest.mark.parametrize("how", [Sampling(top_k=7), Sampling(top_k=0, top_p=0.9, min_p=0.01)])
def test_a_draw_is_the_shortest_wait_of_all_tokens(how):
    """Exponential waits of the whole vocabulary, each divided by the token's probability."""
    logits = torch.randn(1, 400, generator=torch.Generator().manual_seed(3))
    chooser, draw = Chooser(how, 11, [0]), torch.Generator().manual_seed(11)
    chances, expected = spread(logits, how)[0].tolist(), []
    for _ in range(200):
        numbers = torch.rand(400, dtype=torch.float64, generator=draw).tolist()
        waits = [
            -math.log(1 - number) / chance if chance else math.inf
            for number, chance in zip(numbers, chances, strict=True)
        ]
        expected.append(waits.index(min(waits)))
    assert [chooser.choose(logits, [[]])[0] for _ in range(200)] == expected
    assert len(set(expected)) > 3


def test_a_text_draws_the_same_whatever_is_beside_it():
    logits = torch.randn(3, 100, generator=torch.Generator().manual_seed(1))
    together = Chooser(Sampling(), 7, [0, 1, 2]).choose(logits, [[], [], []])
    alone = [Chooser(Sampling(), 7, [n]).choose(logits[n : n + 1], [[]])[0] for n in range(3)]
    assert together == alone


def test_a_temperature_near_0_is_greedy():
    logits = torch.randn(1, 30, generator=torch.Generator().manual_seed(1))
    best = Chooser(GREEDY, 0, [0]).choose(logits, [[]])
    assert best == [int(logits.argmax())]
    for temperature in (1e-300, 1e-9):
        assert Chooser(Sampling(temperature=temperature), 3, [0]).choose(logits, [[]]) == best


def test_broken_logits_are_reported():
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(LlmcurateError, match="logits are not finite"):
            Chooser(Sampling(), 0, [0]).choose(torch.tensor([[0.0, value]]), [[]])


WRONG = [
    ("temperature", -0.1), ("temperature", math.nan), ("temperature", math.inf), ("top_k", -1),
    ("top_p", 0.0), ("top_p", 1.1), ("top_p", math.nan), ("min_p", 1.5), ("min_p", -0.1),
    ("repetition_penalty", 0.0), ("repetition_penalty", math.inf),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG, ids=[f"{n} {v}" for n, v in WRONG])
def test_a_wrong_value_names_itself(name, value):
    with pytest.raises(LlmcurateError, match=f"{name} is {value}"):
        Sampling(**{name: value})


def test_random_rows_of_a_large_vocabulary_stay_probabilities():
    draw = random.Random(0)
    for _ in range(20):
        how = Sampling(
            temperature=draw.choice([0.01, 1, 9]), top_k=draw.choice([0, 1, 40]),
            top_p=draw.choice([0.01, 0.5, 1]), min_p=draw.choice([0, 0.5, 1]),
        )  # fmt: skip
        actual = spread(torch.randn(2, 5000) * draw.choice([0.1, 30]), how)
        assert actual.sum(dim=-1).tolist() == pytest.approx([1, 1])
