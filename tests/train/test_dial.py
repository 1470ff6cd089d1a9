"""Planning a run from a budget: time, tokens or depth."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from llmcurate.base.errors import LlmcurateError, UsageError
from llmcurate.base.settings import from_dict, to_dict
from train.config import RunBudget, TrainConfig
from train.dial import LOCAL, Dial, Dialled, Machine, best_tokens, read_plan
from train.loop.memory import SAFE, step_memory
from train.measure.accounting import flops_per_token, matmul_parameters, parameters
from train.measure.describe import Memory, gpu
from train.model.config import ModelConfig
from train.runs.plan import Plan

LAPTOP = Machine(kind="cpu", name="2 CPU cores", memory=24e9)
H100 = gpu("H100")
assert H100 is not None
CARDS = Machine(kind="cuda", name="H100", memory=H100.memory, processes=8)


def seconds(speed: float) -> Any:
    """Return a measure of steps on a device that makes ``speed`` operations per second."""

    def measure(model: ModelConfig, train: TrainConfig) -> float:
        positions = train.rows * train.context
        return positions * flops_per_token(model, train.context) / speed

    return measure


def planned(
    budget: RunBudget, machine: Machine, speed: float, tokens: float = 1e12, **more: Any
) -> Dialled:
    values = {"vocab": 8192, "given": {}} | more
    return Dial(budget, machine, seconds(speed), tokens=int(tokens), **values).plan()


@cache
def on_cards() -> Dialled:
    assert H100 is not None
    return planned(RunBudget(time="20m"), CARDS, 0.4 * H100.flops, vocab=32_000)


@pytest.fixture
def linear_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick estimate of memory. The real one is tested beside it."""

    def estimate(plan: Plan, kind: str, processes: int) -> Memory:
        rows = plan.train.rows // processes // plan.train.accumulate
        peak = 16 * parameters(plan.model) + 20_000 * rows * plan.train.context
        return Memory(weights=0, gradients=0, optimizer=0, activations=0, peak=peak)

    monkeypatch.setattr("train.loop.memory.step_memory", estimate)


def of_plan(plan: Dialled) -> tuple[ModelConfig, TrainConfig]:
    return plan.model, from_dict(TrainConfig, plan.train, "plan")


@pytest.mark.usefixtures("linear_memory")
def test_a_longer_run_trains_a_larger_model_on_more_tokens_in_larger_batches() -> None:
    plans = [of_plan(planned(RunBudget(time=time), LAPTOP, 5e10)) for time in ("5m", "2h", "9h")]
    sizes = [parameters(model) for model, _ in plans]
    batches = [train.rows * train.context for _, train in plans]
    tokens = [train.steps * batch for (_, train), batch in zip(plans, batches, strict=True)]
    assert sizes == sorted(set(sizes))
    assert batches == sorted(set(batches))
    assert tokens == sorted(set(tokens))


def test_the_planned_steps_take_the_time_that_was_given() -> None:
    assert H100 is not None
    on_laptop = planned(RunBudget(time="30m"), LAPTOP, 5e10)
    for plan, speed, time in ((on_laptop, 5e10, 1800), (on_cards(), 8 * 0.4 * H100.flops, 1200)):
        model, train = of_plan(plan)
        cost = flops_per_token(model, train.context) * train.steps * train.rows * train.context
        assert cost / speed == pytest.approx(time, rel=0.1)


def test_eight_h100_get_a_plan_that_fits_them_and_suits_their_time() -> None:
    assert H100 is not None
    model, train = of_plan(on_cards())
    tokens = train.steps * train.rows * train.context
    assert train.compile and train.context == 2048
    assert train.rows % (8 * train.accumulate) == 0
    at_once = Plan(model=model, train=train, shards="")
    assert step_memory(at_once, "cuda", 8).peak < SAFE * H100.memory
    # nanochat's 8 to 12 tokens per parameter, and half a step between two depths.
    assert 6 < tokens / matmul_parameters(model) < 16


