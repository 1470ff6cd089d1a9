"""Lexical features of blocks: tokens, title words, words of other prose, the heading above."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.extract.blocks import look_at
from curate.extract.inputs import INPUTS, STEM, tokens_of
from tests.callable_kernels import callable_kernel

LETTERS = "aBzÉéñΑαΩωАаЯя09一二三かナกขคက .,-。！\n"
TITLE = "A walk along the old canal"
PROSE = (
    "We went along the canal in the morning, and the old locks were open, as they are in May.",
    "The locks of the canal were built by hand, and boats still pass them every single morning.",
    "Along the water the old mills stand empty, but the canal keeper still counts every boat.",
)
PAGE = (
    f"<title>{TITLE} | Example</title><nav><a href=/>Home</a></nav><article><h1>{TITLE}</h1>"
    + "".join(f"<p>{text}</p>" for text in PROSE)
    + "</article><section><h2>More stories</h2><ul>"
    + "<li><a href=/1>Parliament votes on new budget rules</a>"
    + "<li><a href=/2>Striker leaves club after eight years</a></ul></section>"
)


def tokens(text: str) -> np.ndarray:
    data = np.frombuffer(text.encode(), np.uint8)
    out = np.zeros(len(data) + 1, np.uint64)
    return out[: callable_kernel(tokens_of)(data, 0, len(data), out)]


def plainly(text: str) -> list[str]:
    """The same tokens as strings, from the docstrings."""
    found: list[str] = []
    for part in re.findall(r"[一二三かナ]+|[กขคက]+|[^\W一二三かナกขคက]+", text):
        if re.match("[一二三かナ]", part):
            found += [part[k : k + 2] for k in range(len(part) - 1)]
        elif re.match("[กขคက]", part):
            found += [part[k : k + 3] for k in range(len(part) - 2)]
        elif len(part) > 1:
            found.append(part.lower()[:STEM])
    return found


def value(page: str, name: str) -> dict[str, float]:
    """An input of each block, by its text."""
    seen = look_at(page)
    column = seen.rows[:, INPUTS.index(name)].tolist()
    return dict(zip(seen.texts, column, strict=True))


@given(st.text(LETTERS, max_size=30))
def test_two_tokens_are_equal_where_their_letters_are(text: str) -> None:
    found, expected = tokens(text).tolist(), plainly(text)
    assert len(found) == len(expected)
    assert len(set(zip(found, expected, strict=True))) == len(set(found)) == len(set(expected))


@pytest.mark.parametrize(
    ("one", "other"),
    [("Kanałowy", "kanałowego"), ("МОРСКАЯ", "морская"), ("ÉTÉ", "été"), ("ΝΕΡΟ", "νερο")],
)
def test_forms_of_a_word_are_one_token(one: str, other: str) -> None:
    assert tokens(one).tolist() == tokens(other).tolist()


def test_the_headline_has_the_title_and_a_teaser_has_not() -> None:
    share, covered = value(PAGE, "title share"), value(PAGE, "title covered")
    assert share[TITLE] == 1 and covered[TITLE] > 0.8
    assert share["Striker leaves club after eight years"] == 0


def test_prose_shares_its_words_and_teasers_do_not() -> None:
    shared = value(PAGE, "in best prose")
    teasers = [shared[text] for text in shared if "Striker" in text or "Parliament" in text]
    assert min(shared[text] for text in PROSE) > 2 * max(teasers)


def test_no_block_counts_its_own_words_as_other_prose() -> None:
    assert value(f"<p>{PROSE[0]}</p>", "in prose")[PROSE[0]] == 0


def test_equal_blocks_are_counted_wherever_they_stand() -> None:
    page = "<div><b>Read more</b></div><p>Once only.</p><ul><li>Read more<li>Read more</ul>"
    equal = look_at(page).rows[:, INPUTS.index("log equal blocks")]
    assert equal.tolist() == pytest.approx([np.log1p(2) / 5, 0, np.log1p(2) / 5, np.log1p(2) / 5])


def test_a_section_goes_from_heading_to_heading_and_headings_in_a_row_are_one() -> None:
    page = "<p>Lead.<h1>One</h1><h2>Below</h2><p>Text.<p>More.<h2>Two</h2><p>End."
    seen = look_at(page)
    sections = dict(zip(seen.texts, seen.groups[6].tolist(), strict=True))
    assert sections["One"] == sections["Below"] == sections["Text."] == sections["More."]
    assert len({sections["Lead."], sections["One"], sections["Two"]}) == 3
    assert sections["Two"] == sections["End."]


def test_the_nearest_prose_is_known_on_both_sides() -> None:
    before = value(PAGE, "log blocks behind prose")
    behind = value(PAGE, "log blocks before prose")
    assert before["Home"] == 2 and behind["Home"] == pytest.approx(np.log1p(2) / 5)
    assert behind["More stories"] == 2 and before["More stories"] == pytest.approx(np.log1p(1) / 5)


@pytest.mark.parametrize("text", ["2012-01-17", "17.1.12", "2012年1月17日", "8:11/9"])
def test_dates_and_times_are_seen_by_their_digits(text: str) -> None:
    dates = value(f"<p>On {text} it rained.<p>It was 17 then.", "log dates")
    assert dates[f"On {text} it rained."] > dates["It was 17 then."] == 0
