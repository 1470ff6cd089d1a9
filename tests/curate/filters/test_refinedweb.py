"""RefinedWeb lines: kernels decide as the plain reference does, and every cut is on record."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curate.documents.documents import documents
from curate.filters.refinedweb import RefinedWebLines
from tests.curate.filters.filter_texts import JUNK, PROSE, real_texts, texts
from tests.curate.filters.reference_refinedweb import dclm, dclm_words
from tests.curate.replayed_edits import replayed

PIECES = [
    *(
        "3 likes",
        "1 like",
        "2,5K Comments",
        "(10 views)",
        "7 views.",
        "½ likes",
        "٣ likes",
        "3likes",
    ),
    *("3.1 b  shares!", "4 liKes", "5 ſhares", "12 345", "12345", "²³", "1", "2024-01-01", "x1"),
    *("Sign-in", "SİGN-IN now", "sign-in to read", "ſign-ın", "xsign-in", "items in cart", "Items"),
    *("3 ITEMS IN CART", "items in cartitems in cart", "Read more...", "Read more", "read more of"),
    *(
        "read moré…",
        "Read more…日本",
        "MENU BAR",
        "Mixed CASE LINE",
        "ÀÉ ö",
        "Ⅷ Ⅸ",
        "word",
        "two words",
    ),
    *(" ", "  ", "\n", "\n\n", " \n ", "\t", "\r", "\x85", "\x00", "\u3000", "\x1c", "é", "_", "."),
    *("one two three four five six seven eight nine", "This is a line of plain and simple words. "),
]
pages = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
lines = st.lists(st.lists(st.sampled_from(PIECES), max_size=4).map(" ".join), max_size=12).map(
    "\n".join
)


def check(values: list[str | None], most: float = 0.05) -> int:
    """Compares kernel and reference; returns how many are kept."""
    ids = [str(i) for i in range(len(values))]
    step = RefinedWebLines(max_removed_words=most)
    docs = step.apply(documents({"id": ids, "text": values}).within(step.name))
    kept, rejected = (t.to_pylist() for t in docs.split())
    by_id = {row["id"]: row for row in (*kept, *rejected)}
    for name, text in zip(ids, values, strict=True):
        want, before, gone = dclm(text or "")
        row = by_id[name]
        assert row["refinedweb_lines.words"] == before, text
        share = gone / before if before else 0
        assert row["refinedweb_lines.removed_words"] == pytest.approx(share, abs=1e-12), text
        reasons = {r["rule"] for r in row.get("reasons") or []}
        expected = {"empty"} if before == 0 else {"removed_words"} if share > most else set()
        if before and share <= most and not want.strip():
            expected = {"nothing_left"}
        assert reasons == expected, text
        if reasons:
            assert row["text"] == text
        else:
            assert row["text"] == want, text
            assert replayed(text or "", row.get("edits")) == want, text
    return len(kept)


@settings(max_examples=300, deadline=None)
@given(st.lists(pages | lines | texts, max_size=5))
@example(["0 :\n items IN CART0"])
def test_kernels_decide_as_the_reference_on_any_mixture(values):
    check(values, most=9)


def test_kernels_decide_as_the_reference_on_real_text_with_menus_in_it():
    draw = random.Random(3)
    mixed = []
    for text in real_texts():
        parts = text.split("\n")
        for _ in range(draw.randrange(6)):
            parts.insert(draw.randrange(len(parts) + 1), draw.choice(PIECES))
        mixed.append("\n".join(parts))
    check([*JUNK, None, *mixed])
    check(mixed, most=9)


def cut_rules(text: str) -> list[tuple[str, str]]:
    step = RefinedWebLines(max_removed_words=1)
    docs = step.apply(documents({"id": ["a"], "text": [text]}).within(step.name))
    data = text.encode()
    row = docs.split()[0].to_pylist()[0]
    return [(e["rule"], data[e["start"] : e["end"]].decode()) for e in row.get("edits") or []]


def test_every_cut_names_its_rule():
    text = PROSE + (
        "HOME ABOUT us\n123\n3 likes\nMenu\nSee 3 items in cart now\nThe rest of it. Read more...\n"
        "Sign-in here please"
    )
    assert cut_rules(text) == [
        ("uppercase", "HOME ABOUT us\n"),
        ("numeric", "123\n"),
        ("counter", "3 likes\n"),
        ("one_word", "Menu\n"),
        ("anywhere", " items in cart"),
        ("line_end", " Read more..."),
        ("line_start", "Sign-in "),
    ]


def test_periods_match_any_character_and_one_like_is_no_counter() -> None:
    body = PROSE * 3
    for line, cuts in (
        ("A word to read more of it", []),
        ("Here you may read more of", [("line_end", " read more of")]),
        ("1 like", []),
        ("12 345", []),
        ("A BC d", []),  # 3 of 6 characters
    ):
        assert cut_rules(f"{line}\n{body}".rstrip()) == cuts


def test_a_twentieth_of_the_words_is_allowed():
    body = " ".join(["word"] * 95)
    allowed, more = f"{body}\nA B C D E", f"{body[5:]}\nA B C D E"
    step = RefinedWebLines()
    docs = step.apply(documents({"text": [allowed, more]}).within(step.name))
    row = docs.split()[1].to_pylist()
    assert docs.marked().tolist() == [False, True]
    assert (row[0]["rule"], row[0]["threshold"]) == ("removed_words", 0.05)
    assert row[0]["value"] == pytest.approx(5 / 99)


def test_words_are_counted_as_fasttext_cuts_them():
    fasttext = pytest.importorskip("fasttext")
    for text in (*JUNK, *PIECES, PROSE, "a\x00b \x1c c\x85d\u3000e\n(f) é"):
        tokens = fasttext.FastText.tokenize(text)
        assert dclm_words(text) == sum(t[0].isalnum() for t in tokens)


def test_decisions_do_not_depend_on_the_batch_and_empty_batches_pass():
    values = [f"{PROSE}{p}\n{PROSE}" for p in PIECES]
    step = RefinedWebLines()
    whole = step.apply(documents({"text": values}).within(step.name))
    single = [step.apply(documents({"text": [v]}).within(step.name)) for v in values]
    assert whole.text.to_pylist() == [d.text[0].as_py() for d in single]
    for none in ([], [None]):
        step.apply(documents({"text": none}).within(step.name)).split()


@pytest.mark.parametrize(
    ("lang", "line"),
    [
        ("zh", "我们今天在学校学习中国历史。"),
        ("ja", "今日は学校で歴史を学びます。"),
        ("tha_Thai", "วันนี้เราไปโรงเรียนเพื่อเรียนประวัติศาสตร์"),
    ],
)
def test_a_line_without_spaces_is_no_single_word(lang: str, line: str) -> None:
    step = RefinedWebLines(words="estimate")
    text = "\n".join([line] * 40 + ["3 likes"])
    docs = step.apply(documents({"text": [text, text], "lang": [lang, None]}).within(step.name))
    kept, _ = docs.split()
    assert kept["text"].to_pylist() == ["\n".join([line] * 40)]
    assert docs.table["refinedweb_lines.lines_cut"].to_pylist() == [1, 41]
    assert docs.table["refinedweb_lines.words"].to_pylist()[0] > 40 * 5
