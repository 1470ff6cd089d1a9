"""mC4's paragraph rule: the three longest lines have 200 characters."""

from __future__ import annotations

import heapq

from hypothesis import given, settings
from hypothesis import strategies as st

from curate.filters.c4 import C4Paragraphs
from tests.curate.filters.filter_texts import JUNK, PROSE, applied, real_texts, texts


def keeps(text: str, number: int, chars: int) -> bool:
    """The rule as mC4's code has it."""
    sizes = [len(line) for line in text.split("\n")]
    return len(sizes) >= number and all(n >= chars for n in heapq.nlargest(number, sizes))


def check(values: list[str | None], number: int = 3, chars: int = 200) -> int:
    _, rules = applied(C4Paragraphs(min_paragraphs=number, min_chars=chars), values)
    want = [set() if keeps(v or "", number, chars) else {"few_paragraphs"} for v in values]
    assert rules == want
    return sum(not r for r in rules)


def test_decisions_are_those_of_the_reference():
    assert check([*JUNK, None, PROSE * 3, "\n".join([PROSE.strip()] * 2), *real_texts()]) > 0
    check([*JUNK, *real_texts()], 2, 30)


@settings(deadline=None, max_examples=100)
@given(st.lists(texts, max_size=4), st.integers(0, 4), st.integers(0, 40))
def test_decisions_are_those_of_the_reference_in_any_text(values, number, chars):
    check(values, number, chars)


def test_characters_count_and_not_bytes_and_the_value_is_on_record():
    enough, short = "\n".join(["é" * 200] * 3), "\n".join(["é" * 200, "é" * 199, "é" * 200])
    docs, rules = applied(C4Paragraphs(), [enough, short])
    assert rules == [set(), {"few_paragraphs"}]
    row = docs.split()[1].to_pylist()[0]
    assert (row["value"], row["threshold"], row["c4_paragraphs.paragraphs"]) == (2.0, 3.0, 2)
