"""`llmcurate language`: label, train, evaluate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.demo.language import examples


@pytest.fixture(scope="module")
def pieces_file(shared_bench: Any) -> Path:
    pytest.importorskip("fasttext_pybind")
    rows = [{"id": f"p{i}", "text": t, "lang": c} for i, (t, c) in enumerate(examples())]
    rows.append({"id": "null", "text": "no label", "lang": None})
    return shared_bench.jsonl("pieces.jsonl", rows)


@pytest.fixture(scope="module")
def trained(shared_bench: Any, pieces_file: Path) -> Path:
    done = shared_bench.command(
        *("language", "train", pieces_file, "-o", "model", "--epochs", 5),
        *("--set", "language_model.bucket=5000", "--set", "language_model.maxn=3", "--json", "-q"),
    )
    assert done.returncode == 0, done.stderr
    return shared_bench.folder / "model"


def test_training_leaves_a_model_and_its_card(trained: Path, shared_bench: Any) -> None:
    card = json.loads((trained / "card.json").read_text())
    assert len(card["labels"]) == 10
    assert (trained / card["file"]).stat().st_size == card["bytes"]
    assert card["held_out"]["accuracy"] > 0.5
    assert "10 labels" in (trained / ".run" / "report.html").read_text()


def test_training_again_does_nothing(trained: Path, shared_bench: Any, pieces_file: Path) -> None:
    before = (trained / "language.bin").read_bytes()
    done = shared_bench.command(
        *("language", "train", pieces_file, "-o", "model", "--epochs", 5),
        *("--set", "language_model.bucket=5000", "--set", "language_model.maxn=3"),
    )
    assert "nothing to do" in done.stdout
    assert (trained / "language.bin").read_bytes() == before


@pytest.mark.lab
def test_evaluation_prints_the_figures(trained: Path, shared_bench: Any, pieces_file: Path) -> None:
    model = trained / "language.bin"
    done = shared_bench.command("language", "evaluate", model, "--on", pieces_file)
    assert done.returncode == 0, done.stderr
    assert "macro F1" in done.stdout
    done = shared_bench.command("language", "evaluate", model, "--on", pieces_file, "--json")
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["accuracy"] > 0.5
    assert result["skipped"] == 1


def test_labelling_keeps_what_was_asked_for(
    trained: Path, shared_bench: Any, pieces_file: Path
) -> None:
    done = shared_bench.command(
        *("language", pieces_file, "-o", "kept", "--keep", "en,deu", "--threshold", "0.1"),
        *("--model", trained / "language.bin", "--json"),
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["by_rule"].keys() == {"language.language"}
    assert {row["lang"] for row in shared_bench.rows("kept")} == {"en", "de"}


@pytest.mark.lab
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in.jsonl", "-o", "x", "--model", "nowhere.bin"], "nowhere.bin does not exist"),
        (["in.jsonl", "-o", "x", "--model", "in.jsonl"], "in.jsonl is not a fastText model"),
        (["in.jsonl", "-o", "x"], "no language model: give --set language.model=PATH"),
        (["evaluate", "in.jsonl", "--on", "in.jsonl"], "in.jsonl is not a fastText model"),
        (["train", "in.jsonl", "-o", "x", "--label-column", "tongue"], "no column 'tongue'"),
        (["train", "in.jsonl", "-o", "y"], "at least two labels"),
    ],
)
def test_wrong_use_is_a_one_line_error_with_exit_code_2(
    bench: Any, arguments: list[str], message: str
) -> None:
    pytest.importorskip("fasttext_pybind")
    bench.jsonl("in.jsonl", [{"text": "one text here", "lang": "en"}])
    done = bench.command("language", *arguments)
    assert done.returncode == 2, done.stderr
    last = [line for line in done.stderr.splitlines() if line.startswith("llmcurate:")]
    assert len(last) == 1 and message in last[0], done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.lab
def test_help_names_the_subcommands(bench: Any) -> None:
    done = bench.command("language", "--help")
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("train", "evaluate", "--keep"))
