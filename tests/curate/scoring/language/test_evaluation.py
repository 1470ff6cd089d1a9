"""A model held against labelled texts: F1 by language, calibration, confusions, the page."""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from curate.demo.language import examples
from curate.lab.evaluate.classifiers import NO_LABEL, LanguageEvaluation, evaluate_language
from curate.scoring.language.scores import BINS, Scores, calibration, text_of
from llmcurate.base.errors import UsageError
from llmcurate.base.pages import charts
from tests.llmcurate.base.pages.structure import check_structure


def filled() -> Scores:
    """English 3 of 4 found, once as German; German 1 of 2, once as nothing; Polish is unknown."""
    scores = Scores(["en", "de", "fr"])
    scores.add(["en"] * 4, ["en", "en", "en", "de"], [30] * 4, [0.9, 0.9, 0.6, 0.6])
    scores.add(["de", "de"], ["de", None], [30, 0], [1.0, 0.0])
    scores.add(["pl"], ["de"], [30], [0.3])
    return scores


def found() -> dict[str, Any]:
    scores = filled()
    matrix = [[w, h, n] for (w, h), n in scores.pairs().items()]
    return {"model": "model.bin", **scores.result(), "matrix": matrix}


def test_precision_recall_and_f1_of_each_language() -> None:
    german, english = filled().result()["languages"]
    assert english == {
        "label": "eng",
        "texts": 4,
        "found": 3,
        "right": 3,
        "precision": 1.0,
        "recall": 0.75,
        "f1": round(6 / 7, 6),
    }
    # Found three times, once in a text of a language that the model does not know.
    assert (german["found"], german["precision"], german["recall"]) == (3, round(1 / 3, 6), 0.5)
    macro = (6 / 7 + 2 / 5) / 2
    assert filled().result()["known"]["macro_f1"] == pytest.approx(macro, abs=1e-6)


def test_every_pair_is_in_the_matrix() -> None:
    assert filled().pairs() == {
        ("eng", "eng"): 3,
        ("eng", "deu"): 1,
        ("deu", "deu"): 1,
        ("deu", None): 1,
        ("pol", "deu"): 1,
    }


def test_calibration_is_guos_error_over_ten_bins() -> None:
    draw = random.Random(0)
    texts = [(draw.random(), draw.random() < 0.7) for _ in range(500)] + [(1.0, True), (0.0, False)]
    scores = Scores(["en", "de"])
    scores.add(
        ["en"] * len(texts),
        ["en" if right else "de" for _, right in texts],
        [9] * len(texts),
        [score for score, _ in texts],
    )
    wanted = 0.0
    for place in range(BINS):
        inside = [t for t in texts if min(BINS - 1, int(BINS * t[0])) == place]
        wanted += abs(sum(r for _, r in inside) - sum(s for s, _ in inside)) / len(texts)
    calibration = scores.result()["calibration"]["known"]
    assert calibration["error"] == pytest.approx(wanted, abs=1e-6)
    assert sum(row["texts"] for row in calibration["bins"]) == len(texts)
    assert [row["from"] for row in calibration["bins"]] == [i / 10 for i in range(10)]


def test_a_text_at_a_border_is_in_the_class_that_begins_there() -> None:
    scores = Scores(["en"])
    lengths = (0, 19, 20, 49, 50, 99, 100, 199, 200, 499, 500, 9999)
    scores.add(["en"] * 12, ["en"] * 12, lengths, [0.0, 0.1, 0.19, 0.2, 0.5, 0.59] + [1.0] * 6)
    result = scores.result()
    assert [(row["from"], row["texts"]) for row in result["by_length"]] == [
        (0, 2), (20, 2), (50, 2), (100, 2), (200, 2), (500, 2),
    ]  # fmt: skip
    bins = {row["from"]: row["texts"] for row in result["calibration"]["all"]["bins"]}
    assert bins == {0.0: 1, 0.1: 2, 0.2: 1, 0.5: 2, 0.9: 6}


