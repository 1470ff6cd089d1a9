"""Replacements are those of re.sub, recorded as edits."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from curate.documents.documents import documents
from curate.lab.filters.replace import Replace
from tests.curate.filters.filter_texts import JUNK, texts


def replaced(step: Replace, values: list[str | None]) -> list[str | None]:
    docs = documents({"id": [str(i) for i in range(len(values))], "text": values})
    result: list[str | None] = step.apply(docs.within(step.name)).text.to_pylist()
    return result


@given(
    st.lists(texts, max_size=4),
    st.sampled_from([r"\w+", r"(?s)(.)\1", r"\s*$", "", "é|the|\ufeff", r"(a)?b"]),
    st.sampled_from(["", "é", r"<\g<0>>"]),
)
def test_texts_are_those_of_re_sub(values: list[str], pattern: str, new: str) -> None:
    expected = [re.sub(pattern, new, text) for text in values]
    assert replaced(Replace(pattern=pattern, replacement=new), [*values]) == expected


def test_each_character_has_its_own_text() -> None:
    step = Replace(characters={"“": '"', "…": "...", "]": ""})
    assert replaced(step, ["“a]…", None]) == ['"a...', None]
    replaced(step, [*JUNK])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "give either a pattern or characters"),
        ({"pattern": "a", "characters": {"a": ""}}, "give either a pattern or characters"),
        ({"pattern": "(a"}, "is not a regular expression"),
        ({"pattern": "a", "replacement": r"\1"}, "invalid group reference"),
        ({"characters": {"ab": ""}}, "'ab' in characters is not one character"),
    ],
)
def test_a_mistake_says_what_to_do(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Replace(**settings)
