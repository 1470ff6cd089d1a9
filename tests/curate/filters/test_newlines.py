"""Runs of newlines end where the limit is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.filters.refinedweb import NewlineRuns
from tests.curate.filters.filter_texts import JUNK, applied


@settings(deadline=None)
@given(
    st.lists(st.text(st.sampled_from("\n\n\n\r é文a"), max_size=15), max_size=5), st.integers(1, 3)
)
def test_the_text_is_what_dclms_pattern_leaves(values: list[str], most: int) -> None:
    docs, rules = applied(NewlineRuns(most=most), values)
    wanted = [re.sub(f"(\n{{{most}}})\n+", r"\1", text) for text in values]
    assert docs.text.to_pylist() == wanted
    assert not any(rules)


def test_cuts_are_on_record_by_their_bytes() -> None:
    docs, _ = applied(NewlineRuns(), ["é\n\n\n\na\n\n\n", "a\n\nb"])
    (edit,) = docs.split()[0]["edits"].to_pylist()[:1]
    assert [(e["start"], e["end"], e["rule"]) for e in edit] == [
        (4, 6, "newline_run"),
        (9, 10, "newline_run"),
    ]
    assert docs.text.to_pylist() == ["é\n\na\n\n", "a\n\nb"]


@pytest.mark.parametrize("text", JUNK, ids=range(len(JUNK)))
def test_junk_is_left_as_it_is_but_for_newlines(text: str) -> None:
    (cleaned,) = applied(NewlineRuns(), [text])[0].text.to_pylist()
    assert cleaned.replace("\n", "") == text.replace("\n", "")
