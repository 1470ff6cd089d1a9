"""What a dedup behind a change may decide otherwise: a run lies within the bounds."""

from __future__ import annotations

import random
from typing import Any

import pytest

from curate.inspect.whatif.figures import answer
from curate.steps.recipe import make_step
from llmcurate.base.messages import json_values
from tests.parameters import mostly_slow

WORDS = "the house stands on a hill and the river below it runs clear and cold to be that".split()
DEDUPS: dict[str, dict[str, Any]] = {
    "one": {"dedup_exact": {"key": "url", "survivor": "first"}},
    "cluster": {"dedup_minhash": {"survivor": "first", "bands": 20, "rows": 2}},
    "any": {"dedup_minhash": {"survivor": "longest", "verify": 0.5}},
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
        [
            ("one", "tighter"),
            ("one", "looser"),
            ("cluster", "both"),
            ("any", "both"),
            ("one", "both"),
            ("cluster", "shorter"),
        ],
        4,
    ),
)
def test_a_run_with_these_settings_lies_within_the_bounds(bench: Any, kind: str, sets: str) -> None:
    answered = answer(bench.folder / kind, SETS[sets])
    (resolved,) = answered.resolved
    bench.run(steps(kind), bench.folder / "in.jsonl", out=f"{kind}_{sets}", sets=SETS[sets])
    reached, dropped = marked(bench, kind)
    now_reached, now_dropped = marked(bench, f"{kind}_{sets}")
    assert resolved.admitted == len(now_reached - reached)
    assert resolved.gone == len(reached - now_reached)
    both = reached & now_reached
    assert (resolved.kept, resolved.dropped) == (len(both - dropped), len(both & dropped))
    displaced, returned = both & now_dropped - dropped, both & dropped - now_dropped
    assert resolved.displaced[0] <= len(displaced) <= resolved.displaced[1]
    assert resolved.returned[0] <= len(returned) <= resolved.returned[1]
    if sets in ("shorter", "both"):
        assert displaced or returned
    if kind == "one" and not resolved.admitted:  # nothing is open: one of each cluster comes back
        assert resolved.returned == (len(returned), len(returned)) and resolved.displaced == (0, 0)
    if kind == "cluster" and not resolved.admitted:
        assert resolved.displaced == (0, 0)
    kept = bench.rows(f"{kind}_{sets}")
    least, most = answered.bounds()
    assert least.documents <= len(kept) <= most.documents
    size = sum(len(r["text"].encode()) for r in kept)
    assert least.bytes <= size <= most.bytes
    assert f"of the {resolved.kept} others that it kept" in " ".join(answered.notes)


def test_the_bounds_of_one_dedup_count_for_the_next(bench: Any) -> None:
    twice = steps("one")[:3] + steps("cluster")[2:]
    bench.run(twice, bench.folder / "in.jsonl", out="twice")
    answered = answer(bench.folder / "twice", SETS["both"])
    bench.run(twice, bench.folder / "in.jsonl", out="twice_now", sets=SETS["both"])
    assert [r.step for r in answered.resolved] == ["dedup_exact", "dedup_minhash"]
    least, most = answered.bounds()
    assert least.documents <= len(bench.ids("twice_now")) <= most.documents
    assert json_values(answered)["after"]["least"]["documents"] == least.documents


def test_steps_say_how_far_one_document_reaches() -> None:
    def reach(name: str, **settings: Any) -> str:
        step: Any = make_step(name, settings)
        return str(step.reach)

    assert reach("dedup_exact") == "one"
    assert reach("dedup_minhash") == "cluster" and reach("dedup_minhash", verify=0.7) == "any"
    assert reach("perplexity", model="m") == "own"
    assert reach("perplexity", model="m", keep="head") == "any"
    assert reach("dedup_passages") == reach("dedup_bloom") == "any"
