"""Measures of extracted pages: words, snippets, titles, authors, dates, intervals."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.extract.evaluate import (
    bootstrap,
    same_author,
    same_date,
    same_title,
    site_of,
    snippet_counts,
    snippet_scores,
    word_scores,
    words,
)

TEXTS = st.text("ab c\n", max_size=30)


def test_words_are_runs_of_letters_and_digits_in_lower_case() -> None:
    assert words("Größe, 3 Mills' wheel-house\n磨坊!") == [
        *("größe", "3", "mills", "wheel", "house", "磨坊"),
    ]


def test_words_are_counted_as_often_as_they_stand() -> None:
    ours, gold = Counter(words("a a b c")), Counter(words("a b b d"))
    assert word_scores(ours, gold) == (0.5, 0.5, 0.5)
    assert word_scores(Counter(words("a a a b")), Counter("ab"))[2] == pytest.approx(2 / 3)


def test_two_empty_texts_score_1_and_one_of_them_0() -> None:
    assert word_scores(Counter(), Counter())[2] == 1
    assert word_scores(Counter(), Counter("a")) == word_scores(Counter("a"), Counter()) == (0, 0, 0)


@given(TEXTS, TEXTS)
def test_f1_is_the_harmonic_mean_and_symmetric(ours: str, gold: str) -> None:
    a, b = Counter(words(ours)), Counter(words(gold))
    precision, recall, f1 = word_scores(a, b)
    assert (recall, precision, f1) == word_scores(b, a)
    assert 0 <= f1 <= 1 and (f1 == 1) == (a == b)
    if f1:
        assert f1 == pytest.approx(2 * precision * recall / (precision + recall))


def test_snippets_are_looked_up_whatever_white_space_and_hyphens_the_page_has() -> None:
    text = "The old\n mill\u00ads stand. Cafe\u0301. Menu"
    counts = snippet_counts(text, ["old mills", "Café", "wheel"], ["Menu", "Imprint"])
    assert counts == (2, 1, 1, 1)
    scores = snippet_scores(*counts)
    assert scores["precision"] == scores["recall"] == scores["f1"] == pytest.approx(2 / 3)
    assert scores["accuracy"] == 0.6
    assert snippet_scores(0, 0, 0, 0)["f1"] == 0


@pytest.mark.parametrize(
    ("ours", "gold", "right"),
    [
        ("The  “Old” Mill", 'the "old" mill', True),
        ("The Old Mill | River News", "The Old Mill", True),
        ("River News – The Old Mill", "The Old Mill", True),
        ("Mills: a history - Books - River News", "Mills: a history", True),
        ("The Old Mill", "The Old Mill | River News", False),
        ("River News", "The Old Mill", False),
        ("Old-Mill", "Old", False),
    ],
)
def test_a_title_is_right_with_the_name_of_its_site(ours: str, gold: str, right: bool) -> None:
    assert same_title(ours, gold) == right


@pytest.mark.parametrize(
    ("ours", "gold", "right"),
    [
        ("By Ada Lovelace", "ada lovelace", True),
        ("Bo Ek and Ada L.", "Ada L, Bo Ek", True),
        ("Ada Lovelace", "Ada Lovelace, Bo Ek", False),
        ("Byron Sand", "Byron Sand", True),
    ],
)
def test_authors_are_sets_of_names(ours: str, gold: str, right: bool) -> None:
    assert same_author(ours, gold) == right


def test_a_date_is_right_by_its_day_or_by_the_month_that_the_gold_has() -> None:
    when = datetime(2024, 5, 31, 23, 59, tzinfo=timezone.utc)
    assert same_date(when, "2024-05-31") and same_date(when, "2024-05")
    assert same_date(when, "2024-05-31T08:00:00Z") and not same_date(when, "2024-05-30")


def test_the_site_is_the_archived_host_without_www() -> None:
    assert site_of("https://www.Mill.test/a?b") == "mill.test"
    kept = "https://web.archive.org/web/2020/http://mill.test/x"
    assert site_of(kept) == "mill.test"
    assert site_of("no address") == "no address" and site_of("http://[x/") == "http://[x/"


def mean(totals: np.ndarray) -> np.ndarray:
    """Sums of (pages, score) to mean scores."""
    with np.errstate(invalid="ignore"):
        return totals[..., 1:] / totals[..., :1]


def test_an_interval_is_that_of_sites_and_the_same_every_time() -> None:
    draw = np.random.default_rng(1)
    scores = draw.random(400)
    sums = np.stack([np.ones(400), scores], -1)
    value, low, high = bootstrap(sums, mean)
    assert value[0] == pytest.approx(scores.mean())
    half = 1.96 * scores.std() / 20
    assert high[0] - low[0] == pytest.approx(2 * half, rel=0.15)
    again = bootstrap(sums, mean)
    assert [float(v[0]) for v in again] == [float(v[0]) for v in (value, low, high)]


def test_repeating_the_pages_of_a_site_does_not_narrow_the_interval() -> None:
    sites = np.random.default_rng(2).random(50)
    alone = np.stack([np.ones(50), sites], -1)
    for a, b in zip(bootstrap(alone, mean), bootstrap(9 * alone, mean), strict=True):
        assert a == pytest.approx(b)


def test_one_site_has_no_interval_and_what_is_not_measured_no_value() -> None:
    assert np.isnan(bootstrap(np.array([[2.0, 1.0]]), mean)[1:]).all()
    assert all(np.isnan(v).all() for v in bootstrap(np.zeros((3, 2)), mean))
    assert [float(v[0]) for v in bootstrap(np.array([[1.0, 0], [1, 1]]), mean)] == [0.5, 0, 1]
