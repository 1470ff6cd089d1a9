"""ROOTS' rules: measures as its code counts them, limits by language."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.documents.documents import documents
from curate.lab.filters import roots
from curate.lab.filters.roots import (
    MOST_WORDS,
    PARAMETERS,
    SPECIAL,
    Roots,
    RootsWords,
    repeated_words,
    share_of,
    stripped,
    words_of,
)
from llmcurate.base.errors import UsageError
from tests.curate.filters.filter_texts import PROSE


def reference_chars(text: str, n: int) -> float:
    """filtering.py, compute_character_repetition_ratio."""
    freq: dict[str, int] = {}
    for i in range(len(text) - n + 1):
        freq[text[i : i + n]] = freq.get(text[i : i + n], 0) + 1
    if not freq:
        return 0
    times = sorted(freq.values(), reverse=True)
    most = min(int(np.sqrt(len(times))), len(times) - times.count(1))
    return sum(times[:most]) / sum(times)


def reference_words(words: list[str], n: int) -> float:
    """filtering.py, compute_word_repetition_ratio."""
    grams = [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]
    if not grams:
        return 0
    return sum(grams.count(g) for g in set(grams) if grams.count(g) > 1) / len(grams)


@settings(deadline=None)
@given(st.text(st.sampled_from("abé \n𝄞"), max_size=60), st.sampled_from(["zh", "en"]))
def test_repeated_characters_are_those_of_its_code(text: str, lang: str) -> None:
    docs = Roots(lang=lang).apply(documents({"text": [text]}).within("roots"))
    share = reference_chars(text.strip(), PARAMETERS[lang].ngram_chars)
    assert docs.table["roots.repeated_chars"].to_pylist() == [pytest.approx(share)]


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=30), st.sampled_from([5, 7]))
def test_repeated_words_are_those_of_its_code(words: list[str], n: int) -> None:
    assert repeated_words(words, n) == pytest.approx(reference_words(words, n))


def test_words_lose_special_characters_at_their_ends() -> None:
    assert words_of("«Don't», (it)\n\t--- 42 ☺Ünder☺", "fr") == ["don't", "it", "ünder"]
    assert words_of("un\u00a0mot\u3000là\u200b \x92et\x93", "fr") == ["un", "mot", "là", "et"]
    assert stripped("12345") == "" and words_of("天,地", "zh") == ["天", "地"]
    assert {"!", "7", " ", "€", "☺", "\U0001f600"} <= SPECIAL and not {"a", "é", "ก"} & SPECIAL


def test_pairs_count_where_words_are_not_divided_by_blanks() -> None:
    assert share_of(["xin", "chào"], frozenset({"xin chào"}), " ") == 0.5
    assert share_of(["xin", "chào"], frozenset({"xin chào"}), None) == 0
    assert share_of(["a"] * 3, frozenset({"a", "aa"}), "") == 1  # no more than all


def rules(step: Roots, text: str, lang: str) -> set[str]:
    docs = documents({"id": ["a"], "text": [text], "lang": [lang]})
    gone = step.apply(docs.within(step.name)).split()[1].to_pylist()
    return {r["rule"] for row in gone for r in row["reasons"]}


def test_each_language_has_its_limits() -> None:
    text = " ".join(f"word{chr(97 + i)}" for i in range(18))
    assert rules(Roots(), text, "en") == {"few_words"}  # 20 in English
    for lang in ("eng_Latn", "EN_us", "en-GB", "ENG"):
        assert rules(Roots(), text, lang) == {"few_words"}
    assert rules(Roots(), text, "ca_Latn") == set()  # 15 in Catalan
    assert rules(Roots(), text, "tlh") == set()  # 10 by default
    assert rules(Roots(lang="en"), "the river runs to the sea; " * 30, "tlh") >= {
        "repeated_words",
        "repeated_chars",
    }
    assert rules(Roots(), PROSE, "en") == set()
    assert rules(Roots(), "1 + 2 = 3; " * 3 + text, "eu") >= {"special_chars"}


def test_a_measure_at_its_limit_is_kept_and_one_beyond_is_dropped() -> None:
    p = PARAMETERS["zh"]
    limits = {
        "few_words": ("words", p.words, -1), "many_words": ("words", 10 * MOST_WORDS, 1),
        "repeated_chars": ("repeated_chars", p.chars, 0.001),
        "repeated_words": ("repeated_words", p.repeated, 0.001),
        "special_chars": ("special_chars", p.special, 0.001),
        "few_stop_words": ("stop_words", p.stop, -0.001),
        "flagged_words": ("flagged_words", p.flagged, 0.001),
    }  # fmt: skip
    for rule, (name, limit, step) in limits.items():
        values = {column: np.full(2, np.nan) for column, _, _ in limits.values()}
        values[name][:] = limit, limit + step
        docs = documents({"id": ["at", "beyond"], "text": ["", ""]}).within("roots")
        done = Roots()._drop_by_limits(docs, values, ["zh", "zh"])
        assert [(d.rule, d.rows.tolist()) for d in done.drops if len(d.rows)] == [(rule, [1])]


def test_the_most_words_are_ten_times_as_many_in_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roots, "MOST_WORDS", 30)
    for lang, word, most in (("en", "word ", 30), ("zh", "水", 300)):
        assert "many_words" not in rules(Roots(), word * most, lang)
        assert "many_words" in rules(Roots(), word * (most + 1), lang)


def test_lists_are_those_of_the_language(tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_text(
        "\n".join(
            "the and of it was to in as had one for long could or why that with who again".split()
        ),
        encoding="utf-8",
    )
    (tmp_path / "bad.txt").write_text("River\n", encoding="utf-8")
    step = Roots(stop_words=str(tmp_path / "{lang}.txt"), flagged_words=str(tmp_path / "bad.txt"))
    assert rules(step, PROSE, "en") == {"flagged_words"}
    assert rules(step, PROSE.replace("river", "stream"), "en") == set()
    assert rules(step, " ".join(f"word{chr(97 + i)}" for i in range(24)), "en") == {
        "few_stop_words"
    }
    assert rules(step, PROSE.replace("river", "stream"), "de") == set()  # no list: no rule
    with pytest.raises(UsageError, match="no list matches"):
        Roots(stop_words=str(tmp_path / "no-{lang}.txt")).resources()
    assert len(Roots().notes()) == 2 and len(step.resources()) == 2


def test_addresses_and_overlong_words_are_cut() -> None:
    text = "See http://a.b/c now\nor www.x.org, " + "x" * 26 + " " + "y" * 25 + "\nend href"
    docs = documents({"id": ["a"], "text": [text], "lang": ["en"]})
    done = RootsWords().apply(docs.within("roots_words"))
    assert done.text[0].as_py() == "See now\nor " + "y" * 25 + "\nend"
    other = documents({"id": ["a"], "text": [text], "lang": ["de"]})  # no language of its table
    assert RootsWords().apply(other.within("roots_words")).text[0].as_py() == text


def test_the_table_has_the_languages_of_the_source() -> None:
    assert set(PARAMETERS) == {"", *"ar bn ca en es eu fr hi id pt ur vi zh".split()}
