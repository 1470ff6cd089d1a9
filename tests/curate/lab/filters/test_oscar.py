"""OSCAR's rules: lines and annotations as ungoliant has them."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from curate.documents.documents import documents
from curate.lab.filters.oscar import Oscar

LONG = (
    "This line is long enough to be a sentence: " + "it has more than one hundred characters. " * 2
)


def reference(text: str) -> tuple[str | None, str, list[str]]:
    """(the rule that drops, the text, its annotations); pipeline.rs and src/transformers."""
    lines = text.split("\n")
    while lines and len(lines[0]) <= 100:
        lines.pop(0)
    while lines and len(lines[-1]) <= 100:
        lines.pop()
    if not lines:
        return "no_long_line", text, []
    if sum(len(x) for x in lines if len(x) >= 100) < 0.6 * sum(map(len, lines)):
        return "short_lines", text, []
    text, found = "\n".join(lines), []
    if len(lines) < 5:
        found.append("tiny")
    if sum(len(x) <= 100 for x in lines) > int(0.5 * len(lines)):
        found.append("short_sentences")
    edge = int(len(lines) * 0.2)
    for name, part in (("header", lines[:edge]), ("footer", lines[::-1][:edge])):
        if sum(len(x.encode()) < 100 for x in part) > int(edge * 0.5):
            found.append(name)
    if sum(unicodedata.category(c)[0] not in "LM" for c in text) > int(len(text) * 0.5):
        found.append("noisy")
    return ("noisy_tiny" if {"noisy", "tiny"} <= {*found} else None), text, found


def check(values: list[str]) -> None:
    ids = [str(i) for i in range(len(values))]
    done = Oscar().apply(documents({"id": ids, "text": values}).within("oscar"))
    kept, gone = done.split()
    rules = {r["id"]: r["rule"] for r in gone.to_pylist()}
    texts = {r["id"]: (r["text"], r["oscar.warnings"]) for r in kept.to_pylist()}
    for i, text in zip(ids, values, strict=True):
        rule, left, found = reference(text)
        assert rules.get(i) == rule, text
        if rule is None:
            assert texts[i] == (left, found), text


line = st.sampled_from(
    [LONG, "short", "", "é" * 60, LONG + "é" * 20, "+" * 130, "=" * 101, "x" * 100]
)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.lists(line, max_size=24).map("\n".join), max_size=4))
def test_lines_and_annotations_are_ungoliants(values: list[str]) -> None:
    check(values)


def test_a_menu_around_the_text_is_cut_and_a_page_of_menus_goes() -> None:
    check([f"Home\nAbout\n{LONG}\nand\n{LONG}\nImprint\n", "Home\nAbout\n" * 30, "", LONG])


def test_three_fifths_of_the_characters_in_long_lines_are_enough() -> None:
    long, short = "a" * 120, "b" * 80
    for last, rule in (("b" * 80, []), ("b" * 81, ["short_lines"])):
        assert rules(Oscar(), "\n".join([long, short, last, long])) == rule
    edges = "\n".join(["a" * 101, "b" * 100, "a" * 101])  # 100 are no long line, and count as one
    docs = Oscar().apply(documents({"text": [edges]}).within("oscar"))
    assert docs.table["oscar.long_share"].to_pylist() == [1.0]


def rules(step: Oscar, text: str) -> list[Any]:
    done = step.apply(documents({"id": ["a"], "text": [text]}).within("oscar"))
    return done.split()[1]["rule"].to_pylist()


def test_any_annotation_may_drop() -> None:
    assert rules(Oscar(), LONG) == []
    assert rules(Oscar(drop=("tiny",)), LONG) == ["tiny"]
    assert rules(Oscar(drop=("tiny+noisy", "header")), LONG) == []
    with pytest.raises(ValidationError, match="is not an annotation: give tiny"):
        Oscar(drop=("adult",))
