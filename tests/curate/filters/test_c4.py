"""C4: the kernels decide as the plain reference does, and every cut is on record."""

from __future__ import annotations

import io
import json
import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.documents.documents import Documents, documents
from curate.filters.c4 import C4
from tests.curate.filters.reference_c4 import clean_page
from tests.curate.replayed_edits import replayed

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[4] / "shared"))
GOOD = "The cat sat on the mat. The dog sat on the rug. The bird sat in the tree."

# Whatever C4 looks for, and what a byte kernel could get wrong beside it.
PIECES = [
    *("cookie policy", "Privacy Policy", "terms of use", "TERMS OF USE", "uses cookies"),
    *("use of cookies", "use cookies", "coo\u212aie policy", "use coo\u212aies", "\u212a", "cook"),
    *("javascript", "JavaScript", "javascrİpt", "java script", "lorem ipsum", "Lorem Ipsum"),
    *("lorem", "{", "}", "[", "]", "[edit]", "[citation needed]", "[citation", "[Edit]"),
    *("[1]", "[]", "[123", "[١٢]", "[٣", "[𝟜]", "[1a]", "[[1]2]", "[²]"),
    *(".", "...", "..", "?", "!", '"', "'", "”", "’", "»", "…", '."', '?"', ")", "。", "！", "？"),
    *(" ", "  ", "\t", "\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f"),
    *("\x85", "\u2028", "\u2029", "\xa0", "\u3000", "\u1680", "\u2009", "\u202f", "\u205f"),
    *("\x00", "\ufeff", "\u200b", "é", "Ü", "ß", "日本語", "漢字です。", "ไทย", "🙂", "\U0010ffff"),
    *("word", "Mr.", "e.g.", "U.S.", "J.", "I.", "etc.", "(St.", "a", "The", "one two three four"),
    *("x" * 999, "x" * 1000, "x" * 1001, "é" * 1000, "é" * 1001),
    *("This line is a sentence.", "It has five words here.\n", GOOD, "\n" + GOOD + "\n"),
]
DEFAULT = C4()
STEPS = [
    DEFAULT,
    C4(min_sentences=0),
    C4(min_sentences=1, min_words_per_line=1, max_word_chars=6),
    C4(min_sentences=1, min_words_per_line=2, require_end_mark=False, max_page_chars=60),
]


def check(texts: list[str | None], step: C4 = DEFAULT, batch: Documents | None = None) -> int:
    """Compares kernel and reference on every text; returns how many are kept."""
    ids = [str(i) for i in range(len(texts))]
    docs = step.apply((batch or documents({"id": ids, "text": texts})).within("c4"))
    kept_table, rejected_table = docs.split()
    kept = {row["id"]: row for row in kept_table.to_pylist()}
    rejected = {row["id"]: row for row in rejected_table.to_pylist()}
    assert len(kept) + len(rejected) == len(texts)
    for name, text in zip(ids, texts, strict=True):
        want = clean_page(text or "", step)
        row = kept.get(name) or rejected[name]
        assert (row["c4.lines"], row["c4.lines_kept"]) == (want.lines, want.lines_kept), text
        assert row["c4.sentences"] == want.sentences, text
        reasons = [r["rule"] for r in rejected[name]["reasons"]] if name in rejected else []
        assert len(reasons) == len(set(reasons)) and set(reasons) == want.reasons, text
        if name in rejected:
            assert row["text"] == text and row["rule"] == reasons[0]
        else:
            assert row["text"] == want.text, text
            assert replayed(text or "", row.get("edits")) == want.text, text
    return len(kept)


def test_the_papers_text_asks_for_five_sentences_and_three_words():
    page = "Cats sat down. " * 3 + "\nDogs sat down.\nBirds fly.\n"
    assert C4().min_sentences == 3 and C4().max_page_chars == 190_000
    paper = C4(variant="paper")
    assert (paper.min_sentences, paper.min_words_per_line) == (5, 3)
    assert check([page, page + "They sing well.", "{" + page], paper) == 1
    assert C4(variant="paper", min_sentences=2).min_sentences == 2
    assert check(["The cat sat. " * 20_000], paper) == 1 and check(["The cat sat. " * 20_000]) == 0


@settings(max_examples=400, deadline=None)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=25), max_size=6))
@pytest.mark.parametrize("step", STEPS)
def test_kernel_and_reference_agree_on_any_mixture(step, pages):
    check(["".join(page) for page in pages], step)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join), max_size=6))
@pytest.mark.parametrize("step", STEPS)
def test_kernel_and_reference_agree_on_words_with_spaces(step, pages):
    check(pages, step)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=200), max_size=5))
def test_kernel_and_reference_agree_on_any_text(pages):
    check(pages, C4(min_sentences=0, min_words_per_line=0))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=12), max_size=4))
def test_without_any_line_rule_the_page_is_still_stripped(pages):
    step = C4(min_sentences=0, min_words_per_line=0, require_end_mark=False)
    check([" ".join(page) for page in pages], step)


def real_texts(name: str, size: int, count: int) -> list[str]:
    path = SHARED / "corpora" / "longtext" / name
    if not path.exists():
        pytest.skip(f"no {path}; set LLMCURATE_SHARED")
    pieces: list[str] = []
    with path.open("rb") as file:
        for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8"):
            text = json.loads(line)["text"]
            pieces += [text[i : i + size] for i in range(0, min(len(text), 20 * size), size)]
            if len(pieces) >= count:
                break
    return pieces[:count]


