"""Highlighted words in a text, and the passage shown around them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.documents.rejected import Reason
from curate.inspect.browse.hits import divided, hits, passage
from curate.inspect.browse.originals import Run
from curate.inspect.browse.pages import CHARS, Document


def marked(text: str, words: str = "", *rules: str, detail: str | None = None) -> list[str]:
    reasons = [Reason("c4", rule, 1.0, 0.0, detail) for rule in rules]
    return [text[a:b] for a, b in hits(text, words, reasons)]


def test_words_of_a_search_are_found_in_any_case_and_as_they_are() -> None:
    assert marked("A mill. The Mill.* İmill", "mill") == ["mill", "Mill", "mill"]
    assert marked("1 + (1", "(1") == ["(1"] and marked("text", "[") == []


@pytest.mark.parametrize(("rules", "text", "wanted"), [
    (("curly_bracket",), "if { } {", ["{", "{"]),
    (("lorem_ipsum",), "so Lorem Ipsum so", ["Lorem Ipsum"]),
    (("few_words",), "a {", []),
    (("few_words", "curly_bracket"), "a {", ["{"]),
    (("top_2_gram_chars",), "a b c a b d a b", ["a b", "a b", "a b"]),
    (("duplicate_2_gram_chars",), "x a b c y a b c", ["a b c", "a b c"]),
    (("duplicate_3_gram_chars",), "a b", []),
])  # fmt: skip
def test_a_rule_highlights_the_text_that_triggered_it(
    rules: tuple[str, ...], text: str, wanted: list[str]
) -> None:
    assert marked(text, "", *rules) == wanted


def test_only_a_bad_words_detail_is_looked_for() -> None:
    assert marked("de facto", "", "language", detail="de") == []
    assert marked("one Bad word", "", "bad_word", detail="bad") == ["Bad"]


def test_a_search_comes_before_the_rules() -> None:
    assert marked("a { b", "b", "curly_bracket") == ["b"]


def test_a_passage_begins_and_ends_between_words() -> None:
    text = "word " * 100 + "HIT " + "more " * 100
    shown = "".join(piece for piece, _ in passage(text, hits(text, "hit", ()), 120))
    assert re.fullmatch(r"\u2026 (word )+HIT (more ?)+ \u2026", shown)
    assert "".join(p for p, _ in passage("short", [], 60)) == "short"
    assert len("".join(p for p, _ in passage("x" * 999, [], 60))) == 62


@given(st.text("ab \n{", max_size=80), st.integers(1, 40))
def test_a_passage_holds_its_hit_and_pieces_make_the_text(text: str, most: int) -> None:
    spans = hits(text, "{", ())
    assert "".join(piece for piece, _ in divided(text, 0, len(text), spans)) == text
    assert any(hit for _, hit in passage(text, spans, most + 80)) == bool(spans)


def test_a_page_shows_a_hit_deep_in_a_text_with_ellipses_around_it() -> None:
    text = "before " * 9_000 + "NEEDLE" + " behind" * 9_000
    shown = Document({"text": text}, True, None).parts("needle")
    assert [part for part, is_hit, *_ in shown if is_hit] == ["NEEDLE"]
    assert shown[0][0] == shown[-1][0] == "\u2026" and sum(len(p) for p, *_ in shown) == CHARS + 2


def test_hits_keep_their_positions_between_cuts() -> None:
    runs = [Run(b"see "), Run(b"mill cut", cut="c4.x"), Run("the \u00e4 mill".encode())]
    shown = Document({"text": "see the \u00e4 mill"}, True, None, runs).parts("mill")
    wanted = ["see ", "mill cut", "the \u00e4 ", "mill"]
    assert [p for p, *_ in shown] == wanted and [p for p, hit, *_ in shown if hit] == ["mill"]
