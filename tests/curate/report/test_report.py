"""The report: one file, no outside requests, text from documents shown as text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from curate.recipe import compose
from curate.report.funnel import amount, rows, text
from curate.report.records import read_record
from curate.run import Options, run_recipe

SENTENCES = "The river runs past the old mill. Nobody works there any more. It is quiet now."


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    texts = [f"{SENTENCES} Page {i} ends here." for i in range(5)] + ["short", SENTENCES, SENTENCES]
    lines = [json.dumps({"text": t}) for t in texts]
    source = folder / "<script>alert(1)</script>.jsonl".replace("/", "_")
    source.write_text("\n".join([*lines, "{broken <b>"]))
    chosen = [("c4", {}), ("dedup_exact", {"survivor": "first"})]
    run_recipe(compose("test", chosen, ()), [str(source)], folder / "out", Options(1, True))
    return folder / "out"


def test_the_funnel_adds_up_step_by_step(out: Path) -> None:
    record = read_record(out)
    steps = rows(record)
    assert [(r.step, r.before, r.dropped, r.after) for r in steps] == [
        ("c4", 8, 1, 7),
        ("dedup_exact", 7, 1, 6),
    ]
    assert steps[0].rules == {"few_sentences": 1} and steps[1].rules == {"same_text": 1}
    assert "kept 6 documents" in text(record)


def test_a_skipped_rule_is_said(out: Path) -> None:
    assert "no bad word list was given" in text(read_record(out))
    assert "no bad word list was given" in (out / "report.html").read_text()


def test_the_page_is_self_contained_and_escapes_names(out: Path) -> None:
    page = (out / "report.html").read_text()
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert not re.search(r"""(?:src|href)\s*=|url\(|@import""", page)


def test_corrupt_lines_are_listed_with_file_and_offset(out: Path) -> None:
    record = read_record(out)
    assert record["totals"]["corrupt"] == 1
    listed = [json.loads(line) for line in (out / "corrupt.jsonl").read_text().splitlines()]
    assert listed[0]["offset"] > 0 and "not JSON" in listed[0]["what"]


def test_amounts_are_readable() -> None:
    assert [amount(n) for n in (0, 999, 1000, 123_456, 5_600_000, 7e12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "123 kB",
        "5.6 MB",
        "7000 GB",
    ]
