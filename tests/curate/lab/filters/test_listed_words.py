"""The share of words on a list, from a file or from the recipe."""

from __future__ import annotations

from pathlib import Path

from curate.lab.filters.listed_words import ListedWords
from tests.curate.filters.filter_texts import JUNK, applied


def test_words_without_signs_at_their_ends_are_compared_in_lower_case() -> None:
    step = ListedWords(words=("the", "of"), min=0.5, max=0.9)
    docs, rules = applied(step, ['The" (house)\tof\nx', "the", "", "-- a"])
    assert docs.table["listed_words.share"].to_pylist() == [0.5, 1, 0, 0]
    assert rules == [set(), {"many"}, {"few"}, {"few"}]


def test_a_file_has_one_word_a_line(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("The\n\n of \n", encoding="utf-8")
    step = ListedWords(words=tmp_path / "words.txt", max=0.4)
    assert applied(step, ["of a", "a b c"])[1] == [{"many"}, set()]
    assert step.resources() == [str(tmp_path / "words.txt")]


def test_junk_is_measured() -> None:
    applied(ListedWords(words=("a",)), [*JUNK, None])
