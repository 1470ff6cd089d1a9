"""Cutting: the new text is the old one without its spans, whatever the spans."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.documents.cutting import cut, cut_marked
from curate.documents.documents import Documents, documents
from curate.documents.edits import Spans
from tests.curate.replayed_edits import replayed

ROWS = st.lists(st.text(alphabet="ab c\n", max_size=12), max_size=5)


@settings(deadline=None, max_examples=100)
@given(ROWS, st.randoms(use_true_random=False))
def test_marked_bytes_go_and_are_on_record(texts, draw):
    docs = documents({"text": texts})
    size = sum(map(len, texts))
    mark = np.array([draw.choice((0, 0, 1, 2)) for _ in range(size)], np.uint8)
    rows = np.array([draw.random() < 0.8 for _ in texts], np.bool_)
    done = cut_marked(docs, mark, rows, ("one", "two"))
    offsets = np.cumsum([0, *map(len, texts)])
    edits = done.split()[0].to_pylist()
    for r, text in enumerate(texts):
        marks = mark[offsets[r] : offsets[r + 1]]
        want = "".join(c for c, m in zip(text, marks, strict=True) if not m) if rows[r] else text
        assert done.text[r].as_py() == want
        row_edits = edits[r].get("edits") or []
        assert replayed(text, row_edits) == want
        for e in row_edits:
            assert set(marks[e["start"] : e["end"]]) == {1 if e["rule"] == "one" else 2}


def test_replacements_take_the_place_of_their_spans_even_if_longer():
    texts = ["ab", "", "cd"]
    docs = Documents(documents({"text": ["zz", *texts]}).table.slice(1, 3))
    where = np.array([0, 2, 2]), np.array([1, 0, 2]), np.array([2, 0, 2])
    swaps = np.array([1, 1, 2])
    spans = Spans(*where, np.zeros(3, np.uint8), ("r",), swaps, ("", "é", "--"))
    assert cut(docs, spans).text.to_pylist() == ["aé", "", "écd--"]