@pytest.mark.usefixtures("linear_memory")
def test_text_is_read_four_times_at_most_unless_more_is_asked_for() -> None:
    little = 2e6
    _, train = of_plan(planned(RunBudget(time="1h"), LAPTOP, 5e10, little))
    assert train.steps * train.rows * train.context <= 4.05 * little
    more = {"given": {"max_epochs": 9.0}}
    _, train = of_plan(planned(RunBudget(time="1h"), LAPTOP, 5e10, little, **more))
    assert 4.05 * little < train.steps * train.rows * train.context <= 9.05 * little
    _, train = of_plan(planned(RunBudget(tokens=int(3e7)), LAPTOP, 5e10, little))
    assert train.steps * train.rows * train.context == pytest.approx(3e7, rel=0.01)


@pytest.mark.usefixtures("linear_memory")
def test_a_depth_is_that_of_the_model_and_asks_for_the_tokens_that_suit_its_size() -> None:
    model, train = of_plan(planned(RunBudget(depth=6), LAPTOP, 5e10))
    assert (model.layers, model.hidden) == (6, 384)
    tokens = train.steps * train.rows * train.context
    assert tokens == pytest.approx(best_tokens(matmul_parameters(model)), rel=0.01)
    # Few for small models (docs/training.md), never more than Hoffmann et al.'s 20 a parameter.
    ratios = [best_tokens(size) / size for size in (10**6, 10**8, 10**9, 10**10, 10**12)]
    assert ratios[0] == pytest.approx(3) and 8 < ratios[1] < 12
    assert ratios == sorted(ratios) and ratios[-1] == 20


@pytest.mark.usefixtures("linear_memory")
def test_what_was_given_stays_and_the_rest_follows() -> None:
    given = {"rows": 12, "context": 64, "optimizer": "adamw", "lr": 0.1, "seed": 7}
    changes = {"attention.window": 32}
    plan = planned(RunBudget(time="10m"), LAPTOP, 5e10, given=given, changes=changes)
    model, train = of_plan(plan)
    assert {name: getattr(train, name) for name in given} == given
    assert model.attention.window == 32
    assert train.schedule == "wsd"


@pytest.mark.lab
@pytest.mark.usefixtures("linear_memory")
def test_a_named_model_is_trained_as_it_is() -> None:
    own, _ = of_plan(planned(RunBudget(time="10m"), LAPTOP, 5e10, model="bert-tiny"))
    assert not own.causal and own.vocab == 8192


@pytest.mark.usefixtures("linear_memory")
def test_a_small_memory_takes_fewer_rows_at_once_and_then_a_smaller_model() -> None:
    roomy, tight = (
        planned(RunBudget(time="10m"), dataclasses.replace(LAPTOP, memory=memory), 1e12)
        for memory in (24e9, 3e8)
    )
    assert tight.train["accumulate"] > roomy.train["accumulate"]
    with pytest.raises(UsageError, match="too little"):
        planned(RunBudget(depth=9), dataclasses.replace(LAPTOP, memory=2e8), 1e12)


def test_a_plan_is_read_as_it_was_written_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    given = {"seed": 3, "device": "cpu"}
    plan = planned(RunBudget(time="5m"), LAPTOP, 5e10, given=given)
    plan.write(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan
    assert plan.train["seed"] == 3
    assert not LOCAL & plan.train.keys()
    values = json.loads((tmp_path / "plan.json").read_text())
    for damaged in ("", "[]", json.dumps(values | {"train": {}}), "[" * 100_000):
        (tmp_path / "plan.json").write_text(damaged)
        with pytest.raises(LlmcurateError, match=r"plan\.json"):
            read_plan(tmp_path / "plan.json")


@pytest.mark.parametrize("text", ["", "5", "0s", "-1h", "1m2h", "soon"])
def test_a_time_needs_a_unit(text: str) -> None:
    with pytest.raises(UsageError, match="30m"):
        RunBudget(time=text)


def test_a_budget_is_a_time_or_tokens_not_both() -> None:
    with pytest.raises(UsageError, match="time or tokens"):
        RunBudget(time="5m", tokens=100)
    assert to_dict(RunBudget(time="5m")) == {"time": "5m", "tokens": None, "depth": None}
