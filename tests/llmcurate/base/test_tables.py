"""Tables for a terminal: plain, aligned, and never wrapped."""

from __future__ import annotations

from llmcurate.base.terminal import table


def test_columns_are_aligned_by_the_width_of_characters() -> None:
    rows = [["\u65e5\u672c", "1"], ["plain", "1,000"]]
    assert table(("name", "n"), rows) == ["name       n", "\u65e5\u672c       1", "plain  1,000"]


def test_text_is_neither_markup_nor_wrapped() -> None:
    rows = [["[red]x[/red]", "y" * 500]]
    assert table((), rows, left=(0, 1), indent=2) == [f"  [red]x[/red]  {'y' * 500}"]


def test_only_bold_cells_have_codes() -> None:
    lines = table(("", "a"), [["x", "1"], ["y", "22"]], bold=[(1, 1)])
    assert lines == ["    a", "x   1", "y  \x1b[1m22\x1b[0m"]


def test_a_table_without_rows_is_its_head() -> None:
    assert table(("a", "b"), []) == ["a  b"]
