"""The step `perplexity`: cuts by language, buckets, what is dropped and why; and its figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.inspect.report.page import Figures, RunPage
from curate.scoring.perplexity.model import NgramModel
from curate.scoring.perplexity.perplexity import (
    BINS,
    BUCKETS,
    MOST,
    Perplexity,
    bin_counts,
    bins_of,
    bucket_of,
    histogram,
    percentile,
    ranks_between,
)
from llmcurate.base.errors import UsageError

LANGS = ("en", "de")
INFINITE = float("inf")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, train_on: Any, draw_sentences: Any) -> Path:
    """A folder with en.bin and de.bin."""
    folder = tmp_path_factory.mktemp("models")
    for seed, lang in enumerate(LANGS):
        lines = [" ".join(s) for s in draw_sentences(200, 30, seed=seed)]
        train_on(folder, lines, f"{lang}.bin", order=3, fallback=True)
    return folder


def documents(draw: Any, count: int = 60) -> list[dict[str, Any]]:
    """Documents in en, de and a language without a model; one empty, one without a language."""
    lines = draw(count * 3, 30, seed=9)
    rows = [
        {
            "id": f"d{i}",
            "text": "\n".join(" ".join(s) for s in lines[3 * i : 3 * i + 3]),
            "lang": ("en", "de", "xx")[i % 3],
        }
        for i in range(count)
    ]
    odd = {"id": "nul", "text": "w1 \0 w2\u2028w3 \x85 " + "w4 " * 5000, "lang": "en"}
    return [*rows, {"id": "empty", "text": " \n", "lang": "en"}, {"id": "none", "text": "w1"}, odd]


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=40), st.floats(0, 100))
def test_cuts_are_the_percentiles_of_numpy(scores: list[float], percent: float) -> None:
    ordered = sorted(scores)
    ranked = {rank: ordered[rank] for rank in ranks_between(len(scores), percent)}
    want = pytest.approx(np.percentile(scores, percent))
    assert percentile(len(scores), ranked, percent) == want


@pytest.mark.parametrize(("finite", "want"), [(0, INFINITE), (5, INFINITE), (6, 5.5)])
def test_infinite_scores_rank_above_all_others(finite: int, want: float) -> None:
    ordered = [*map(float, range(1, finite + 1)), *[INFINITE] * (10 - finite)]
    ranked = {rank: ordered[rank] for rank in ranks_between(10, 50)}
    assert percentile(10, ranked, 50) == want


def test_a_score_at_a_cut_is_above_it() -> None:
    """CCNet, perplexity/filter: strictly under the first cut is head."""
    scores = np.array([10, 19.9, 20, 29.9, 30, 31, 9.9, np.nan])
    head, tail, low = (np.full(8, cut) for cut in (20.0, 30.0, 10.0))
    names = [BUCKETS[b] for b in bucket_of(scores, head, tail, low)]
    assert names == ["head", "head", "middle", "middle", "tail", "tail", "low", "all"]


def test_where_all_scores_of_a_language_are_infinite_they_are_its_tail() -> None:
    cuts = np.full(3, percentile(2, {0: INFINITE, 1: INFINITE}, 30))
    buckets = bucket_of(np.array([INFINITE, INFINITE, np.nan]), cuts, cuts)
    assert [BUCKETS[b] for b in buckets] == ["tail", "tail", "all"]


@given(st.lists(st.floats(1, 1e6) | st.just(INFINITE), min_size=1, max_size=40))
def test_every_score_is_in_the_bin_between_its_edges(scores: list[float]) -> None:
    bins = bins_of(min(scores), max(scores))
    bars = histogram(bin_counts(np.array(scores), *bins), *bins)
    assert sum(bars.counts) == len(scores) and len(bars.edges) == BINS + 1
    held = np.minimum(scores, MOST)
    for edge, count in zip(bars.edges, np.cumsum([0, *bars.counts]), strict=True):
        assert (held < edge * (1 - 1e-6)).sum() <= count <= (held < edge * (1 + 1e-6)).sum()


def test_buckets_follow_the_cuts_of_their_language(
    models: Path, bench: Any, draw_sentences: Any
) -> None:
    path = bench.jsonl("in.jsonl", documents(draw_sentences))
    bench.run([{"perplexity": {"model": f"{models}/{{lang}}.bin"}}], path)
    rows = bench.rows()
    assert len(rows) == 63
    for lang in LANGS:
        scored = [r for r in rows if r["lang"] == lang and r["perplexity.score"] is not None]
        head, tail = np.percentile([r["perplexity.score"] for r in scored], [30, 60])
        for row in scored:
            score = row["perplexity.score"]
            want = "head" if score < head else "middle" if score < tail else "tail"
            assert row["perplexity.bucket"] == want
        assert {r["perplexity.bucket"] for r in scored} == {"head", "middle", "tail"}
    rest = {r["id"]: r for r in rows if r["lang"] not in LANGS or r["id"] == "empty"}
    assert len(rest) == 22
    assert {r["perplexity.bucket"] for r in rest.values()} == {"all"}
    assert {r["perplexity.score"] for r in rest.values()} == {None}


def test_one_model_serves_all_languages(models: Path, bench: Any, draw_sentences: Any) -> None:
    path = bench.jsonl("in.jsonl", documents(draw_sentences))
    bench.run([{"perplexity": {"model": f"{models}/en.bin"}}], path)
    assert [r["id"] for r in bench.rows() if r["perplexity.score"] is None] == ["empty"]


def test_each_dropped_document_records_rule_value_and_limit(
    models: Path, bench: Any, draw_sentences: Any
) -> None:
    path = bench.jsonl("in.jsonl", documents(draw_sentences))
    settings = {"model": f"{models}/{{lang}}.bin", "keep": "head,all", "least": 9, "most": 30}
    bench.run([{"perplexity": settings}], path)
    gone = bench.rows(kind="rejected")
    assert len(gone) + len(bench.rows()) == 63
    assert {r["perplexity.bucket"] for r in bench.rows()} == {"head", "all"}
    rules = {reason["rule"] for row in gone for reason in row["reasons"]}
    assert rules == {"perplexity_low", "perplexity_high", "bucket"}
    for row in gone:
        for reason in row["reasons"]:
            if reason["rule"] == "perplexity_low":
                assert reason["value"] < reason["threshold"] == 9
            elif reason["rule"] == "perplexity_high":
                assert reason["value"] > reason["threshold"] == 30
            else:
                assert reason["detail"] == row["perplexity.bucket"] in ("middle", "tail")


def test_given_cuts_take_the_place_of_percentiles(
    models: Path, bench: Any, draw_sentences: Any
) -> None:
    path = bench.jsonl("in.jsonl", documents(draw_sentences))
    cuts = {"en": [0, 1e9]}
    bench.run([{"perplexity": {"model": f"{models}/{{lang}}.bin", "cuts": cuts}}], path)
    assert {r["perplexity.bucket"] for r in bench.rows() if r["lang"] == "en"} == {"middle", "all"}
    assert len({r["perplexity.bucket"] for r in bench.rows() if r["lang"] == "de"}) == 3


def test_the_outcome_does_not_depend_on_workers(
    models: Path, bench: Any, draw_sentences: Any
) -> None:
    rows = documents(draw_sentences)
    paths = [bench.jsonl(f"{k}.jsonl", rows[k::2]) for k in range(2)]
    recipe = [{"perplexity": {"model": f"{models}/{{lang}}.bin", "keep": ["head", "middle"]}}]
    bench.run(recipe, *paths, out="one")
    bench.run(recipe, *paths, out="two", workers=2)
    assert bench.bytes_of("one") == bench.bytes_of("two")


def test_other_buckets_do_not_score_again(models: Path) -> None:
    first, second, third = (
        Perplexity(model=f"{models}/en.bin", keep=("head",)),
        Perplexity(model=f"{models}/en.bin", head=10, tail=90),
        Perplexity(model=f"{models}/de.bin"),
    )
    assert first.sketch_identity() == second.sketch_identity() != third.sketch_identity()
    assert first.identity() != second.identity()


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"keep": "best"}, "unknown: best; buckets are"),
        ({"head": 70}, "head must not end"),
        ({"cuts": {"en": [5, 3]}}, "head must not end"),
        ({"cuts": {"en": [1, 2]}, "cutoffs": "ccnet"}, "cutoffs: own"),
    ],
    ids=["keep", "percentiles", "cuts", "both"],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Perplexity(model="m.bin", **settings)


@pytest.mark.parametrize("value", [0, 100])
def test_percentiles_may_be_equal_and_lie_at_either_end(value: float) -> None:
    step = Perplexity(model="m.bin", low=value, head=value, tail=value)
    assert step.low == step.head == step.tail == value


@pytest.mark.parametrize("name", ["low", "head", "tail"])
@pytest.mark.parametrize(("value", "what"), [(-1, "greater than or equal to 0"), (101, "to 100")])
def test_a_percentile_beyond_0_and_100_is_refused_by_its_name(
    name: str, value: float, what: str
) -> None:
    with pytest.raises(ValueError, match=rf"\n{name}\n.*{what}"):
        Perplexity(model="m.bin", **{name: value})


def test_a_model_that_is_absent_or_damaged_ends_before_the_run(
    models: Path, bench: Any, tmp_path: Path
) -> None:
    path = bench.jsonl("in.jsonl", [{"text": "w1"}])
    whole = (models / "en.bin").read_bytes()
    (tmp_path / "cut.bin").write_bytes(whole[:-70])
    middle = bytearray(whole)
    middle[len(whole) // 2] ^= 1
    (tmp_path / "changed.bin").write_bytes(middle)
    for name, what in (
        ("no.bin", "perplexity train"),
        ("{lang}.none", "no model matches"),
        ("cut.bin", "copy it again"),
        ("changed.bin", "damaged"),
    ):
        with pytest.raises(UsageError, match=what):
            bench.run([{"perplexity": {"model": str(tmp_path / name)}}], path)
    assert not (bench.folder / "out" / "corpus").exists()


def test_no_label_of_a_document_becomes_a_path(models: Path, bench: Any) -> None:
    rows = [{"id": "a", "text": "w1 w2", "lang": "../models/en"}, {"text": "w1", "lang": "*"}]
    bench.run([{"perplexity": {"model": f"{models}/{{lang}}.bin"}}], bench.jsonl("in.jsonl", rows))
    assert {r["perplexity.bucket"] for r in bench.rows()} == {"all"}


def test_a_model_is_for_all_labels_of_its_language(models: Path, bench: Any) -> None:
    labels = ["en", "eng_Latn", "EN_us.UTF-8", "deu", "nl", "xx"]
    rows = [{"id": x, "text": "w1 w2 w3", "lang": x} for x in labels]
    bench.run([{"perplexity": {"model": f"{models}/{{lang}}.bin"}}], bench.jsonl("in.jsonl", rows))
    scores = {row["id"]: row["perplexity.score"] for row in bench.rows()}
    assert scores["en"] == scores["eng_Latn"] == scores["EN_us.UTF-8"] is not None
    assert scores["deu"] is not None and scores["nl"] is scores["xx"] is None


def test_the_report_shows_buckets_and_cuts_by_language(
    models: Path, bench: Any, draw_sentences: Any
) -> None:
    path = bench.jsonl("in.jsonl", documents(draw_sentences))
    bench.run([{"perplexity": {"model": f"{models}/{{lang}}.bin"}}], path)
    record = json.loads((bench.folder / "out" / "run.json").read_text())
    (decided,) = [s["decided"]["perplexity"] for s in record["stages"] if s.get("decided")]
    assert sum(decided["en"]["buckets"].values()) == 22 and len(decided["en"]["cuts"]) == 2
    assert sum(decided["en"]["histogram"]["counts"]) == 21 and "histogram" not in decided["xx"]
    page = (bench.folder / "out" / "report.html").read_text()
    chapter = page[page.index('<section id="perplexity"') :].partition("</section>")[0]
    assert chapter.count("<svg") == 2
    assert all(f">{word}</text>" in chapter for word in ("head", "tail"))
    assert (
        RunPage({"stages": [{"decided": None}, {}]}, Figures()).chapter("perplexity").strip() == ""
    )


def test_documents_below_the_low_percentile_are_in_bucket_low_not_head(
    models: Path, bench: Any, draw_sentences: Any
) -> None:
    path = bench.jsonl("in.jsonl", documents(draw_sentences))
    settings = {"model": f"{models}/{{lang}}.bin", "low": 10, "keep": "head,middle,all"}
    bench.run([{"perplexity": settings}], path)
    rows = [*bench.rows(), *bench.rows(kind="rejected")]
    for lang in LANGS:
        scored = [r for r in rows if r["lang"] == lang and r["perplexity.score"] is not None]
        low, head = np.percentile([r["perplexity.score"] for r in scored], [10, 30])
        buckets = {r["perplexity.bucket"] for r in scored if r["perplexity.score"] < low}
        assert buckets == {"low"}
        heads = [r["perplexity.score"] for r in scored if r["perplexity.bucket"] == "head"]
        assert heads and all(low <= score < head for score in heads)
    gone = {r["perplexity.bucket"] for r in bench.rows(kind="rejected")}
    assert gone == {"low", "tail"}
    page = (bench.folder / "out" / "report.html").read_text()
    assert "low" in page[page.index('<section id="perplexity"') :].partition("</table>")[0]


@pytest.mark.parametrize("workers", [1, 2])
def test_by_paragraph_lines_are_in_buckets_and_those_of_others_are_cut(
    models: Path, bench: Any, draw_sentences: Any, workers: int
) -> None:
    """Against the percentiles of all lines, computed here; lines without a word stay."""
    rows = documents(draw_sentences)
    rows[3]["text"] = rows[3]["text"].replace("\n", "\n\n", 1)
    path = bench.jsonl("in.jsonl", rows)
    keep = ("head", "middle")
    settings = {"by": "paragraph", "low": 5, "keep": keep, "model": f"{models}/{{lang}}.bin"}
    bench.run([{"perplexity": settings}], path, workers=workers)
    kept = {r["id"]: r for r in bench.rows()}
    gone = {r["id"]: r for r in bench.rows(kind="rejected")}
    for lang in LANGS:
        model = NgramModel.open(models / f"{lang}.bin")
        lines = {r["id"]: r["text"].split("\n") for r in rows if r.get("lang") == lang}
        scores = {
            k: model.perplexity(pa.array(v, pa.large_string())).tolist() for k, v in lines.items()
        }
        every = [s for values in scores.values() for s in values if not np.isnan(s)]
        low, tail = np.percentile(every, [5, 60])
        for name, values in scores.items():
            stay = [np.isnan(s) or low <= s < tail for s in values]
            known = [not np.isnan(s) for s in values]
            cut = len(stay) - sum(stay)
            if not any(a and b for a, b in zip(stay, known, strict=True)):
                rule = "nothing_left" if any(known) else "bucket"
                assert gone[name]["rule"] == rule and gone[name]["text"] == "\n".join(lines[name])
                continue
            row = kept[name]
            assert (row["perplexity.paragraphs"], row["perplexity.cut"]) == (sum(known), cut)
            left = [x for x, s in zip(lines[name], stay, strict=True) if s]
            assert row["text"].strip() == "\n".join(left).strip(), name
    assert {r["rule"] for r in gone.values()} == {"bucket", "nothing_left"}
    assert all(gone[r["id"]]["rule"] == "bucket" for r in rows if r.get("lang") not in LANGS)
    record = json.loads((bench.folder / "out" / "run.json").read_text())
    (decided,) = [s["decided"]["perplexity"] for s in record["stages"] if s.get("decided")]
    assert decided["en"]["by"] == "paragraph" and decided["en"]["low"] < decided["en"]["cuts"][0]
    assert sum(decided["en"]["histogram"]["counts"]) > 40


def test_a_cut_last_paragraph_leaves_no_line_end(models: Path, bench: Any) -> None:
    texts = ["w1 w2\nzz yy xx", "w1 w2\n\nzz yy xx\n", "zz yy xx\nw1 w2", "w1 w2\n"]
    rows = [{"id": str(i), "text": t, "lang": "en"} for i, t in enumerate(texts)]
    settings = {"by": "paragraph", "model": f"{models}/en.bin", "keep": "head,middle"}
    ends = NgramModel.open(models / "en.bin").perplexity(pa.array(texts[::3], pa.large_string()))
    cuts = {"en": (float(ends[1]) + 1e-9,) * 2}
    bench.run([{"perplexity": {**settings, "cuts": cuts}}], bench.jsonl("in.jsonl", rows))
    assert [r["text"] for r in bench.rows()] == ["w1 w2", "w1 w2", "w1 w2", "w1 w2\n"]


def test_by_paragraph_refuses_settings_for_whole_documents() -> None:
    for wrong in ({"least": 1}, {"first": True}, {"most": 9}):
        with pytest.raises(ValueError, match="apply to whole documents"):
            Perplexity(model="m.bin", by="paragraph", **wrong)
    with pytest.raises(ValueError, match="low must not end above"):
        Perplexity(model="m.bin", low=31)
    with pytest.raises(ValueError, match="needs cutoffs: own"):
        Perplexity(model="m.bin", low=1, cutoffs="ccnet")


def test_text_that_repeats_its_lines_is_low_by_first_occurrences(
    models: Path, bench: Any, draw_sentences: Any
) -> None:
    rows = documents(draw_sentences)
    again = {"id": "again", "text": "\n".join(rows[0]["text"].split("\n") * 20), "lang": "en"}
    path = bench.jsonl("in.jsonl", [*rows, again])
    settings = {"model": f"{models}/{{lang}}.bin", "least_first": 2}
    bench.run([{"perplexity": settings}], path)
    gone = bench.rows(kind="rejected")
    assert [r["id"] for r in gone] == ["again"]
    (reason,) = gone[0]["reasons"]
    assert reason["rule"] == "repeated" and reason["value"] < reason["threshold"] == 2
    for row in bench.rows():
        if row["perplexity.score"] is None:
            assert row["perplexity.first"] is None
        else:
            assert row["perplexity.first"] == pytest.approx(row["perplexity.score"])


def test_first_occurrences_are_lines_of_the_text(models: Path) -> None:
    """By hand from the scores of lines; a line is the same by its letters, not by its ids."""
    model = NgramModel.open(models / "en.bin")
    texts = ["w1 w2\nw3\nw1 w2\n\nw3 \nw3", "zz\nyy\nzz", "", "w1", "\x00\n\x1f\n \u2028w1\x85w1"]
    shortened = model.first_occurrences(pa.array(texts, pa.large_string()))
    for text, value in zip(texts, shortened, strict=True):
        lines = [line for line in text.splitlines() if line.strip()]
        if not lines:
            assert np.isnan(value)
            continue
        scores = model.by_document(pa.array(lines, pa.large_string()))
        new = dict(zip(lines, scores.log10, strict=True))
        assert value == pytest.approx(10 ** (-sum(new.values()) / scores.length.sum()))


def test_a_model_of_whole_documents_has_no_repeated_lines(
    tmp_path: Path, train_on: Any, draw_sentences: Any
) -> None:
    lines = [" ".join(s) for s in draw_sentences(200, 30, seed=1)]
    train_on(tmp_path, lines, "glued.bin", order=3, fallback=True, variant="ccnet")
    with pytest.raises(UsageError, match="treats a document as one sentence"):
        Perplexity(model=str(tmp_path / "glued.bin"), first=True).identity()
