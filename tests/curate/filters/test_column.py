"""Filtering by a column: numbers, lists, and missing values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from curate.documents.documents import documents
from curate.filters.column import ColumnFilter
from llmcurate.base.errors import UsageError


def rules(step: ColumnFilter, values: list[Any]) -> list[str | None]:
    ids = [str(i) for i in range(len(values))]
    docs = documents({"id": ids, "text": ["x"] * len(values), "score": values})
    _, rejected = step.apply(docs.within(step.name)).split()
    marked = {r["id"]: r["rule"] for r in rejected.to_pylist()}
    return [marked.get(i) for i in ids]


def test_values_at_the_limits_are_kept_and_non_numbers_count_as_missing() -> None:
    step = ColumnFilter(column="score", min=2, max=5)
    assert rules(step, [1, 2, 5, 6, None]) == ["too_low", None, None, "too_high", "missing"]
    assert rules(step, ["3", "many", "nan"]) == [None, "missing", "missing"]
    assert rules(ColumnFilter(column="score", min=2, max=2), [1, 2, 3]) == [
        "too_low", None, "too_high",
    ]  # fmt: skip
    step = ColumnFilter(column="score", min=2, missing="keep")
    assert rules(step, [1.5, None]) == ["too_low", None]


def test_lists_keep_and_drop_by_equal_text(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    file.write_text("science\n\nhistory \n", encoding="utf-8")
    assert rules(
        ColumnFilter(column="score", keep=(f"@{file}",)), ["history", "Science", None]
    ) == [
        None,
        "not_listed",
        "missing",
    ]
    step = ColumnFilter(column="score", drop=("spam",), missing="keep")
    assert rules(step, ["spam", "spammer", None]) == ["listed", None, None]
    assert step.resources() == [] and ColumnFilter(column="a", keep=("@f",)).resources() == ["f"]


def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"no column 'votes'; it has id, .*score"):
        rules(ColumnFilter(column="votes", min=1), [1])
    with pytest.raises(ValidationError, match="nothing would be kept"):
        ColumnFilter(column="a", min=2, max=1)


def test_a_language_is_listed_whatever_form_its_label_has() -> None:
    labels = ["en", "eng_Latn", "EN-us", "zh_Hant", "zho_Hans", "yue", "xx", None]
    step = ColumnFilter(column="lang", keep=("eng", "zho_Hant"))
    docs = documents({"id": [str(x) for x in labels], "lang": labels}).within(step.name)
    kept, _ = step.apply(docs).split()
    assert kept["id"].to_pylist() == ["en", "eng_Latn", "EN-us", "zh_Hant"]
