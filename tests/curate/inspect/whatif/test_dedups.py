"""A dedup behind a change decides again: what it displaces and gives back is what a run does."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from curate.inspect.whatif.figures import answer
from curate.inspect.whatif.sample import Measured, wilson
from curate.steps.recipe import make_step
from llmcurate.base.messages import json_values
from tests.parameters import mostly_slow

WORDS = "the house stands on a hill and the river below it runs clear and cold to be that".split()
DEDUPS: dict[str, dict[str, Any]] = {
    "key": {"dedup_exact": {"key": "url", "survivor": "first"}},
    "bands": {"dedup_minhash": {"survivor": "first", "bands": 20, "rows": 2}},
    "verified": {"dedup_minhash": {"survivor": "longest", "verify": 0.5}},
    "passages": {"dedup_passages": {}},
}
SETS = {
    "tighter": ("gopher_quality.min_words=40",),
    "looser": ("gopher_quality.min_words=20",),
    "shorter": ("document_length.max=60",),
    "both": ("gopher_quality.min_words=20", "document_length.max=60"),
}


def steps(kind: str) -> list[Any]:
    lengths = [{"gopher_quality": {"min_words": 30}}, {"document_length": {"max": 80}}]
    return [*lengths, DEDUPS[kind], {"document_length": {"unit": "chars", "min": 120}}]


@pytest.fixture(scope="module")
def bench(shared_bench: Any) -> Any:
    draw = random.Random(4)
    rows: list[dict[str, Any]] = []
    for i in range(200):
        words = draw.choices(WORDS, k=draw.randint(10, 95))
        if i % 3 == 2:  # a longer or shorter copy
            copy = draw.choice(rows)["text"].split()
            words = copy[: draw.randint(len(copy) // 2, len(copy))] + words[: draw.randint(0, 9)]
        rows.append({"text": " ".join(words), "url": f"http://a.test/{draw.randrange(100)}"})
    shared_bench.jsonl("in.jsonl", rows)
    for kind in DEDUPS:
        shared_bench.run(steps(kind), shared_bench.folder / "in.jsonl", out=kind)
    return shared_bench


def marked(bench: Any, out: str) -> tuple[set[str], set[str]]:
    """(documents that reached the dedup, those that it dropped)."""
    gone = bench.rows(out, "rejected")
    late = {r["id"]: r["step"] for r in gone if r["step"] not in ("gopher_quality",
                                                                  "document_length")}  # fmt: skip
    reached = {*bench.ids(out), *late}
    return reached, {i for i, step in late.items() if step.startswith("dedup")}


@pytest.mark.parametrize(
    ("kind", "sets"),
    mostly_slow(
        [(kind, sets) for sets in ("both", "shorter", "looser", "tighter") for kind in DEDUPS], 4
    ),
)
def test_every_document_goes_where_a_run_puts_it(bench: Any, kind: str, sets: str) -> None:
    answered = answer(bench.folder / kind, SETS[sets])
    (looked,) = answered.resolved
    bench.run(steps(kind), bench.folder / "in.jsonl", out=f"{kind}_{sets}", sets=SETS[sets])
    (reached, dropped), (now_reached, now_dropped) = (
        marked(bench, out) for out in (kind, f"{kind}_{sets}")
    )
    both = reached & now_reached
    assert (looked.admitted, looked.gone) == (
        len(now_reached - reached), len(reached - now_reached)
    )  # fmt: skip
    assert looked.displaced == len(both & now_dropped - dropped)
    assert looked.returned == len(both & dropped - now_dropped)
    kept = bench.rows(f"{kind}_{sets}")
    after = answered.after
    assert after.exact and after.estimate == after.low == after.high
    assert after.estimate.documents == len(kept)
    assert after.estimate.bytes == sum(len(r["text"].encode()) for r in kept)


def test_the_second_dedup_sees_only_what_the_first_keeps(bench: Any) -> None:
    twice = steps("key")[:3] + steps("bands")[2:]
    bench.run(twice, bench.folder / "in.jsonl", out="twice")
    answered = answer(bench.folder / "twice", SETS["both"])
    bench.run(twice, bench.folder / "in.jsonl", out="twice_now", sets=SETS["both"])
    assert [r.step for r in answered.resolved] == ["dedup_exact", "dedup_minhash"]
    kept = len(bench.ids("twice_now"))
    assert json_values(answered)["after"]["estimate"]["documents"] == kept


def test_a_sample_estimates_between_the_ends_of_an_interval(bench: Any) -> None:
    whole = answer(bench.folder / "bands", SETS["both"]).after
    sampled = answer(bench.folder / "bands", SETS["both"], most=10)
    after = sampled.after
    assert not after.exact and after.measured == 10 < after.measured_of
    assert after.low.documents <= whole.estimate.documents <= after.high.documents
    assert "10 of" in sampled.notes[0] and "drawn at random" in sampled.notes[0]


def test_without_the_stages_a_dedup_widens_the_interval_and_says_so(bench: Any) -> None:
    import shutil

    shutil.copytree(bench.folder / "key", bench.folder / "bare")
    shutil.rmtree(bench.folder / "bare" / "stages")
    whole = answer(bench.folder / "key", SETS["both"]).after.estimate.documents
    answered = answer(bench.folder / "bare", SETS["both"])
    assert answered.after.low.documents < whole < answered.after.high.documents
    assert "the stages of the run are missing" in " ".join(answered.notes)


def test_wilson_is_that_of_statsmodels_and_narrows_with_the_rest_of_the_population() -> None:
    # statsmodels 0.14: proportion_confint(30, 100, method="wilson")
    share, low, high = wilson(30, 100, 10**9)
    assert (share, round(low, 6), round(high, 6)) == (0.3, 0.218949, 0.395849)
    assert wilson(30, 100, 100) == (0.3, 0.3, 0.3)
    _, closer, _ = wilson(30, 100, 150)
    assert low < closer < 0.3


def test_intervals_hold_the_truth_in_about_19_of_20_samples() -> None:
    draw, held = np.random.default_rng(3), 0
    passes = draw.random(1000) < 0.9
    for _ in range(200):
        drawn = draw.permutation(1000)[:80]
        found = Measured(np.ones(1000), np.full(1000, -1), np.zeros(1000, np.bool_))
        found.weights[drawn], found.stratum[drawn], found.strata = 12.5, 0, [(1000, 80)]
        kept = np.zeros(1000, np.bool_)
        kept[drawn] = passes[drawn]
        (_, low, high), _ = found.interval(kept, np.ones(1000, np.int64))
        held += low <= passes.sum() <= high
    assert 180 <= held <= 199


def test_steps_declare_what_decides_that_documents_match() -> None:
    def meets(name: str, **settings: Any) -> str | None:
        step: Any = make_step(name, settings)
        found: str | None = step.shared_key_column
        return found

    assert meets("dedup_exact") == "key"
    assert meets("dedup_minhash") == "bands" and meets("dedup_minhash", verify=0.7) is None
    assert meets("perplexity", model="m") == ""
    assert meets("perplexity", model="m", keep="head") is None
    assert meets("dedup_passages") is meets("dedup_bloom") is None
