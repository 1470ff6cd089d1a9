"""Batches prepared ahead are the ones that each step asks for."""

from __future__ import annotations

import threading

import pytest

from train.loop.training_step import Prefetcher


@pytest.fixture
def maker():
    calls: list[tuple[int, str]] = []

    def make(step: int) -> str:
        calls.append((step, threading.current_thread().name.split("_")[0]))
        if step == 3:
            raise ValueError("step three")
        return f"data {step}"

    make.calls = calls
    return make


def test_steps_come_in_order_and_one_ahead(maker):
    ahead = Prefetcher(maker, 3)
    assert [ahead(step) for step in range(3)] == ["data 0", "data 1", "data 2"]
    ahead.close()
    assert [step for step, _ in maker.calls] == [0, 1, 2]
    assert [name for _, name in maker.calls] == ["MainThread", "ahead", "ahead"]


def test_a_step_that_was_not_foreseen_is_made_on_the_spot(maker):
    ahead = Prefetcher(maker, 3)
    assert [ahead(step) for step in (0, 1, 0, 1, 2)] == [f"data {k}" for k in (0, 1, 0, 1, 2)]
    ahead.close()


def test_an_error_comes_through_at_its_own_step(maker):
    ahead = Prefetcher(maker, 9)
    assert ahead(2) == "data 2"
    with pytest.raises(ValueError, match="step three"):
        ahead(3)
    assert ahead(4) == "data 4"
    ahead.close()


def test_prefetch_prepares_one_step_ahead_while_training_works():
    begun = threading.Event()

    def make(step: int) -> int:
        if step == 1:
            begun.set()
        return step

    ahead = Prefetcher(make, 5)
    assert ahead(0) == 0 and begun.wait(10)
    ahead.close()
