"""Scores as percentiles, combined, in buckets: against numpy, for any workers and any order."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.corpus.sizes import Sizes
from curate.scoring.quality.buckets import bounds_of, learned_weights
from llmcurate.base.errors import RunFailed, UsageError
from tests.parameters import mostly_slow

SMALL = Sizes(task_documents=100)


def documents(count: int = 400) -> list[dict[str, Any]]:
    """Documents with scores a and b, some without one, a topic, and a grade that is mostly a."""
    draw = random.Random(5)
    rows = []
    for i in range(count):
        a, b = round(draw.random(), 2), draw.gauss(0, 1)
        row = {"id": f"d{i:03}", "text": f"document {i}", "a": a, "b": b, "topic": "xyz"[i % 3]}
        row["grade"] = 3 * a + 0.1 * b + draw.random() / 10 if i % 2 == 0 else None
        if i % 10 == 0:
            row["a"] = None
        if i % 20 == 0:
            row["b"] = None
        rows.append(row)
    return rows


def percentiles(values: list[float | None]) -> list[float | None]:
    """The share of scores below, of equal ones the last one's, in tenths of a percent down."""
    scored = sorted(v for v in values if v is not None)
    last = [v is not None and np.searchsorted(scored, v, "right") - 1 for v in values]
    return [
        None if v is None else 1000 * int(rank) // len(scored)
        for v, rank in zip(values, last, strict=True)
    ]


@pytest.fixture(scope="module")
def bench(shared_bench: Any) -> Any:
    rows = documents()
    shared_bench.jsonl("in.jsonl", rows)
    shared_bench.jsonl("turned.jsonl", rows[::-1])
    return shared_bench


def buckets(bench: Any, out: str = "out", source: str = "in.jsonl", **settings: Any) -> Any:
    """(columns by id, the step's record)."""
    step = {"quality_buckets": {"scores": ["a", "b"], **settings}}
    read = {"partition_bytes": 5000}
    bench.run([step], bench.folder / source, out=out, read=read, workers=2, sizes=SMALL)

    record = json.loads((bench.folder / out / "run.json").read_text())
    decided = next(s["decided"] for s in record["stages"] if s.get("decided"))
    names = ("quality_buckets.percentile", "quality_buckets.bucket")
    return {row["id"]: tuple(row[n] for n in names) for row in bench.rows(out)}, decided


def combined(rows: list[dict[str, Any]], how: Any) -> dict[str, float | None]:
    """By id the combined percentile, in percent."""
    pairs = zip(
        percentiles([r["a"] for r in rows]), percentiles([r["b"] for r in rows]), strict=True
    )
    found = [[p for p in pair if p is not None] for pair in pairs]
    return {r["id"]: how(p) / 10 if p else None for r, p in zip(rows, found, strict=True)}


@pytest.mark.parametrize(("name", "how"), mostly_slow([("mean", np.mean), ("max", max)]))
def test_percentiles_are_those_of_all_scores_and_buckets_are_equal(
    bench: Any, name: str, how: Any
) -> None:
    columns, decided = buckets(bench, name, combine=name)
    wanted = combined(documents(), how)
    assert {k: p for k, (p, _) in columns.items()} == pytest.approx(wanted, abs=1e-6)
    ranked = sorted(p for p in wanted.values() if p is not None)
    edges = [ranked[rank] for rank in bounds_of(len(ranked), 20)]
    for percentile, bucket in columns.values():
        assert (bucket is None) == (percentile is None)
        if bucket is not None:
            assert bucket == np.searchsorted(edges, percentile, "right")
    sizes = Counter(bucket for _, bucket in columns.values() if bucket is not None)
    assert [sizes[b] for b in range(20)] == decided["buckets"] and sum(decided["buckets"]) == 380


def test_neither_the_order_nor_workers_nor_partitions_change_a_bucket(bench: Any) -> None:
    columns, _ = buckets(bench, "straight")
    turned, _ = buckets(bench, "turned", "turned.jsonl")
    step = {"quality_buckets": {"scores": ["a", "b"]}}
    bench.run([step], bench.folder / "in.jsonl", out="whole")
    whole = {row["id"]: row["quality_buckets.bucket"] for row in bench.rows("whole")}
    assert columns == turned and whole == {k: b for k, (_, b) in columns.items()}


