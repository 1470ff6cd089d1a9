"""Tables and lines for a terminal: plain, aligned, as wide as it is, and words whole."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from llmcurate.base.terminal import WORDS, echo, fit_note, print_lines, table, wrapped

NUMBERS = ("least", "10 %", "median", "90 %", "most", "mean", "documents", "dropped", "kept")


def test_columns_are_aligned_by_the_width_of_characters() -> None:
    rows = [["\u65e5\u672c", "1"], ["plain", "1,000"]]
    assert table(("name", "n"), rows) == ["name       n", "\u65e5\u672c       1", "plain  1,000"]


def test_text_is_no_markup() -> None:
    assert table((), [["[red]x[/red]", "y"]], indent=2) == ["  [red]x[/red]  y"]


def test_a_table_without_rows_is_its_head() -> None:
    assert table(("a", "b"), []) == ["a  b"]


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 60 columns."""
    monkeypatch.setenv("COLUMNS", "60")


@pytest.mark.usefixtures("columns")
def test_the_widest_text_wraps_below_itself() -> None:
    lines = table(("step", "in", "reasons"), [["c4", "7", "few sentences, " * 5]], left=(0, 2))
    assert lines == [
        "step  in  reasons",
        "c4     7  few sentences, few sentences, few sentences, few",
        "          sentences, few sentences,",
    ]


@pytest.mark.usefixtures("columns")
def test_a_row_is_printed_below_a_name_that_leaves_no_room() -> None:
    names = ["gopher_repetition.duplicate_10_gram_chars", "c4.lines"]
    rows = [[name, *("1,000" for _ in range(6))] for name in names]
    lines = table(("of", *NUMBERS[:6]), rows)
    assert lines[:4] == [
        "of",
        "  least   10 %  median   90 %   most   mean",
        names[0],
        "  1,000  1,000   1,000  1,000  1,000  1,000",
    ]


@pytest.mark.usefixtures("columns")
def test_a_row_with_too_many_numbers_is_a_block() -> None:
    rows = [["c4", *(f"{10**n:,}" for n in range(9))]]
    lines = table(("step", *NUMBERS), rows)
    assert lines[0] == "c4" and lines[-1] == "  kept       100,000,000"
    assert lines[1] == "  least                1"


@pytest.mark.usefixtures("columns")
def test_a_word_wider_than_the_terminal_is_whole() -> None:
    path = "/a/path/" + "x" * 80
    assert f"  {path}" in table((), [["report", path]], left=(0, 1))
    assert wrapped(f"wrote {path} in 2 s", 60) == ["wrote", f"  {path}", "  in 2 s"]


@pytest.mark.usefixtures("columns")
@given(st.lists(st.text("ab \u65e5", max_size=90), min_size=3, max_size=12))
@settings(max_examples=30)
def test_tables_keep_all_words_and_fit(cells: list[str]) -> None:
    rows = [cells[i : i + 3] for i in range(0, len(cells), 3)]
    lines = table(("name", "what it is", "n"), rows, left=(0, 1))
    fit = [cell_len(line) <= 60 or len(WORDS.findall(line)) == 1 for line in lines]
    assert all(fit)
    assert set(" ".join(cells).split()) <= set(" ".join(lines).split())


def test_a_command_breaks_as_a_shell_takes_it() -> None:
    line = "next: llmcurate pretrain shards -o model --steps 100"
    assert wrapped(line, 32) == [
        "next: llmcurate pretrain \\",
        "  shards -o model --steps 100",
    ]


def test_lines_break_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_lines("word " * 20)
    assert capsys.readouterr().err.count("\n") == 1
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout", stream)
    echo("word " * 20)
    assert [len(line) for line in stream.getvalue().splitlines()] == [59, 41]


def test_a_note_loses_its_last_parts() -> None:
    note = "loss 7.341, 3,666 tokens/s, 0.0579 TFLOP/s"
    assert fit_note(note, 30) == "loss 7.341, 3,666 tokens/s"
    assert fit_note("compiling kernels once", 20) == "compiling kernels"
