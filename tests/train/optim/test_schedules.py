"""Learning rates: their shape, and how far they depend on the number of steps."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from train.config import Stage, TrainConfig
from train.optim.schedules import SCHEDULES, decay_begins, learning_rate, schedule

configs = st.builds(
    TrainConfig,
    steps=st.integers(1, 300),
    warmup=st.integers(0, 40),
    schedule=st.sampled_from(sorted(SCHEDULES)),
    lr=st.floats(1e-5, 1.0),
    lr_floor=st.floats(0, 1),
    decay=st.floats(0, 1),
)


def rates(config: TrainConfig) -> list[float]:
    return [learning_rate(config, step) for step in range(config.steps)]


@given(configs)
def test_the_first_rate_is_over_zero_and_none_is_over_lr_or_under_the_floor(config):
    learning_rates = rates(config)
    assert learning_rates[0] > 0
    assert max(learning_rates) <= config.lr * (1 + 1e-12)
    after = learning_rates[config.warmup :]
    assert all(rate >= config.lr * (config.lr_floor - 1e-12) for rate in after)
    assert after == sorted(after, reverse=True)


@given(configs)
def test_the_warmup_is_a_straight_line_to_lr(config):
    for step, rate in enumerate(rates(config)[: config.warmup]):
        assert rate == pytest.approx(config.lr * (step + 1) / config.warmup)


@given(configs, st.integers(2, 300))
def test_settled_rates_do_not_depend_on_the_number_of_steps(config, steps):
    config = dataclasses.replace(config, steps=max(2, config.steps))
    other = dataclasses.replace(config, steps=steps)
    fixed_steps = schedule(config.schedule).fixed_steps
    common = min(fixed_steps(config), fixed_steps(other), config.steps, steps)
    assert rates(config)[: int(common)] == rates(other)[: int(common)]


@pytest.mark.parametrize("name", ["cosine", "linear", "wsd", "wsd-sqrt"])
def test_the_last_rate_is_the_floor(name):
    config = TrainConfig(steps=50, warmup=5, schedule=name, lr=1.0, lr_floor=0.1)
    assert rates(config)[-1] == pytest.approx(0.1)


def test_each_schedule_has_its_shape():
    base = TrainConfig(steps=100, warmup=0, lr=1.0, lr_floor=0.0, decay=0.5)
    learning_rates = {name: rates(dataclasses.replace(base, schedule=name)) for name in SCHEDULES}
    assert set(learning_rates["constant"]) == {1.0}
    assert learning_rates["linear"][49] == pytest.approx(0.5)
    assert learning_rates["cosine"][49] == pytest.approx(0.5)
    assert learning_rates["cosine"][24] == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert learning_rates["wsd"][:50] == [1.0] * 50 and learning_rates["wsd"][74] == pytest.approx(
        0.5
    )
    assert learning_rates["wsd-sqrt"][74] == pytest.approx(1 - math.sqrt(0.5))
    assert learning_rates["inverse-sqrt"][24] == pytest.approx(1 / 5)


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("wsd", [0.5, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0]),
        ("wsd-sqrt", [0.5, 1, 1, 1, 1, 1, 0.5, 1 - 0.5**0.5, 1 - 0.75**0.5, 0]),
        ("linear", [0.5, 1, *(1 - n / 8 for n in range(1, 9))]),
        ("constant", [0.5, *[1] * 9]),
    ],
)
def test_the_first_and_the_last_step_of_each_part_have_their_rates(name, shares):
    """Two steps of warm-up, of which the second has the whole rate; four of decay, all below it."""
    config = TrainConfig(steps=10, warmup=2, schedule=name, lr=1.0, lr_floor=0.0, decay=0.4)
    assert rates(config) == pytest.approx(shares)


def test_the_decay_begins_after_the_warmup_whatever_its_share():
    assert decay_begins(TrainConfig(steps=100, decay=0.2)) == 80
    assert decay_begins(TrainConfig(steps=100, decay=1.0, warmup=30)) == 30
    assert decay_begins(TrainConfig(steps=100, decay=0.0)) == 99


def test_an_unknown_schedule_lists_the_known_names():
    with pytest.raises(
        LlmcurateError, match="schedule 'step': choose one of cosine, wsd"
    ) as caught:
        schedule("step")
    assert caught.value.exit_code == 2


def test_one_schedule_and_its_warm_up_go_over_all_stages_but_those_with_their_own():
    run = TrainConfig(steps=40, warmup=12, schedule="cosine", lr=1.0)
    stages = (Stage(steps=10), Stage(steps=20, lr=0.5), Stage(steps=10, schedule="linear"))
    staged = dataclasses.replace(run, stages=stages)
    for step in range(30):
        share = 1.0 if step < 10 else 0.5
        assert learning_rate(staged, step) == pytest.approx(share * learning_rate(run, step)), step
    own = TrainConfig(steps=10, warmup=0, schedule="linear", lr=1.0)
    for step in range(10):
        assert learning_rate(staged, 30 + step) == learning_rate(own, step)
