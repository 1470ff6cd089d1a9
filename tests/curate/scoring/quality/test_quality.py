"""The quality step: keeping documents by threshold, share or random draw."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.corpus.sketches import Sketches, SketchFile
from curate.documents.documents import documents
from curate.scoring.quality.measures import kept_count
from curate.scoring.quality.model import Classifier, good_label
from curate.scoring.quality.quality import Quality, QualityShare, pareto_draws
from curate.steps.recipe import make_step
from llmcurate.base.disk.database import scratch_database
from llmcurate.base.errors import UsageError

Sets = tuple[Path, Path]


@pytest.fixture(scope="module")
def mixed(shared_bench: Any, make_documents: Any) -> Path:
    """120 documents of both kinds, some of them twice under another id."""
    rows = [r for n in (1, 2) for k in ("good", "poor") for r in make_documents(k, 30, n)]
    copies = [{"id": f"copy-{r['id']}", "text": r["text"]} for r in rows[:20]]
    empty = [{"id": "empty", "text": ""}, {"id": "blank", "text": "\u2028 \n"}]
    return shared_bench.jsonl("mixed.jsonl", rows + copies + empty)


def by_id(bench: Any, out: str) -> dict[str, float]:
    rows = [*bench.rows(out), *bench.rows(out, "rejected")]
    return {r["id"]: r["quality.score"] for r in rows}


def test_the_score_is_what_dclm_makes_of_fasttexts_answer(model: Path, make_documents: Any) -> None:
    fasttext = pytest.importorskip("fasttext.FastText")
    native = fasttext._FastText(str(model))
    texts = [r["text"] for r in make_documents("good", 20, 9) + make_documents("poor", 20, 9)]
    step = Quality(model=str(model))
    scores = step.apply(documents({"text": texts}).within("quality")).table["quality.score"]
    sides = set()
    for text, score in zip(texts, scores.to_pylist(), strict=True):
        (label,), (share,) = native.predict(" ".join(text.strip().splitlines()))
        expected = share if label == "__label__hq" else 1 - share
        assert score == pytest.approx(min(max(expected, 0), 1), abs=2e-7)
        sides.add(label)
    assert len(sides) == 2


def test_a_threshold_drops_what_is_below_and_says_so(
    model: Path, mixed: Path, shared_bench: Any
) -> None:
    shared_bench.run([{"quality": {"model": str(model), "threshold": 0.5}}], mixed, out="limit")
    assert all(r["quality.score"] >= 0.5 for r in shared_bench.rows("limit"))
    gone = {r["id"]: r for r in shared_bench.rows("limit", "rejected")}
    assert all(r["quality.score"] < 0.5 for r in gone.values())
    row = next(r for r in gone.values() if r["id"].startswith("poor"))
    assert (row["step"], row["rule"], row["threshold"]) == ("quality", "low_score", 0.5)
    assert row["value"] == row["quality.score"]
    assert gone["blank"]["value"] == 0.0


def test_a_share_keeps_exactly_the_best_and_equal_scores(
    model: Path, mixed: Path, shared_bench: Any
) -> None:
    step = {"quality": {"model": str(model), "keep_fraction": 0.25}}
    outcome = shared_bench.run([step], mixed, out="share")
    scores = by_id(shared_bench, "share")
    limit = sorted(scores.values(), reverse=True)[-(-len(scores) // 4) - 1]
    assert set(shared_bench.ids("share")) == {i for i, s in scores.items() if s >= limit}
    (threshold,) = {r["threshold"] for r in shared_bench.rows("share", "rejected")}
    assert threshold == limit
    assert outcome.totals().by_rule == {
        "quality.low_score": len(scores) - len(shared_bench.ids("share"))
    }
    same = [{"quality": {"model": str(model), "threshold": threshold}}]
    shared_bench.run(same, mixed, out="again")
    assert shared_bench.ids("again") == shared_bench.ids("share")
    assert shared_bench.decisions("share") == []


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), max_size=30), st.floats(0.001, 1))
def test_the_threshold_is_the_lowest_score_of_the_best_share(
    scores: list[float], share: float
) -> None:
    with tempfile.TemporaryDirectory() as name, scratch_database(Path(name) / "spill") as db:
        table = pa.table(
            {
                "part": pa.array([0] * len(scores), pa.int32()),
                "n": pa.array(range(len(scores)), pa.int64()),
                "id": pa.array([str(n) for n in range(len(scores))], pa.string()),
                "score": pa.array(scores, pa.float64()),
            }
        )
        pq.write_table(table, Path(name) / "part-0.parquet")
        files = (SketchFile(0, Path(name) / "part-0.parquet", 0),)
        sketches = Sketches(db, Path(name) / "decisions.parquet", Path(name), files)
        summary = QualityShare(keep_fraction=share).resolve(sketches).record()
        decisions = pq.read_table(sketches.decisions)
    ordered = sorted(scores, reverse=True)
    limit = ordered[kept_count(len(scores), share) - 1] if scores else 0.0
    assert summary["threshold"] == limit
    assert set(decisions["threshold"].to_pylist()) <= {limit}
    assert decisions["score"].to_pylist() == scores
    assert summary["kept"] == sum(s >= limit for s in scores) == len(scores) - summary["dropped"]


def test_another_share_scores_nothing_again(model: Path, mixed: Path, shared_bench: Any) -> None:
    def run(share: float) -> Any:
        step = {"quality": {"model": str(model), "keep_fraction": share}}
        return shared_bench.run([step], mixed, out="reuse")

    run(0.5)
    folder = shared_bench.folder / "reuse" / "stages"
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*sketch*")}
    assert before
    run(0.1)
    assert {p: p.stat().st_mtime_ns for p in before} == before


@pytest.mark.parametrize(
    "how",
    [{"keep_fraction": 0.3}, {"pareto": 9.0}],
    ids=lambda h: next(iter(h)),
)
def test_the_same_bytes_whatever_the_workers(
    how: dict[str, float], model: Path, mixed: Path, shared_bench: Any
) -> None:
    kind = next(iter(how))
    step = {"quality": {"model": str(model), **how}}
    shared_bench.run([step], mixed, out=f"{kind}1", workers=1, read={"partition_bytes": 4000})
    shared_bench.run([step], mixed, out=f"{kind}2", workers=2, read={"partition_bytes": 4000})
    assert shared_bench.bytes_of(f"{kind}1") == shared_bench.bytes_of(f"{kind}2")


def test_a_draw_depends_on_id_and_seed_alone(model: Path, mixed: Path, shared_bench: Any) -> None:
    rows = mixed.read_text().splitlines()
    backwards = shared_bench.jsonl("backwards.jsonl", rows[::-1])
    step = [{"quality": {"model": str(model), "pareto": 9.0}}]
    shared_bench.run(step, mixed, out="draw")
    shared_bench.run(step, backwards, out="draw-back")
    assert set(shared_bench.ids("draw")) == set(shared_bench.ids("draw-back"))
    names = pa.array([*shared_bench.ids("draw"), *shared_bench.ids("draw", "rejected")])
    assert not set(pareto_draws(names, 9.0, 0)) & set(pareto_draws(names, 9.0, 1))
    for row in shared_bench.rows("draw"):
        assert row["quality.draw"] > 1 - row["quality.score"]
    gone = shared_bench.rows("draw", "rejected")
    assert all(r["quality.draw"] <= 1 - r["quality.score"] for r in gone)
    assert all(r["detail"].startswith("draw ") for r in gone)


def test_draws_have_the_distribution_of_numpys_pareto() -> None:
    draws = np.sort(pareto_draws(pa.array([f"d{i}" for i in range(20_000)]), 9.0, 0))
    for x in (0.01, 0.1, 0.5, 1.0):
        expected = (1 + x) ** -9.0
        assert (draws > x).mean() == pytest.approx(expected, abs=4 * (expected / 20_000) ** 0.5)


def test_a_model_by_the_environment_counts_and_stays_out_of_the_recipe(
    model: Path, mixed: Path, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMCURATE_QUALITY_MODEL", str(model))
    bench.run([{"quality": {"threshold": 0.5}}], mixed)
    text = (bench.folder / "out" / "recipe.yaml").read_text()
    assert "model: null" in text
    assert "model_sha256: " in text
    again = bench.run(text, mixed, out="again")
    assert again.totals().kept == len(bench.ids())
    with pytest.raises(UsageError, match="differs from model_sha256"):
        bench.run(text.replace("model_sha256: ", "model_sha256: 0"), mixed, out="other")


def test_a_draw_is_by_settled_ids(model: Path, make_documents: Any, bench: Any) -> None:
    rows = [{"text": r["text"]} for k in ("good", "poor") for r in make_documents(k, 30, 7)]
    source = bench.jsonl("nameless.jsonl", rows)
    step = [{"quality": {"model": str(model), "pareto": 9.0}}]
    bench.run(step, source, out="whole")
    bench.run(step, source, out="slices", read={"partition_bytes": 2000})
    assert bench.ids("whole") == bench.ids("slices")
    assert 0 < len(bench.ids("whole")) < 60
    kept = bench.rows("whole")
    draws = pareto_draws(pa.array([r["id"] for r in kept]), 9.0, 0)
    assert [r["quality.draw"] for r in kept] == draws.tolist()


def test_the_report_shows_scores_beside_the_limit(
    model: Path, mixed: Path, shared_bench: Any
) -> None:
    for name, how in (("limit", {"threshold": 0.5}), ("share", {"keep_fraction": 0.25})):
        step = {"quality": {"model": str(model), **how}}
        shared_bench.run([step], mixed, out=name)  # there already, if all tests ran
        out = shared_bench.folder / name
        rule = json.loads((out / "run.json").read_text())["figures"]["rules"]["quality.low_score"]
        assert rule["column"] == "quality.score"
        assert rule["above"] is False
        assert sum(rule["histogram"]["counts"]) == 142
        page = (out / "report.html").read_text()
        assert "limit " in page
        share = (142 - rule["marked"]) / 142
        assert f"of 142 documents, {share:.1%} on the kept side" in page


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (
            {"threshold": 0.5, "keep_fraction": 0.1},
            "threshold and keep_fraction cannot be combined",
        ),
        ({"pareto": 9, "keep_fraction": 0.1}, "keep_fraction and pareto cannot be combined"),
        ({"keep_fraction": 0}, "keep_fraction is 0: give more than 0"),
        ({"threshold": 1.5}, "threshold is 1.5: give 1 or less"),
        ({"treshold": 0.5}, "did you mean 'threshold'"),
    ],
)
def test_settings_that_make_no_sense_are_a_one_line_error(chosen: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_step("quality", chosen)


def test_a_share_is_a_step_on_the_corpus() -> None:
    assert isinstance(make_step("quality", {"keep_fraction": 0.1}), QualityShare)
    assert isinstance(make_step("quality", {"keep_fraction": None}), Quality)


def test_labels_are_found_or_asked_for(model: Path, tmp_path: Path) -> None:
    assert good_label(model) == "hq"
    assert good_label(model, "__label__cc") == "cc"
    with pytest.raises(UsageError, match="no label 'wiki'; it has"):
        good_label(model, "wiki")
    raw = model.read_bytes()
    wiki = tmp_path / "wiki.bin"
    wiki.write_bytes(raw.replace(b"__label__hq\0", b"__label__zz\0"))
    assert good_label(wiki) == "zz"  # as RedPajama's wiki beside cc
    both = tmp_path / "both.bin"
    both.write_bytes(wiki.read_bytes().replace(b"__label__cc\0", b"__label__yy\0"))
    with pytest.raises(UsageError, match="name the good one"):
        good_label(both)


def test_the_scores_of_two_labels_add_up(model: Path, make_documents: Any) -> None:
    docs = documents({"text": [r["text"] for r in make_documents("good", 5, 3)]})
    good, poor = (Classifier(model, x).scores(*docs.buffers()) for x in ("hq", "cc"))
    assert good + poor == pytest.approx(np.ones(5), abs=1e-4)


def test_a_truncated_model_is_refused(model: Path, mixed: Path, bench: Any) -> None:
    short = bench.folder / "short.bin"
    short.write_bytes(model.read_bytes()[:-100])
    with pytest.raises(UsageError, match=r"short\.bin is truncated"):
        bench.run([{"quality": {"model": str(short)}}], mixed)


def test_no_model_says_where_one_comes_from(mixed: Path, bench: Any) -> None:
    with pytest.raises(UsageError, match=r"no quality model: give --set quality\.model=PATH"):
        bench.run(["quality"], mixed)
