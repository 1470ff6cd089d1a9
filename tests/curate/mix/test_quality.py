"""Epochs by buckets of a score: a publication's, and an upsampling curve."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from curate.mix.design import Request, design
from curate.mix.settings import Curve, Quality, buckets
from llmcurate.base.errors import UsageError

CURVE = Curve()


def request(total=None, **settings):
    return Request(total=total, max_epochs=7, curve=lambda p: [*CURVE.epochs(p), 1.0], **settings)


def epochs(sizes, plan):
    return [plan.strata[key] / size for key, size in sorted(sizes.items())]


@settings(deadline=None)
@given(st.floats(0, 50))
def test_the_quality_curve_rises_from_zero_to_the_maximum_and_skips_the_worst_buckets(power):
    values = CURVE.epochs(power)
    assert values == sorted(values) and values[:8] == [0.0] * 8 and 0 < values[-1] <= 7
    mean = 7 * 0.6 / (power + 1)  # the area under it
    assert sum(values) / 20 == pytest.approx(mean, abs=1e-6)


def test_a_flat_curve_is_as_often_as_may_be_and_no_bucket_is_cut_through_the_middle():
    assert CURVE.epochs(0.0) == [0.0] * 8 + [7.0] * 12
    assert Curve(buckets=2, most=4, discard=0.25).epochs(0.0) == pytest.approx([2.0, 4.0])


@pytest.mark.parametrize("total", [20_000, 60_000, 4 * 20_000])
def test_the_power_follows_from_the_amount(total):
    sizes = {("web", bucket): 1000 for bucket in range(20)}
    plan = design(sizes, request(total))
    of = epochs(sizes, plan)
    assert plan.refused is None and plan.amounts == {"web": total}
    assert sum(plan.strata.values()) == total
    assert of == sorted(of) and of[7] == 0 and of[-1] <= 7


def test_each_group_has_a_power_of_its_own():
    sizes = {(group, bucket): 1000 for group in ("math", "web") for bucket in range(20)}
    plan = design(sizes, request(80_000, weights={"math": 3, "web": 1}))
    math, web = (sum(plan.strata[g, b] > 900 for b in range(20)) for g in ("math", "web"))
    assert plan.amounts == {"math": 60_000, "web": 20_000} and math > web


def test_more_than_the_flat_curve_gives_is_refused():
    sizes = {("web", bucket): 1000 for bucket in range(20)}
    plan = design(sizes, request(90_000))
    assert plan.refused is not None and plan.amounts == {"web": 84_000}


def test_the_forms_of_the_command_line_and_what_excludes_each_other():
    assert Quality(**buckets("d.cluster_size:fineweb2")).epochs == (1, 2, 3, 5, 8, 1)
    curve = Quality(**buckets("b:curve"))
    assert curve.edges == tuple(range(1, 20)) and curve.curve == CURVE
    assert Quality(**curve.model_dump()) == curve  # as OUT/recipe.yaml has it
    for wrong in ({"curve": {}, "epochs": [1, 2]}, {"preset": "fineweb2", "curve": {}}, {}):
        with pytest.raises(ValidationError, match="give"):
            Quality(column="b", **wrong)
    with pytest.raises(UsageError, match="fineweb2"):
        buckets("b")


def test_the_fineweb2_preset_repeats_documents_by_their_cluster_size(bench):
    words = "abcdefghijklmnopqrstuvwxyz"
    copies = {"a": 1, "b": 2, "c": 4, "d": 6}
    rows = [
        {"id": f"{letter}{n}", "text": " ".join(letter + w for w in words) + " end" * (n == 0)}
        for letter, count in copies.items()
        for n in range(count)
    ]
    bench.jsonl("in.jsonl", rows)
    mix = {
        "unit": "documents",
        "quality": {"column": "dedup_minhash.cluster_size", "preset": "fineweb2"},
    }
    bench.run(["dedup_minhash", {"mix": mix}], bench.folder / "in.jsonl")
    kept = {row["id"]: row["dedup_minhash.cluster_size"] for row in bench.rows()}
    assert kept == {f"{letter}0": count for letter, count in copies.items()}
    assert sorted(bench.ids(kind="mix")) == ["a0", "b0", "b0", *["c0"] * 3, *["d0"] * 5]
