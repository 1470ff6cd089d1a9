"""FineWeb's quality rules: the kernels find what the reference finds."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.filters.fineweb import FineWebQuality
from tests.curate.filters.filter_texts import JUNK, PROSE, applied, measured, real_texts, texts
from tests.curate.filters.reference_fineweb import fineweb

VARIANTS = ("datatrove", "paper")
LONG = "this line has more than thirty characters{}\n"


def check(values: list[str | None], variant: str) -> None:
    docs, rules = applied(FineWebQuality(variant=variant), values)
    measures = measured(docs, "fineweb_quality")
    for row, text in enumerate(values):
        want, fires = fineweb(text or "", variant)
        assert measures[row] == want, (variant, text)
        assert rules[row] == fires, (variant, text)


@pytest.mark.parametrize("variant", VARIANTS)
def test_kernels_find_what_the_reference_finds(variant: str) -> None:
    check([*JUNK, None, *real_texts()], variant)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(deadline=None, max_examples=80)
@given(st.lists(texts, max_size=4))
def test_kernels_find_what_the_reference_finds_in_any_text(variant: str, values: list[str]) -> None:
    check(values, variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_prose_is_kept(variant: str) -> None:
    assert applied(FineWebQuality(variant=variant), [PROSE])[1] == [set()]


def numbered(count: int, form: str) -> str:
    return "".join(form.format(f" {i:04}") for i in range(count))


def test_end_marks_at_the_limit() -> None:
    with_mark = LONG.replace("\n", ".\n")
    at_limit = numbered(88, LONG) + numbered(12, with_mark)  # 0.12
    below = numbered(89, LONG) + numbered(12, with_mark)
    assert [("end_marks" in r) for r in applied(FineWebQuality(), [at_limit, below])[1]] == [
        False,
        True,
    ]
    # The paper drops at its limits, DataTrove beyond them.
    assert "end_marks" in applied(FineWebQuality(variant="paper"), [at_limit])[1][0]


def test_short_lines_at_the_limit_and_what_is_short() -> None:
    text = numbered(33, LONG) + numbered(67, "{}" + "é" * 25 + "\n")  # lines of 30 characters
    more = text + "x\n"
    assert [("short_lines" in r) for r in applied(FineWebQuality(), [text, more])[1]] == [
        False,
        True,
    ]
    paper = FineWebQuality(variant="paper")
    assert "short_lines" not in applied(paper, [text])[1][0]  # 30 is not below 30
    shorter = numbered(33, LONG) + numbered(67, "{}" + "é" * 24 + "\n")
    assert "short_lines" in applied(paper, [shorter])[1][0]


def test_copied_characters_at_the_limit() -> None:
    text = "a.\n" + "a.\n" + "b" * 196  # 2 of 200 characters
    more = "a.\n" + "a.\n" + "b" * 195
    marked = [("duplicate_line_chars" in r) for r in applied(FineWebQuality(), [text, more])[1]]
    assert marked == [False, True]
    tenth = "a.\n" + "a.\n" + "b" * 16  # 2 of 20
    paper = FineWebQuality(variant="paper")
    assert "duplicate_line_chars" not in applied(paper, [text])[1][0]
    assert "duplicate_line_chars" in applied(paper, [tenth])[1][0]


def test_a_limit_of_zero_is_not_no_limit() -> None:
    text = "a.\na.\n" + "b" * 5000
    marked = [applied(FineWebQuality(max_duplicate_chars=most), [text])[1] for most in (0, None)]
    assert ["duplicate_line_chars" in rules for (rules,) in marked] == [True, False]


def test_newlines_at_the_limit() -> None:
    text = "one two three four five\n\n\nsix seven eight nine ten"  # 3 of 10
    marked = applied(FineWebQuality(), [text, text + "\n"])[1]
    assert [("newlines" in r) for r in marked] == [False, True]
    assert "newlines" not in applied(FineWebQuality(variant="paper"), [text + "\n\n"])[1][0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_columns_are_typed_and_empty_batches_pass(variant: str) -> None:
    for values in ([], [None], [PROSE]):
        docs, _ = applied(FineWebQuality(variant=variant), values)
        for name in docs.table.column_names:
            if name.startswith("fineweb_quality."):
                counts = name == "fineweb_quality.lines"
                kind = docs.table.schema.field(name).type
                assert kind == (pa.int32() if counts else pa.float64()), name
        docs.split()
