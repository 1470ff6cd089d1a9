"""Texts side by side: what only one of them has is marked, and no text takes long."""

from __future__ import annotations

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from llmcurate.base.pages.side_by_side import MOST_SHOWN, side_by_side, words_in_both

TEXTS = st.text("ab <&\n\u202e", max_size=60)


def test_missing_and_extra_words_are_marked() -> None:
    gold = "The old mill stands by the river.\nNobody works there any more."
    ours = "Menu\nThe old mill stands by the river."
    left, right = side_by_side(gold, ours)
    assert left.endswith("river.\n<del>Nobody works there any more.</del>")
    assert right == "<ins>Menu</ins>\nThe old mill stands by the river."


def test_rewrapped_lines_and_moved_passages_are_no_difference() -> None:
    a = "one two three four\nfive six seven eight"
    b = "five six seven\neight one two three four"
    assert "<" not in "".join(side_by_side(a, b))


def test_a_repeated_passage_is_extra_once() -> None:
    line = "the same five words again"
    assert side_by_side(line, f"{line}\n{line}")[1] == f"{line}\n<ins>{line}</ins>"


def test_short_lines_count_as_a_whole() -> None:
    assert words_in_both([["mill"], ["old", "wheel"]], [["mill"], ["old"]]) == [
        [True],
        [False, False],
    ]


def test_lines_in_both_are_left_out_but_the_first_and_the_last() -> None:
    same = "\n".join(f"line {n} has its own five words" for n in range(9))
    left, _ = side_by_side(f"{same}\ngone", same)
    assert left.count("\n") == 3 and "(7 lines in both)" in left


@given(TEXTS, TEXTS)
def test_everything_is_escaped(first: str, second: str) -> None:
    for side in side_by_side(first, second):
        bare = re.sub(r"</?(del|ins)>|<i class=note>|</i>|&(lt|gt|amp);", "", side)
        assert not set(bare) & set("<>&\u202e")


def test_a_gigantic_text_is_cut_and_takes_no_time() -> None:
    began = time.process_time()
    for text in ("a b " * 300_000, "x" * 900_000, "a\n" * 300_000):
        left, right = side_by_side(text, "b a " * 300_000)
        assert left.endswith("\u2026") or len(left) <= MOST_SHOWN + 100
        assert max(len(left), len(right)) < 3 * MOST_SHOWN
    assert time.process_time() - began < 20
