"""`llmcurate quality`: score, train, evaluate, threshold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.cli.app import invoke
from tests.llmcurate.base.pages.structure import check_structure

Sets = tuple[Path, Path]
SMALL = ("--dim", 10, "--bucket", 2000, "--lr", 0.5)


@pytest.fixture(scope="module")
def trained(shared_bench: Any, sets: Sets) -> Path:
    pytest.importorskip("fasttext_pybind")
    options = ("--positive", sets[0], "--negative", sets[1], "--balance", *SMALL)
    done = shared_bench.command("quality", "train", *options, "-o", "model")
    assert done.returncode == 0, done.stderr
    assert "ROC AUC" in done.stdout
    following = done.stderr.rpartition("next: llmcurate ")[2].split()
    assert following[2] == "model/quality.bin"
    suggested = shared_bench.command(*following)
    assert suggested.returncode == 0, suggested.stderr
    return shared_bench.folder / "model" / "quality.bin"


def test_the_printed_threshold_keeps_the_requested_fraction(
    trained: Path, sets: Sets, shared_bench: Any
) -> None:
    done = shared_bench.command("quality", "threshold", trained, *sets, "--keep-fraction", 0.1)
    assert done.returncode == 0, done.stderr
    _, limit, _, kept, *_ = done.stdout.split()
    assert int(kept) >= 40
    done = shared_bench.command(
        *("quality", *sets, "--model", trained, "--threshold", limit, "-o", "kept", "--json")
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["kept"] == int(kept)


def test_the_folder_of_a_trained_model_stands_for_its_file(
    trained: Path, sets: Sets, shared_bench: Any
) -> None:
    said = [
        shared_bench.command("quality", "threshold", model, sets[0], "--keep-fraction", 0.5).stdout
        for model in (trained, trained.parent)
    ]
    assert said[0] == said[1] != ""


def test_labels_with_scores_train_a_classifier(sets: Sets, shared_bench: Any) -> None:
    pytest.importorskip("fasttext_pybind")
    rows = [
        {**json.loads(line), "score": score}
        for path, score in zip(sets, (3, 2), strict=True)
        for line in path.read_text().splitlines()
    ]
    shared_bench.jsonl("labels.jsonl", rows)
    labels = ("quality", "train", "--labels", "labels.jsonl", *SMALL)
    done = shared_bench.command(*labels, "-o", "by-labels")
    assert done.returncode == 0, done.stderr
    assert "Cohen's kappa" in done.stdout and "trained on" in done.stdout
    card = json.loads((shared_bench.folder / "by-labels" / "card.json").read_text())
    assert sum(card["labels"]["hq"].values()) == 150
    done = shared_bench.command(*labels, "--from-score", 4, "-o", "none")
    assert done.returncode == 2 and "--labels with scores from 4 on has no document" in done.stderr
    for more in ((), ("--labels", "x", "--positive", sets[0]), ("--negative", sets[1])):
        done = shared_bench.command("quality", "train", *more, "-o", "none")
        assert done.returncode == 2 and "or --labels instead of both" in done.stderr


def test_uncalibrated_scores_are_reported(sets: Sets, shared_bench: Any) -> None:
    pytest.importorskip("fasttext_pybind")
    options = ("--positive", sets[0], "--negative", sets[1], *SMALL[:4], "--lr", 0.001)
    done = shared_bench.command("quality", "train", *options, "-o", "unsure")
    assert done.returncode == 0, done.stderr
    assert "are not probabilities" in done.stdout


@pytest.mark.lab
def test_an_evaluation_has_figures_and_a_page(trained: Path, sets: Sets, shared_bench: Any) -> None:
    options = ("--positive", sets[0], "--negative", sets[1])
    done = shared_bench.command("quality", "evaluate", trained, *options, "-o", "page", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["roc_auc"] > 0.95
    assert figures["documents"] == {"positive": 150, "negative": 250}
    assert len(figures["deciles"]) == 10
    assert json.loads((shared_bench.folder / "page" / "evaluation.json").read_text()) == figures
    page = (shared_bench.folder / "page" / "evaluation.html").read_text()
    check_structure(page)
    assert page.count("<svg") == 5
    assert "could not be drawn" not in page
    assert "<script" not in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["MODEL", "nowhere.jsonl", "--keep-fraction", "0.1"], "nowhere.jsonl"),
        (["GOOD", "GOOD", "--keep-fraction", "0.1"], "is not a fastText model"),
        (["MODEL", "GOOD", "--keep-fraction", "0"], "--keep-fraction 0: give more than 0"),
        (["MODEL", "page.html", "--keep-fraction", "0.1"], "run `llmcurate extract` first"),
        (["MODEL", "GOOD", "--keep-fraction", "0.1", "--label", "x"], "has no label 'x'"),
    ],
    ids=["no input", "no model", "no fraction", "web pages", "no label"],
)
def test_wrong_use_is_a_one_line_error(
    arguments: list[str],
    message: str,
    trained: Path,
    sets: Sets,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>hello")
    places = {"MODEL": trained, "GOOD": sets[0], "page.html": page}
    assert invoke(["quality", "threshold", *(str(places.get(a, a)) for a in arguments)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
