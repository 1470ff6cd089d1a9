"""Texts edited in several passes: the recorded edits refer to the input text."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from curate.documents.documents import documents
from curate.documents.passes import edited_in_passes
from tests.curate.replayed_edits import replayed

PASSES = [
    (0, re.compile("a+"), lambda m: "é" * len(m[0])),
    (1, re.compile("éb"), lambda m: ""),
    (1, re.compile("c"), lambda m: "ca"),
]


@given(st.lists(st.none() | st.text("abcé漢😀", max_size=9), min_size=1))
def test_edits_of_the_text_as_given_make_what_the_passes_left(texts: list[str | None]) -> None:
    docs = documents({"text": texts}).within("s")
    rows = range(len(texts))
    for text, row in zip(
        texts, edited_in_passes(docs, rows, PASSES, ("x", "y")).split()[0].to_pylist(), strict=True
    ):
        if text is None:
            assert row["text"] is None
            continue
        expected = text.replace("a", "é").replace("éb", "").replace("c", "ca")
        assert replayed(text, row.get("edits") or []) == row["text"] == expected


def test_an_edit_has_the_rule_that_took_its_first_character() -> None:
    docs = edited_in_passes(documents({"text": ["xaab c"]}).within("s"), [0], PASSES, ("x", "y"))
    (row,) = docs.split()[0].to_pylist()
    edits = [(e["rule"], e["start"], e["end"], e["replacement"]) for e in row["edits"]]
    assert edits == [("x", 1, 4, "é"), ("y", 5, 6, "ca")]
