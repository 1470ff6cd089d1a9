"""Evaluation texts: how documents are drawn, and their overlap with a corpus."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from curate.dedup.decontaminate.windows import cut_windows
from curate.experiment.corpora import Corpus
from curate.experiment.evaluation import (
    EvalText,
    beginning,
    draw_text,
    excerpt,
    find_overlap,
    short_excerpts,
)
from llmcurate.base.errors import UsageError
from tests.curate.experiment.small_experiments import sentences, write

LONG = " ".join(f"word{n}" for n in range(40))


def test_documents_are_drawn_by_their_ids_whatever_their_order(tmp_path):
    rows = [{"id": f"d{n}", "text": sentences(n)} for n in range(30)]
    drawn = []
    for name, order in (("a", rows), ("b", rows[::-1])):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(map(json.dumps, order)))
        drawn.append(draw_text("news", str(path), 2000, 500))
    first, second = (text.documents["id"].to_pylist() for text in drawn)
    assert first == second and 2 <= len(first) < 30
    assert sum(len(text) for text in drawn[0].documents["text"].to_pylist()) <= 2000
    assert drawn[0].available == 30


def test_long_documents_are_scored_in_part_to_the_end_of_a_word():
    assert beginning("a short one", 100) == "a short one"
    assert beginning("one two three four", 15) == "one two three "
    assert beginning("\u00e9" * 9, 5) == "\u00e9" * 2  # no half of a character


@pytest.mark.parametrize(
    ("documents", "size", "most", "drawn", "longest"),
    [
        (60, 2000, 15_000, 50, 300),  # fifty excerpts
        (60, 100, 1_500, 15, 100),  # short documents whole
        (8, 2000, 8_000, 8, 1000),  # all of a few
        (60, 2000, 2_000, 10, 200),  # none too short to say anything
        (60, 2000, 1, 2, 200),
    ],
)
def test_a_small_byte_budget_takes_short_excerpts_of_many_documents(
    documents, size, most, drawn, longest
):
    table = pa.table({"id": list(range(documents)), "text": ["x" * size] * documents})
    cut = short_excerpts(EvalText("n", "p", table, documents, 0), most)
    assert [len(text) for text in cut.documents["text"].to_pylist()] == [longest] * drawn
    assert cut.documents["id"].to_pylist() == list(range(drawn))


@pytest.mark.parametrize("key", range(0, 400, 7))
def test_an_excerpt_is_of_whole_words_and_characters_from_anywhere(key):
    cut = excerpt(LONG, 60, key)
    assert set(cut.split()) <= set(LONG.split()) and 30 <= len(cut) <= 60
    thai = "\u0e01\u0e34" * 60  # without a space
    assert excerpt(thai, 60, key) in thai and 54 <= len(excerpt(thai, 60, key).encode()) <= 60
    assert excerpt("a short one", 60, key) == "a short one"


def test_two_documents_are_drawn_at_least(tmp_path):
    path = write(tmp_path / "a.jsonl", [sentences(n) for n in range(5)])
    assert len(draw_text("news", path, 1, 1000).documents) == 2
    single = write(tmp_path / "b.jsonl", ["a single document", " "])
    with pytest.raises(UsageError, match="has 1 document with text: give at least two"):
        draw_text("news", single, 100, 100)


def test_overlap_is_the_share_of_13_grams_in_any_case_and_punctuation(tmp_path):
    half = " ".join(LONG.upper().split()[:26]) + "!"
    text = draw_text("news", write(tmp_path / "e.jsonl", [LONG, sentences(1)]), 10_000, 5000)
    corpora = [
        Corpus("half", (write(tmp_path / "half.jsonl", [half, "other words"]),)),
        Corpus("none", (write(tmp_path / "none.jsonl", [" ".join(LONG.split()[:12])]),)),
    ]
    shares = find_overlap([text], corpora, {"half": "1", "none": "2"}, tmp_path)
    at = text.documents["text"].to_pylist().index(LONG)
    assert shares["half"]["news"][at] == pytest.approx((26 - 12) / (40 - 12))
    assert shares["half"]["news"][1 - at] == 0 and shares["none"]["news"] == [0, 0]


def test_overlap_is_computed_once_for_the_same_corpora_and_texts(tmp_path, monkeypatch):
    text = draw_text("news", write(tmp_path / "e.jsonl", [LONG, sentences(1)]), 10_000, 5000)
    corpora = [Corpus("a", (write(tmp_path / "a.jsonl", [LONG]),))]
    first = find_overlap([text], corpora, {"a": "1"}, tmp_path)
    computed = []

    def cut(*arguments):
        computed.append(arguments)
        return cut_windows(*arguments)

    monkeypatch.setattr("curate.dedup.decontaminate.windows.cut_windows", cut)
    assert find_overlap([text], corpora, {"a": "1"}, tmp_path) == first and not computed
    assert find_overlap([text], corpora, {"a": "2"}, tmp_path) == first and len(computed) == 1
