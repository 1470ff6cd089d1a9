"""Figures of rules: marks, first reasons, rules that stood alone, and which column a rule read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.documents.documents import CORE, NUMBER, documents
from curate.documents.limits import Limit
from curate.inspect.report import rules
from curate.inspect.report.rules import RuleFigures
from curate.inspect.report.store import opened, read_rows
from curate.steps.profiled import LimitByLang
from llmcurate.base.messages import json_values

ROWS = 400


def judged(count: int = ROWS) -> Any:
    """Documents with 0 .. count - 1 words; `few` drops below 50, `odd` every odd one, `nine` what
    ends in 9, `silent` one without a value."""
    words = np.arange(count)
    docs = documents(
        {"id": [f"d{i:04d}" for i in words], "text": [f"text <{i}>" for i in words]}, CORE
    ).within("judge")
    docs = docs.annotate("size", words.astype(np.int32))
    docs = docs.annotate("half", words / 2)
    docs = docs.annotate("noise", (words * 7) % 13)
    docs = docs.drop(words < 50, "few", words, 50)
    docs = docs.drop(words % 2 == 1, "odd", words % 2, 0)
    docs = docs.drop(words % 10 == 9, "nine", words / 2)
    return docs.drop(words == 2, "silent", detail=["why"] * count)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules")
    for name, table in zip(("corpus", "rejected"), judged().split(), strict=True):
        (folder / name).mkdir()
        half = table.num_rows // 2
        for i, part in enumerate((table.slice(0, half), table.slice(half))):
            path = folder / name / f"part-{i:05d}.parquet"
            pq.write_table(part.drop_columns([NUMBER]), path, row_group_size=30)
    return folder


@pytest.fixture(scope="module")
def figures(out: Path) -> RuleFigures:
    with opened(out) as store:
        assert store is not None
        return rules.gather(store)


@pytest.mark.parametrize(("main", "threshold"), [("en", 60.0), ("th", 20.0), (None, 60.0)])
def test_a_rule_with_limits_by_language_has_the_main_languages(
    out: Path, main: str | None, threshold: float
) -> None:
    thai = SimpleNamespace(of=lambda label: SimpleNamespace(code="th") if label == "th" else None)
    limit = LimitByLang("few", "judge.size", "few", 60, False, others={"th": 20.0}, profiles=thai)
    with opened(out) as store:
        assert store is not None
        rule = rules.gather(store, {"judge.few": limit}, main).rules["judge.few"]
    assert (rule.threshold, rule.above, rule.language) == (threshold, False, main)
    assert rule.column == "judge.size" and rule.all is not None


def test_threads_count_the_same(out: Path, figures: RuleFigures) -> None:
    with opened(out, threads=3) as store:
        assert store is not None
        assert json_values(rules.gather(store)) == json_values(figures)


def test_marks_first_reasons_and_documents_of_one_rule_are_counted(figures: RuleFigures) -> None:
    few, odd, nine = (figures.rules[f"judge.{n}"] for n in ("few", "odd", "nine"))
    assert (few.marked, odd.marked, nine.marked) == (50, 200, 40)
    assert (few.first, odd.first, nine.first) == (50, 175, 0)
    # few alone: even and below 50, but for the one that `silent` marks too.
    assert (few.only, odd.only, nine.only) == (24, 140, 0)


def test_overlap_counts_documents_that_two_rules_mark(figures: RuleFigures) -> None:
    assert figures.pairs["judge.few", "judge.odd"] == 25
    assert figures.pairs["judge.nine", "judge.odd"] == 40
    assert json_values(figures)["overlap"][0] == ["judge.nine", "judge.odd", 40]


def test_of_pairs_the_300_most_frequent_are_in_the_record_of_equal_ones_by_name() -> None:
    pairs = {("a", f"b{n:03d}"): 5 for n in reversed(range(301))}
    overlap = json_values(RuleFigures(pairs=pairs | {("a", "z"): 6}))["overlap"]
    assert overlap == [["a", "z", 6], *(["a", f"b{n:03d}", 5] for n in range(299))]


def test_the_range_of_a_whole_column_is_one_of_whole_numbers(figures: RuleFigures) -> None:
    size, half = (figures.ranges[f"judge.{name}"] for name in ("size", "half"))
    assert (size.integer, size.count, size.least, size.most) == (True, ROWS, 0, ROWS - 1)
    assert (half.integer, half.total) == (False, sum(range(ROWS)) / 2)


def test_a_rules_column_is_the_one_that_holds_its_values(figures: RuleFigures) -> None:
    assert figures.rules["judge.few"].column == "judge.size"
    assert figures.rules["judge.silent"].column is None


def test_a_column_that_does_not_separate_kept_from_dropped_is_not_taken_for_the_rules(
    figures: RuleFigures,
) -> None:
    # `nine` gives the values of `half`, but kept documents lie among them: no limit parts them.
    assert figures.rules["judge.nine"].column is None


def test_a_column_that_the_step_declares_is_the_rules(out: Path, figures: RuleFigures) -> None:
    columns = {"judge.nine": "judge.half", "judge.silent": "judge.gone"}
    limits = {rule: Limit(rule, column, "", 4, above=True) for rule, column in columns.items()}
    with opened(out) as store:
        assert store is not None
        gathered = rules.gather(store, limits)
    assert gathered.rules["judge.nine"].column == "judge.half"
    assert sum(json_values(gathered.rules["judge.nine"])["histogram"]["marked"]) == 40
    # One that no file has is none, and the others are found as without.
    assert gathered.rules["judge.silent"].column is None
    assert json_values(gathered.rules["judge.few"]) == json_values(figures.rules["judge.few"])


def test_the_side_on_which_a_rule_drops_is_known_from_its_values(figures: RuleFigures) -> None:
    assert figures.rules["judge.few"].above is False and figures.rules["judge.odd"].above is True
    assert figures.rules["judge.nine"].above is None


def test_histograms_count_every_measured_document_and_those_marked(figures: RuleFigures) -> None:
    few = json_values(figures.rules["judge.few"])["histogram"]
    assert sum(few["counts"]) == ROWS and sum(few["marked"]) == 50
    assert all(m <= c for m, c in zip(few["marked"], few["counts"], strict=True))
    assert set(figures.others) == {"judge.half", "judge.noise"}


def test_examples_are_the_same_whatever_the_order_of_rows(out: Path, tmp_path: Path) -> None:
    def chosen(folder: Path) -> dict[str, list[str]]:
        with opened(folder) as store:
            assert store is not None
            examples = rules.gather_examples(store, rules.gather(store).rules)
        return {k: [e.id for e in v] for k, v in examples.items()}

    for name in ("corpus", "rejected"):
        (tmp_path / name).mkdir()
        paths = sorted((out / name).glob("*.parquet"))
        table = pa.concat_tables([pq.read_table(p) for p in reversed(paths)])
        pq.write_table(table, tmp_path / name / "part-00000.parquet")
    assert chosen(out) == chosen(tmp_path)
    assert len(chosen(out)["judge.few"]) == rules.EXAMPLES


def test_examples_are_shown_with_value_limit_and_other_rules(out: Path) -> None:
    with opened(out) as store:
        assert store is not None
        examples = rules.gather_examples(store, rules.gather(store).rules)
    (silent,) = examples["judge.silent"]
    assert silent.id == "d0002" and silent.detail == "why" and silent.also == ("judge.few",)
    few = examples["judge.few"][0]
    assert few.threshold == 50 and few.value == float(few.id[1:]) and few.text.startswith("text <")


def test_rows_are_read_by_place_and_cut(out: Path) -> None:
    path = str(out / "corpus" / "part-00001.parquet")
    whole = pq.read_table(path).to_pylist()
    rows = read_rows([(path, 3), (path, 40), (path, len(whole) - 1)], ["id", "text"], 6)
    assert [rows[path, n]["id"] for n in (3, 40)] == [whole[3]["id"], whole[40]["id"]]
    assert rows[path, 3]["text"] == "text <"


def test_a_run_that_kept_or_rejected_nothing_has_figures_too(tmp_path: Path) -> None:
    for part, drop in enumerate((True, False)):
        docs = documents({"id": ["a"], "text": [None]}, CORE).within("s")
        docs = docs.annotate("n", np.array([np.nan]))
        docs = docs.drop(np.array([drop]), "r", np.array([np.nan]), 1)
        folder = tmp_path / str(part)
        for name, table in zip(("corpus", "rejected"), docs.split(), strict=True):
            (folder / name).mkdir(parents=True)
            pq.write_table(table, folder / name / "part-00000.parquet")
        with opened(folder) as store:
            assert store is not None
            gathered = rules.gather(store)
            rules.gather_examples(store, gathered.rules)
        assert [r.marked for r in gathered.rules.values()] == ([1] if drop else [])