@pytest.mark.parametrize("name", ["en-novels", "en-peps", "fr-novels", "ja-aozora", "zh-modern"])
def test_kernel_and_reference_agree_on_mutated_real_text(name):
    texts = real_texts(f"{name}.jsonl.zst", 3000, 200)
    draw = random.Random(name)
    mutated = []
    for text in texts:
        parts = list(text)
        for _ in range(draw.randrange(12)):
            parts.insert(draw.randrange(len(parts) + 1), draw.choice(PIECES))
        mutated.append("".join(parts))
    kept = 0
    for step in STEPS:
        check(texts, step)
        kept += check(mutated, step)
    assert kept >= 50  # the mutations leave pages to compare


def test_page_collects_every_reason():
    text = "The lorem ipsum of this page.\nA function is { here today.\n" + "x " * 95_000
    table = C4().apply(documents({"id": ["a"], "text": [text]}).within("c4")).split()[1]
    reasons = table["reasons"].to_pylist()[0]
    assert [r["rule"] for r in reasons] == [
        "page_length",
        "lorem_ipsum",
        "curly_bracket",
        "few_sentences",
    ]
    assert reasons[0] == {
        "step": "c4",
        "rule": "page_length",
        "value": float(len(text)),
        "threshold": 190_000.0,
        "detail": None,
    }
    assert table["text"].to_pylist() == [text]


def test_page_length_counts_characters_and_190_000_are_allowed():
    line = "é" * 7 + " and four more words. "
    text = (line * 10_000)[: 190_000 - len(GOOD) - 1].rstrip()
    text = GOOD + "\n" * (190_000 - len(GOOD) - len(text)) + text
    assert len(text) == 190_000
    assert check([text, text + "."]) == 1


def test_javascript_hides_a_curly_bracket_and_a_short_line_hides_lorem_ipsum():
    text = f"Please enable JavaScript in your {{browser}}.\nlorem ipsum dolor.\n{GOOD}"
    assert check([text]) == 1


def test_curly_bracket_before_policy():
    assert check([f"Our cookie policy is in {{this}} box.\n{GOOD}"]) == 0


def test_empty_batch():
    assert check([]) == 0
    table = C4().apply(documents({"text": pa.array([], pa.large_string())}).within("c4"))
    assert len(table) == 0


def test_null_texts_are_empty_pages():
    assert check([None, GOOD, None, "", GOOD, None]) == 2
    assert check([None, GOOD], C4(min_sentences=0)) == 1


def test_slice_of_a_larger_batch():
    texts = [f"Page {i} is here for you.\n{GOOD}\nno mark [1]" for i in range(9)]
    whole = documents({"id": [str(i) for i in range(9)], "text": texts})
    table = whole.table.slice(3, 4).set_column(0, "id", pa.array(list("0123")))
    assert check(texts[3:7], batch=Documents(table)) == 4


def test_edits_name_the_rule_of_every_cut():
    lines = [
        "Menu",
        "Read our privacy policy right now.",
        "He said so.[12]",
        GOOD + "[edit]",
        "end",
    ]
    docs = C4(min_words_per_line=3).apply(documents({"text": ["\n".join(lines)]}).within("c4"))
    edits = docs.split()[0]["edits"].to_pylist()[0]
    assert [e["rule"] for e in edits] == [
        "no_end_mark",
        "policy",
        "citation",
        "citation",  # with the line end behind it
        "no_end_mark",
    ]
    assert docs.text.to_pylist() == ["He said so.\n" + GOOD]


def test_decisions_do_not_depend_on_the_batch():
    texts = ["\n".join([GOOD, p, GOOD]) for p in PIECES]
    whole = C4().apply(documents({"text": texts}).within("c4"))
    single = [C4().apply(documents({"text": [t]}).within("c4")) for t in texts]
    assert whole.text.to_pylist() == [d.text.to_pylist()[0] for d in single]
    assert np.flatnonzero(whole.marked()).tolist() == [
        i for i, d in enumerate(single) if d.marked()[0]
    ]


THAI_LINES = "\n".join(
    f"รัฐบาลประกาศว่าจะให้ความช่วยเหลือแก่ประชาชนที่ได้รับผลกระทบจากน้ำท่วมในหลายจังหวัดครั้งที่ {n}"
    for n in range(4)
)
GERMAN = "„Wir haben gestern lange beraten.“\nEr schwieg und ging weg.\n»Und was kam dabei heraus?«"
HINDI = "सरकार ने आज एक नई योजना की घोषणा की है। यह योजना गरीबों के लिए है। लोग खुश हैं।"


@pytest.mark.parametrize(
    ("lang", "text"),
    [
        ("th", THAI_LINES),
        ("hi", HINDI),
        ("zh", "政府在新闻发布会上宣布了关于经济发展的新政策。" * 3),
        ("de", GERMAN),
    ],
)  # fmt: skip
def test_lines_end_in_the_marks_of_their_language(lang: str, text: str) -> None:
    docs = documents({"text": [text], "lang": [lang]}).within("c4")
    kept, _ = C4().apply(docs).split()
    assert kept["text"].to_pylist() == [text]
    assert C4(profile="none").apply(docs).marked().all() or lang == "de"


def test_what_english_lines_end_in_does_not_change_with_other_languages_beside_them() -> None:
    english = (
        "One line that ends.\nA line without\nIs this the third one? It is.\nAnd one more line."
    )
    docs = documents({"text": [english, THAI_LINES, english], "lang": ["en", "th", None]})
    texts = C4(min_words_per_line=3).apply(docs.within("c4")).text.to_pylist()
    assert (
        texts[0] == texts[2] == english.replace("A line without\n", "") and texts[1] == THAI_LINES
    )
