"""Document length: what is counted, and what the limits mean."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from curate.documents.documents import documents
from curate.filters.length import DocumentLength
from tests.curate.filters.filter_texts import JUNK, applied, texts

MIXED = "Zwei Wörter，三個字 ไทย"


def counts(values: list[str | None], **options) -> list[tuple[int, int, int]]:
    """(words, chars, bytes) of every text."""
    table = applied(DocumentLength(**options), values)[0].table
    columns = [table[f"document_length.{n}"].to_pylist() for n in ("words", "chars", "bytes")]
    return list(zip(*columns, strict=True))


@settings(deadline=None, max_examples=150)
@given(st.lists(texts, max_size=5))
def test_counts_are_those_of_python(values: list[str]) -> None:
    want = [(len(t.split()), len(t), len(t.encode())) for t in values]
    assert counts(values) == want


def test_junk_and_null_texts_are_counted() -> None:
    assert counts([*JUNK, None])[-1] == (0, 0, 0)


def test_unicode_words_count_scripts_without_spaces_by_cluster() -> None:
    assert counts([MIXED])[0][0] == 3  # Zwei, Wörter，三個字, ไทย
    assert counts([MIXED], words="unicode")[0][0] == 2 + 3 + 3
    assert counts(["don't stop"], words="unicode")[0][0] == 3  # runs of letters


@pytest.mark.parametrize(
    ("lang", "text", "number"),
    [
        ("zh", "我们今天在学校学习中国历史。", 13 / 1.7),
        ("ja", "今日は学校で歴史を学びます。", 13 / 1.7),
        ("th", "วันนี้เราไปโรงเรียน 2 ครั้ง", 18 / 4.0 + 1),
        ("yue-HK", "我哋今日 learn 歷史", 6 / 1.7 + 1),
        ("en", "three words here", 3),
    ],
)
def test_words_of_languages_without_spaces_are_counted_by_their_letters(
    lang: str, text: str, number: float
) -> None:
    step = DocumentLength(words="auto" if lang == "en" else "estimate")
    docs = step.apply(documents({"text": [text], "lang": [lang]}).within(step.name))
    assert docs.table["document_length.words"].to_pylist() == [round(number)]
    plain = DocumentLength(words="split")
    docs = plain.apply(documents({"text": [text], "lang": [lang]}).within(step.name))
    assert docs.table["document_length.words"].to_pylist() == [len(text.split())]


@pytest.mark.parametrize(("unit", "size"), [("words", 3), ("chars", 15), ("bytes", 16)])
def test_values_equal_to_the_limits_are_kept(unit: str, size: int) -> None:
    text = "über drei Worte"
    for low, high, rules in (
        (size, size, set()),
        (size + 1, None, {"too_short"}),
        (None, size - 1, {"too_long"}),
        (None, None, set()),
    ):
        assert applied(DocumentLength(unit=unit, min=low, max=high), [text])[1] == [rules]


def test_the_reason_has_value_threshold_and_unit() -> None:
    docs, _ = applied(DocumentLength(min=5), ["too few"])
    reason = docs.split()[1]["reasons"].to_pylist()[0][0]
    assert reason == {
        "step": "document_length",
        "rule": "too_short",
        "value": 2.0,
        "threshold": 5.0,
        "detail": "words",
    }


def test_limits_that_keep_nothing_are_refused() -> None:
    with pytest.raises(ValidationError, match="nothing would be kept"):
        DocumentLength(min=5, max=4)


def test_without_a_limit_the_report_says_so() -> None:
    assert "no limit was given" in DocumentLength().notes()[0]
    assert DocumentLength(min=0).notes() == []


def test_an_empty_batch() -> None:
    assert len(applied(DocumentLength(min=1), [])[0]) == 0
