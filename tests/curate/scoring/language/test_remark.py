"""A run whose language step drops most of the input says what the input is in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.curate.scoring.language.labelled_texts import CHINESE, ENGLISH, GERMAN


def totals(bench: Any, model: Path, german: int, english: int) -> Any:
    rows = [{"text": text} for text in [GERMAN] * german + [ENGLISH] * english]
    step = {"language": {"model": str(model), "keep": ["en"]}}
    return bench.run([step], bench.jsonl("in.jsonl", rows)).totals()


def test_a_run_that_keeps_nothing_names_the_inputs_language(bench: Any, model: Path) -> None:
    line = totals(bench, model, 3, 0).nothing_kept
    assert line.endswith("language dropped 3 of 3 (language 3); the input is mostly de")


def test_a_step_that_drops_most_is_remarked_upon(bench: Any, model: Path) -> None:
    remark = totals(bench, model, 3, 1).remark
    assert remark == "language dropped 75 % of all documents; the input is mostly de"
    assert totals(bench, model, 1, 2).remark is None


def test_the_languages_of_a_mixed_input_are_counted(bench: Any, model: Path) -> None:
    texts = [*[GERMAN] * 3, *[CHINESE] * 4, *[ENGLISH] * 2]
    source = bench.jsonl("in.jsonl", [{"text": text} for text in texts])
    done = bench.run([{"language": {"model": str(model), "keep": ["en"]}}], source)
    remark = "language dropped 78 % of all documents; by language: zh 4, de 3"
    assert done.totals().remark == remark


def test_a_run_that_keeps_few_documents_says_how_many(bench: Any, model: Path) -> None:
    remark = totals(bench, model, 39, 1).remark
    assert remark.startswith("few were kept, 1 of 40 documents: language dropped 39 of 40 (")