def test_unequal_buckets_are_parts_of_the_percentile_as_nemotron_cc_has_them(bench: Any) -> None:
    columns, _ = buckets(bench, "parts", combine="max", equal=False)
    assert all(b == int(p // 5) for p, b in columns.values() if p is not None)
    counts = Counter(b for _, b in columns.values())
    assert counts[19] > 2 * counts[2]  # the best of two is mostly high


def test_by_a_column_each_of_its_values_is_ranked_on_its_own(bench: Any) -> None:
    columns, _ = buckets(bench, "topics", by="topic")
    rows = documents()
    for topic in "xyz":
        wanted = combined([r for r in rows if r["topic"] == topic], np.mean)
        assert {k: columns[k][0] for k in wanted} == pytest.approx(wanted, abs=1e-6)


def test_learned_weights_follow_the_target(bench: Any) -> None:
    _, decided = buckets(bench, "learned", combine="learned", target="grade")
    (note,) = decided["notes"]
    assert note.startswith("Weights learned from 160 documents: a 0.9")


def test_a_minus_ranks_smaller_scores_higher(bench: Any) -> None:
    columns, _ = buckets(bench, "minus", scores=["-b"])
    best = max((r for r in documents() if r["b"] is not None), key=lambda r: -r["b"])
    assert columns[best["id"]][1] == 19


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"scores": ["a", "a"]}, "appears twice"),
        ({"combine": "learned"}, "learned and target"),
        ({"weights": [1]}, "give 2"),
        ({"scores": ["nothing"]}, "no column 'nothing'"),
        ({"scores": ["topic"]}, "not numbers"),
    ],
)
def test_wrong_settings_are_a_one_line_error(bench: Any, settings: Any, says: str) -> None:
    with pytest.raises((UsageError, RunFailed), match=says):
        buckets(bench, "wrong", **settings)


@settings(deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 999)] * 3), min_size=5, max_size=30),
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9)),
)
def test_weights_of_an_exact_mean_are_found(rows: Any, weights: Any) -> None:
    matrix = np.array(rows)
    if np.linalg.matrix_rank(matrix - matrix.mean(axis=0)) < 3:
        return
    target = matrix @ np.array(weights)
    whole = np.column_stack([np.ones(len(rows), int), matrix, target]).astype(object)
    learned = learned_weights(whole.T @ whole)
    assert learned == pytest.approx((np.array(weights) / sum(weights)).tolist(), abs=1e-3)


def test_scores_that_fall_with_the_target_are_refused() -> None:
    whole = np.array([[1, k, -k] for k in range(9)], object)
    with pytest.raises(RunFailed, match="no score increases"):
        learned_weights(whole.T @ whole)


def test_the_label_of_a_model_is_a_column_that_mix_takes(
    bench: Any, model: Any, make_documents: Any
) -> None:
    rows = [
        *make_documents("good", 30, 7),
        *make_documents("poor", 60, 7),
        {"id": "e", "text": "."},
    ]
    bench.jsonl("texts.jsonl", rows)
    bench.run([{"label": {"model": str(model)}}], bench.folder / "texts.jsonl", out="labelled")
    labels = defaultdict(list)
    for row in bench.rows("labelled"):
        labels[row["id"][:4]].append((row["label.label"], row["label.score"]))
    assert Counter(n for n, _ in labels["good"])["hq"] > 25
    assert Counter(n for n, _ in labels["poor"])["cc"] > 50
    mix = {"mix": {"sources": {"a": str(bench.folder / "labelled/corpus")}, "by": "label.label"}}
    made = bench.run([{"mix": {**mix["mix"], "weights": {"hq": 1}}}], out="mixed")
    rows_of = {row["name"]: row["copies"] for row in made.products[0]["mix"]["rows"]}
    assert rows_of["hq"] > 25 and rows_of["cc"] == 0