def test_equally_frequent_confusions_are_sorted_by_label() -> None:
    pairs = [("fr", "en"), ("de", None), ("de", "fr"), ("de", "en"), ("en", "fr"), ("en", "fr")]
    for order in (pairs, pairs[::-1]):
        scores = Scores(["en", "de", "fr"])
        expected, found = zip(*order, strict=True)
        scores.add(expected, found, [9] * 6, [0.5] * 6)
        rows = [(c["expected"], c["found"], c["texts"]) for c in scores.result()["confusions"]]
        assert rows == [("eng", "fra", 2), ("deu", None, 1), ("deu", "eng", 1), ("deu", "fra", 1),
                        ("fra", "eng", 1)]  # fmt: skip


def test_scores_that_mean_what_they_say_have_no_error() -> None:
    assert calibration([(10, 5, 5.0), (0, 0, 0.0)])["error"] == 0
    assert calibration([(10, 10, 5.0)])["error"] == 0.5
    assert calibration([(0, 0, 0.0)]) == {"error": None, "bins": []}


def test_texts_in_unknown_languages_are_apart_in_calibration() -> None:
    result = filled().result()["calibration"]
    assert sum(row["texts"] for row in result["all"]["bins"]) == 7
    assert sum(row["texts"] for row in result["known"]["bins"]) == 6
    assert "differ from the accuracy by" in text_of(filled().result())


def test_the_page_shows_what_was_found_and_runs_nothing() -> None:
    page = LanguageEvaluation({"inputs": ["in.jsonl"], **found()}).page()
    for words in ("macro F1 of 2 languages", "Unknown languages", "Calibration", "taken for"):
        assert words in page
    assert page.count("<svg") == 2
    assert "could not be drawn" not in page
    assert not any(word in page for word in ("<script", "http-equiv=refresh", "src="))
    assert NO_LABEL in page


def test_labels_are_text_on_the_page() -> None:
    scores = Scores(["<b>x", "de"])
    scores.add(["<b>x", "de"], ["de", "de"], [9, 9], [0.5, 0.5])
    matrix = [[w, h, n] for (w, h), n in scores.pairs().items()]
    about = {"model": "<i>", "inputs": ["<u>"], "matrix": matrix}
    page = LanguageEvaluation({**scores.result(), **about}).page()
    assert not any(tag in page for tag in ("<b>x", "<i>", "<u>"))


def test_a_model_without_a_mistake_has_a_page_too() -> None:
    scores = Scores(["en"])
    scores.add(["en"], ["en"], [9], [1.0])
    about = {"model": "m", "inputs": ["in"], "matrix": [["eng", "eng", 1]]}
    page = LanguageEvaluation({**scores.result(), **about}).page()
    assert "Confusions" not in page


def test_the_heat_map_draws_only_pairs_that_occur() -> None:
    cells = {("a", "a"): 1.0, ("a", "b"): 0.25, ("b", "a"): 0.0}
    drawn = charts.heat(["a", "b"], cells, "pairs")
    assert drawn == charts.heat(["a", "b"], cells, "pairs")
    assert drawn.count("fill-opacity") == 1  # the root of 0.25; 1 needs none
    assert 'fill-opacity="0.5"' in drawn and "var(--accent)" in drawn


def test_evaluation_is_written_beside_what_is_printed(
    model: Path, bench: Any, tmp_path: Path
) -> None:
    rows = [{"text": t, "lang": c} for t, c in islice(examples(), 200)]
    source = bench.jsonl("in.jsonl", rows)
    out = tmp_path / "evaluation"
    done = bench.command("language", "evaluate", model, "--on", source, "-o", out, "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    assert json.loads((out / "evaluation.json").read_text()) == printed
    assert sum(n for _, _, n in printed["matrix"]) == printed["texts"] == 200
    page = (out / "evaluation.html").read_text()
    check_structure(page)
    assert "Language identification" in page
    wrong = bench.command("language", "evaluate", model, "--on", source, "-o", source)
    assert wrong.returncode == 2
    assert "is a file; name a folder" in wrong.stderr


def test_evaluating_needs_no_library(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import pyarrow as pa

    monkeypatch.setitem(sys.modules, "fasttext_pybind", None)
    batch = pa.record_batch({"text": ["Das ist ein Satz."], "lang": ["__label__de"]})
    result = evaluate_language(model, [batch], "lang")
    assert result["texts"] == 1
    with pytest.raises(UsageError, match="no document has a label"):
        evaluate_language(model, [pa.record_batch({"text": ["x"], "lang": [""]})], "lang")
