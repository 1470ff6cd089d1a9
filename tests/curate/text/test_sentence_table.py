"""The sentence table holds what the counter counts, and between sentences is only white space."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.documents.documents import documents
from curate.text.sentences import count_sentences, sentences
from tests.callable_kernels import callable_kernel

PARTS = st.sampled_from(
    [
        "A b.",
        "Dr.",
        "e.g.",
        "No!",
        "Why?",
        '"So."',
        "x",
        "。",
        "日本。文",
        "（？",
        "\n",
        " ",
        "  ",
        "\x85",
    ]
)


def found(texts: list[str | None]) -> list[list[str]]:
    docs = documents({"text": texts})
    table = sentences(docs)
    data, _ = docs.buffers()
    pieces = [data[a:z].tobytes().decode() for a, z in zip(table.start, table.end, strict=True)]
    return [pieces[a:z] for a, z in zip(table.rows[:-1], table.rows[1:], strict=True)]


def test_sentences_are_cut_where_the_rules_say():
    text = "Dr. J. Low left. He came back! Why? e.g. for tea\nNext line 。後。x"
    assert found([text, None, " \n"]) == [
        ["Dr. J. Low left.", "He came back!", "Why?", "e.g. for tea", "Next line 。", "後。", "x"],
        [],
        [],
    ]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.lists(PARTS, max_size=20).map(" ".join) | st.text(max_size=40), max_size=4))
def test_the_table_holds_what_the_counter_counts(texts):
    for text, pieces in zip(texts, found(texts), strict=True):
        lines = [np.frombuffer(bytearray(line.encode()), np.uint8) for line in text.splitlines()]
        assert len(pieces) == sum(
            callable_kernel(count_sentences)(line, 0, len(line)) for line in lines
        )
        rest = text
        for piece in pieces:
            before, _, rest = rest.partition(piece)
            assert piece == piece.strip() != "" and not before.strip()
        assert not rest.strip()
