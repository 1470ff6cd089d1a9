"""Shares, bounds and quotas: exact, in any order of arrival."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.mix.design import Request, clamped, design, quotas, tempered
from curate.mix.published import (
    DOLMA,
    GPT3,
    LLAMA1,
    LLAMA1_TOKENS,
    MASSIVETEXT,
    PILE,
    PRESETS,
    preset_weights,
)
from llmcurate.base.errors import UsageError

SIZES = st.lists(st.integers(1, 10**6), min_size=1, max_size=8)


def by_name(values):
    return {f"s{i}": v for i, v in enumerate(values)}


def shuffled(values, seed):
    pairs = list(values.items())
    random.Random(seed).shuffle(pairs)
    return dict(pairs)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=9), st.integers(0, 10**15), st.integers()
)
def test_quotas_add_up_and_each_is_within_one_of_its_share_in_any_order(shares, total, seed):
    if not any(shares):
        shares[0] = 1
    given_ = by_name(shares)
    amounts = quotas(given_, total)
    assert sum(amounts.values()) == total
    for name, share in given_.items():
        assert abs(amounts[name] - Fraction(share * total, sum(shares))) < 1
    assert quotas(shuffled(given_, seed), total) == amounts


@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_equal_remainders_go_to_the_first_names(order):
    assert quotas(dict.fromkeys(order, 1), 5) == {"a": 2, "b": 2, "c": 1}


def unimax(sizes, total, cap):
    """Chung et al. 2023, algorithm 1, as it is printed: languages from the smallest on."""
    budget, remaining = Fraction(total), len(sizes)
    amounts = {}
    for name in sorted(sizes, key=lambda name: sizes[name]):
        even = budget / remaining
        amounts[name] = min(even, Fraction(sizes[name] * cap))
        budget -= amounts[name]
        remaining -= 1
    return amounts


@settings(max_examples=60, deadline=None)
@given(SIZES, st.integers(1, 10**7), st.integers(1, 6))
def test_unimax_is_the_algorithm_of_the_paper(sizes, total, cap):
    named = by_name(sizes)
    total = min(total, cap * sum(sizes))
    high = {n: Fraction(cap * s) for n, s in named.items()}
    ours = clamped(dict.fromkeys(named, Fraction(1)), Fraction(total), {}, high)
    assert ours == unimax(named, total, cap)
    plan = design(
        {(n, 0): s for n, s in named.items()}, Request("unimax", total=total, max_epochs=cap)
    )
    assert plan.refused is None and sum(plan.amounts.values()) == total
    assert all(abs(plan.amounts[n] - ours[n]) < 1 for n in named)


@settings(max_examples=60, deadline=None)
@given(SIZES, st.data())
def test_clamped_amounts_add_up_and_unclamped_ones_share_one_scale(sizes, data):
    named = by_name(sizes)
    weight = {n: Fraction(data.draw(st.integers(1, 50))) for n in named}
    low = {n: Fraction(data.draw(st.integers(0, 20))) for n in named}
    high = {n: low[n] + data.draw(st.integers(0, 100)) for n in named}
    total = Fraction(data.draw(st.integers(int(sum(low.values())), int(sum(high.values())))))
    amounts = clamped(weight, total, low, high)
    assert sum(amounts.values()) == total
    assert all(low[n] <= amounts[n] <= high[n] for n in named)
    free = {amounts[n] / weight[n] for n in named if low[n] < amounts[n] < high[n]}
    assert len(free) <= 1


def test_the_epochs_of_llamas_table_are_reproduced():
    sizes = {(name, 0): round(row.unique(LLAMA1_TOKENS)) for name, row in LLAMA1.items()}
    plan = design(sizes, Request("llama1", total=LLAMA1_TOKENS))
    assert plan.refused is None and sum(plan.amounts.values()) == LLAMA1_TOKENS
    epochs = {name: f"{plan.amounts[name] / sizes[name, 0]:.2f}" for name in LLAMA1}
    assert epochs == {name: row.epochs for name, row in LLAMA1.items()}
    assert sum(preset_weights("llama1").values()) == 100


def test_the_tokens_that_llamas_table_implies_fit_its_sizes_on_disk():
    """The paper prints no counts of tokens: shares, epochs and gigabytes must agree on them."""
    for name, row in LLAMA1.items():
        assert 2.7 < row.size * 1e9 / row.unique(LLAMA1_TOKENS) < 4.0, name


def test_the_epochs_of_the_piles_table_are_reproduced_from_its_sizes():
    sizes = {(name, 0): round(row.size * 2**30) for name, row in PILE.items()}
    total = round(1254.20 * 2**30)
    plan = design(sizes, Request("pile", total=total))
    assert plan.refused is None
    for name, row in PILE.items():  # the smallest shares have two digits
        epochs = plan.amounts[name] / sizes[name, 0]
        assert epochs == pytest.approx(float(row.epochs), rel=0.01), name
    assert sum(row.size * float(row.epochs) for row in PILE.values()) == pytest.approx(1254.2, 1e-4)


@pytest.mark.parametrize("name", ["commoncrawl", "books1", "books2"])
def test_gpt3s_weights_and_sizes_give_its_epochs_of_these_sources(name):
    """They do not for WebText2 (3.4 for 2.9) and Wikipedia (3.0 for 3.4)."""
    row, whole = GPT3[name], float(sum(preset_weights("gpt3").values()))
    assert whole == 101
    epochs = float(row.weight) / 100 * 300 / row.size
    assert epochs == pytest.approx(float(row.epochs), rel=0.06)


def test_published_weights_add_up():
    assert sum(preset_weights("massivetext").values()) == 100
    assert float(sum(preset_weights("pile").values())) == pytest.approx(100, abs=0.1)
    assert float(sum(preset_weights("dolma").values())) == pytest.approx(3059, abs=0.5)
    roots = preset_weights("roots")
    assert float(sum(roots.values())) == pytest.approx(1_610_000, rel=0.005)  # 1.61 TB
    assert f"{float(roots['en'] / sum(roots.values())):.1%}" == "30.0%"  # figure 3 there: 30.04


def test_gopher_reads_wikipedia_more_than_once_and_most_else_in_part():
    epochs = {n: float(row.weight) / 100 * 300 / row.size for n, row in MASSIVETEXT.items()}
    assert {name for name in epochs if epochs[name] > 1} == {"wikipedia"}


@pytest.mark.parametrize("name", PRESETS)
def test_a_published_mixture_is_designed_from_sources_of_its_names(name):
    sizes = {(source, 0): 10_000 for source in PRESETS[name]}
    plan = design(sizes, Request(name, total=10_000))
    weights = preset_weights(name)
    whole = sum(weights.values())
    assert plan.refused is None
    for source, weight in weights.items():
        assert abs(plan.amounts[source] - weight / whole * 10_000) < 1
    with pytest.raises(UsageError, match=f"{name} needs a source named"):
        design({("other", 0): 5}, Request(name))


def test_dolma_by_its_weights_reads_every_source_once():
    sizes = {(source, 0): round(float(row.weight) * 10) for source, row in DOLMA.items()}
    plan = design(sizes, Request("dolma", total=sum(sizes.values())))
    assert plan.amounts == {source: size for (source, _), size in sizes.items()}


def test_temperature_is_a_power_of_the_size():
    weights = tempered({"big": 1000, "small": 10, "none": 0}, 0.3)
    assert float(weights["big"] / weights["small"]) == pytest.approx(100**0.3)
    assert weights["none"] == 0
    assert set(tempered({"a": 5, "b": 500}, 0.0).values()) == {1}
    flat = tempered({"a": 5, "b": 500}, 1.0)
    assert flat["b"] / flat["a"] == pytest.approx(100)


THERE = {("en", 0): 10_000, ("th", 0): 1_000, ("lo", 0): 100}


def shares(wanted):
    plan = design(THERE, wanted)
    assert plan.refused is None
    return {g: a / sum(plan.amounts.values()) for g, a in plan.amounts.items()}


def test_a_floor_and_a_cap_hold_and_the_rest_keeps_its_proportions():
    even = Request("temperature", alpha=0.0, total=900, max_epochs=100)
    assert shares(even)["en"] == pytest.approx(1 / 3)
    floor = shares(Request("temperature", alpha=0.0, total=900, max_epochs=100, floors={"en": 0.5}))
    assert floor == {"en": 0.5, "th": 0.25, "lo": 0.25}
    cap = shares(Request(total=1000, caps={"en": 0.6}, max_epochs=100))
    assert cap["en"] == 0.6
    assert cap["th"] / cap["lo"] == pytest.approx(10, rel=0.03)


@pytest.mark.parametrize("kind", ["weights", "temperature", "total", "amounts", "epochs", "cap"])
def test_more_epochs_than_the_cap_are_refused_with_a_mix_that_can_be_had(kind):
    wanted = {
        "weights": Request({"en": 1, "lo": 1}),
        "temperature": Request("temperature"),
        "total": Request(total=100_000),
        "amounts": Request(amounts={"th": 5_000}),
        "epochs": Request(epochs={"lo": 4.5}),
        "cap": Request(total=20_000, caps={"en": 0.6}),
    }[kind]
    plan = design(THERE, wanted)
    assert plan.refused
    for key, size in THERE.items():
        assert plan.amounts[key[0]] <= 4 * size
    assert plan.strata == {key: plan.amounts[key[0]] for key in THERE}
    again = design(THERE, Request(amounts=plan.amounts))
    assert again.refused is None and again.amounts == plan.amounts


@pytest.mark.parametrize(
    ("amounts", "named"),
    [
        ({"en": 40_100, "lo": 600}, "600 of lo, but 4 epochs give only 400"),
        ({"en": 40_201, "lo": 600}, "40,201 of en, but 4 epochs give only 40,000"),
        ({"th": 4_200, "lo": 600, "en": 40_200}, "4,200 of th"),  # of equals the last name
    ],
)
def test_the_group_that_is_over_by_most_is_named(amounts, named):
    assert named in str(design(THERE, Request(amounts=amounts)).refused)


def test_floors_and_caps_that_exactly_fit_are_accepted():
    whole = {"en": 0.5, "th": 0.3, "lo": 0.2}
    for floors, caps in ((whole, {}), ({}, whole), (whole, whole)):
        plan = design(THERE, Request(total=1000, floors=floors, caps=caps))
        assert (plan.refused, plan.amounts) == (None, {"en": 500, "th": 300, "lo": 200})
    four = {group: 4 * size for (group, _), size in THERE.items()}
    for asked in (Request(amounts=four), Request(total=sum(four.values()))):
        plan = design(THERE, asked)
        assert (plan.refused, plan.amounts) == (None, four)


def test_the_nearest_mix_keeps_the_total_and_the_proportions_of_what_is_not_exhausted():
    plan = design(THERE, Request({"en": 2, "th": 1, "lo": 1}, total=3_400))
    assert plan.amounts == {"en": 2_000, "th": 1_000, "lo": 400}


@pytest.mark.parametrize(
    "wanted, message",
    [
        (Request({"fr": 1}), "weights names 'fr'; the names are en, lo, th"),
        (Request(floors={"en": 0.7, "th": 0.4}), "add up to more than 1"),
        (Request(floors={"en": 0.7}, caps={"en": 0.5}), "floor of en is above its cap"),
        (Request(caps={"en": 0.1, "th": 0.1, "lo": 0.1}), "add up to less than 1"),
        (Request(amounts={"en": 5}, epochs={"en": 1}), "give an amount or epochs"),
        (Request("llama1"), "needs a source named 'commoncrawl'"),
        (Request({"en": 0}), "no source with a weight"),
    ],
    ids=["unknown", "floors", "floor-cap", "caps", "both", "preset", "zero"],
)
def test_contradictory_mix_settings_are_a_one_line_error(wanted, message):
    with pytest.raises(UsageError, match=message):
        design(THERE, wanted)


def test_buckets_of_scores_are_read_as_often_as_asked_or_all_scaled():
    sizes = {("web", 0): 100, ("web", 1): 50, ("web", 2): 10, ("wiki", 3): 40}
    wanted = Request(buckets=(0.0, 1.0, 3.0, 1.0))
    assert design(sizes, wanted).strata == {
        ("web", 0): 0,
        ("web", 1): 50,
        ("web", 2): 30,
        ("wiki", 3): 40,
    }
    half = Request({"web": 1, "wiki": 1}, total=80, buckets=(0.0, 1.0, 3.0, 1.0))
    assert design(sizes, half).strata == {
        ("web", 0): 0,
        ("web", 1): 25,
        ("web", 2): 15,
        ("wiki", 3): 40,
    }
    # Three epochs of the best leave room for a third more: 4 / 3 of one and 4 of the other.
    most = design(sizes, Request({"web": 1}, total=10_000, buckets=(0.0, 1.0, 3.0, 1.0)))
    assert most.refused and most.strata["web", 1] == 66 and most.strata["web", 2] == 40
